"""Capabilities that call capabilities: paused within one another, and nothing happens twice on any level."""

import asyncio
import contextlib
from typing import Any

import pytest

from pml.core.approvals.reasons import matched
from pml.core.errors import CodeFailed, Invalid, NotFound
from pml.core.packages.capability import CapabilityType
from pml.service.call import Paused
from pml.service.code.capabilities import MAX_DEPTH
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.fakes_sandbox import value
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    Stopping,
    Work,
    abandon,
    add,
    at_once,
    catching,
    enter_library,
    one_by_one,
    until,
)
from tests.service.offices import Office

OUTER = "outer:run"
INNER = "inner:run"
ASKS: list[Any] = [OUTER, INNER, {"tool": "notes:add", "args": {"text": {"not": "asks"}}}]


@pytest.fixture
async def house(office: Office) -> Library:
    """`outer` adds a note, has `inner` add three of which the second asks, and adds another."""
    house = await enter_library(office)
    house.publish("inner", one_by_one(add("in 1"), add("asks"), add("in 2"), result="inner's"), dynamic=True)
    house.publish("outer", one_by_one(add("out 1"), (INNER, {}), add("out 2")), dynamic=True)
    texts = ("in 1", "in 2", "out 1", "out 2", "kept")
    house.configure(allow=[OUTER, INNER, *({"tool": "notes:add", "args": {"text": text}} for text in texts)])
    return house


@promise("code:pause-repeats-nothing")
async def test_a_pause_within_an_inner_capability_goes_on_in_the_same_process(house: Library) -> None:
    paused = await house.leave(OUTER)
    assert house.added == ["out 1", "in 1"]
    assert paused.workflow.call is not None
    assert paused.workflow.call.tool == OUTER

    await house.allow(paused.record)

    assert await house.resume(paused) == "done"
    assert house.added == ["out 1", "in 1", "asks", "in 2", "out 2"]


@promise("code:live-goes-on")
async def test_both_levels_of_a_pause_keep_their_processes(house: Library) -> None:
    paused = await house.leave(OUTER)
    await house.allow(paused.record)
    await house.resume(paused)

    assert len(house.sandbox.opened) == 2


@promise("code:pause-repeats-nothing")
async def test_a_pause_within_an_inner_capability_goes_on_after_a_restart(house: Library) -> None:
    paused = await house.leave(OUTER)
    after = await house.restart()
    await after.allow(paused.record)

    assert await after.resume(paused) == "done"
    assert (house.added, after.added) == (["out 1", "in 1"], ["asks", "in 2", "out 2"])
    assert await after.office.context.store.journals.get(paused.run_id or "") is None
    assert await after.office.context.store.journals.get(f"{paused.run_id}.1") is None


@promise("code:pause-repeats-nothing")
async def test_an_inner_capability_is_not_run_anew_if_its_outer_one_had_not_kept_its_result(
    house: Library,
) -> None:
    paused = await house.leave(OUTER)
    await house.allow(paused.record)
    store: Any = house.office.context.store
    # the inner one finishes two more calls; what is stopped is the outer one's keeping of what it returned
    store.journals = stopping = Stopping(store.journals, "finish", skip=2)
    working = asyncio.ensure_future(house.resume(paused))
    await until(stopping.reached)
    assert house.added == ["out 1", "in 1", "asks", "in 2"]

    after = await house.restart()
    asking = FakeAsking()
    assert await after.take_up(paused.run_id or "", asking=asking) == "done"

    assert (after.added, asking.asked) == (["out 2"], [])
    await abandon(working)


@promise("code:pause-repeats-nothing")
@pytest.mark.parametrize("skip", range(5))
async def test_a_kill_after_any_kept_call_on_any_level_repeats_none(house: Library, skip: int) -> None:
    house.configure(allow=["*"])
    store: Any = house.office.context.store
    real = store.journals
    store.journals = stopping = Stopping(real, "finish", skip=skip, after=True)
    working = asyncio.ensure_future(house.use(OUTER))
    await until(stopping.reached)
    run_id = next(run for run in _runs(real) if "." not in run)

    after = await house.restart()
    assert await after.take_up(run_id) == "done"

    assert [*house.added, *after.added] == ["out 1", "in 1", "asks", "in 2", "out 2"]
    await abandon(working)


def _runs(journals: Any) -> list[str]:
    return list(journals._runs)


