"""What a session sees of the sessions that it started: how they stand, and the next thing that needs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from pml.core.approvals.record import ApprovalId, SessionId
from pml.core.errors import NotFound
from pml.core.ports.records import Session
from pml.core.sessions.agent import ENDED_RUN, Message, Run
from pml.service.approvals.lifecycle import RECHECK_S
from pml.service.context import Context
from pml.service.sessions.loopback import MAX_WAIT_S, Request, due_requests, guard_supervisor, pending, untold

WAITING: Final = "waiting_for_approval"
_ALL_TOLD: Final = 2**62  # its end too
_AT_ONCE: Final = 20


class Kind(StrEnum):
    REQUEST = "request"
    MESSAGE = "message"
    ENDED = "ended"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class Child:
    """A launched session as its supervisors see it."""

    session: Session
    run: Run
    state: str
    waiting: int


@dataclass(frozen=True, kw_only=True)
class Next:
    """The next thing that needs the session; `child` is whom it concerns, None for requests and nothing."""

    kind: Kind
    requests: Sequence[Request] = ()
    child: Child | None = None
    messages: Sequence[Message] = ()


async def children_of(context: Context, session: Session) -> list[Child]:
    """Return the launched sessions beneath this one, oldest first."""
    guard_supervisor(session)
    waiting = [request.session.id for request in await pending(context, session)]
    found: list[Child] = []
    for below in await context.store.sessions.descendants(session.id):
        run = await context.store.runs.get(below.id)
        if run is not None:
            found.append(child(below, run, waiting=waiting.count(below.id)))
    return found


def child(session: Session, run: Run, *, waiting: int) -> Child:
    """Return the launched session with its state in words; one whose question is undecided waits for it."""
    is_waiting = waiting and run.state not in ENDED_RUN
    return Child(session=session, run=run, state=WAITING if is_waiting else str(run.state), waiting=waiting)


async def child_of(context: Context, session: Session, session_id: SessionId) -> Child:
    """Raises: Forbidden, NotFound if it is no launched descendant."""
    for found in await children_of(context, session):
        if found.session.id == session_id:
            return found
    raise NotFound(f"no session `{session_id}` that this one started", hint="`session_list` shows them")


async def next_for(
    context: Context, session: Session, *, of: SessionId | None, timeout_s: float, told: set[ApprovalId]
) -> Next:
    """Return the next thing that needs the session: a request, a message or an end; each message once.

    A request that was `told` before is left to whoever it climbs to, and told again when the time is over.
    Returns at once if nothing runs that could need it. Raises: Forbidden, NotFound.
    """
    guard_supervisor(session)
    if of is not None:
        await child_of(context, session, of)
    until = context.clock.now() + timedelta(seconds=min(timeout_s, MAX_WAIT_S))
    with context.store.changes.watch() as changes:
        while True:
            requests, climbs_at = await due_requests(context, session, of=of)
            if fresh := untold(requests, told):
                return Next(kind=Kind.REQUEST, requests=fresh)
            below = [each for each in await children_of(context, session) if of in (None, each.session.id)]
            for each in below:
                is_own = each.session.parent_id == session.id  # what others say is their parents' to hear
                if is_own and (news := await _news(context, each, insist=of is not None)):
                    return news
            now = context.clock.now()
            running = any(each.run.state not in ENDED_RUN for each in below)
            if now >= until and requests:
                return Next(kind=Kind.REQUEST, requests=requests)
            if now >= until or not (running or climbs_at or requests):
                return Next(kind=Kind.NOTHING)
            ends = min(until, climbs_at or until)
            await changes.wait(min(RECHECK_S, max(0.0, (ends - now).total_seconds())))


async def _news(context: Context, child: Child, *, insist: bool) -> Next | None:
    """Return what the child has said since it was last told, or that it has ended; `insist`: again."""
    run = child.run
    told = run.told_seq == _ALL_TOLD
    messages = (
        [] if told else await context.store.runs.messages(run.session_id, after=run.told_seq, limit=_AT_ONCE)
    )
    if messages:
        await context.store.runs.tell(run.session_id, up_to=messages[-1].seq)
        return Next(kind=Kind.MESSAGE, child=child, messages=messages)
    if run.state not in ENDED_RUN or (told and not insist):
        return None
    await context.store.runs.tell(run.session_id, up_to=_ALL_TOLD)
    return Next(kind=Kind.ENDED, child=child)
