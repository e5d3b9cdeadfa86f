"""Code that calls tools, by people who doubt: kills at every point, floods, and answers given to another."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import OwnerId, Role, SessionId, State
from pml.core.code.journal import Step
from pml.core.errors import CodeFailed, Unavailable, WorkflowGone
from pml.core.ports.queries import ApprovalQuery
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import Decision, decide
from pml.service.call import Paused
from pml.service.code.run import IN_FLIGHT, MAX_RESULT
from pml.service.upkeep import CODE_S, sweep
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    Stopping,
    Work,
    abandon,
    add,
    asked_in_run,
    at_once,
    catching,
    enter_library,
    one_by_one,
    until,
)
from tests.service.offices import BOUND_S, Office
from tests.service.warehouses import MODEL

TEXTS = ("one", "two", "three")
ALL = one_by_one(*(add(text) for text in TEXTS))
CATCHING = catching(*(add(text) for text in TEXTS))
TWO_ASKS: list[Any] = [{"tool": "notes:add", "args": {"text": text}} for text in ("one", "three")]


@pytest.fixture
async def house(office: Office) -> Library:
    house = await enter_library(office)
    house.sandbox.scripts.update({"three": ALL, "catching": CATCHING})
    return house


async def paused_run(house: Library, code: str = "three") -> Paused:
    with pytest.raises(Paused) as paused:
        await house.run(code)
    return paused.value


# A kill at any point


def at_begin(house: Library) -> asyncio.Event:
    return _stop_journals(house, "begin")


def after_begin(house: Library) -> asyncio.Event:
    return _stop_journals(house, "begin", after=True)


def before_the_server_has_it(house: Library) -> asyncio.Event:
    reached = asyncio.Event()

    async def stop() -> None:
        reached.set()
        await asyncio.Event().wait()

    house.servers.before_request = stop
    return reached


def while_the_server_works(house: Library) -> asyncio.Event:
    house.servers.hangs = True
    house.servers.running.clear()
    return house.servers.running


def at_finish(house: Library) -> asyncio.Event:
    return _stop_journals(house, "finish")


def after_finish(house: Library) -> asyncio.Event:
    return _stop_journals(house, "finish", after=True)


def _stop_journals(house: Library, method: str, *, after: bool = False) -> asyncio.Event:
    store: Any = house.office.context.store
    store.journals = stopping = Stopping(store.journals, method, after=after)
    return stopping.reached


KILLS = [at_begin, after_begin, before_the_server_has_it, while_the_server_works, at_finish, after_finish]
IS_BEGUN = {after_begin, before_the_server_has_it, while_the_server_works, at_finish}


@promise("code:pause-repeats-nothing")
@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("is_asked", [True, False])
async def test_a_kill_at_any_point_of_a_call_repeats_nothing_that_nobody_let_be_repeated(
    house: Library, kill: Callable[[Library], asyncio.Event], is_asked: bool
) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house, "catching")
    assert house.added == ["one"]
    if is_asked:
        await house.allow(paused.record)
    else:
        house.configure(allow=["notes:*"])
    reached = kill(house)
    working = asyncio.ensure_future(house.take_up(paused.run_id or ""))
    await until(reached)

    after = await house.restart()
    asking = FakeAsking(after.denying(), has_form=True)
    told = await after.take_up(paused.run_id or "", asking=asking)

    if kill in IS_BEGUN:
        assert told == [None, "run_unknown", None]
        assert [record.deciders for record in asking.asked] == [frozenset({Role.PERSON})]
        assert after.added == ["three"]
    elif kill is after_finish:
        assert (told, asking.asked, after.added) == ([None, None, None], [], ["three"])
    else:  # nothing was sent: a rule lets it be made now, an answer that was taken is asked for again
        assert told == ([None, "user_denied", None] if is_asked else [None, None, None])
        assert after.added == (["three"] if is_asked else ["two", "three"])
    await abandon(working)


@promise("code:unknown-asks-a-person")
async def test_a_call_of_which_nobody_knows_is_made_once_more_if_a_person_lets_it(house: Library) -> None:
    house.configure(allow=["notes:*"])
    house.servers.hangs = True
    working = asyncio.ensure_future(house.run("catching"))
    await until(house.servers.running)
    run_id = (await _runs(house))[0]
    await house.office.context.store.journals.leave(run_id, dump=None, dumped=0)

    after = await house.restart()
    asking = FakeAsking(after.allowing(), has_form=True)
    assert await after.take_up(run_id, asking=asking) == [None, None, None]

    assert after.added == ["one", "two", "three"]
    assert [matched(record.rule).verdict for record in asking.asked if record.rule] == ["unknown"]
    await abandon(working)


async def _runs(house: Library) -> list[str]:
    journals: Any = house.office.context.store.journals
    return list(journals._runs)


@promise("code:unknown-asks-a-person")
async def test_a_models_answer_to_the_same_call_does_not_let_one_be_made_that_may_have_run(
    house: Library,
) -> None:
    """Of two equal calls one was sent and is unknown after a kill; the other one's answer is not its own."""
    house.sandbox.scripts["twins"] = at_once(add("one"), add("one"))
    asking = FakeAsking()
    with pytest.raises(Paused) as paused:
        await house.run("twins", asking=asking)
    await _decide_as_model(house, paused.value)
    house.servers.hangs = True
    working = asyncio.ensure_future(house.take_up(paused.value.run_id or "", asking=FakeAsking()))
    await until(house.servers.running)
    await _settle()
    (second,) = await house.open_questions()
    assert Role.MODEL in second.deciders

    after = await house.restart()
    decision = Decision(by=MODEL, digest=second.digest, allow=True)
    await decide(after.gate.context, second.id, decision)
    after_asking = FakeAsking()
    with pytest.raises(Paused) as unknown:
        await after.take_up(paused.value.run_id or "", asking=after_asking)

    assert unknown.value.record.deciders == frozenset({Role.PERSON})
    assert after.added == ["one"]  # that of the second call, which was never sent
    journals = house.office.context.store.journals
    await journals.leave(paused.value.run_id or "", dump=None, dumped=0)
    kept = await journals.take(paused.value.run_id or "", after.gate.context.owners.me, dead=())
    assert kept is not None
    assert [step.number for step in kept.steps if step.place is not None] == [1]
    await abandon(working)


