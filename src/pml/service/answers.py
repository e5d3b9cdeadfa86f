"""Answers that a question has had in its session: collected once, told once, and not asked for twice."""

import contextlib
from collections.abc import Callable
from typing import Final

from pml.core.approvals import Abandoned, Approval, State
from pml.core.errors import AlreadyClaimed, NotFound
from pml.core.ports import ApprovalQuery
from pml.service.approvals import Question, cancel, get
from pml.service.desk import Desk

_ANSWERS: Final = 1000


async def earlier(desk: Desk, question: Question, state: State) -> list[Approval]:
    """Return the answers in `state` that this question has had in its session."""
    same = (question.subject, question.tool_use_id)
    query = ApprovalQuery(
        states=frozenset({state}),
        session_id=question.session.id,
        digest=question.digest,
        limit=_ANSWERS,
    )
    found = await desk.store.approvals.page(query)
    return [record for record in found if (record.subject, record.tool_use_id) == same]


async def answer_in_run(desk: Desk, question: Question) -> Approval | None:
    """Return what somebody said to this question of a run while it waited, in whatever session that was."""
    query = ApprovalQuery(
        states=frozenset({State.ALLOWED, State.DENIED}),
        digest=question.digest,
        run_id=question.run_id,
        limit=_ANSWERS,
    )
    found = await desk.store.approvals.page(query)
    now = desk.clock.now()
    asked = (question.subject, question.tool_use_id)
    same = [record for record in found if (record.subject, record.tool_use_id) == asked]
    return next((it for it in same if it.status is State.DENIED or now < it.expires_at), None)


async def was_denied(desk: Desk, question: Question) -> bool:
    """Tell whether somebody has said no to this question in its session."""
    return bool(await earlier(desk, question, State.DENIED))


async def untold_denial(
    desk: Desk, question: Question, *, workflow_id: Callable[[Approval], str] = lambda record: record.id
) -> Approval | None:
    """Return, once, the denial of this question if nobody waited for it: whoever asks again must learn it.

    `workflow_id` tells under which id the question was left.
    """
    for record in await earlier(desk, question, State.DENIED):
        with contextlib.suppress(NotFound, AlreadyClaimed):
            await desk.store.workflows.consume(workflow_id(record), at=desk.clock.now())
            return record
    return None


async def withdraw(desk: Desk, asked: Approval) -> None:
    """Take the question back, unless somebody else has asked the same and may wait on."""
    now = await get(desk, asked.id)
    if now.owner != desk.owners.me:
        return
    if all(held.id != asked.id for held in await desk.store.approvals.held()):
        return  # a workflow was issued for it, and lives to its time
    if now.version == 1:  # whoever asks the same raises it, also another task of this process
        await cancel(desk, asked.id, reason="the asker stopped waiting")
    else:
        await desk.store.approvals.advance(asked.id, Abandoned(at=desk.clock.now()))
