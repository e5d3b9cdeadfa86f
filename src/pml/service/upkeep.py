"""What time and crashes leave behind, put right. Safe to run at any moment, in any process, repeatedly."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pml.core.approvals.events import Abandoned, Cancelled, Event, Lost
from pml.core.approvals.record import RECONNECT_S, Approval, ApprovalId, State
from pml.core.errors import Conflict, NotFound
from pml.core.ports.records import Session
from pml.service.approvals.lifecycle import expire
from pml.service.code.lifetime import forget_run
from pml.service.context import Context
from pml.service.policy.memory import redo_intents
from pml.service.policy.policy import current_policy

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


async def sweep(context: Context) -> Swept:
    """Expire what is due, notice owners and agents that are gone, finish interrupted "always" writes."""
    ended, cancelled = await _end_sessions(context)
    lost = await _notice_dead_owners(context)
    expired, left = await _end_due(context)
    written = await redo_intents(context)
    await _forget_code(context)
    return Swept(
        expired=expired,
        cancelled=cancelled + left,
        lost=lost,
        sessions_ended=ended,
        rules_written=written,
    )


async def clean_up(context: Context, workspace: str) -> int:
    """Delete what ended longer ago than the user keeps it, and return how many approvals; the log stays."""
    now = context.clock.now()
    keep = timedelta(days=(await current_policy(context, workspace)).settings.keep_days)
    await context.store.receipts.forget(older_than=now - timedelta(seconds=RECEIPT_S))
    count = await context.store.approvals.cleanup_old(older_than=now - keep, at=now)
    await context.store.sessions.forget(older_than=now - keep)
    await context.store.tokens.forget(older_than=now - keep)
    return count


async def _forget_code(context: Context) -> None:
    """Forget code that waited for what nobody can answer any more, with all that its calls returned."""
    dead = [owner for owner in await context.store.journals.owners() if not context.owners.alive(owner)]
    older_than = context.clock.now() - timedelta(seconds=CODE_S)
    await context.store.journals.forget(older_than=older_than, dead=dead)


async def end_session(context: Context, session: Session) -> int:
    """End the session: forget its grants, cancel what it waits for; return how many questions that were.

    What its code waits for goes with it where nobody else could go on with that. Any other question with
    an issued workflow lives to its time. One of a script may have another that waits for
    it: the end of its owner is noticed by `sweep`.
    """
    now = context.clock.now()
    await context.store.tokens.revoke_of(session.id, at=now)
    await context.store.sessions.end(session.id, at=now)
    if session.principal.startswith(OF_ONE_SESSION):
        for run_id in await context.store.journals.begun_in(session.id):
            await forget_run(context, run_id)
    cancelled = 0
    for record in await context.store.approvals.held():
        if session.is_agent and record.session_id == session.id and record.status is State.PENDING:
            cancelled += await _try(context, record.id, Cancelled(at=now, reason="the agent's session ended"))
    return cancelled


async def _end_sessions(context: Context) -> tuple[int, int]:
    """A session ends with its process; one that has but a token, with the session it belongs to."""
    ended = cancelled = 0
    live = await context.store.sessions.live()
    alive = {session.id for session in live}
    for session in live:
        is_left = session.process is None and session.parent_id is not None and session.parent_id not in alive
        if is_left or (session.process is not None and not context.processes.running(session.process)):
            cancelled += await end_session(context, session)
            ended += 1
    return ended, cancelled


async def _notice_dead_owners(context: Context) -> int:
    """What ran when its owner died is unknown; what waited has a while to be asked again."""
    now = context.clock.now()
    alive: dict[str, bool] = {}
    lost = 0
    for record in await context.store.approvals.held():
        if record.owner not in alive:
            alive[record.owner] = context.owners.alive(record.owner)
        if alive[record.owner]:
            continue
        if record.status is State.EXECUTING:
            lost += await _try(context, record.id, Lost(at=now))
        elif record.abandoned_at is None:
            await _try(context, record.id, Abandoned(at=now))
    return lost


async def _end_due(context: Context) -> tuple[int, int]:
    expired = cancelled = 0
    while due := await context.store.approvals.due(now=context.clock.now(), limit=_AT_ONCE):
        for record in due:
            if _is_left(context, record):
                event = Cancelled(at=context.clock.now(), reason="the agent that asked did not come back")
                cancelled += await _try(context, record.id, event)
            else:
                expired += (await expire(context, record)).status is State.EXPIRED
    return expired, cancelled


def _is_left(context: Context, record: Approval) -> bool:
    """Whether its asker went away and stayed away, and did so before the time was over."""
    if record.abandoned_at is None:
        return False
    given_up_at = record.abandoned_at + timedelta(seconds=RECONNECT_S)
    return given_up_at <= min(context.clock.now(), record.expires_at)


async def _try(context: Context, approval_id: ApprovalId, event: Event) -> int:
    """Apply `event`, unless somebody was faster; return 1 if it was applied."""
    try:
        await context.store.approvals.advance(approval_id, event)
    except (Conflict, NotFound):
        return 0
    return 1
