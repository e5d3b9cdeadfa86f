"""Workflows of calls that wait for trust in a file or for the acceptance of a changed tool."""

import dataclasses

import pytest

from pml.core.approvals.record import Channel, Decider, DeciderKind, Role, State, Subject
from pml.core.config.file import FileKind
from pml.core.errors import Changed, NotApproved, WorkflowAborted
from pml.core.ports.queries import AuditQuery
from pml.core.ports.records import Grant
from pml.core.rules.ruleset import Call, Effect, VerdictKind
from pml.core.values import JsonObject
from pml.service.approvals.claims import claim
from pml.service.approvals.trust import untrust_workspace
from pml.service.call import Paused, PendingCall
from pml.service.calls.pipeline import call_tool
from pml.service.calls.workflows import Continuation, resume
from pml.service.policy.memory import init_workspace
from pml.service.policy.model_rules import rules_of_models
from pml.service.policy.policy import current_policy, judge
from pml.service.rules.rules import explain, listed_rules
from tests.builders import PERSON
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import CHANGED, LIST, RAN, TOOL, Gatehouse

OTHER: JsonObject = {"text": "other"}


@promise("gate:agent-cannot-approve-itself")
async def test_the_model_cannot_trust_a_file_with_a_workflow(house: Gatehouse) -> None:
    house.only_in_workspace()
    paused = await house.pause()

    with pytest.raises(Paused) as again:
        await house.go_on(paused.workflow.id, always=True)

    assert (again.value.workflow, again.value.record.deciders) == (paused.workflow, {Role.PERSON})
    assert (await house.states(), house.servers.started) == ([State.PENDING], [])


@promise("gate:agent-cannot-approve-itself")
async def test_the_model_cannot_accept_a_changed_tool_with_a_workflow(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)
    paused = await house.pause(offered=True)

    with pytest.raises(Paused):
        await house.go_on(paused.workflow.id)

    assert (await house.states(), house.servers.ran) == ([State.PENDING], [RAN])


async def test_to_give_up_a_call_that_needs_trust_withdraws_the_question_and_denies_nothing(
    house: Gatehouse,
) -> None:
    house.only_in_workspace()
    paused = await house.pause()

    with pytest.raises(WorkflowAborted):
        await house.go_on(paused.workflow.id, approved=False)
    asked_again = await house.pause()

    assert await house.states() == [State.CANCELLED, State.PENDING]
    assert asked_again.record.subject is Subject.WORKSPACE_TRUST


async def test_two_calls_that_wait_for_trust_have_a_workflow_each(house: Gatehouse) -> None:
    house.only_in_workspace()
    first, second = await house.pause(offered=True), await house.pause(arguments=OTHER, offered=True)
    assert first.record.id == second.record.id
    await house.office.allow(first.record)

    await house.go_on(second.workflow.id)
    await house.go_on(first.workflow.id)

    assert len({first.workflow.id, second.workflow.id, first.record.id}) == 3
    assert house.servers.ran == [("notes", "tools/call", {"name": "add", "arguments": OTHER}), RAN]


async def test_a_call_that_was_left_for_trust_goes_on_to_its_own_question(house: Gatehouse) -> None:
    house.only_in_workspace()
    trust = await house.pause()
    await house.office.allow(trust.record)

    with pytest.raises(Paused) as paused:
        await house.go_on(trust.workflow.id)
    await house.go_on(paused.value.workflow.id)

    assert (paused.value.record.subject, house.servers.ran) == (Subject.TOOL_CALL, [RAN])


async def test_trust_that_was_denied_elsewhere_is_told_to_the_call_that_waits(house: Gatehouse) -> None:
    house.only_in_workspace()
    paused = await house.pause()
    await house.office.deny(paused.record)

    with pytest.raises(NotApproved, match="denied by user"):
        await house.go_on(paused.workflow.id)

    assert house.servers.started == []


@promise("trust:no-server-before-trust")
async def test_trust_that_was_given_and_taken_back_is_asked_for_again(house: Gatehouse) -> None:
    house.only_in_workspace()
    first, second = await house.pause(offered=True), await house.pause(arguments=OTHER, offered=True)
    await house.office.allow(first.record)
    await house.go_on(first.workflow.id)
    await untrust_workspace(house.office.context, str(house.office.workspace), by=PERSON)

    with pytest.raises(Paused) as asked_anew:
        await house.go_on(second.workflow.id)

    assert (asked_anew.value.record.subject, house.servers.ran) == (Subject.WORKSPACE_TRUST, [RAN])


async def test_a_file_that_changed_since_trust_was_allowed_is_not_trusted_by_the_workflow(
    house: Gatehouse,
) -> None:
    house.only_in_workspace()
    paused = await house.pause()
    await house.office.allow(paused.record)
    house.configure(FileKind.WORKSPACE, servers={"notes": {"command": "another-server"}})

    with pytest.raises(Paused) as asked_anew:
        await house.go_on(paused.workflow.id)

    assert (asked_anew.value.record.id != paused.record.id, house.servers.started) == (True, [])


