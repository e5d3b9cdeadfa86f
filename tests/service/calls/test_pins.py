"""Pins: a tool is called as it was first used, or as a person accepted it since."""

import asyncio

import pytest
from msgspec.structs import replace

from pml.core.approvals.record import Approval, OwnerId, Scope, State, Subject
from pml.core.errors import NotApproved
from pml.core.ports.records import Pin
from pml.core.servers.manifest import definition_digest, definition_of
from pml.core.servers.spec import ServerSpec
from pml.service.approvals.claims import claim
from pml.service.call import Paused
from pml.service.policy.policy import current_policy
from tests.builders import NOW, PERSON
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import ADD, ARGUMENTS, CHANGED, LIST, RAN, TOOL, Gatehouse
from tests.service.offices import BOUND_S, until_idle


async def spec(house: Gatehouse) -> ServerSpec:
    policy = await current_policy(house.office.context, house.session.workspace)
    return policy.settings.servers["notes"]


async def pin(house: Gatehouse) -> Pin | None:
    return await house.office.context.store.pins.get("notes", (await spec(house)).target_digest, "add")


async def test_a_tool_is_pinned_at_its_first_use_as_its_server_describes_it(house: Gatehouse) -> None:
    await house.call()

    assert await pin(house) == Pin(
        server="notes",
        target_digest=(await spec(house)).target_digest,
        action="add",
        definition=definition_of(ADD),
        digest=definition_digest(ADD),
        pinned_at=NOW,
    )


@promise("pins:never-silently")
async def test_a_changed_tool_is_not_called_before_a_person_accepts_the_change(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)
    asking = FakeAsking(house.waiting())
    calling = asyncio.create_task(house.call(asking=asking))
    await until_idle(calling)
    assert house.servers.ran == [RAN]
    before = await pin(house)
    assert (before and before.digest) == definition_digest(ADD)

    await house.office.allow(asking.asked[0])
    async with asyncio.timeout(BOUND_S):
        await calling

    after = await pin(house)
    assert (after and after.digest) == definition_digest(CHANGED)
    assert (house.servers.ran, await house.states()) == ([RAN, RAN], [State.COMPLETED])


async def test_the_question_about_a_changed_tool_shows_what_is_new(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)

    record = (await house.pause(offered=True)).record

    assert (record.subject, record.tool_name, record.definition) == (
        Subject.TOOL_CHANGED,
        TOOL,
        definition_digest(CHANGED),
    )
    assert record.tool_input == {
        "diff": [
            " name: add",
            "-description: Adds a note.",
            "+description: Adds a note and sends it away.",
            " inputSchema = {",
        ],
        "was": definition_digest(ADD),
        "now": definition_digest(CHANGED),
    }


@promise("pins:never-silently")
async def test_a_change_that_is_denied_refuses_the_call_and_leaves_the_pin(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)

    with pytest.raises(NotApproved) as refused:
        await house.call(asking=FakeAsking(house.denying("I do not know this tool")))

    assert (refused.value.message, refused.value.outcome) == (
        "Tool execution denied by user: I do not know this tool",
        State.DENIED,
    )
    kept = await pin(house)
    assert (kept and kept.digest, house.servers.ran) == (definition_digest(ADD), [RAN])


@promise("pins:never-silently")
@pytest.mark.parametrize(
    "rules", [{"allow": [TOOL]}, {"allow": ["*"]}, {}], ids=["tool", "all", "asking off"]
)
async def test_no_rule_lets_a_changed_tool_be_called_unasked(
    house: Gatehouse, rules: dict[str, list[str]]
) -> None:
    house.configure(allow=[*rules.get("allow", [])], approval={"enabled": bool(rules)})
    await house.call(offered=False)
    house.servers.offer("notes", CHANGED, LIST)

    paused = await house.pause(offered=True)

    assert (paused.record.subject, house.servers.ran) == (Subject.TOOL_CHANGED, [RAN])


async def test_a_grant_from_before_does_not_cover_the_changed_tool(house: Gatehouse) -> None:
    await house.call(asking=FakeAsking(house.allowing(scope=Scope.SESSION)), offered=False)
    house.servers.offer("notes", CHANGED, LIST)
    asking = FakeAsking(house.allowing())

    paused = await house.pause(asking=asking, offered=False)

    assert [record.subject for record in asking.asked] == [Subject.TOOL_CHANGED, Subject.TOOL_CALL]
    assert (paused.record.subject, house.servers.ran) == (Subject.TOOL_CALL, [RAN])