@promise("code:unknown-asks-a-person")
async def test_a_call_of_an_inner_capability_that_may_have_run_is_a_persons(house: Library) -> None:
    house.configure(allow=["*"])
    house.publish("outer", one_by_one((INNER, {})), INNER)
    house.servers.hangs = True
    working = asyncio.ensure_future(house.use(OUTER))
    await until(house.servers.running)
    run_id, _ = sorted(_runs(house.office.context.store.journals))

    after = await house.restart()
    with pytest.raises(Paused) as unknown:
        await after.take_up(run_id)

    assert unknown.value.record.rule is not None
    assert matched(unknown.value.record.rule).verdict == "unknown"
    assert after.added == []
    await abandon(working)


async def test_a_value_of_an_inner_capability_is_plain_data_for_the_outer_one(house: Library) -> None:
    def outer(args: Any) -> Work:
        return {"got": value((yield [(INNER, {})]))}

    house.publish("outer", outer, INNER)
    house.configure(allow=["*"])

    assert await house.use(OUTER) == {"got": "inner's"}


async def test_an_inner_capability_that_fails_is_an_error_that_the_outer_one_can_catch(
    house: Library,
) -> None:
    def failing(args: Any) -> Work:
        value((yield [add("in 1")]))
        raise RuntimeError("no more")

    house.publish("inner", failing, dynamic=True)
    house.publish("outer", catching((INNER, {}), add("out 2")), dynamic=True)

    assert await house.use(OUTER) == ["code_failed", None]
    assert house.added == ["in 1", "out 2"]


@promise("code:pause-repeats-nothing")
async def test_an_inner_capability_that_is_denied_while_it_waits_does_not_go_on(house: Library) -> None:
    house.publish("outer", catching(add("out 1"), (INNER, {}), add("out 2")), dynamic=True)
    paused = await house.leave(OUTER)
    await house.allow(paused.record)
    house.configure(deny=[INNER], allow=[OUTER, "notes:*"])

    assert await house.resume(paused) == [None, "TOOL_DENIED", None]
    assert house.added == ["out 1", "in 1", "out 2"]


@promise("code:pause-repeats-nothing")
@pytest.mark.parametrize("is_restarted", [True, False])
async def test_an_inner_capability_that_was_allowed_is_not_asked_about_again_when_it_goes_on(
    house: Library, is_restarted: bool
) -> None:
    texts = ("in 1", "in 2", "out 1", "out 2")
    house.configure(allow=[OUTER, *({"tool": "notes:add", "args": {"text": text}} for text in texts)])
    asking = FakeAsking(house.allowing(), has_form=True)
    with pytest.raises(Paused) as paused:
        await house.use(OUTER, asking=asking)
    assert [record.tool_name for record in asking.asked] == [INNER, "notes:add"]

    after = await house.restart() if is_restarted else house
    await after.allow(paused.value.record)
    again = FakeAsking(has_form=True)
    assert await after.resume(paused.value, asking=again) == "done"
    assert again.asked == []


@promise("gate:approved-is-executed")
async def test_an_answer_about_an_inner_capabilitys_new_code_does_not_let_its_old_code_run(
    house: Library,
) -> None:
    paused = await house.leave(OUTER)
    after = await house.restart()
    await after.allow(paused.record)
    after.configure(allow=[OUTER, "notes:*"], ask=[INNER])
    after.publish("inner", one_by_one(add("new code")), note="new", dynamic=True)
    asking = FakeAsking(after.allowing(), has_form=True)

    with contextlib.suppress(CodeFailed, Paused):
        await after.resume(paused, asking=asking)

    was_asked = INNER in [record.tool_name for record in asking.asked]
    assert not (was_asked and "asks" in after.added)


@promise("code:pause-repeats-nothing")
async def test_two_inner_capabilities_that_wait_at_once_each_go_on(house: Library) -> None:
    house.publish("outer", at_once((INNER, {"n": 1}), (INNER, {"n": 2})), dynamic=True)
    house.publish("inner", one_by_one(add("in 1"), add("asks"), result="i"), dynamic=True)
    paused = await house.leave(OUTER)
    assert house.added == ["in 1", "in 1"]

    first, second = await house.open_questions()
    await house.allow(second)
    with pytest.raises(Paused) as still:
        await house.take_up(paused.run_id or "")
    assert still.value.record.id == first.id
    await house.allow(first)

    assert await house.take_up(paused.run_id or "") == ["i", "i"]
    assert house.added == ["in 1", "in 1", "asks", "asks"]


# What may not be


@promise("capability:no-circles")
async def test_capabilities_that_call_each_other_in_a_circle_are_refused_with_the_chain(
    house: Library,
) -> None:
    def calls(name: str) -> Any:
        def script(args: Any) -> Work:
            reply = yield [(name, {})]
            return reply.fault.message if reply.fault else value(reply)

        return script

    house.publish("a", calls("b:run"), "b:run")
    house.publish("b", calls("a:run"), "a:run")
    house.configure(allow=["*"])

    assert await house.use("a:run") == ("capabilities call each other in a circle: a:run → b:run → a:run")
    assert len(house.sandbox.opened) == 2


