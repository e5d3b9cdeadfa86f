"""Answers that a question has had in its session: collected once, told once, and not asked for twice."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pml.core.approvals.events import Abandoned
from pml.core.approvals.reasons import Reason
from pml.core.approvals.record import Approval, Role, State
from pml.core.approvals.states import role_of
from pml.core.errors import AlreadyClaimed, Conflict, NotFound
from pml.core.ports.queries import ApprovalQuery
from pml.service.approvals.lifecycle import Question, ask, cancel, get
from pml.service.context import Context

NARROWED: Final = "fewer may decide it now, and it is asked again"  # withdrawn so, its call goes on
SETTLED: Final = "it was settled for another call meanwhile"  # withdrawn so, its call goes on
_ANSWERS: Final = 1000
_NEWEST: Final = 4
_DECLINES: Final = frozenset({Role.PERSON, Role.FORM})
_LETS: Final = frozenset({State.ALLOWED, State.EXECUTING, State.COMPLETED})


async def ask_within(context: Context, question: Question, because: Reason | None) -> Approval:
    """Ask, or attach to the same question if nobody decides it who may not decide this one.

    One that others may decide, or have allowed, is withdrawn and asked anew. Raises: as `ask`.
    """
    while True:
        record = await ask(context, question, because)
        if _answerers(record) <= question.deciders:
            return record
        if record.status is State.PENDING:  # its asker asks again too: what both may take ends that
            question = replace(question, deciders=question.deciders & record.deciders)
        with contextlib.suppress(Conflict, NotFound):  # used, or answered, meanwhile: the next look tells
            await cancel(context, record.id, reason=NARROWED, version=record.version)


def _answerers(record: Approval) -> frozenset[Role | None]:
    """Return who has answered the question, or who may."""
    return frozenset(record.deciders if record.decided_by is None else {role_of(record.decided_by)})


def is_answer(record: Approval, question: Question) -> bool:
    """Tell whether what became of `record` is an answer to the question as it would be asked now."""
    if (record.subject, record.digest) != (question.subject, question.digest):
        return False
    if record.status in _LETS:
        return _answerers(record) <= question.deciders
    return not (record.status is State.CANCELLED and record.reason in (NARROWED, SETTLED))


def is_narrowed(record: Approval) -> bool:
    """Tell whether the question was withdrawn only to be asked anew, of fewer."""
    return record.status is State.CANCELLED and record.reason == NARROWED


async def earlier(context: Context, question: Question, state: State) -> list[Approval]:
    """Return the answers in `state` that this question has had in its session."""
    same = (question.subject, question.tool_use_id)
    query = ApprovalQuery(
        states=frozenset({state}),
        session_id=question.session.id,
        digest=question.digest,
        limit=_ANSWERS,
    )
    found = await context.store.approvals.page(query)
    return [record for record in found if (record.subject, record.tool_use_id) == same]


async def is_asked_anew(context: Context, record: Approval) -> bool:
    """Tell whether the same was asked just before in the session, and nobody answered in time."""
    query = ApprovalQuery(session_id=record.session_id, digest=record.digest, newest=True, limit=_NEWEST)
    same = [
        each
        for each in await context.store.approvals.page(query)
        if each.subject is record.subject and each.id != record.id and each.created_at <= record.created_at
    ]
    return bool(same) and same[0].status is State.EXPIRED


async def answer_in_run(context: Context, question: Question) -> Approval | None:
    """Return what somebody said to this question of a run while it waited, in whatever session that was."""
    query = ApprovalQuery(
        states=frozenset({State.ALLOWED, State.DENIED}),
        digest=question.digest,
        run_id=question.run_id,
        limit=_ANSWERS,
    )
    found = await context.store.approvals.page(query)
    now = context.clock.now()
    same = [
        record
        for record in found
        if record.tool_use_id == question.tool_use_id and is_answer(record, question)
    ]
    return next((it for it in same if it.status is State.DENIED or now < it.expires_at), None)


async def was_declined(context: Context, question: Question) -> bool:
    """Tell whether a person has said no to this very question, or anybody in its session.

    A model that gives up a call speaks for its own session only.
    """
    query = ApprovalQuery(states=frozenset({State.DENIED}), digest=question.digest, limit=_ANSWERS)
    for record in await context.store.approvals.page(query):
        is_same = (record.subject, record.tool_use_id) == (question.subject, question.tool_use_id)
        by = None if record.decided_by is None else role_of(record.decided_by)
        if is_same and (by in _DECLINES or record.session_id == question.session.id):
            return True
    return False


async def untold_denial(
    context: Context, question: Question, *, workflow_id: Callable[[Approval], str] = lambda record: record.id
) -> Approval | None:
    """Return, once, the denial of this question if nobody waited for it: whoever asks again must learn it.

    `workflow_id` tells under which id the question was left.
    """
    for record in await earlier(context, question, State.DENIED):
        with contextlib.suppress(NotFound, AlreadyClaimed):
            await context.store.workflows.consume(workflow_id(record), at=context.clock.now())
            return record
    return None


async def withdraw(context: Context, asked: Approval) -> None:
    """Take the question back, unless somebody else has asked the same and may wait on."""
    now = await get(context, asked.id)
    if now.owner != context.owners.me:
        return
    if all(held.id != asked.id for held in await context.store.approvals.held()):
        return  # a workflow was issued for it, and lives to its time
    if now.version == 1:  # whoever asks the same raises it, also another task of this process
        await cancel(context, asked.id, reason="the asker stopped waiting")
    else:
        await context.store.approvals.advance(asked.id, Abandoned(at=context.clock.now()))
