"""`continue_workflow`: by the principal it was issued to, once, and never beyond who may decide."""

import asyncio

import pytest

from pml.core.approvals.record import ApprovalId, Channel, Decider, DeciderKind, Role, Scope, State
from pml.core.config.file import FileKind
from pml.core.errors import Invalid, NotApproved, ToolDenied, WorkflowAborted, WorkflowGone
from pml.core.ports.records import PausedCall, Workflow
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import Decided, Decision, cancel
from pml.service.call import Paused
from pml.service.calls import workflows
from pml.service.calls.workflows import Continuation, resume
from pml.service.context import Context
from tests.builders import NOW
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import ARGUMENTS, RAN, TOOL, Gatehouse, interrupt
from tests.service.offices import BOUND_S, rules_of

OTHER: JsonObject = {"text": "other"}


async def test_a_paused_call_is_left_with_all_that_continues_it(house: Gatehouse) -> None:
    paused = await house.pause()

    assert paused.workflow == Workflow(
        id=paused.record.id,
        approval_id=paused.record.id,
        principal="ana",
        created_at=NOW,
        call=PausedCall(tool=TOOL, arguments=ARGUMENTS, offered=False),
    )
    assert await house.office.context.store.workflows.get(paused.workflow.id) == paused.workflow


async def test_the_model_approves_where_it_may_and_the_call_runs_as_it_was_asked(house: Gatehouse) -> None:
    paused = await house.pause()

    await house.go_on(paused.workflow.id)

    record = await house.office.stored(paused.record)
    assert (record.status, record.decided_by) == (
        State.COMPLETED,
        Decider(kind=DeciderKind.CLIENT, id="agent", channel=Channel.MODEL),
    )
    assert house.servers.ran == [RAN]


@promise("gate:agent-cannot-approve-itself")
async def test_the_model_cannot_approve_what_its_client_has_a_form_for(house: Gatehouse) -> None:
    paused = await house.pause(asking=FakeAsking(has_form=True))

    for _ in range(2):
        with pytest.raises(Paused) as again:
            await house.go_on(paused.workflow.id, asking=FakeAsking(has_form=True))
        assert again.value.workflow == paused.workflow

    assert (await house.states(), house.servers.ran) == ([State.PENDING], [])


@promise("gate:agent-cannot-approve-itself")
async def test_the_model_cannot_approve_where_the_user_says_never(house: Gatehouse) -> None:
    house.configure(approval={"model_may_approve": "never"})
    paused = await house.pause()
    house.configure(approval={"model_may_approve": "always"})

    with pytest.raises(Paused):
        await house.go_on(paused.workflow.id)

    assert (await house.states(), house.servers.ran) == ([State.PENDING], [])


@promise("gate:agent-cannot-approve-itself")
async def test_a_second_connection_cannot_approve_what_the_firsts_client_had_a_form_for(
    house: Gatehouse,
) -> None:
    paused = await house.pause(asking=FakeAsking(has_form=True))
    other = await house.reconnect()

    with pytest.raises(Paused):
        await other.go_on(paused.workflow.id, asking=FakeAsking(has_form=False))

    assert (await house.states(), other.servers.ran) == ([State.PENDING], [])


@promise("gate:agent-cannot-approve-itself")
async def test_a_child_of_the_same_principal_cannot_approve_what_the_sessions_model_may(
    house: Gatehouse,
) -> None:
    paused = await house.pause()
    assert Role.MODEL in paused.record.deciders
    child = await house.reconnect(parent_id=house.session.id)

    with pytest.raises(Paused) as left:
        await child.go_on(paused.workflow.id)

    said = Continuation(workflow_id=paused.workflow.id, approved=True)
    with pytest.raises(Paused) as waited:
        await resume(child.gate, said, given=None, client="agent", undecided=house.office.stored)

    for each in (left, waited):  # nor is it told that it may
        assert Role.MODEL not in each.value.record.deciders
    assert (await house.states(), child.servers.ran) == ([State.PENDING], [])