@promise("capability:no-circles")
async def test_a_capability_that_calls_itself_is_refused(house: Library) -> None:
    house.publish("a", catching(("a:run", {})), "a:run")
    house.configure(allow=["*"])

    assert await house.use("a:run") == ["invalid_arguments"]


@promise("capability:no-circles")
async def test_a_chain_that_is_too_long_is_refused(house: Library) -> None:
    for level in range(MAX_DEPTH + 2):
        house.publish(f"c{level}", one_by_one((f"c{level + 1}:run", {})), f"c{level + 1}:run")
    house.configure(allow=["*"])

    with pytest.raises(CodeFailed, match="too deeply: c0:run → c1:run"):
        await house.use("c0:run")

    assert len(house.sandbox.opened) == MAX_DEPTH


@promise("capability:no-circles")
async def test_a_circle_is_seen_after_a_pause_too(house: Library) -> None:
    def a(args: Any) -> Work:
        value((yield [("b:run", {})]))

    house.publish("a", a, "b:run")
    house.publish("b", catching(("notes:run", {"command": "ls"}), ("a:run", {})), dynamic=True)
    house.configure(allow=["a:run", "b:run"])
    house.publish("a", catching(("b:run", {})), "b:run")
    paused = await house.leave("a:run")
    after = await house.restart()
    await after.allow(paused.record)

    await after.resume(paused)

    assert len(after.sandbox.opened) == 2  # `a` and `b`, replayed; no `a` within `b`


async def test_a_tool_that_nobody_has_is_an_error_that_names_a_near_one(house: Library) -> None:
    def lost(args: Any) -> Work:
        reply = yield [("inne:run", {})]
        return [reply.fault.code, reply.fault.message] if reply.fault else None

    house.publish("outer", lost, "inne:run")
    house.configure(allow=["*"])

    told = await house.use(OUTER)
    assert isinstance(told, list)
    assert told[0] == "not_found"


async def test_an_inner_capabilitys_own_server_is_installed_after_consent(house: Library) -> None:
    house.publish("inner", one_by_one(("memory:add", {"text": "kept"})), dependencies=[make_dependency()])
    with pytest.raises(Paused) as paused:
        await house.use(OUTER, asking=FakeAsking(has_form=True))
    assert (house.installs, house.added) == ([], ["out 1"])

    after = await house.restart()
    await after.allow(paused.value.record)
    assert await after.resume(paused.value) == "done"

    assert after.installs == ["memory@1.2.3"]
    assert after.added == ["kept", "out 2"]


async def test_an_outer_capabilitys_server_is_not_its_inner_ones(house: Library) -> None:
    house.publish("inner", catching(("memory:add", {"text": "x"})), dynamic=True)
    house.publish("outer", one_by_one((INNER, {})), INNER, dependencies=[make_dependency()])
    house.configure(allow=["*"])

    await house.use(OUTER)

    assert (house.installs, house.servers.ran) == ([], [])


async def test_a_python_capability_can_call_a_typescript_one(house: Library) -> None:
    code = "async def run(args, mcp):\n    return await mcp.inner.run()"
    house.publish("outer", one_by_one((INNER, {})), code=code, kind=CapabilityType.PYTHON)
    house.configure(allow=["*"])

    assert await house.use(OUTER) == "done"


async def test_code_that_is_handed_over_calls_capabilities(house: Library) -> None:
    house.sandbox.scripts["mine"] = one_by_one((OUTER, {}))
    house.configure(allow=["*"])

    assert await house.run("mine") == "done"
    assert len(house.sandbox.opened) == 3


@promise("code:pause-repeats-nothing")
async def test_three_levels_go_on_after_a_restart(house: Library) -> None:
    house.sandbox.scripts["mine"] = one_by_one(add("kept"), (OUTER, {}), add("kept"))
    with pytest.raises(Paused) as paused:
        await house.run("mine")
    after = await house.restart()
    await after.allow(paused.value.record)

    assert await after.resume(paused.value) == "done"
    assert house.added == ["kept", "out 1", "in 1"]
    assert after.added == ["asks", "in 2", "out 2", "kept"]


async def test_a_capability_without_code_is_not_found(house: Library) -> None:
    del house.sources.codes["acme.tools.inner"]

    with pytest.raises(NotFound):
        await house.use(INNER)


async def test_a_name_that_no_tool_can_have_is_refused(house: Library) -> None:
    with pytest.raises(Invalid):
        await house.use("inner:")
