"""What a launched agent waits for, told in a line each at the terminal where it was launched.

It only reads the store: whoever decides, and where, is not known here.
"""

import asyncio
import contextlib
import shutil
from collections import Counter
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from pml.cli.cards import short
from pml.cli.output import complain
from pml.core.approvals import Approval, ApprovalId, SessionId, State, Subject
from pml.core.errors import PmlError
from pml.core.ports import ApprovalQuery
from pml.core.text import visible, visible_json
from pml.core.wire import headline

if TYPE_CHECKING:
    from pml.service.desk import Desk

_LOOK_AGAIN_S: Final = 1.0  # a question may come from another process whose hint was lost
_PAGE: Final = 500
_WORDS: Final = ("allowed", "denied", "expired")


@contextlib.asynccontextmanager
async def telling_questions(desk: "Desk") -> AsyncGenerator[None]:
    """Tell on stderr what the agent that this process runs here waits for, and at the end what came of it.

    What cannot be read is not told, and does not keep the agent from running.
    """
    watch = _Watch(desk)
    following = asyncio.ensure_future(watch.follow())
    try:
        yield
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError, PmlError):
            await following
        with contextlib.suppress(PmlError):
            await watch.look()
            await watch.sum_up()


class _Watch:
    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._launched: SessionId | None = None
        self._waiting: set[ApprovalId] = set()

    async def follow(self) -> None:
        with self._desk.store.changes.watch() as changes:
            while True:
                await self.look()
                await changes.wait(_LOOK_AGAIN_S)

    async def look(self) -> None:
        """Tell what has begun to wait, and what nobody answered, since the last look."""
        sessions = await self._sessions()
        if not sessions:
            return
        query = ApprovalQuery(states=frozenset({State.PENDING}), sessions=sessions, limit=_PAGE)
        pending = {record.id: record for record in await self._desk.store.approvals.page(query)}
        for gone in self._waiting - pending.keys():
            self._waiting.discard(gone)
            record = await self._desk.store.approvals.get(gone)
            if record is not None and _came_to(record) == "expired":
                _tell(f"pml: nobody answered {short(gone)} in time; it did not run")
        for record in pending.values():
            if record.id not in self._waiting:
                self._waiting.add(record.id)
                what = f"pml: waits for an answer: {short(record.id)} {_glimpse(record)}"
                _tell(what, then=f"   (pml approvals allow {short(record.id)})")

    async def sum_up(self) -> None:
        """Tell how many were allowed, denied and left, if there were any."""
        counts: Counter[str] = Counter()
        sessions = await self._sessions()
        last: Approval | None = None
        while sessions:
            after = None if last is None else (last.created_at, last.id)
            query = ApprovalQuery(sessions=sessions, after=after, limit=_PAGE)
            page = await self._desk.store.approvals.page(query)
            if not page:
                break
            counts.update(_came_to(record) for record in page)
            last = page[-1]
        told = [f"{counts[word]} {word}" for word in _WORDS if counts[word]]
        if told:
            complain(f"pml: {', '.join(told)}")

    async def _sessions(self) -> frozenset[SessionId]:
        """Return the session of the agent and those beneath it; none before it has begun."""
        if self._launched is None:
            mine = (
                run.session_id
                for run in await self._desk.store.runs.live()
                if run.order.is_here and run.owner == self._desk.owners.me
            )
            self._launched = next(mine, None)
        if self._launched is None:
            return frozenset()
        below = await self._desk.store.sessions.descendants(self._launched)
        return frozenset({self._launched, *(session.id for session in below)})


def _came_to(record: Approval) -> str:
    """Return what became of a question; one that was allowed stays so, whatever became of its call."""
    if record.status is State.DENIED:
        return "denied"
    if record.decided_by is not None:
        return "allowed"
    return "expired" if record.status is State.EXPIRED else "open"


def _glimpse(record: Approval) -> str:
    if record.subject is not Subject.TOOL_CALL:
        return visible(headline(record))
    command = record.tool_input.get("command")
    shown = visible(command) if isinstance(command, str) else visible_json(record.tool_input, indent=None)
    return f"{visible(record.tool_name)} {shown}"


def _tell(text: str, *, then: str = "") -> None:
    """Print one line, `text` cut to leave room for `then`."""
    room = max(shutil.get_terminal_size().columns - len(then) - 1, len("pml: waits for an answer: 01234567"))
    complain((text if len(text) <= room else f"{text[: room - 1]}…") + then)
