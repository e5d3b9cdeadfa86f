"""Calls that ask: nothing runs before the answer, and one answer is one run of exactly what was allowed."""

import asyncio
import dataclasses

import msgspec
import pytest

from pml.core.approvals.record import LIVE, Approval, Role, Scope, State, Subject
from pml.core.config.file import FileKind
from pml.core.errors import (
    ApprovalExpired,
    Changed,
    NotApproved,
    NotFound,
    ServerFailed,
    ServerRefused,
    ToolDenied,
    TooManyPending,
    Unavailable,
)
from pml.core.sessions.token import TokenRole
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import cancel, pending, wait
from pml.service.call import Paused
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.gatehouses import CHANGED, RAN, TOOL, Gatehouse, interrupt
from tests.service.offices import BOUND_S, until_idle
from tests.service.warehouses import Warehouse

EDITED: JsonObject = {"text": "edited"}
EDITED_RAN = ("notes", "tools/call", {"name": "add", "arguments": EDITED})


def start(house: Gatehouse, asking: FakeAsking) -> "asyncio.Task[bytes]":
    return asyncio.create_task(house.call(asking=asking, offered=False))


@promise("gate:asks-before-running")
async def test_nothing_runs_while_the_question_waits_and_once_when_it_is_allowed(house: Gatehouse) -> None:
    asking = FakeAsking(house.waiting())
    calling = start(house, asking)
    await until_idle(calling)
    assert house.servers.ran == []

    await house.office.allow(asking.asked[0])
    async with asyncio.timeout(BOUND_S):
        await calling

    assert house.servers.ran == [RAN]
    assert await house.states() == [State.COMPLETED]


@promise("gate:approved-is-executed")
async def test_an_edited_call_runs_with_the_edited_arguments_and_no_others(house: Gatehouse) -> None:
    await house.call(asking=FakeAsking(house.allowing(updated_input=EDITED)), offered=False)

    assert house.servers.ran == [EDITED_RAN]


@promise("run:at-most-once")
async def test_an_approval_serves_one_call_and_the_next_asks_again(house: Gatehouse) -> None:
    asking = FakeAsking(house.allowing())
    await house.call(asking=asking, offered=False)

    await house.pause(offered=False)

    assert house.servers.ran == [RAN]


@promise("run:at-most-once")
async def test_an_approval_that_comes_with_the_call_a_second_time_is_refused(house: Gatehouse) -> None:
    asking = FakeAsking(house.allowing())
    await house.call(asking=asking, offered=False)
    used = await house.office.stored(asking.asked[0])

    with pytest.raises(NotApproved, match="used before"):
        await house.call(settled=used, offered=False)

    assert house.servers.ran == [RAN]


@promise("run:at-most-once")
async def test_of_two_same_calls_that_wait_for_one_answer_one_runs_and_the_other_asks_for_its_own(
    house: Gatehouse,
) -> None:
    asking = FakeAsking(house.waiting(), house.waiting())
    calls = [start(house, asking), start(house, asking)]
    for call in calls:
        await until_idle(call)
    assert asking.asked[0].id == asking.asked[1].id

    await house.office.allow(asking.asked[0])
    async with asyncio.timeout(BOUND_S):
        results = await asyncio.gather(*calls, return_exceptions=True)

    assert house.servers.ran == [RAN]
    assert sorted(type(result).__name__ for result in results) == ["Paused", "bytes"]
    assert len(asking.asked) == 3


@promise("run:at-most-once")
async def test_a_call_that_finds_its_answer_used_by_the_same_call_asks_for_its_own(house: Gatehouse) -> None:
    async def wait_until_used(record: Approval) -> Approval:
        return await wait(house.office.context, record.id, during=LIVE)

    asking = FakeAsking(wait_until_used)
    late = start(house, asking)
    await until_idle(late)

    await house.call(asking=FakeAsking(house.allowing()), offered=False)
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(Paused):
            await late

    assert (house.servers.ran, len(asking.asked)) == ([RAN], 2)