async def _decide_as_model(house: Library, paused: Paused) -> None:
    await decide(
        house.gate.context, paused.record.id, Decision(by=MODEL, digest=paused.record.digest, allow=True)
    )


async def _settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


@promise("code:pause-repeats-nothing")
async def test_of_two_processes_that_go_on_with_one_run_one_wins(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house)
    await house.allow(paused.record)
    running = while_the_server_works(house)
    working = asyncio.ensure_future(house.take_up(paused.run_id or ""))
    await until(running)

    office = house.office
    session = await office.session(SessionId("session-2"))
    context = office.context_of(OwnerId("elsewhere"))
    other_house = Library(office, session, context=context, scripts=house.sandbox.scripts)
    other_house.configure(allow=["notes:*"])
    with pytest.raises(CodeFailed) as busy:
        await other_house.take_up(paused.run_id or "")
    assert busy.value.refusal == "run_busy"

    assert other_house.added == []
    await abandon(working)


async def test_a_run_id_of_another_principal_is_gone(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house)
    await house.allow(paused.record)
    other = await house.office.session(SessionId("other"), principal="bob")
    house.equip(session=other)

    with pytest.raises(WorkflowGone):
        await house.take_up(paused.run_id or "")
    for approved in (True, False):
        with pytest.raises(WorkflowGone):
            await house.resume(paused, approved=approved)
    assert house.added == ["one"]
    assert await house.office.context.store.journals.get(paused.run_id or "") is not None


# Time