async def test_an_approval_from_before_does_not_cover_the_changed_tool(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.office.allow(paused.record)
    house.servers.offer("notes", CHANGED, LIST)

    changed = await house.pause()
    await house.office.allow(changed.record)
    asked_anew = await house.pause()

    assert (changed.record.subject, asked_anew.record.subject) == (Subject.TOOL_CHANGED, Subject.TOOL_CALL)
    assert (asked_anew.record.id != paused.record.id, house.servers.ran) == (True, [])


async def test_a_server_that_is_started_in_another_way_begins_anew(house: Gatehouse) -> None:
    await house.call()
    house.configure(servers={"notes": {"command": "notes-server", "args": ["--new"]}})
    house.servers.offer("notes", CHANGED, LIST)
    asking = FakeAsking()

    await house.call(asking=asking)

    pinned = await pin(house)
    assert (asking.asked, house.servers.ran) == ([], [RAN, RAN])
    assert (pinned and pinned.digest) == definition_digest(CHANGED)


@promise("pins:never-silently")
async def test_a_tool_that_changes_between_the_proof_and_the_run_is_asked_about(house: Gatehouse) -> None:
    await house.call()

    async def change() -> None:
        house.servers.before_request = None
        house.servers.offer("notes", CHANGED, LIST)

    house.servers.before_request = change
    paused = await house.pause(offered=True)

    assert (paused.record.subject, house.servers.ran) == (Subject.TOOL_CHANGED, [RAN])


@promise("pins:never-silently")
async def test_a_tool_that_changes_again_before_the_answer_is_asked_about_again(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)

    async def allow_and_change(record: Approval) -> Approval:
        house.servers.offer("notes", {**CHANGED, "description": "Something else."}, LIST)
        return (await house.office.allow(record)).record

    asking = FakeAsking(allow_and_change)
    await house.pause(asking=asking, offered=True)

    assert [record.subject for record in asking.asked] == [Subject.TOOL_CHANGED] * 2
    accepted = await pin(house)
    assert (accepted and accepted.digest, house.servers.ran) == (definition_digest(CHANGED), [RAN])


@promise("pins:never-silently")
async def test_an_acceptance_is_no_acceptance_of_the_same_change_later(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)
    first, other = (
        await house.pause(offered=True),
        await house.pause(arguments={"text": "other"}, offered=True),
    )
    await house.office.allow(first.record)
    await house.go_on(first.workflow.id)
    house.servers.offer("notes", ADD, LIST)
    await house.call(asking=FakeAsking(house.allowing()))
    house.servers.offer("notes", CHANGED, LIST)
    ran = [*house.servers.ran]

    with pytest.raises(Paused) as asked_anew:
        await house.go_on(other.workflow.id)

    assert (asked_anew.value.record.subject, house.servers.ran) == (Subject.TOOL_CHANGED, ran)
    kept = await pin(house)
    assert (kept and kept.digest) == definition_digest(ADD)


async def test_two_calls_that_wait_for_one_acceptance_both_run(house: Gatehouse) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)
    asking = FakeAsking(house.waiting(), house.waiting())
    calls = [
        asyncio.create_task(house.call(arguments=arguments, asking=asking))
        for arguments in (ARGUMENTS, {"text": "other"})
    ]
    for call in calls:
        await until_idle(call)
    assert asking.asked[0].id == asking.asked[1].id

    await house.office.allow(asking.asked[0])
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*calls)

    assert (len(house.servers.ran), len(asking.asked)) == (3, 2)


@promise("pins:never-silently")
async def test_an_acceptance_that_another_process_took_and_did_not_carry_out_pins_nothing(
    house: Gatehouse,
) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)

    async def allow_and_die(record: Approval) -> Approval:
        await house.office.allow(record)
        other = house.office.context_of(OwnerId("owner-2"))
        claimed = await claim(other, record.id, definition=record.definition, artefact=record.artefact)
        house.office.owners.others.clear()
        return claimed

    paused = await house.pause(asking=FakeAsking(allow_and_die), offered=True)

    assert (paused.record.subject, house.servers.ran) == (Subject.TOOL_CHANGED, [RAN])
    assert await house.states() == [State.UNKNOWN, State.PENDING]
    kept = await pin(house)
    assert (kept and kept.digest) == definition_digest(ADD)


async def test_a_denial_of_a_change_that_nobody_waited_for_is_told_to_the_next_same_call(
    house: Gatehouse,
) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)
    paused = await house.pause(offered=True)
    await house.office.deny(paused.record, by=PERSON, message="I do not know this tool")

    with pytest.raises(NotApproved, match="I do not know this tool"):
        await house.call()


@promise("load:asks-nothing-needless")
async def test_a_change_that_was_accepted_while_it_was_about_to_be_asked_about_is_not_asked_about(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.call()
    house.servers.offer("notes", CHANGED, LIST)
    store = house.office.context.store
    ask = store.approvals.ask

    async def accept_first(approval: Approval, *, max_pending: int) -> Approval:
        before = await pin(house)
        assert before is not None
        after = replace(before, definition=definition_of(CHANGED), digest=definition_digest(CHANGED))
        await store.pins.put(after, by=PERSON)
        return await ask(approval, max_pending=max_pending)

    monkeypatch.setattr(store.approvals, "ask", accept_first)
    asking = FakeAsking()
    await house.call(asking=asking)

    assert (asking.asked, house.servers.ran) == ([], [RAN, RAN])
    assert await house.states() == [State.CANCELLED]
