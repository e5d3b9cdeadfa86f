"""The questions and workflows of runs of code, as every store keeps them apart."""

import msgspec

from pml.core.approvals.record import SessionId
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.store import Store
from tests.builders import allow, later, make_approval, make_workflow
from tests.contract.journals import RUN, asked_by
from tests.contract.steps import CALL, ask
from tests.promises import promise


@promise("approval:one-run")
async def test_the_same_question_of_another_run_is_another_question(store: Store) -> None:
    first = await ask(store, asked_by(make_approval(1), "run-1"))
    second = await ask(store, asked_by(make_approval(2, tool_use_id="use-1"), "run-2"))
    third = await ask(store, make_approval(3, tool_use_id="use-1"))
    await store.approvals.advance(first.id, allow(first))

    assert len({first.id, second.id, third.id}) == 3
    for n, expected in enumerate((first, second, third), start=4):
        again = await ask(store, asked_by(make_approval(n, tool_use_id="use-1"), expected.run_id))
        assert (again.id, again.run_id) == (expected.id, expected.run_id)
    assert {row.id for row in await store.approvals.page(ApprovalQuery())} == {first.id, second.id, third.id}


async def test_a_page_lists_the_questions_of_one_run(store: Store) -> None:
    mine = [await ask(store, asked_by(make_approval(n), RUN)) for n in (1, 2)]
    await ask(store, asked_by(make_approval(3), "run-2"))
    await ask(store, make_approval(4))
    elsewhere = make_approval(5, session_id=SessionId("session-2"), created_at=later(1))
    elsewhere = await ask(store, asked_by(elsewhere, RUN))
    query = ApprovalQuery(run_id=RUN)

    assert await store.approvals.page(query) == [*mine, elsewhere]
    assert await store.approvals.page(msgspec.structs.replace(query, limit=1)) == mine[:1]
    theirs = msgspec.structs.replace(query, session_id=elsewhere.session_id)
    assert await store.approvals.page(theirs) == [elsewhere]
    assert await store.approvals.page(ApprovalQuery(run_id="run-3")) == []


async def test_a_workflow_knows_its_run(store: Store) -> None:
    workflow = msgspec.structs.replace(make_workflow(), call=CALL, run_id=RUN)
    await store.workflows.issue(workflow)
    await store.workflows.issue(make_workflow(2))

    assert await store.workflows.get(workflow.id) == workflow
    assert await store.workflows.get(make_workflow(2).id) == make_workflow(2)
    await store.workflows.consume(workflow.id, at=later(1))
    assert await store.workflows.get(workflow.id) == msgspec.structs.replace(workflow, continued_at=later(1))
