"""A person at the terminal inbox: presses keys at instants of the test's choice, and reads the screen."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from itertools import zip_longest
from typing import Any

import msgspec
from textual.events import Key
from textual.pilot import Pilot

from pml.core.approvals.record import Approval
from pml.screen.answers.denials import HOLD_S
from pml.screen.app import InboxApp
from pml.screen.inbox import Inbox
from pml.screen.keystrokes import Ticks
from pml.screen.live import Work
from tests.builders import PERSON
from tests.service.offices import Office

WIDE = (140, 40)
NARROW = (80, 24)
_LOOK_EVERY_S = 0.04  # each look draws the whole screen
_LOOKS = 500  # of one turn or more of the event loop each: bounded, and far more than anything takes


def unshowable(record: Approval) -> Approval:
    """Return the question as something that nobody foresaw has left it: no card can be made of it."""
    nothing: Any = None
    return msgspec.structs.replace(record, deciders=nothing)


def _words(text: str) -> str:
    return " ".join(text.split())


def _by_columns(screen: str) -> str:
    """Return the columns of the screen, each in one line."""
    rows = [row.split("│") for row in screen.splitlines()]
    columns = zip_longest(*rows, fillvalue="")
    return "\n".join(_words(" ".join(column)) for column in columns)


class SetTicks(Ticks):
    """Instants that pass when the test says so."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def of(self, pressed_at: float) -> float:
        return self.at


class Seat:
    """The inbox on a terminal, and the person before it."""

    def __init__(self, office: Office, pilot: Pilot[int], ticks: SetTicks, app: InboxApp) -> None:
        self.office = office
        self.pilot = pilot
        self.ticks = ticks
        self.app = app

    @property
    def inbox(self) -> Inbox:
        return self.app.inbox

    async def press(self, *keys: str) -> None:
        """Press keys with a second between them, as somebody who reads."""
        for key in keys:
            self.ticks.at += 1.0
            await self.burst(key)
        self.ticks.at += 1.0

    async def burst(self, *keys: str) -> None:
        """Press keys all at once, as a paste does that the terminal does not announce."""
        for key in keys:
            self.app.post_message(Key(key, key if len(key) == 1 else None))
        await self.turn()

    async def send_held(self) -> None:
        """Let pass the time in which a denial can be undone, once the key for it has arrived."""
        await self.until(lambda: self.inbox.strokes.held is None and not self.inbox.is_deciding)
        self.ticks.at += HOLD_S
        self.inbox.send_due()
        await self.until(lambda: not any(worker.group == "deny" for worker in self.app.workers))

    async def press_bare_escape(self) -> None:
        """Send the byte that is Escape, and the start of every arrow key."""
        self.app.post_message(Key("escape", "\x1b"))
        await self.turn()

    async def turn(self) -> None:
        """Let the screen do what it has to do; not until the processor is idle, which others keep busy."""
        await self.pilot.pause(0)
        handed_out = asyncio.ensure_future(self.app.keys.join())
        try:
            await self.until(lambda: handed_out.done() or self.app.crash is not None)
        finally:
            handed_out.cancel()

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(_LOOKS):
            if condition():
                return
            await self.pilot.pause(_LOOK_EVERY_S)
        raise AssertionError(f"it did not come about; the screen shows:\n{self.screen()}")

    async def shows(self, *texts: str) -> None:
        """Wait until these are shown, wherever a row ends: a folder's path may be long or short."""
        await self.until(lambda: all(_words(text) in _by_columns(self.screen()) for text in texts))

    async def settled(self) -> None:
        """Wait until the focused card is drawn, and until no key is held back any more or dropped."""
        await self.turn()
        await self.until(lambda: not self.inbox.is_listing)
        await self.until(lambda: self.inbox.strokes.held is None and not self.inbox.is_deciding)
        await self.until(lambda: self.inbox.stream.focused is None or self.inbox.card is not None)
        await self.turn()

    def screen(self) -> str:
        """Return all that the terminal shows, row by row."""
        width, height = self.app.size
        rows = self.app.screen._compositor.render_strips()  # pyright: ignore[reportPrivateUsage]
        return "\n".join(row.text[:width].rstrip() for row in rows[:height])

    def raw(self) -> str:
        """Return the text of every segment that is written to the terminal."""
        return "".join(
            segment.text
            for row in self.app.screen._compositor.render_strips()  # pyright: ignore[reportPrivateUsage]
            for segment in row
        )


@contextlib.asynccontextmanager
async def seated(
    office: Office,
    *,
    size: tuple[int, int] = WIDE,
    store_key: Callable[[tuple[str, str]], None] | None = None,
) -> AsyncGenerator[Seat]:
    """Open the inbox on the office's store, with what waits there in view."""
    ticks = SetTicks()

    async def keep(name: str, value: str) -> str:
        assert store_key is not None
        store_key((name, value))
        return f"stored {name}"

    work = Work(
        context=office.context,
        by=PERSON,
        who="ana",
        workspace=str(office.workspace),
        ticks=ticks,
        store_key=None if store_key is None else keep,
    )
    app = InboxApp(work)
    async with app.run_test(size=size) as pilot:
        seat = Seat(office, pilot, ticks, app)
        await seat.until(lambda: len(app.screen_stack) > 1)
        await seat.settled()
        ticks.at += 1.0
        yield seat