async def test_of_two_same_calls_both_run_when_the_answer_is_remembered_for_the_session(
    house: Gatehouse,
) -> None:
    asking = FakeAsking(house.waiting(), house.waiting())
    calls = [start(house, asking), start(house, asking)]
    for call in calls:
        await until_idle(call)

    await house.office.allow(asking.asked[0], scope=Scope.SESSION)
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*calls)

    assert (house.servers.ran, len(asking.asked)) == ([RAN, RAN], 2)


@promise("expiry:not-denial")
@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (State.DENIED, "Tool execution denied by user: not today"),
        (State.EXPIRED, "Approval timed out"),
        (State.CANCELLED, "Approval cancelled: no longer needed"),
    ],
)
async def test_a_question_that_is_not_allowed_refuses_the_call_in_its_own_words(
    house: Gatehouse, outcome: State, words: str
) -> None:
    async def expire(record: Approval) -> Approval:
        house.office.clock.advance(301)
        return await house.waiting()(record)

    async def withdraw(record: Approval) -> Approval:
        return await cancel(house.office.context, record.id, reason="no longer needed")

    answers = {State.DENIED: house.denying("not today"), State.EXPIRED: expire, State.CANCELLED: withdraw}
    with pytest.raises(NotApproved) as refused:
        await house.call(asking=FakeAsking(answers[outcome]), offered=False)

    assert (refused.value.message, refused.value.outcome) == (words, outcome)
    assert (house.servers.ran, await house.states()) == ([], [outcome])


