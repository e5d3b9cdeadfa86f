"""What code waits for: answers that come meanwhile, sleeps that nobody needs, and what is kept of it."""

import asyncio
from typing import Any, Final

import msgspec
import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import OwnerId, Role, Scope, State
from pml.core.code.sandbox import (
    CodeCall,
    Conditions,
    Ended,
    Ending,
    Execution,
    Program,
    Request,
    Sleep,
    Turn,
)
from pml.core.config.file import FileKind
from pml.core.own_tools import CONTINUE
from pml.core.packages.capability import Routing
from pml.core.values import JsonObject
from pml.service.call import Paused
from pml.service.code import run as coding
from pml.service.code.run import IN_FLIGHT
from pml.service.sandboxes import KEPT
from tests.fakes_sandbox import FakeExecution
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    Work,
    abandon,
    add,
    at_once,
    catching,
    enter_library,
    one_by_one,
    until,
)
from tests.service.offices import BOUND_S, Office

LONG_S: Final = 24 * 3600.0
TEXTS: Final = ("one", "two")


@pytest.fixture
async def house(office: Office) -> Library:
    house = await enter_library(office)
    house.sandbox.scripts |= {
        "steps": one_by_one(add("one"), add("asks"), add("two")),
        "pair": at_once(add("asks"), add("one")),
    }
    house.configure(allow=[{"tool": "notes:add", "args": {"text": text}} for text in TEXTS])
    return house


async def left(house: Library, code: str = "steps") -> Paused:
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(Paused) as paused:
            await house.run(code)
    return paused.value


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


# Answers that come meanwhile


@promise("code:answers-are-not-lost")
async def test_an_answer_that_comes_while_another_call_is_made_is_used_at_once(house: Library) -> None:
    reached, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await may_go_on.wait()

    house.servers.before_request = hold
    working = asyncio.ensure_future(house.run("pair"))
    await until(reached)
    await settle()
    [question] = await house.open_questions()
    await house.allow(question)
    may_go_on.set()

    async with asyncio.timeout(BOUND_S):
        assert await working == ["", ""]
    assert sorted(map(str, house.added)) == ["asks", "one"]


@promise("code:pause-repeats-nothing")
async def test_inner_code_whose_answer_comes_while_another_call_is_made_goes_on_where_it_was(
    house: Library,
) -> None:
    reached, may_go_on = asyncio.Event(), asyncio.Event()
    house.publish("inner", one_by_one(add("one"), add("asks"), result="i"), dynamic=True)
    house.sandbox.scripts["outer"] = at_once(("inner:run", {}), ("notes:list", {}))
    rules: list[Any] = ["inner:run", "notes:list", {"tool": "notes:add", "args": {"text": "one"}}]
    house.configure(allow=rules)
    house.equip(servers=(held := HeldList(house.servers, reached, may_go_on)))
    working = asyncio.ensure_future(house.run("outer"))
    await until(reached)
    await settle()
    [question] = await house.open_questions()
    await house.allow(question)
    may_go_on.set()

    async with asyncio.timeout(BOUND_S):
        assert await working == ["i", ""]
    assert held.added == ["one", "asks"]


class HeldList:
    """Servers whose `list` takes a while. `added` is what was added meanwhile."""

    def __init__(self, real: Any, reached: asyncio.Event, may_go_on: asyncio.Event) -> None:
        self._real = real
        self._reached = reached
        self._may_go_on = may_go_on
        self.added: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def request(self, spec: Any, method: str, params: Any, **more: Any) -> bytes:
        if params["name"] == "list":
            self._reached.set()
            await self._may_go_on.wait()
        else:
            self.added.append(params["arguments"]["text"])
        return await self._real.request(spec, method, params, **more)


@promise("code:unknown-asks-a-person")
async def test_an_answer_from_before_a_call_was_begun_does_not_let_it_be_made_again(house: Library) -> None:
    """Two processes asked about the same call; the second made it and was killed before it came back."""
    first = (await left(house)).record
    second_house = await house.restart()
    run_id = first.run_id or ""
    with pytest.raises(Paused) as second:
        await second_house.take_up(run_id)
    assert second.value.record.id != first.id
    await house.allow(second.value.record)
    second_house.servers.hangs = True
    working = asyncio.ensure_future(second_house.take_up(run_id))
    await until(second_house.servers.running)

    third_house = await second_house.restart("session-3")
    await house.allow(first)
    with pytest.raises(Paused) as unknown:
        await third_house.take_up(run_id)

    assert unknown.value.record.deciders == frozenset({Role.PERSON})
    assert unknown.value.record.rule is not None
    assert matched(unknown.value.record.rule).verdict == "unknown"
    assert third_house.added == []
    await abandon(working)


@promise("code:answers-are-not-lost")
async def test_an_answer_for_the_session_is_used_by_the_call_that_it_was_given_to(house: Library) -> None:
    paused = await left(house)
    await house.office.allow(paused.record, scope=Scope.SESSION)

    assert await house.resume(paused) == "done"
    assert await house.office.status(paused.record) is State.COMPLETED


@promise("code:denied-is-caught")
async def test_a_no_to_a_call_of_code_counts_though_a_rule_allows_it_by_then(house: Library) -> None:
    house.sandbox.scripts["catching"] = catching(add("asks"))
    paused = await left(house, "catching")
    await house.office.deny(paused.record)
    house.configure(allow=["*"])

    assert await house.resume(paused) == ["user_denied"]
    assert house.added == []


