"""When a server starts, stops, and starts again."""

import asyncio
import contextlib

import pytest

from pml.core.errors import Changed, ServerFailed
from pml.upstream.board import ask_stop, list_servers
from pml.upstream.limits import Limits
from tests.upstream.fleets import SOON_S, Harbour, odd, runs, until, use


async def test_nothing_runs_before_it_is_needed(harbour: Harbour) -> None:
    assert harbour.fleet().live(odd()) is None
    assert list_servers(harbour.home) == []


async def test_an_idle_server_is_stopped_and_comes_back_unnoticed(harbour: Harbour) -> None:
    harbour.idle_s = 0.05
    fleet, spec = harbour.fleet(), odd()
    seen = await fleet.manifest(spec)
    [pid] = harbour.pids()
    await until(lambda: not runs(pid) and list_servers(harbour.home) == [])
    assert fleet.live(spec) is None
    harbour.idle_s = 300.0
    with pytest.raises(Changed):  # the verdict on the call is too old by the time the server runs
        await use(fleet, spec, "echo", seen=seen)
    assert harbour.pids() == []
    assert await fleet.manifest(spec) is seen
    assert await use(fleet, spec, "echo", seen=seen, a=1) == {"a": 1}
    assert harbour.pids() != [pid]


async def test_a_server_at_work_is_not_idle(harbour: Harbour) -> None:
    harbour.idle_s = 0.02
    fleet, spec = harbour.fleet(limits=Limits(call_s=0.5)), odd()
    with pytest.raises(ServerFailed, match="did not answer"):
        await use(fleet, spec, "silent")


async def test_a_changed_configuration_is_another_server(harbour: Harbour) -> None:
    fleet, before, after = harbour.fleet(), odd(), odd("rich")
    await fleet.manifest(before)
    [pid] = harbour.pids()
    waiting = asyncio.create_task(use(fleet, before, "silent"))
    await until(lambda: harbour.client.heard("got silent"))
    assert fleet.live(after) is None
    assert (await fleet.manifest(after)).prompts
    assert not runs(pid)
    with pytest.raises(ServerFailed, match="its configuration changed"):
        await waiting
    assert [posted.target_digest for posted in list_servers(harbour.home)] == [after.target_digest]


async def test_a_configuration_that_only_moved_in_its_file_is_the_same_server(harbour: Harbour) -> None:
    fleet = harbour.fleet()
    manifest = await fleet.manifest(odd(line=1))
    assert fleet.live(odd(line=9)) is manifest


async def test_after_a_crash_a_start_that_is_near_is_waited_for(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=0.05)), odd()
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die")
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}


async def test_after_a_crash_a_start_that_is_far_fails_at_once_with_the_reason(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=20.0)), odd()
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die", code=9)
    with pytest.raises(ServerFailed, match=r"server `odd` crashed just now; last: .*exit code 9") as caught:
        await use(fleet, spec, "echo")
    assert caught.value.hint is not None
    assert [posted.state for posted in list_servers(harbour.home)] == ["backoff"]


async def test_a_server_that_answers_and_then_dies_ends_in_a_crash_loop(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=0.001, crash_loop=3)), odd()
    for _ in range(3):
        assert await use(fleet, spec, "echo", a=1) == {"a": 1}
        with pytest.raises(ServerFailed):
            await use(fleet, spec, "die")
    with pytest.raises(ServerFailed, match="server `odd` is in a crash loop: it crashed 3 times in a row"):
        await use(fleet, spec, "echo")
    [posted] = list_servers(harbour.home)
    assert (posted.state, posted.process, posted.restarts) == ("crash-loop", None, 2)
    assert "the disk is on fire" in str(posted.last_error)


async def test_a_crash_loop_is_tried_again_after_it_has_cooled(harbour: Harbour) -> None:
    limits = Limits(backoff_s=0.001, backoff_max_s=0.01, crash_loop=1)
    fleet, spec = harbour.fleet(limits=limits), odd()
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die")
    async with asyncio.timeout(SOON_S):
        while fleet.live(spec) is None:
            with contextlib.suppress(ServerFailed):
                await fleet.manifest(spec)
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}


async def test_a_run_that_lasted_ends_a_row_of_crashes(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=0.001, crash_loop=2, healthy_s=0.0)), odd()
    for _ in range(4):
        with pytest.raises(ServerFailed):
            await use(fleet, spec, "die")


async def test_a_command_that_is_not_there_is_no_crash(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(crash_loop=1)), odd(command="no-such-program")
    for _ in range(3):
        with pytest.raises(ServerFailed, match="was not found"):
            await fleet.manifest(spec)


async def test_a_person_who_stops_a_server_is_not_a_crash(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(crash_loop=1)), odd()
    waiting = asyncio.create_task(use(fleet, spec, "silent"))
    await until(lambda: harbour.client.heard("got silent"))
    [posted] = list_servers(harbour.home)
    assert await asyncio.to_thread(ask_stop, harbour.home, posted)
    with pytest.raises(ServerFailed, match="server `odd` was stopped by a person"):
        await waiting
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}


async def test_closing_in_the_middle_of_a_start_fails_its_callers_and_leaves_nothing(
    harbour: Harbour,
) -> None:
    fleet = harbour.fleet(limits=Limits(stop_s=0.1))
    waiting = [asyncio.create_task(fleet.manifest(odd("mute", "stubborn"))) for _ in range(3)]
    await until(lambda: "still thinking" in harbour.log())
    [pid] = harbour.pids()
    await fleet.close()
    assert not runs(pid)
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert {repr(failure) for failure in failures} == {
        repr(ServerFailed("server `odd` was stopped: the gateway ends"))
    }


async def test_a_configuration_that_changes_in_the_middle_of_a_start_starts_anew(harbour: Harbour) -> None:
    fleet = harbour.fleet(limits=Limits(stop_s=0.1))
    outdated = asyncio.create_task(fleet.manifest(odd("mute")))
    await until(lambda: "still thinking" in harbour.log())
    assert (await fleet.manifest(odd())).tools
    with pytest.raises(ServerFailed, match="its configuration changed"):
        await outdated


async def test_a_caller_that_is_cancelled_while_the_server_starts_is_cancelled(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    caller = asyncio.create_task(use(fleet, spec, "echo"))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}