async def test_code_whose_question_nobody_answered_in_time_is_gone_and_forgotten(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house)
    house.office.clock.advance(paused.record.ttl_s + CODE_S + 1)

    with pytest.raises(WorkflowGone):
        await house.resume(paused)
    await sweep(house.office.context)

    assert await house.office.context.store.journals.get(paused.run_id or "") is None
    with pytest.raises(WorkflowGone):
        await house.take_up(paused.run_id or "")
    assert house.added == ["one"]


async def test_an_answer_that_was_not_used_in_time_lets_nothing_run(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house)
    await house.allow(paused.record)
    house.office.clock.advance(paused.record.ttl_s + 1)

    with pytest.raises(Paused) as again:
        await house.take_up(paused.run_id or "")

    assert again.value.record.id != paused.record.id
    assert house.added == ["one"]


async def test_the_journal_of_code_that_waits_outlives_a_sweep(house: Library) -> None:
    house.configure(allow=TWO_ASKS, approval={"ttl_s": 2 * CODE_S})
    paused = await paused_run(house)
    house.office.clock.advance(200)
    await sweep(house.office.context)
    await house.allow(paused.record)

    assert await house.resume(paused) == "done"
    assert house.added == ["one", "two", "three"]


# Floods


@promise("code:few-questions-at-once")
@pytest.mark.parametrize("count", [IN_FLIGHT + 1, 25])
async def test_of_many_calls_that_ask_at_once_few_are_open_and_none_is_lost(
    house: Library, count: int
) -> None:
    texts = [f"note {number}" for number in range(count)]
    house.sandbox.scripts["many"] = at_once(*(add(text) for text in texts))
    with pytest.raises(Paused) as paused:
        await house.run("many")
    run_id = paused.value.run_id or ""

    rounds = 0
    while opened := await house.open_questions():
        rounds += 1
        assert len(opened) <= IN_FLIGHT
        assert rounds <= count
        for record in opened:
            await house.allow(record)
        try:
            assert await house.take_up(run_id) == [""] * count
        except Paused:
            continue
    assert sorted(map(str, house.added)) == sorted(texts)