async def test_a_call_that_was_left_for_a_changed_tool_goes_on_when_it_is_accepted(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)
    paused = await house.pause(offered=True)
    await house.office.allow(paused.record)

    await house.go_on(paused.workflow.id)

    assert house.servers.ran == [RAN, RAN]


@promise("consent:model-plain-only")
async def test_an_always_of_a_model_is_marked_as_its_in_the_files_trust_and_in_the_list(
    house: Gatehouse,
) -> None:
    await init_workspace(house.office.context, house.session.workspace)
    paused = await house.pause()
    await house.go_on(paused.workflow.id, always=True)
    context, workspace = house.office.context, house.session.workspace
    policy = await current_policy(context, workspace)
    listed = listed_rules(policy, context.clock.now(), await rules_of_models(context, workspace))

    assert [
        (each.rule.entry, each.note, each.counts) for each in listed if each.rule.effect is Effect.ALLOW
    ] == [
        (
            TOOL,
            "confirmed by the client `agent` or its model, not by a person: covers no commands or code",
            True,
        )
    ]
    trusted = [
        it.entry
        for it in await context.store.audit.list(AuditQuery())
        if it.entry.kind == "workspace.trusted"
    ]
    model = Decider(kind=DeciderKind.CLIENT, id="agent", channel=Channel.MODEL)
    assert model in [entry.by for entry in trusted]


@promise("consent:always-of-models")
async def test_explaining_a_command_says_that_a_models_rule_does_not_cover_it(house: Gatehouse) -> None:
    await init_workspace(house.office.context, house.session.workspace)
    paused = await house.pause()
    await house.go_on(paused.workflow.id, always=True)
    context, workspace = house.office.context, house.session.workspace
    plain = await explain(context, workspace, Call(tool=TOOL, arguments={"text": "more"}))
    command = await explain(context, workspace, Call(tool=TOOL, arguments={"command": "ls"}))

    assert (plain.judged.kind, plain.near) == (VerdictKind.ALLOW, [])
    assert command.judged.kind is VerdictKind.UNLISTED
    assert [note for _, note in command.near] == ["no person confirmed it: covers no commands or code"]


async def test_a_client_whose_answers_do_not_apply_continues_nothing(house: Gatehouse) -> None:
    paused = await house.pause()
    assert Role.MODEL in paused.record.deciders
    house.gate = dataclasses.replace(house.gate, client_answers=False)

    with pytest.raises(Paused):
        await house.go_on(paused.workflow.id)
    assert house.servers.ran == []


@promise("consent:model-plain-only")
async def test_a_models_word_does_not_hold_for_a_call_that_a_rule_asks_about_by_now(house: Gatehouse) -> None:
    paused = await house.pause()
    said = Continuation(workflow_id=paused.workflow.id, approved=True)
    attempt, settled = await resume(house.gate, said, given=None, client="agent")
    house.configure(ask=[{"tool": TOOL, "args": {"text": "hello"}}])

    with pytest.raises(Paused) as anew:
        await call_tool(PendingCall(house.gate, attempt, FakeAsking(), settled=settled))
    assert anew.value.record.deciders == {Role.PERSON}
    assert (house.servers.ran, await house.states()) == ([], [State.CANCELLED, State.PENDING])


@promise("consent:model-plain-only")
async def test_a_models_word_is_not_claimed_once_a_rule_asks(house: Gatehouse) -> None:
    paused = await house.pause()
    said = Continuation(workflow_id=paused.workflow.id, approved=True)
    _, settled = await resume(house.gate, said, given=None, client="agent")
    house.configure(ask=[{"tool": TOOL, "args": {"text": "hello"}}])

    with pytest.raises(Changed, match="was not given by a person"):
        await claim(
            house.office.context, settled.id, definition=settled.definition, artefact=settled.artefact
        )
    assert await house.states() == [State.CANCELLED]


@promise("consent:model-plain-only")
async def test_what_a_model_was_granted_covers_no_call_that_a_rule_asks_about(house: Gatehouse) -> None:
    house.configure(ask=[{"tool": TOOL, "args": {"text": "secret"}}])
    context, by = house.office.context, Decider(kind=DeciderKind.CLIENT, id="agent", channel=Channel.MODEL)
    policy = await current_policy(context, house.session.workspace)
    await context.store.grants.add(
        Grant(
            id="g", session_id=house.session.id, tool=TOOL, digest=None, by=by, created_at=context.clock.now()
        )
    )

    for text, kind in (("hello", VerdictKind.ALLOW), ("secret", VerdictKind.ASK)):
        call = Call(tool=TOOL, arguments={"text": text}, cwd=house.session.workspace)
        assert (await judge(context, policy, call, session=house.session)).kind is kind
