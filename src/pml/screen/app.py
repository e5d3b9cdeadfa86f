"""The terminal inbox as a program: its look, its last guard against what a terminal would obey, its end.

The terminal's own colours are used, so it looks right on light and dark and over SSH. The mouse is left to
the terminal: text can be marked and copied.
"""

import contextlib
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import ClassVar, Final, TextIO, cast

from rich.segment import Segment
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.signal import Signal
from textual.worker import WorkerFailed

from pml.core.approvals import Decider
from pml.core.text import pieces
from pml.screen.inbox import Inbox
from pml.screen.keys import know_alt_enter
from pml.screen.live import Work
from pml.service.desk import Desk

INTERRUPTED: Final = 130
_INSTEAD: Final = "�"
_AS_WRITTEN: Final = "\x1b[8l"  # ECMA-48 BDSM: draw letters in the order in which they come
_BY_DIRECTION: Final = "\x1b[8h"


class NothingObeyed(LineFilter):
    """Lets no control character reach the terminal, from wherever it came."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isprintable() else Segment(_harmless(segment.text), segment.style)
            for segment in segments
        ]


def _harmless(text: str) -> str:
    return "".join(piece if isinstance(piece, str) else _INSTEAD for piece in pieces(text))


class InboxApp(App[int]):
    """`pml inbox`."""

    CSS_PATH = "inbox.tcss"
    TITLE = "PML inbox"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", show=False, priority=True)]

    def __init__(self, work: Work, *, terminal: TextIO | None = None) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self.inbox = Inbox(work)
        self._terminal = terminal
        self.crash: BaseException | None = None

    def on_mount(self) -> None:
        on_suspend = cast("Signal[object]", self.app_suspend_signal)  # pyright: ignore[reportUnknownMemberType]
        on_resume = cast("Signal[object]", self.app_resume_signal)  # pyright: ignore[reportUnknownMemberType]
        on_suspend.subscribe(self, self._give_back, immediate=True)  # the process stops right after
        on_resume.subscribe(self, self._take_again, immediate=True)
        self.push_screen(self.inbox)

    def _give_back(self, _: object) -> None:
        """Leave the terminal to the shell as it was."""
        _tell(self._terminal, _BY_DIRECTION)

    def _take_again(self, _: object) -> None:
        _tell(self._terminal, _AS_WRITTEN)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [NothingObeyed(), *super().get_line_filters()]

    def _handle_exception(self, error: Exception) -> None:
        if self.crash is None:
            self.crash = error.error if isinstance(error, WorkerFailed) else error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """End without a word: what Textual would print has all locals in it, and so a key that was typed."""
        self.panic()

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED)


@contextlib.contextmanager
def drawn_as_written(terminal: TextIO | None) -> Generator[None]:
    """Keep a terminal that knows of it from swapping letters that are written from right to left."""
    _tell(terminal, _AS_WRITTEN)
    try:
        yield
    finally:
        _tell(terminal, _BY_DIRECTION)


def _tell(terminal: TextIO | None, code: str) -> None:
    if terminal is not None and terminal.isatty():
        print(code, end="", file=terminal, flush=True)


async def run_inbox(
    desk: Desk,
    *,
    by: Decider,
    who: str,
    store_key: Callable[[str, str], Awaitable[str]] | None = None,
) -> int:
    """Show the inbox on this terminal until the person leaves; return the exit code.

    Raises: whatever no part of it knew how to tell.
    """
    know_alt_enter()
    terminal = sys.__stderr__
    app = InboxApp(Work(desk=desk, by=by, who=who, store_key=store_key), terminal=terminal)
    with drawn_as_written(terminal):
        code = await app.run_async(mouse=False)
    if app.crash is not None:
        raise app.crash
    return INTERRUPTED if code is None else code