# Sleeps


class Sleepy(FakeExecution):
    """A program whose calls of `sleep` are sleeps."""

    def _turn(self, go: Any) -> Turn:
        turn = super()._turn(go)
        return msgspec.structs.replace(turn, requests=[_sleep_or_call(it) for it in turn.requests])


def _sleep_or_call(request: Request) -> Request:
    if isinstance(request, CodeCall) and request.namespace == "sleep":
        return Sleep(number=request.number, seconds=LONG_S)
    return request


class Hasty(FakeExecution):
    """A program that has ended by its first turn, with more sleeps than are served at once, and a call."""

    async def begin(self) -> Turn:
        sleeps = [Sleep(number=number, seconds=LONG_S) for number in range(IN_FLIGHT)]
        name, arguments = add("one")
        namespace, _, action = name.partition(":")
        call = CodeCall(number=IN_FLIGHT, namespace=namespace, action=action, arguments=arguments)
        return Turn(requests=[*sleeps, call], ended=Ended(how=Ending.RETURNED, value=b'"early"'))


def let_run(house: Library, kind: type[FakeExecution]) -> None:
    async def opened(program: Program, conditions: Conditions) -> Execution:
        execution = kind(house.sandbox.scripts[program.code], program, conditions)
        house.sandbox.opened.append(execution)
        return execution

    sandbox: Any = house.sandbox
    sandbox.open = opened


async def test_code_that_is_asked_about_waits_for_no_sleep(house: Library) -> None:
    house.sandbox.scripts["sleepy"] = at_once(add("asks"), ("sleep:long", {}))
    let_run(house, Sleepy)

    assert (await left(house, "sleepy")).record.tool_name == "notes:add"


async def test_code_that_has_ended_waits_for_no_sleep(house: Library) -> None:
    def early(args: Any) -> Work:
        yield [add("one"), ("sleep:long", {})]
        return "early"

    house.sandbox.scripts["sleepy"] = early
    let_run(house, Sleepy)

    async with asyncio.timeout(BOUND_S):
        assert await house.run("sleepy") == "early"


async def test_sleeps_of_code_that_has_ended_do_not_keep_its_calls_from_being_made(house: Library) -> None:
    let_run(house, Hasty)

    async with asyncio.timeout(BOUND_S):
        assert await house.run("steps") == "early"
    assert house.added == ["one"]


# What is kept


@promise("code:few-questions-at-once")
async def test_no_more_than_eight_questions_of_a_run_are_open_at_once(house: Library) -> None:
    house.sandbox.scripts["many"] = at_once(*(add(f"note {number}") for number in range(20)))
    await left(house, "many")

    assert len(await house.open_questions()) == 8


@promise("code:bounded")
async def test_results_that_are_too_large_together_are_an_error_in_the_code(
    house: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.sandbox.scripts["catching"] = catching(add("one"), add("two"), add("one"))
    monkeypatch.setattr(coding, "MAX_KEPT", 5)  # each result has two bytes

    assert await house.run("catching") == [None, None, "too_large"]


@promise("code:live-goes-on")
async def test_the_processes_of_few_runs_wait_at_once(house: Library) -> None:
    for _ in range(KEPT + 1):
        await left(house)
    await settle()

    assert [execution.is_closed for execution in house.sandbox.opened] == [True, *[False] * KEPT]
    assert KEPT <= 4  # half a gigabyte each, at most


class Dumped(FakeExecution):
    async def dump(self) -> bytes:
        return b"all of it"


@promise("code:no-process-left")
async def test_code_whose_state_is_kept_keeps_no_process(house: Library) -> None:
    let_run(house, Dumped)
    await left(house)

    assert [execution.is_closed for execution in house.sandbox.opened] == [True]


@promise("code:pause-repeats-nothing")
async def test_a_process_that_waits_does_not_go_on_once_another_has_had_its_run(house: Library) -> None:
    paused = await left(house)
    journals = house.office.context.store.journals
    await journals.take(paused.run_id or "", OwnerId("elsewhere"), dead=())
    await journals.leave(paused.run_id or "", dump=None, dumped=0)
    await house.allow(paused.record)

    assert await house.resume(paused) == "done"
    await settle()

    assert len(house.sandbox.opened) == 2
    assert house.sandbox.opened[0].is_closed
    assert house.added == ["one", "asks", "two"]


@promise("cloud:no-workflow-forwarded")
async def test_code_cannot_continue_a_workflow(house: Library) -> None:
    _, arguments = add("one")
    house.sandbox.scripts["sly"] = catching(("notes:add", {**arguments, CONTINUE: {"approved": True}}))
    house.configure(allow=["*"])

    assert await house.run("sly") == ["invalid_arguments"]
    assert house.added == []


@promise("code:answers-are-not-lost")
@pytest.mark.parametrize("structured", [[1], "text", 5])
async def test_a_result_of_a_cloud_that_is_none_is_an_error_that_code_can_catch(
    house: Library, structured: Any
) -> None:
    house.publish("far", one_by_one(), routing=Routing.SERVER)
    house.sandbox.scripts["code"] = catching(("far:run", {}))
    config: JsonObject = {"cloud": "https://cloud.example", "permissions": {"allow": ["*"]}}
    house.office.write(FileKind.USER, config)
    house.cloud.result = {"content": [], "structuredContent": structured}

    told = await house.run("code")

    assert told not in ([None], None)