@promise("claim:judged-again")
async def test_the_model_cannot_approve_what_a_rule_has_come_to_deny(house: Gatehouse) -> None:
    paused = await house.pause()
    house.configure(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await house.go_on(paused.workflow.id)

    assert house.servers.ran == []


@promise("claim:judged-again")
async def test_what_was_allowed_elsewhere_does_not_run_when_a_rule_has_come_to_deny_it(
    house: Gatehouse,
) -> None:
    paused = await house.pause()
    await house.office.allow(paused.record)
    house.configure(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await house.go_on(paused.workflow.id)

    assert house.servers.ran == []


async def test_a_call_that_was_allowed_elsewhere_runs(house: Gatehouse) -> None:
    paused = await house.pause(asking=FakeAsking(has_form=True))
    await house.office.allow(paused.record)

    await house.go_on(paused.workflow.id)

    assert (house.servers.ran, await house.states()) == ([RAN], [State.COMPLETED])


@promise("gate:approved-is-executed")
async def test_a_call_that_was_edited_elsewhere_runs_as_it_was_edited(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.office.allow(paused.record, updated_input=OTHER)

    await house.go_on(paused.workflow.id, arguments=ARGUMENTS)

    assert house.servers.ran == [("notes", "tools/call", {"name": "add", "arguments": OTHER})]


@promise("workflow:once")
async def test_a_denial_made_elsewhere_is_told_once(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.office.deny(paused.record, message="use the other list")

    with pytest.raises(NotApproved) as refused:
        await house.go_on(paused.workflow.id)
    with pytest.raises(WorkflowGone):
        await house.go_on(paused.workflow.id)

    assert (refused.value.message, refused.value.outcome) == (
        "Tool execution denied by user: use the other list",
        State.DENIED,
    )
    assert house.servers.ran == []


async def test_a_call_that_is_given_up_is_denied_with_the_guidance(house: Gatehouse) -> None:
    paused = await house.pause()

    with pytest.raises(WorkflowAborted) as aborted:
        await house.go_on(paused.workflow.id, approved=False, message="use the other list")

    record = await house.office.stored(paused.record)
    assert (aborted.value.message, aborted.value.guidance) == (
        "Workflow aborted by user: use the other list",
        "use the other list",
    )
    assert (record.status, record.response_message, house.servers.ran) == (
        State.DENIED,
        "use the other list",
        [],
    )


async def test_a_call_that_is_given_up_without_guidance_says_so_in_the_agreed_words(house: Gatehouse) -> None:
    paused = await house.pause()

    with pytest.raises(WorkflowAborted) as aborted:
        await house.go_on(paused.workflow.id, approved=False)
    with pytest.raises(WorkflowGone):
        await house.go_on(paused.workflow.id)

    assert (aborted.value.message, aborted.value.guidance) == ("Workflow aborted by user", None)


@promise("workflow:once")
async def test_to_give_up_a_call_that_was_allowed_withdraws_the_answer(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.office.allow(paused.record)

    with pytest.raises(WorkflowAborted):
        await house.go_on(paused.workflow.id, approved=False)
    asked_again = await house.pause()

    assert await house.states() == [State.CANCELLED, State.PENDING]
    assert (asked_again.record.id != paused.record.id, house.servers.ran) == (True, [])


async def test_to_give_up_a_call_that_is_allowed_at_that_moment_withdraws_the_answer(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = await house.pause()
    decide = workflows.decide

    async def decide_late(context: Context, approval_id: ApprovalId, decision: Decision) -> Decided:
        await house.office.allow(paused.record)
        return await decide(context, approval_id, decision)

    monkeypatch.setattr(workflows, "decide", decide_late)
    with pytest.raises(WorkflowAborted):
        await house.go_on(paused.workflow.id, approved=False)

    assert (await house.states(), house.servers.ran) == ([State.CANCELLED], [])


async def test_the_first_answer_counts_when_the_model_approves_what_is_denied_at_that_moment(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = await house.pause()
    decide = workflows.decide

    async def decide_late(context: Context, approval_id: ApprovalId, decision: Decision) -> Decided:
        await house.office.deny(paused.record)
        return await decide(context, approval_id, decision)

    monkeypatch.setattr(workflows, "decide", decide_late)
    with pytest.raises(NotApproved, match="denied by user"):
        await house.go_on(paused.workflow.id)

    assert (await house.states(), house.servers.ran) == ([State.DENIED], [])


@promise("workflow:bound-to-its-call")
@pytest.mark.parametrize("approved", [True, False])
async def test_a_workflow_nobody_issued_is_not_found(house: Gatehouse, approved: bool) -> None:
    with pytest.raises(WorkflowGone, match="Workflow expired or not found"):
        await house.go_on("00000000-0000-4000-8000-00000000ffff", approved=approved)


@promise("workflow:bound-to-its-call")
@pytest.mark.parametrize("approved", [True, False])
async def test_another_principal_can_neither_continue_a_workflow_nor_give_it_up(
    house: Gatehouse, approved: bool
) -> None:
    paused = await house.pause()
    other = await house.reconnect(principal="eve")

    with pytest.raises(WorkflowGone):
        await other.go_on(paused.workflow.id, approved=approved)

    assert (await house.states(), other.servers.ran) == ([State.PENDING], [])


@promise("workflow:bound-to-its-call")
@pytest.mark.parametrize("approved", [True, False])
async def test_another_tool_can_neither_continue_a_workflow_nor_give_it_up(
    house: Gatehouse, approved: bool
) -> None:
    paused = await house.pause()

    with pytest.raises(WorkflowGone):
        await house.go_on(paused.workflow.id, tool="notes:list", approved=approved)

    assert (await house.states(), house.servers.ran) == ([State.PENDING], [])


async def test_pmls_own_call_continues_the_workflow_of_any_tool(house: Gatehouse) -> None:
    paused = await house.pause()

    await house.go_on(paused.workflow.id, tool=None)

    assert house.servers.ran == [RAN]


@promise("workflow:bound-to-its-call")
async def test_other_arguments_are_refused_and_the_workflow_lives_on(house: Gatehouse) -> None:
    paused = await house.pause()

    with pytest.raises(Invalid, match="not the arguments that were asked about"):
        await house.go_on(paused.workflow.id, arguments=OTHER)
    assert (await house.states(), house.servers.ran) == ([State.PENDING], [])

    await house.go_on(paused.workflow.id, arguments=ARGUMENTS)
    assert house.servers.ran == [RAN]


@promise("workflow:once")
async def test_a_workflow_is_continued_once(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.go_on(paused.workflow.id)

    for approved in (True, False):
        with pytest.raises(WorkflowGone):
            await house.go_on(paused.workflow.id, approved=approved)

    assert house.servers.ran == [RAN]


@promise("workflow:once")
async def test_a_workflow_whose_answer_the_same_call_has_used_is_gone(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.office.allow(paused.record)
    await house.call(offered=False)

    with pytest.raises(WorkflowGone):
        await house.go_on(paused.workflow.id)

    assert house.servers.ran == [RAN]


@promise("workflow:once")
async def test_of_two_that_continue_a_workflow_at_once_one_runs(house: Gatehouse) -> None:
    paused = await house.pause()

    results = await asyncio.gather(
        house.go_on(paused.workflow.id), house.go_on(paused.workflow.id), return_exceptions=True
    )

    assert sorted(type(result).__name__ for result in results) == ["WorkflowGone", "bytes"]
    assert house.servers.ran == [RAN]


@promise("workflow:once")
@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("has_answer", [True, False])
async def test_a_workflow_whose_time_is_over_is_gone(
    house: Gatehouse, approved: bool, has_answer: bool
) -> None:
    paused = await house.pause()
    if has_answer:
        await house.office.allow(paused.record)
    house.office.clock.advance(300)

    with pytest.raises(WorkflowGone):
        await house.go_on(paused.workflow.id, approved=approved)

    assert (await house.states(), house.servers.ran) == ([State.EXPIRED], [])


async def test_a_workflow_whose_question_was_withdrawn_is_gone(house: Gatehouse) -> None:
    paused = await house.pause()
    await cancel(house.office.context, paused.record.id, reason="the agent's session ended")

    with pytest.raises(WorkflowGone):
        await house.go_on(paused.workflow.id)


@promise("run:unknown-never-rerun")
async def test_a_workflow_whose_call_was_given_up_while_it_ran_tells_that_nobody_knows(
    house: Gatehouse,
) -> None:
    paused = await house.pause()
    house.servers.hangs = True
    calling = asyncio.create_task(house.go_on(paused.workflow.id))
    async with asyncio.timeout(BOUND_S):
        await house.servers.running.wait()
    await interrupt(calling)

    with pytest.raises(NotApproved) as refused:
        await house.go_on(paused.workflow.id)

    assert (refused.value.outcome, house.servers.ran) == (State.UNKNOWN, [RAN])


@promise("approval:survives-restart")
async def test_a_workflow_is_continued_after_a_restart(house: Gatehouse) -> None:
    paused = await house.pause()
    after = await house.reconnect()

    await after.go_on(paused.workflow.id)

    assert (house.servers.ran, after.servers.ran) == ([], [RAN])


async def test_always_writes_the_rule_and_uses_the_answer_up(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={}, allow=[])
    await house.office.trust()
    paused = await house.pause()

    await house.go_on(paused.workflow.id, always=True)
    await house.call(offered=False)

    assert rules_of(house.office.read(), "allow") == [TOOL]
    assert (await house.states(), house.servers.ran) == ([State.COMPLETED], [RAN, RAN])


async def test_an_answer_remembered_for_the_session_is_used_up_by_its_own_call(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.office.allow(paused.record, scope=Scope.SESSION)

    await house.go_on(paused.workflow.id)

    assert (await house.states(), house.servers.ran) == ([State.COMPLETED], [RAN])


async def test_the_same_call_made_again_is_left_with_the_same_workflow(house: Gatehouse) -> None:
    first, again = await house.pause(), await house.pause()

    assert again.workflow.id == first.workflow.id
    assert await house.states() == [State.PENDING]


@promise("workflow:bound-to-its-call")
async def test_what_is_no_tool_is_not_continued_as_one(house: Gatehouse) -> None:
    house.configure(ask=["notes:resources/read"])
    with pytest.raises(Paused) as paused:
        await house.call("notes:resources/read", {"uri": "note://1"}, method="resources/read")

    with pytest.raises(WorkflowGone):
        await house.go_on(paused.value.workflow.id, tool=None)

    assert (await house.states(), house.servers.ran) == ([State.PENDING], [])


async def test_what_is_no_tool_is_served_when_it_is_asked_for_again_after_it_was_allowed(
    house: Gatehouse,
) -> None:
    house.configure(ask=["notes:resources/read"])
    read = "notes:resources/read"
    with pytest.raises(Paused) as paused:
        await house.call(read, {"uri": "note://1"}, method="resources/read")
    await house.office.allow(paused.value.record)

    await house.call(read, {"uri": "note://1"}, method="resources/read")

    assert house.servers.ran == [("notes", "resources/read", {"uri": "note://1"})]
