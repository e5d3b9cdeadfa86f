"""What time and crashes leave behind, put right. Safe to run at any moment, in any process, repeatedly."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pml.core.approvals import RECONNECT_S, Abandoned, Approval, ApprovalId, Cancelled, Event, Lost, State
from pml.core.errors import Conflict, NotFound
from pml.core.ports import Session
from pml.service.approvals import expire
from pml.service.coderuns import forget_run
from pml.service.desk import Desk
from pml.service.policy import current_policy
from pml.service.remembering import redo_intents

OF_ONE_SESSION: Final = ("token:", "session:")  # principals that end with their session
CODE_S: Final = 600  # for going on with code that was broken off, or whose question nobody answered
RECEIPT_S: Final = 24 * 3600  # whoever repeats a request does so sooner
_AT_ONCE: Final = 500


@dataclass(frozen=True, kw_only=True)
class Swept:
    """How many of each were put right."""

    expired: int = 0
    cancelled: int = 0
    lost: int = 0
    sessions_ended: int = 0
    rules_written: int = 0


async def sweep(desk: Desk) -> Swept:
    """Expire what is due, notice owners and agents that are gone, finish interrupted "always" writes."""
    ended, cancelled = await _end_sessions(desk)
    lost = await _notice_dead_owners(desk)
    expired, left = await _end_due(desk)
    written = await redo_intents(desk)
    await _forget_code(desk)
    return Swept(
        expired=expired,
        cancelled=cancelled + left,
        lost=lost,
        sessions_ended=ended,
        rules_written=written,
    )


async def clean_up(desk: Desk, workspace: str) -> int:
    """Delete what ended longer ago than the user keeps it, and return how many approvals; the log stays."""
    now = desk.clock.now()
    keep = timedelta(days=(await current_policy(desk, workspace)).settings.keep_days)
    await desk.store.receipts.forget(older_than=now - timedelta(seconds=RECEIPT_S))
    count = await desk.store.approvals.cleanup_old(older_than=now - keep, at=now)
    await desk.store.sessions.forget(older_than=now - keep)
    await desk.store.tokens.forget(older_than=now - keep)
    return count


async def _forget_code(desk: Desk) -> None:
    """Forget code that waited for what nobody can answer any more, with all that its calls returned."""
    dead = [owner for owner in await desk.store.journals.owners() if not desk.owners.alive(owner)]
    older_than = desk.clock.now() - timedelta(seconds=CODE_S)
    await desk.store.journals.forget(older_than=older_than, dead=dead)


async def end_session(desk: Desk, session: Session) -> int:
    """End the session: forget its grants, cancel what it waits for; return how many questions that were.

    What its code waits for goes with it where nobody else could go on with that. Any other question with
    an issued workflow lives to its time. One of a script may have another that waits for
    it: the end of its owner is noticed by `sweep`.
    """
    now = desk.clock.now()
    await desk.store.tokens.revoke_of(session.id, at=now)
    await desk.store.sessions.end(session.id, at=now)
    if session.principal.startswith(OF_ONE_SESSION):
        for run_id in await desk.store.journals.begun_in(session.id):
            await forget_run(desk, run_id)
    cancelled = 0
    for record in await desk.store.approvals.held():
        if session.is_agent and record.session_id == session.id and record.status is State.PENDING:
            cancelled += await _try(desk, record.id, Cancelled(at=now, reason="the agent's session ended"))
    return cancelled


async def _end_sessions(desk: Desk) -> tuple[int, int]:
    """A session ends with its process; one that has but a token, with the session it belongs to."""
    ended = cancelled = 0
    live = await desk.store.sessions.live()
    alive = {session.id for session in live}
    for session in live:
        is_left = session.process is None and session.parent_id is not None and session.parent_id not in alive
        if is_left or (session.process is not None and not desk.processes.running(session.process)):
            cancelled += await end_session(desk, session)
            ended += 1
    return ended, cancelled


async def _notice_dead_owners(desk: Desk) -> int:
    """What ran when its owner died is unknown; what waited has a while to be asked again."""
    now = desk.clock.now()
    alive: dict[str, bool] = {}
    lost = 0
    for record in await desk.store.approvals.held():
        if record.owner not in alive:
            alive[record.owner] = desk.owners.alive(record.owner)
        if alive[record.owner]:
            continue
        if record.status is State.EXECUTING:
            lost += await _try(desk, record.id, Lost(at=now))
        elif record.abandoned_at is None:
            await _try(desk, record.id, Abandoned(at=now))
    return lost


async def _end_due(desk: Desk) -> tuple[int, int]:
    expired = cancelled = 0
    while due := await desk.store.approvals.due(now=desk.clock.now(), limit=_AT_ONCE):
        for record in due:
            if _is_left(desk, record):
                event = Cancelled(at=desk.clock.now(), reason="the agent that asked did not come back")
                cancelled += await _try(desk, record.id, event)
            else:
                expired += (await expire(desk, record)).status is State.EXPIRED
    return expired, cancelled


def _is_left(desk: Desk, record: Approval) -> bool:
    """Whether its asker went away and stayed away, and did so before the time was over."""
    if record.abandoned_at is None:
        return False
    given_up_at = record.abandoned_at + timedelta(seconds=RECONNECT_S)
    return given_up_at <= min(desk.clock.now(), record.expires_at)


async def _try(desk: Desk, approval_id: ApprovalId, event: Event) -> int:
    """Apply `event`, unless somebody was faster; return 1 if it was applied."""
    try:
        await desk.store.approvals.advance(approval_id, event)
    except (Conflict, NotFound):
        return 0
    return 1
