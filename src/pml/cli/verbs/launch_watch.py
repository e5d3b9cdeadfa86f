"""Questions of a launched agent, told in a line each at the terminal where it was launched, and counted.

It only reads the store: who decides, and where, is not known here.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pml.cli.terminal.cards import short
from pml.cli.terminal.output import complain
from pml.core.approvals.record import Approval, ApprovalId, Role, SessionId, State, Subject
from pml.core.approvals.states import role_of
from pml.core.approvals.subjects import headline
from pml.core.errors import PmlError
from pml.core.ports.queries import ApprovalQuery, AuditQuery
from pml.core.text import visible, visible_json

if TYPE_CHECKING:
    from pml.service.context import Context

_LOOK_AGAIN_S: Final = 1.0  # a question may come from another process whose hint was lost
_PAGE: Final = 500


@dataclass(kw_only=True)
class Tally:
    """How many questions of an agent, and of those beneath it, came to what.

    `denied` are those that a person denied, `others` those that somebody else did, such as a parent;
    `refused` are calls that a rule denied, so no person was asked.
    """

    allowed: int = 0
    denied: int = 0
    others: int = 0
    expired: int = 0
    refused: int = 0

    def __str__(self) -> str:
        told = [(self.allowed, "allowed"), (self.denied + self.others, "denied"), (self.expired, "expired")]
        told.append((self.refused, "denied by rules"))
        return ", ".join(f"{number} {word}" for number, word in told if number)


@contextlib.asynccontextmanager
async def watching_questions(context: "Context", *, is_told: bool) -> AsyncGenerator[Tally]:
    """Yield what came of all that the agent asked which this process runs here: it is complete at the end.

    `is_told`: what it waits for is told on stderr meanwhile. What cannot be read does not keep it from
    running.
    """
    watch = _Watch(context, is_told=is_told)
    following = asyncio.ensure_future(watch.follow())
    try:
        yield watch.tally
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError, PmlError):
            await following
        with contextlib.suppress(PmlError):
            await watch.look()
            await watch.sum_up()


class _Watch:
    def __init__(self, context: "Context", *, is_told: bool) -> None:
        self._context = context
        self._is_told = is_told
        self.tally: Final = Tally()
        self._launched: SessionId | None = None
        self._waiting: set[ApprovalId] = set()

    async def follow(self) -> None:
        with self._context.store.changes.watch() as changes:
            while True:
                await self.look()
                await changes.wait(_LOOK_AGAIN_S)

    async def look(self) -> None:
        """Tell what has begun to wait, and what ended unanswered, since the last look."""
        sessions = await self._sessions()
        if not sessions:
            return
        query = ApprovalQuery(states=frozenset({State.PENDING}), sessions=sessions, limit=_PAGE)
        pending = {record.id: record for record in await self._context.store.approvals.page(query)}
        for gone in self._waiting - pending.keys():
            self._waiting.discard(gone)
            record = await self._context.store.approvals.get(gone)
            if self._is_told and record is not None and record.status is State.EXPIRED:
                _tell(f"pml: nobody answered {short(gone)} in time; it did not run")
        for record in pending.values():
            if record.id not in self._waiting:
                self._waiting.add(record.id)
                if not self._is_told:
                    continue
                _tell(f"pml: waits for an answer: {_glimpse(record)}")
                complain(f"       pml approvals allow {short(record.id)}")

    async def sum_up(self) -> None:
        """Count what was allowed, denied and left, and tell it if there was any."""
        sessions = await self._sessions()
        last: Approval | None = None
        while sessions:
            after = None if last is None else (last.created_at, last.id)
            query = ApprovalQuery(sessions=sessions, after=after, limit=_PAGE)
            page = await self._context.store.approvals.page(query)
            if not page:
                break
            for record in page:
                self._count(record)
            last = page[-1]
        for session_id in sessions:
            self.tally.refused += await self._refused(session_id)
        if told := str(self.tally):
            complain(f"pml: {told}")

    def _count(self, record: Approval) -> None:
        """Count a question; one that was allowed stays so, whatever became of its call."""
        tally, by = self.tally, record.decided_by
        if record.status is State.DENIED:
            is_persons = by is not None and role_of(by) in (Role.PERSON, Role.FORM)
            tally.denied += is_persons
            tally.others += not is_persons
        elif by is not None:
            tally.allowed += 1
        elif record.status is State.EXPIRED:
            tally.expired += 1

    async def _refused(self, session_id: SessionId) -> int:
        """Return how many calls of the session rules denied at once."""
        count, after = 0, 0
        while page := await self._context.store.audit.list(
            AuditQuery(session_id=session_id, kind="call.denied", after=after, limit=_PAGE)
        ):
            count, after = count + len(page), page[-1].seq
        return count

    async def _sessions(self) -> frozenset[SessionId]:
        """Return the session of the agent and those beneath it; none before it has begun."""
        if self._launched is None:
            mine = (
                run.session_id
                for run in await self._context.store.runs.live()
                if run.order.is_here and run.owner == self._context.owners.me
            )
            self._launched = next(mine, None)
        if self._launched is None:
            return frozenset()
        below = await self._context.store.sessions.descendants(self._launched)
        return frozenset({self._launched, *(session.id for session in below)})


def _glimpse(record: Approval) -> str:
    if record.subject is not Subject.TOOL_CALL:
        return visible(headline(record))
    command = record.tool_input.get("command")
    shown = visible(command) if isinstance(command, str) else visible_json(record.tool_input, indent=None)
    return f"{visible(record.tool_name)} {shown}"


def _tell(text: str) -> None:
    """Print one line, cut where the terminal ends."""
    room = shutil.get_terminal_size().columns - 1
    complain(text if len(text) <= room else f"{text[: room - 1]}…")
