"""Claims: an answer is taken once, just before what it allows runs, and what came of it is stored.

Time has passed since the decision, so the call is judged again as it would run now: a deny, or a rule that
asks for a person, withdraws an answer that was given before it.
"""

import contextlib

from pml.core.approvals.events import Claimed, Completed, Delivered, Failed, Unsent
from pml.core.approvals.record import Approval, ApprovalId, DeciderKind, Role, State, Subject
from pml.core.approvals.states import role_of
from pml.core.digest import digest_call
from pml.core.errors import Changed, Conflict, NotFound, ToolDenied
from pml.core.ports.records import Session
from pml.core.rules.places import Starts
from pml.service.approvals.lifecycle import Question, cancel, expire, get, judge_again
from pml.service.context import Context
from pml.service.policy.policy import (
    WHY_LAUNCH,
    Judgement,
    call_of,
    current_policy,
    judge_in_session,
    parent_may_decide,
    refuse_denied,
    why,
)
from pml.service.session_tree import session_of


async def deliver(context: Context, approval_id: ApprovalId, question: Question) -> Approval:
    """Give the answer, once, to whoever runs the call itself; judged again where that one works.

    Raises: as `claim`.
    """
    record = await get(context, approval_id)
    if record.status is State.ALLOWED and context.clock.now() >= record.expires_at:
        record = await expire(context, record)
    digest = digest_call(
        record.tool_name,
        record.run_input,
        definition=question.definition,
        artefact=question.artefact,
        cwd=question.cwd,
    )
    try:
        call = call_of(record, question.session, record.updated_input)
        judged = await judge_in_session(context, question.session, call)
        refuse_denied(judged, record.tool_name)
        _refuse_others(judged, record)
        await _refuse_overreach(context, question.session, judged, record)
        event = Delivered(at=context.clock.now(), owner=context.owners.me, digest=digest)
        return await context.store.approvals.advance(approval_id, event)
    except (ToolDenied, Changed) as exc:
        # Taken back: nothing else may find an answer allowed that is no longer good.
        if record.status is State.ALLOWED:
            with contextlib.suppress(Conflict, NotFound):
                await cancel(context, approval_id, reason=exc.message)
        raise


async def claim(
    context: Context,
    approval_id: ApprovalId,
    *,
    definition: str | None = None,
    artefact: str | None = None,
    starts: Starts | None = None,
) -> Approval:
    """Take the approved call, once, just before it runs; judged again, and exactly as approved.

    `definition` and `artefact` are the digests of what would run now, `starts` is where it would work.
    Raises: NotFound, ApprovalExpired, AlreadyClaimed, IllegalEvent, ToolDenied, Changed.
    """
    record = await get(context, approval_id)
    session = await session_of(context, record.session_id)
    # Nothing but this look need have noticed that its time is over: no sweep may have run since.
    if record.status is State.ALLOWED and context.clock.now() >= record.expires_at:
        record = await expire(context, record)
    digest = digest_call(
        record.tool_name, record.run_input, definition=definition, artefact=artefact, cwd=record.cwd
    )
    try:
        judged = await judge_again(context, session, record, record.updated_input, starts)
        if judged is not None and judged.reserved and record.subject is Subject.TOOL_CALL:
            _refuse_others(judged, record)
        if judged is not None and record.subject is Subject.TOOL_CALL:
            await _refuse_overreach(context, session, judged, record)
        # Of several that try, the store lets one; a digest that is not the approved one is refused there.
        event = Claimed(at=context.clock.now(), owner=context.owners.me, digest=digest)
        return await context.store.approvals.advance(approval_id, event)
    except (ToolDenied, Changed) as exc:
        if record.status is State.ALLOWED:
            await cancel(context, approval_id, reason=exc.message)
        raise


async def finish(context: Context, approval_id: ApprovalId, *, error: str | None = None) -> Approval:
    """Tell that the claimed call has run: well, or with `error`."""
    now = context.clock.now()
    event = Completed(at=now) if error is None else Failed(at=now, message=error)
    return await context.store.approvals.advance(approval_id, event)


async def give_back(context: Context, approval_id: ApprovalId) -> Approval | None:
    """Put the claimed answer back, since nothing of its call ran; None if the same was asked anew meanwhile.

    Only for a call that its server refused unread: whatever may have run is never claimed again.
    """
    try:
        return await context.store.approvals.advance(approval_id, Unsent(at=context.clock.now()))
    except Conflict:
        await finish(context, approval_id, error="its server requires a login, and the same was asked anew")
        return None


async def _refuse_overreach(context: Context, session: Session, judged: Judgement, record: Approval) -> None:
    """Raise Changed if a rule asks about the call by now, and who allowed it may not decide such calls.

    What a path leads to can be exchanged after the question was asked, and with it what rules say of it.
    """
    role = None if record.decided_by is None else role_of(record.decided_by)
    if not judged.is_named or role not in (Role.MODEL, Role.PARENT):
        return
    settings = (await current_policy(context, session.workspace)).settings
    is_parents = parent_may_decide(session, settings, (record.tool_name,), named=True)
    if role is Role.MODEL or not is_parents:
        raise Changed(f"approval `{record.id}` was not given by a person, and now {why(judged)} asks for one")


def _refuse_others(judged: Judgement, record: Approval) -> None:
    """Raise Changed if only a person may allow the call, as it would run now, and none of them did."""
    by = None if record.decided_by is None else record.decided_by.kind
    because = judged.why_reserved or (WHY_LAUNCH if judged.is_launch else None)
    if because is not None and by is not DeciderKind.PERSON:
        raise Changed(f"approval `{record.id}` was not a person's to give: {because}")