@promise("code:few-questions-at-once")
async def test_a_client_with_forms_is_not_shown_more_than_few_at_once(house: Library) -> None:
    house.sandbox.scripts["many"] = at_once(*(add(f"note {number}") for number in range(12)))
    open_now = most = 0

    def answering(allowing: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def answer(record: Any) -> Any:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            await _settle()
            open_now -= 1
            return await allowing(record)

        return answer

    asking = FakeAsking(*(answering(house.allowing()) for _ in range(12)), has_form=True)
    assert await house.run("many", asking=asking) == [""] * 12
    assert most <= IN_FLIGHT


async def test_a_result_that_is_too_large_is_an_error_in_the_code(house: Library) -> None:
    house.configure(allow=["notes:*"])
    house.sandbox.scripts["large"] = catching(add("one"))
    large = msgspec.json.encode({"content": [{"type": "text", "text": "x" * (MAX_RESULT + 1)}]})
    house.equip(servers=Answering(house.servers, large))

    assert await house.run("large") == ["too_large"]


async def test_a_result_of_the_largest_size_is_not(house: Library) -> None:
    house.configure(allow=["notes:*"])
    house.sandbox.scripts["large"] = catching(add("one"))
    large = msgspec.json.encode({"content": [{"type": "text", "text": "x" * (MAX_RESULT - 2)}]})
    house.equip(servers=Answering(house.servers, large))

    assert await house.run("large") == [None]


class Answering:
    """The servers of a house, all of whose results are these."""

    def __init__(self, real: Any, result: bytes) -> None:
        self._real = real
        self._result = result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def request(self, *given: Any, **named: Any) -> bytes:
        await self._real.request(*given, **named)
        return self._result


# Calls that nobody waits for, and code that waits for nothing


def unawaited(args: Any) -> Work:
    """Make two calls and return before either has come back."""
    yield [add("one"), add("two")]
    return "early"


def never(args: Any) -> Work:
    """Wait for something that is no call."""
    yield []


async def test_a_run_ends_when_the_calls_that_it_did_not_wait_for_have_ended(house: Library) -> None:
    house.configure(allow=["notes:*"])
    house.sandbox.scripts["unawaited"] = unawaited

    assert await house.run("unawaited") == "early"
    assert house.added == ["one", "two"]


@promise("code:pause-repeats-nothing")
async def test_a_call_that_nobody_waits_for_is_asked_about_too_and_its_run_waits(house: Library) -> None:
    house.configure(allow=[{"tool": "notes:add", "args": {"text": "one"}}])
    house.sandbox.scripts["unawaited"] = unawaited
    paused = await paused_run(house, "unawaited")
    assert house.added == ["one"]

    after = await house.restart()
    await after.allow(paused.record)

    assert await after.resume(paused) == "early"
    assert after.added == ["two"]


async def test_code_that_waits_for_what_never_comes_is_ended(house: Library) -> None:
    house.sandbox.scripts["never"] = never

    with pytest.raises(CodeFailed, match="never comes"):
        await house.run("never")

    assert house.sandbox.opened[0].is_closed


async def test_code_that_fails_makes_no_more_of_the_calls_that_it_had_asked_for(house: Library) -> None:
    def failing(args: Any) -> Work:
        yield [add(f"note {number}") for number in range(40)]
        raise RuntimeError("enough")

    house.configure(allow=["notes:*"])
    house.sandbox.scripts["failing"] = failing

    with pytest.raises(CodeFailed, match="enough"):
        await house.run("failing")
    assert len(house.added) <= IN_FLIGHT


async def test_code_that_fails_takes_the_questions_back_that_it_no_longer_waits_for(house: Library) -> None:
    def failing(args: Any) -> Work:
        yield [add("asks"), ("notes:list", {})]
        raise RuntimeError("enough")

    house.configure(allow=["notes:list"])
    house.sandbox.scripts["failing"] = failing
    asking = FakeAsking(has_form=True)

    with pytest.raises(CodeFailed, match="enough"):
        await house.run("failing", asking=asking)

    (record,) = asking.asked
    assert (await house.office.stored(record)).status is State.CANCELLED


# Several answers


@promise("code:answers-are-not-lost")
async def test_an_answer_that_is_brought_while_the_run_goes_on_can_be_brought_again(house: Library) -> None:
    """An agent that continues both workflows of a run at once does not leave the second one stuck."""
    house.sandbox.scripts["pair"] = at_once(add("one"), add("two"))
    asking = FakeAsking(has_form=True)
    with pytest.raises(Paused) as paused:
        await house.run("pair", asking=asking)
    first, second = asking.asked
    await house.allow(first)
    may_go_on, reached = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await may_go_on.wait()

    house.servers.before_request = hold
    working = asyncio.ensure_future(house.resume(paused.value))
    await until(reached)
    await house.allow(second)
    two = Paused(second, msgspec.structs.replace(paused.value.workflow, id=second.id, approval_id=second.id))
    with pytest.raises(CodeFailed):  # it runs now
        await house.resume(two)
    may_go_on.set()
    async with asyncio.timeout(BOUND_S):
        (left,) = await asyncio.gather(working, return_exceptions=True)
    if isinstance(left, Paused):
        left = await house.resume(left)

    assert left == ["", ""]
    assert sorted(map(str, house.added)) == ["one", "two"]


@promise("approval:one-run")
async def test_the_no_to_a_call_of_one_run_is_not_told_to_another(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    first, second = await paused_run(house, "catching"), await paused_run(house, "catching")
    await house.office.deny(first.record)

    with pytest.raises(Paused) as still:
        await house.take_up(second.run_id or "")

    assert still.value.record.id == second.record.id
    assert await house.resume(first) == [None, "user_denied", None]


@promise("approval:one-run")
async def test_the_no_to_what_one_run_needs_installed_is_not_told_to_another(house: Library) -> None:
    house.sources.offer("memory", make_dependency())
    house.sandbox.scripts["memory"] = catching(("memory:add", {"text": "kept"}))
    first, second = await paused_run(house, "memory"), await paused_run(house, "memory")
    assert first.record.id != second.record.id
    await house.office.deny(first.record)

    with pytest.raises(Paused) as still:
        await house.take_up(second.run_id or "")

    assert still.value.record.id == second.record.id
    assert await house.take_up(first.run_id or "") == ["dependency_refused"]
    assert house.installs == []


# When the sandbox fails


@promise("code:answers-are-not-lost")
async def test_a_sandbox_that_cannot_be_had_for_a_moment_does_not_keep_the_run_to_itself(
    house: Library,
) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house)
    after = await house.restart()
    await after.allow(paused.record)
    after.sandbox.is_away = True
    with pytest.raises(Unavailable):
        await after.take_up(paused.run_id or "")
    after.sandbox.is_away = False

    assert await after.take_up(paused.run_id or "") == "done"
    assert after.added == ["two", "three"]


@promise("code:answers-are-not-lost")
async def test_code_that_cannot_be_dumped_when_it_waits_is_replayed_later(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    house.sandbox.cannot_dump = True

    paused = await paused_run(house)
    await house.allow(paused.record)

    assert await house.resume(paused) == "done"
    assert house.added == ["one", "two", "three"]


# What a journal keeps


@promise("code:divergence-runs-nothing")
async def test_a_journal_that_holds_another_step_than_the_code_makes_runs_nothing(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house)
    journals = house.office.context.store.journals
    await journals.begin(Step(run_id=paused.run_id or "", number=1, what="notes:list", digest="other"))
    after = await house.restart()
    await after.allow(paused.record)

    with pytest.raises(CodeFailed, match="did not do again") as failed:
        await after.take_up(paused.run_id or "")

    assert failed.value.refusal == "run_diverged"
    assert after.added == []
    assert await journals.get(paused.run_id or "") is None


@promise("code:divergence-runs-nothing")
async def test_code_that_ends_sooner_than_it_did_runs_nothing(house: Library) -> None:
    house.configure(allow=TWO_ASKS)
    paused = await paused_run(house)
    after = await house.restart()
    after.sandbox.scripts["three"] = never
    await after.allow(paused.record)

    with pytest.raises(CodeFailed, match="did not come to step 0"):
        await after.take_up(paused.run_id or "")
    assert after.added == []


async def test_cancelling_code_ends_it_and_takes_its_questions_back(house: Library) -> None:
    house.sandbox.scripts["pair"] = at_once(add("one"), add("two"))
    asking = FakeAsking(house.waiting(), house.waiting(), has_form=True)
    working = asyncio.ensure_future(house.run("pair", asking=asking))
    await _settle()
    assert len(asking.asked) == 2
    run_id = asking.asked[0].run_id
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert house.sandbox.opened[0].is_closed
    assert {record.status for record in await asked_in_run(house.office, run_id)} == {State.CANCELLED}
    assert await house.office.context.store.journals.owners() == []
    assert house.added == []


async def test_a_call_that_a_cancelled_run_had_made_is_not_told_to_have_run_well(house: Library) -> None:
    with pytest.raises(Paused) as paused:
        await house.run("three")
    await house.allow(paused.value.record)
    house.servers.hangs = True
    working = asyncio.ensure_future(house.take_up(paused.value.run_id or ""))
    await until(house.servers.running)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert (await house.office.stored(paused.value.record)).status is State.UNKNOWN


async def test_code_cannot_call_pmls_own_tools(house: Library) -> None:
    calls: list[tuple[str, JsonObject]] = [
        ("pml:execute", {"code": "three"}),
        ("pml:call", {"tool": "notes:add", "arguments": {"text": "x"}}),
        ("pml:session_launch", {}),
        ("notes:add:more", {}),
        (" :x", {}),
    ]
    house.configure(allow=["*"])
    house.publish("pml", one_by_one(add("a registry that took PML's own name")))
    house.sandbox.scripts["own"] = catching(*calls)

    told = await house.run("own")

    assert told == ["not_found", "not_found", "not_found", "not_found", "invalid_arguments"]
    assert house.servers.ran == []
    assert await house.office.context.store.approvals.page(ApprovalQuery()) == []