async def test_an_answer_that_is_not_collected_in_time_is_not_used(house: Gatehouse) -> None:
    async def allow_and_dawdle(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        house.office.clock.advance(301)
        return allowed

    with pytest.raises(ApprovalExpired):
        await house.call(asking=FakeAsking(allow_and_dawdle), offered=False)

    assert house.servers.ran == []


async def test_the_question_is_withdrawn_when_the_caller_gives_up_waiting(house: Gatehouse) -> None:
    calling = start(house, FakeAsking(house.waiting()))
    await until_idle(calling)

    await interrupt(calling)

    assert (await house.states(), house.servers.ran) == ([State.CANCELLED], [])


async def test_a_question_whose_workflow_was_issued_outlives_a_caller_who_gives_up(house: Gatehouse) -> None:
    paused = await house.pause()
    calling = start(house, FakeAsking(house.waiting()))
    await until_idle(calling)

    await interrupt(calling)

    stored = await house.office.stored(paused.record)
    assert (stored.status, stored.abandoned_at) == (State.PENDING, None)


@promise("run:unknown-never-rerun")
async def test_a_call_given_up_while_it_ran_is_unknown_and_never_run_again(house: Gatehouse) -> None:
    house.servers.hangs = True
    asking = FakeAsking(house.allowing())
    calling = start(house, asking)
    async with asyncio.timeout(BOUND_S):
        await house.servers.running.wait()

    await interrupt(calling)
    with pytest.raises(NotApproved) as refused:
        await house.call(settled=await house.office.stored(asking.asked[0]), offered=False)

    assert (refused.value.outcome, await house.states()) == (State.UNKNOWN, [State.UNKNOWN])
    assert house.servers.ran == [RAN]


async def test_a_call_given_up_while_it_was_claimed_did_not_run_and_is_cancelled(house: Gatehouse) -> None:
    async def allow_and_leave(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        asyncio.get_running_loop().call_soon(calling.cancel)
        return allowed

    calling = start(house, FakeAsking(allow_and_leave))
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert (await house.states(), house.servers.ran) == ([State.CANCELLED], [])


@pytest.mark.parametrize(
    "error", [ServerFailed("it died"), ServerRefused("no such note", error=b"{}"), Unavailable("it is full")]
)
async def test_a_server_that_fails_an_approved_call_ends_it_as_failed(
    house: Gatehouse, error: ServerFailed
) -> None:
    house.servers.error = error

    with pytest.raises(type(error)):
        await house.call(asking=FakeAsking(house.allowing()), offered=False)

    assert (await house.states(), house.servers.ran) == ([State.FAILED], [RAN])


async def test_a_failure_of_a_call_that_needed_no_approval_is_in_the_audit_log(house: Gatehouse) -> None:
    house.servers.error = ServerFailed("it died")

    with pytest.raises(ServerFailed):
        await house.call()

    assert [kind for kind, _ in await house.judged()] == ["call.allowed", "call.failed"]


async def test_a_server_that_cannot_be_started_fails_the_call_and_asks_nobody(house: Gatehouse) -> None:
    house.servers.start_error = ServerFailed("no such command")
    asking = FakeAsking(house.allowing())

    with pytest.raises(ServerFailed):
        await house.call(asking=asking, offered=False)

    assert asking.asked == []


@promise("gate:approved-is-executed")
async def test_an_answer_with_edited_arguments_is_used_also_when_a_rule_has_come_to_allow_the_call(
    house: Gatehouse,
) -> None:
    paused = await house.pause()
    allowed = (await house.office.allow(paused.record, updated_input=EDITED)).record
    house.configure(allow=[TOOL])

    await house.call(settled=allowed, offered=False)

    assert (house.servers.ran, await house.states()) == ([EDITED_RAN], [State.COMPLETED])


async def test_a_denial_that_comes_with_the_call_counts_also_when_a_rule_has_come_to_allow_it(
    house: Gatehouse,
) -> None:
    paused = await house.pause()
    denied = await house.office.deny(paused.record)
    house.configure(allow=[TOOL])

    with pytest.raises(NotApproved, match="denied by user"):
        await house.call(settled=denied, offered=False)

    assert house.servers.ran == []


async def test_a_denial_that_nobody_waited_for_is_told_to_the_next_same_call_once(house: Gatehouse) -> None:
    paused = await house.pause()
    await house.office.deny(paused.record, message="use the other list")

    with pytest.raises(NotApproved, match="use the other list"):
        await house.call(offered=False)
    asked_again = await house.pause()

    assert asked_again.record.id != paused.record.id


@pytest.mark.parametrize("config", [{}, {"notes": {"command": "another-server"}}], ids=["gone", "another"])
async def test_an_approved_call_does_not_run_on_a_server_that_was_reconfigured_meanwhile(
    house: Gatehouse, config: JsonObject
) -> None:
    async def allow_and_reconfigure(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        house.configure(servers=config)
        return allowed

    with pytest.raises((NotFound, Changed)):
        await house.call(asking=FakeAsking(allow_and_reconfigure), offered=False)

    assert house.servers.ran == []


@pytest.mark.parametrize(
    ("mode", "has_form", "deciders"),
    [
        (None, False, {Role.PERSON, Role.MODEL}),
        (None, True, {Role.PERSON, Role.FORM}),
        ("if_no_form", True, {Role.PERSON, Role.FORM}),
        ("never", False, {Role.PERSON}),
        ("never", True, {Role.PERSON, Role.FORM}),
        ("always", True, {Role.PERSON, Role.FORM, Role.MODEL}),
    ],
)
@promise("gate:agent-cannot-approve-itself")
async def test_a_model_may_allow_a_call_only_where_the_client_has_no_form_or_the_user_says_so(
    house: Gatehouse, mode: str | None, has_form: bool, deciders: set[Role]
) -> None:
    house.configure(approval={} if mode is None else {"model_may_approve": mode})

    paused = await house.pause(asking=FakeAsking(has_form=has_form))

    assert paused.record.deciders == deciders


async def test_no_model_may_allow_a_call_that_no_model_made(house: Gatehouse) -> None:
    house.configure(approval={"model_may_approve": "always"})

    paused = await house.pause(asking=FakeAsking(has_model=False))

    assert paused.record.deciders == {Role.PERSON}


@promise("gate:agent-cannot-approve-itself")
@pytest.mark.parametrize("has_form", [True, False])
async def test_a_model_may_never_trust_a_file_or_accept_a_changed_tool(
    house: Gatehouse, has_form: bool
) -> None:
    house.configure(approval={"model_may_approve": "always"})
    await house.call()
    house.servers.offer("notes", CHANGED)
    changed = await house.pause(asking=FakeAsking(has_form=has_form))
    house.configure(servers={}, approval={"model_may_approve": "always"})
    house.configure(FileKind.WORKSPACE)
    trust = await house.pause(asking=FakeAsking(has_form=has_form))

    assert (changed.record.subject, trust.record.subject) == (Subject.TOOL_CHANGED, Subject.WORKSPACE_TRUST)
    expected = {Role.PERSON, Role.FORM} if has_form else {Role.PERSON}
    assert (changed.record.deciders, trust.record.deciders) == (expected, expected)


async def test_at_most_twenty_questions_of_a_session_wait(house: Gatehouse) -> None:
    for n in range(20):
        await house.pause(arguments={"text": str(n)})

    with pytest.raises(TooManyPending):
        await house.call(arguments={"text": "one more"}, offered=False)

    assert len(await pending(house.office.context)) == 20


@promise("agent:nothing-unapproved")
@pytest.mark.parametrize("has_form", [True, False])
@pytest.mark.parametrize("role", [TokenRole.SESSION, TokenRole.CHILD])
@pytest.mark.parametrize("is_held", [True, False])
async def test_neither_form_nor_model_of_a_child_or_of_a_launched_agent_decides(
    house: Gatehouse, has_form: bool, role: TokenRole, is_held: bool
) -> None:
    session = msgspec.structs.replace(house.session, role=role)
    house.gate = dataclasses.replace(house.gate, session=session, is_held=is_held)
    paused = await house.pause(asking=FakeAsking(has_form=has_form))
    alone = role is TokenRole.CHILD or is_held
    assert (paused.record.deciders == {Role.PERSON}) is alone


@promise("consent:unlisted-asks")
async def test_what_a_client_lets_run_unasked_is_asked_about_though_it_is_left_to_the_client(
    house: Gatehouse,
) -> None:
    house.gate = dataclasses.replace(house.gate, asks_nothing=lambda: True)

    with pytest.raises(Paused):
        await house.call(offered=True)

    assert house.servers.ran == []


async def test_an_answer_that_ran_out_does_not_hold_up_a_call_that_a_rule_allows_by_now(
    house: Gatehouse,
) -> None:
    paused = await house.pause()
    house.office.clock.advance(paused.record.ttl_s + 1)
    over = await wait(house.office.context, paused.record.id)
    house.configure(allow=[TOOL])

    await house.call(offered=False, settled=over)

    assert (over.status, house.servers.ran) == (State.EXPIRED, [RAN])


@promise("rules:paths-from-every-folder")
@promise("claim:judged-again")
async def test_an_installed_servers_approved_call_is_judged_again_from_where_it_works(
    warehouse: Warehouse,
) -> None:
    data = warehouse.office.workspace.parent / "data"
    data.mkdir()
    dependency = make_dependency(args=("--root", str(data)))
    warehouse.sources.offer("memory", dependency)
    warehouse.place(dependency)

    async def allow_and_deny(record: Approval) -> Approval:
        warehouse.configure(deny=[{"tool": "memory:add", "args": {"path": {"under": str(data)}}}])
        return (await warehouse.office.allow(record)).record

    arguments: JsonObject = {"text": "x", "path": "secret"}
    with pytest.raises(ToolDenied):
        await warehouse.call("memory:add", arguments, asking=FakeAsking(allow_and_deny), offered=False)

    assert warehouse.servers.ran == []
