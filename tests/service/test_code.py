"""Code that calls tools: it waits where one of its calls is asked about, and nothing of it happens twice."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import Role, State
from pml.core.code.sandbox import Reply
from pml.core.errors import CodeFailed, ServerFailed, WorkflowAborted, WorkflowGone
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.core.ports.queries import ApprovalQuery
from pml.core.values import Json, JsonObject
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.calls.execute import go_on
from tests.fakes import FakeAsking
from tests.fakes_sandbox import value
from tests.promises import promise
from tests.service.offices import BOUND_S, Office, until_idle
from tests.service.workshops import Codehouse

Asked = list[tuple[str, JsonObject]]
Work = Generator[Asked, Reply, Any]


def add(text: str) -> tuple[str, JsonObject]:
    return "notes:add", {"text": text}


def three(args: Any) -> Work:
    """Add three notes, one after another."""
    for text in ("one", "two", "three"):
        value((yield [add(text)]))
    return "done"


def catching(args: Any) -> Work:
    """Add a note, and tell what came of it instead of failing."""
    reply = yield [add("one")]
    value((yield [add("after")]))
    return "none" if reply.fault is None else reply.fault.code


def at_once(args: Any) -> Work:
    """Add three notes at once."""
    yield [add("one"), add("two"), add("three")]
    yield []
    yield []
    return "done"


TWO_ASKS: list[Json] = [
    {"tool": "notes:add", "args": {"text": "one"}},
    {"tool": "notes:add", "args": {"text": "three"}},
]


@pytest.fixture
async def house(office: Office) -> Codehouse:
    return await Codehouse.open(office, {"three": three, "catching": catching, "at once": at_once})


async def paused_at_two(house: Codehouse) -> Paused:
    house.configure(allow=TWO_ASKS)
    with pytest.raises(Paused) as paused:
        await house.run("three", asking=FakeAsking(has_form=True))  # so that the model cannot confirm it
    return paused.value


async def test_code_whose_calls_are_allowed_runs_to_its_end(house: Codehouse) -> None:
    house.configure(allow=["notes:*"])

    assert await house.run("three") == "done"
    assert house.added == ["one", "two", "three"]


@promise("code:pause-repeats-nothing")
async def test_code_waits_at_the_call_that_asks_and_goes_on_from_there(house: Codehouse) -> None:
    paused = await paused_at_two(house)
    assert house.added == ["one"]

    await house.allow(paused.record)

    assert await house.resume(paused) == "done"
    assert house.added == ["one", "two", "three"]
    assert len(house.sandbox.opened) == 1


@promise("code:pause-repeats-nothing")
async def test_after_a_restart_code_goes_on_and_repeats_nothing(house: Codehouse) -> None:
    paused = await paused_at_two(house)
    after = await house.restart()
    await after.allow(paused.record)

    assert await after.resume(paused) == "done"
    assert (house.added, after.added) == (["one"], ["two", "three"])
    assert await after.gate.context.store.journals.get(paused.workflow.run_id or "") is None


@promise("code:pause-repeats-nothing")
async def test_replayed_code_sees_the_same_instants_as_before(house: Codehouse) -> None:
    house.configure(allow=TWO_ASKS)
    task = asyncio.ensure_future(house.run("three"))
    with pytest.raises(Paused) as paused:
        await task
    before = list(house.sandbox.opened[0].at)
    house.office.clock.advance(20)
    after = await house.restart()
    await after.allow(paused.value.record)
    await after.resume(paused.value)

    assert after.sandbox.opened[0].at[: len(before)] == before


@promise("approval:one-run")
async def test_an_answer_for_one_run_does_not_let_another_run_on(house: Codehouse) -> None:
    first = await paused_at_two(house)
    second = await paused_at_two(house)
    assert first.workflow.id != second.workflow.id

    await house.allow(first.record)
    with pytest.raises(Paused) as still:
        await house.resume(second, asking=FakeAsking(has_form=True))

    assert still.value.record.id == second.record.id
    assert house.added == ["one", "one"]


async def test_a_workflow_names_the_call_that_began_it_and_its_run(house: Codehouse) -> None:
    paused = await paused_at_two(house)

    call = paused.workflow.call
    assert call is not None
    assert (call.tool, paused.record.tool_name) == ("pml:execute", "notes:add")
    assert paused.workflow.run_id == paused.record.run_id == paused.run_id


@promise("code:denied-is-caught")
async def test_a_denied_call_is_an_error_that_the_code_can_catch(house: Codehouse) -> None:
    house.configure(deny=[{"tool": "notes:add", "args": {"text": "one"}}], allow=["notes:*"])

    assert await house.run("catching") == "TOOL_DENIED"
    assert house.added == ["after"]


@promise("code:denied-is-caught")
async def test_a_person_who_says_no_is_told_to_the_code_which_goes_on(house: Codehouse) -> None:
    house.configure(allow=[{"tool": "notes:add", "args": {"text": "after"}}])
    with pytest.raises(Paused) as paused:
        await house.run("catching")
    after = await house.restart()
    await after.office.deny(paused.value.record)
    house.office.clock.advance(70)

    assert await (await after.restart()).resume(paused.value) == "user_denied"


async def test_a_call_that_is_denied_and_not_caught_ends_the_code_with_that_reason(house: Codehouse) -> None:
    house.configure(deny=["notes:add"])

    with pytest.raises(CodeFailed, match="TOOL_DENIED"):
        await house.run("three")

    assert house.added == []


async def test_giving_a_workflow_up_ends_the_run_and_its_other_questions(house: Codehouse) -> None:
    with pytest.raises(Paused) as paused:
        await house.run("at once")
    run_id = paused.value.run_id

    with pytest.raises(WorkflowAborted):
        await house.resume(paused.value, approved=False)

    open_now = await house.gate.context.store.approvals.page(
        ApprovalQuery(states=frozenset({State.PENDING}), run_id=run_id)
    )
    assert (open_now, house.added) == ([], [])
    assert await house.gate.context.store.journals.get(run_id or "") is None


async def test_calls_made_at_once_ask_at_once_each_with_its_own_workflow(house: Codehouse) -> None:
    asking = FakeAsking(has_form=True)
    with pytest.raises(Paused) as paused:
        await house.run("at once", asking=asking)

    assert len({record.id for record in asking.asked}) == 3
    assert {record.run_id for record in asking.asked} == {paused.value.run_id}

    first, second, third = asking.asked
    await house.allow(third)
    await house.allow(first)
    with pytest.raises(Paused) as still:
        await house.resume(paused.value, asking=FakeAsking(has_form=True))
    assert still.value.record.id == second.id
    assert house.added == ["one", "three"]

    await house.allow(second)
    assert await house.resume(still.value) == "done"
    assert house.added == ["one", "three", "two"]


@promise("code:unknown-asks-a-person")
async def test_a_call_that_was_under_way_at_a_kill_is_made_again_only_if_a_person_says_so(
    house: Codehouse,
) -> None:
    house.configure(allow=TWO_ASKS)
    house.servers.hangs = True
    working = asyncio.ensure_future(house.run("at once"))
    async with asyncio.timeout(BOUND_S):
        await house.servers.running.wait()
        await until_idle(working)
    asked = await house.office.context.store.approvals.page(ApprovalQuery())
    assert house.added == ["one", "three"]
    run_id = asked[0].run_id or ""
    await house.office.context.store.journals.leave(run_id, dump=None, dumped=0)  # as a kill leaves it

    after = await house.restart()
    await after.allow(asked[0])
    with pytest.raises(Paused) as paused:
        await _go_on(after, run_id)

    assert after.added == ["two"]
    assert paused.value.record.deciders == frozenset({Role.PERSON})
    assert paused.value.record.rule is not None
    assert matched(paused.value.record.rule).verdict == "unknown"
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def _go_on(house: Codehouse, run_id: str) -> bytes:
    attempt = Attempt(tool=parse_tool(EXECUTE), arguments={}, offered=True)
    return await go_on(PendingCall(house.gate, attempt, FakeAsking()), run_id)


@promise("code:divergence-runs-nothing")
async def test_code_that_does_other_things_when_it_is_replayed_is_stopped(house: Codehouse) -> None:
    paused = await paused_at_two(house)
    after = await house.restart()

    def other(args: Any) -> Work:
        value((yield [add("another")]))

    after.sandbox.scripts["three"] = other
    after.configure(allow=["notes:*"])
    await after.allow(paused.record)

    with pytest.raises(CodeFailed, match="did not do again"):
        await after.resume(paused)
    assert after.added == []


async def test_a_server_that_fails_is_an_error_in_the_code(house: Codehouse) -> None:
    house.configure(allow=["notes:*"])
    house.servers.error = ServerFailed("server `notes` died")

    with pytest.raises(CodeFailed, match="server_failed"):
        await house.run("three")


async def test_a_continued_run_is_not_continued_by_the_same_workflow_again(house: Codehouse) -> None:
    paused = await paused_at_two(house)
    await house.allow(paused.record)
    await house.resume(paused)

    with pytest.raises(WorkflowGone):
        await house.resume(paused)
    assert house.added == ["one", "two", "three"]
