"""Runs of code taken up and let go: interrupted at the worst moment, broken off, given up, and crowded."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

import pytest

from pml.core.approvals.events import Completed, Event
from pml.core.approvals.record import OwnerId, State
from pml.core.code.sandbox import Conditions, Execution, Program, Turn
from pml.core.errors import CodeFailed, NotFound, ServerFailed, Unavailable, WorkflowAborted, WorkflowGone
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.service import sandboxes as workshop
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.calls.execute import run_or_call
from pml.service.sandboxes import AT_WORK, AT_WORK_EACH, AT_WORK_NESTED
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    Work,
    abandon,
    add,
    asked_in_run,
    at_once,
    enter_library,
    one_by_one,
    until,
    value_in,
)
from tests.service.offices import BOUND_S, Office

OUTER: Final = "outer:run"
INNER: Final = "inner:run"
TEXTS: Final = ("one", "two")
ELSEWHERE: Final = OwnerId("elsewhere")


def retrying(args: Any) -> Work:
    """Call `inner`, and once more if that fails."""
    told: list[str] = []
    for _ in range(2):
        reply = yield [(INNER, {})]
        told.append("ok" if reply.fault is None else reply.fault.code)
        if reply.fault is None:
            break
    return told


@pytest.fixture
async def house(office: Office) -> Library:
    """The code `steps` adds three notes, of which the second asks; so does `inner`, which `outer` calls."""
    house = await enter_library(office)
    steps = one_by_one(add("one"), add("asks"), add("two"))
    house.sandbox.scripts |= {"steps": steps, "pair": at_once(add("first"), add("second"))}
    house.publish("inner", steps, dynamic=True)
    house.publish("outer", retrying, dynamic=True)
    house.configure(allow=[OUTER, INNER, *({"tool": "notes:add", "args": {"text": it}} for it in TEXTS)])
    return house


async def left(house: Library, code: str = "steps") -> Paused:
    with pytest.raises(Paused) as paused:
        await house.run(code)
    return paused.value


async def again(house: Library, code: str = "steps") -> Any:
    """Hand the same code over again, as a client does."""
    attempt = Attempt(tool=parse_tool(EXECUTE), arguments={"code": code}, offered=True)
    return value_in(await run_or_call(PendingCall(house.gate, attempt, FakeAsking(has_form=True))))


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


class Held:
    """Lets one method of what it stands for take a while, before or after its work."""

    def __init__(
        self, real: Any, method: str, *, after: bool, when: Callable[..., bool] = lambda *given: True
    ) -> None:
        self._real = real
        self._method = method
        self._after = after
        self._when = when
        self.reached = asyncio.Event()
        self.may_end = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return self._held(real) if name == self._method else real

    def _held(self, real: Callable[..., Any]) -> Callable[..., Any]:
        async def held(*given: Any, **named: Any) -> Any:
            if not self._when(*given):
                return await real(*given, **named)
            result = await real(*given, **named) if self._after else None
            self.reached.set()
            await self.may_end.wait()
            return result if self._after else await real(*given, **named)

        return held


async def interrupt(work: Coroutine[Any, Any, Any], held: Held) -> None:
    """Cancel the work while the method is under way, which ends soon after."""
    working = asyncio.ensure_future(work)
    await until(held.reached)
    working.cancel()
    await settle()
    held.may_end.set()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(working, return_exceptions=True)
    await settle()


# Interrupted


@promise("code:answers-are-not-lost")
async def test_who_is_interrupted_while_taking_a_run_up_leaves_it_to_the_next(house: Library) -> None:
    paused = await left(house)
    await house.allow(paused.record)
    store: Any = house.office.context.store
    real, store.journals = store.journals, Held(store.journals, "take", after=True)
    await interrupt(house.take_up(paused.run_id or ""), store.journals)
    store.journals = real

    run = await real.get(paused.run_id or "")
    assert run is not None
    assert run.owner is None
    assert await house.office.status(paused.record) is State.ALLOWED
    assert await house.take_up(paused.run_id or "") == "done"
    assert house.added == ["one", "asks", "two"]


@promise("code:results-go")
@pytest.mark.parametrize("is_other", [False, True], ids=["returns", "does other things than before"])
async def test_who_is_interrupted_while_a_run_ends_leaves_nothing_of_it(
    house: Library, is_other: bool
) -> None:
    paused = await left(house)
    await house.allow(paused.record)
    after = await house.restart()
    if is_other:
        after.sandbox.scripts["steps"] = one_by_one(add("two"))
    store: Any = house.office.context.store
    real, store.journals = store.journals, Held(store.journals, "end", after=False)
    await interrupt(after.take_up(paused.run_id or ""), store.journals)

    assert after.added == ([] if is_other else ["asks", "two"])
    assert await real.get(paused.run_id or "") is None


@promise("code:answers-are-not-lost")
async def test_who_is_interrupted_while_code_is_let_go_leaves_it_to_the_next(house: Library) -> None:
    store: Any = house.office.context.store
    real, store.journals = store.journals, Held(store.journals, "leave", after=False)
    await interrupt(house.run("steps"), store.journals)

    [run] = await real.begun_with("ana", EXECUTE)
    assert run.owner is None


async def test_a_call_that_has_run_is_told_so_though_its_caller_left_at_that_moment(house: Library) -> None:
    paused = await left(house)
    await house.allow(paused.record)
    store: Any = house.office.context.store

    def completes(approval_id: str, event: Event) -> bool:
        return isinstance(event, Completed)

    real, store.approvals = store.approvals, Held(store.approvals, "advance", after=False, when=completes)
    await interrupt(house.take_up(paused.run_id or ""), store.approvals)
    store.approvals = real

    assert await house.office.status(paused.record) is State.COMPLETED


@promise("code:pause-repeats-nothing")
async def test_code_that_ended_just_before_it_was_taken_up_is_not_begun_anew(house: Library) -> None:
    paused = await left(house)
    await house.allow(paused.record)
    store: Any = house.office.context.store
    held = Held(store.journals, "get", after=True)
    real, store.journals = store.journals, held
    working = asyncio.ensure_future(house.take_up(paused.run_id or ""))
    await until(held.reached)
    store.journals = real
    await real.end(paused.run_id or "")
    held.may_end.set()

    with pytest.raises(NotFound):
        await working
    assert house.added == ["one"]


# Broken off


class BadStart:
    """A sandbox whose next program hangs when it begins, or fails."""

    def __init__(self, house: Library, *, hangs: bool) -> None:
        self.reached = asyncio.Event()
        self._hangs = hangs
        self._sandbox: Any = house.sandbox
        self._open = house.sandbox.open
        self._sandbox.open = self.open

    async def open(self, program: Program, conditions: Conditions) -> Execution:
        execution: Any = await self._open(program, conditions)
        self._sandbox.open = self._open
        execution.begin = self._begin
        return execution

    async def _begin(self) -> Turn:
        self.reached.set()
        if self._hangs:
            await asyncio.Event().wait()
        raise Unavailable("the process died")


@promise("code:answers-are-not-lost")
@pytest.mark.parametrize("is_given_up", [True, False])
async def test_code_that_is_broken_off_keeps_its_answers_and_its_questions_unless_nobody_wants_it(
    house: Library, is_given_up: bool
) -> None:
    paused = await left(house, "pair")
    first, second = sorted(await asked_in_run(house.office, paused.run_id), key=lambda it: it.id)
    await house.allow(first)
    house.workshop.drop(paused.run_id or "")
    bad = BadStart(house, hangs=is_given_up)
    if is_given_up:
        working = asyncio.ensure_future(house.take_up(paused.run_id or ""))
        await until(bad.reached)
        await abandon(working)
    else:
        with pytest.raises(Unavailable):
            await house.take_up(paused.run_id or "")

    assert await house.office.status(first) is State.ALLOWED
    assert await house.office.status(second) is (State.CANCELLED if is_given_up else State.PENDING)
    with pytest.raises(Paused) as still:
        await again(house, "pair")
    assert (still.value.run_id, house.added) == (paused.run_id, ["first"])


@promise("code:answers-are-not-lost")
async def test_inner_code_that_cannot_be_had_for_a_moment_is_no_failure_that_outer_ones_see(
    house: Library,
) -> None:
    house.sandbox.scripts["outermost"] = one_by_one((OUTER, {}))
    paused = await left(house, "outermost")
    after = await house.restart()
    await after.allow(paused.record)
    opened = after.sandbox.open

    async def all_but_inner(program: Program, conditions: Conditions) -> Execution:
        if program.code == house.sources.codes["acme.tools.inner"].decode():
            raise Unavailable("no process can be had")
        return await opened(program, conditions)

    sandbox: Any = after.sandbox
    sandbox.open = all_but_inner
    with pytest.raises(Unavailable):
        await after.resume(paused)
    sandbox.open = opened

    assert await after.office.status(paused.record) is State.ALLOWED
    assert await after.resume(paused) == "done"
    assert (house.added, after.added) == (["one"], ["asks", "two"])


@promise("code:answers-are-not-lost")
async def test_inner_code_that_another_process_has_is_no_failure_that_the_outer_one_sees(
    house: Library,
) -> None:
    paused = await house.leave(OUTER)
    await house.allow(paused.record)
    house.office.owners.others.add(ELSEWHERE)
    journals = house.office.context.store.journals
    await journals.take(f"{paused.run_id}.0", ELSEWHERE, dead=())
    with pytest.raises(CodeFailed) as busy:
        await house.resume(paused)
    assert busy.value.refusal == "run_busy"
    await journals.leave(f"{paused.run_id}.0", dump=None, dumped=0)

    assert await house.resume(paused) == ["ok"]
    assert house.added == ["one", "asks", "two"]


async def test_inner_code_that_never_began_is_an_error_that_the_outer_one_can_catch(house: Library) -> None:
    opened = house.sandbox.open
    refused: list[str] = []

    async def once_away(program: Program, conditions: Conditions) -> Execution:
        if program.code == house.sources.codes["acme.tools.inner"].decode() and not refused:
            refused.append(program.code)
            raise Unavailable("no process can be had")
        return await opened(program, conditions)

    sandbox: Any = house.sandbox
    sandbox.open = once_away
    house.configure(allow=["*"])

    assert await house.use(OUTER) == ["failed", "ok"]


# Given up


@promise("code:one-runner")
async def test_code_at_work_cannot_be_given_up_and_loses_nothing(house: Library) -> None:
    paused = await left(house)
    await house.allow(paused.record)
    reached, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await may_go_on.wait()

    house.servers.before_request = hold
    working = asyncio.ensure_future(house.take_up(paused.run_id or ""))
    await until(reached)
    with pytest.raises(CodeFailed) as busy:
        await house.resume(paused, approved=False)
    assert busy.value.refusal == "run_busy"
    may_go_on.set()

    async with asyncio.timeout(BOUND_S):
        assert await working == "done"
    assert house.added == ["one", "asks", "two"]


async def test_code_that_is_given_up_leaves_no_process_and_nothing_to_give_up_again(house: Library) -> None:
    paused = await left(house)
    assert not house.sandbox.opened[0].is_closed
    with pytest.raises(WorkflowAborted):
        await house.resume(paused, approved=False)
    await settle()

    assert house.sandbox.opened[0].is_closed
    with pytest.raises(WorkflowGone):
        await house.resume(paused, approved=False)


# Room


@contextlib.contextmanager
def at_work(house: Library, count: int, *, principal: str) -> Generator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(house.workshop.place(principal, is_nested=True))
        yield


@promise("code:room-for-all")
@pytest.mark.parametrize(("count", "principal"), [(AT_WORK_EACH, "ana"), (AT_WORK, "bob")])
async def test_too_much_code_at_once_is_refused_and_can_be_run_later(
    house: Library, count: int, principal: str
) -> None:
    house.configure(allow=["*"])
    with at_work(house, count, principal=principal), pytest.raises(ServerFailed, match="too much code"):
        await house.run("steps")
    assert house.sandbox.opened == []

    for _ in range(AT_WORK):
        await house.run("pair")


@promise("code:room-for-all")
async def test_what_one_principal_runs_leaves_room_for_another(house: Library) -> None:
    house.configure(allow=["*"])
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ServerFailed):
            for _ in range(AT_WORK):
                stack.enter_context(house.workshop.place("bob", is_nested=False))

        assert await house.run("steps") == "done"


@promise("code:answers-are-not-lost")
@pytest.mark.parametrize(("count", "principal"), [(AT_WORK_EACH - 1, "ana"), (AT_WORK - 1, "bob")])
async def test_what_code_that_has_begun_calls_is_not_held_up(
    house: Library, count: int, principal: str
) -> None:
    house.configure(allow=["*"])
    with at_work(house, count, principal=principal):
        assert await house.use(OUTER) == ["ok"]


@promise("code:answers-are-not-lost")
async def test_inner_code_that_waited_and_finds_no_room_goes_on_later(
    house: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = await house.leave(OUTER)
    await house.allow(paused.record)
    with monkeypatch.context() as patched:
        patched.setattr(workshop, "AT_WORK_NESTED", 1)
        with pytest.raises(ServerFailed, match="too much code"):
            await house.resume(paused)

    assert await house.resume(paused) == ["ok"]
    assert house.added == ["one", "asks", "two"]


@promise("code:room-for-all")
def test_code_within_code_is_bounded_too(house: Library) -> None:
    with pytest.raises(ServerFailed), at_work(house, AT_WORK_NESTED + 1, principal="bob"):
        pass
