"""Servers that misbehave: the gateway stays up, the error names the server, and others are unaffected."""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import ServerFailed
from pml.core.packages.permissions import Containment
from pml.core.sessions.process import Process
from pml.core.values import JsonObject
from pml.upstream.board import RunBoard
from pml.upstream.limits import Limits
from pml.upstream.transport.process import ServerProcess
from tests.promises import promise
from tests.upstream.fleets import Harbour, odd, runs, until, use


async def test_noise_on_stdout_is_skipped_and_noted(harbour: Harbour) -> None:
    assert await use(harbour.fleet(), odd("noise"), "echo", a=1) == {"a": 1}
    log = harbour.log()
    assert "skipped: Welcome!" in log
    assert "skipped: {not json" in log


async def test_the_second_of_two_answers_is_ignored(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    assert await use(fleet, spec, "twice") == "once"
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}
    assert "an answer that nobody waits for" in harbour.log()


async def test_answers_with_ids_that_were_never_sent_are_ignored(harbour: Harbour) -> None:
    assert await use(harbour.fleet(), odd(), "wrong_id") == "right"
    assert "nobody waits for, ignored: id `999999`" in harbour.log()


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("bad_utf8", "answered with text that is not UTF-8"),
        ("odd_error", "answered with an error that JSON-RPC does not know"),
        ("neither", "answered with neither a result nor an error"),
    ],
)
async def test_an_answer_that_is_none_fails_its_call_alone(harbour: Harbour, tool: str, reason: str) -> None:
    fleet, spec = harbour.fleet(), odd()
    with pytest.raises(ServerFailed, match=f"server `odd` {reason}"):
        await use(fleet, spec, tool)
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}


async def test_a_server_that_never_answers_holds_up_nobody_else(harbour: Harbour) -> None:
    fleet = harbour.fleet()
    stuck = asyncio.create_task(use(fleet, odd(name="stuck"), "silent"))
    await until(lambda: harbour.client.heard("got silent"))
    assert await use(fleet, odd(name="fine"), "echo", a=1) == {"a": 1}
    assert await use(fleet, odd(name="stuck"), "echo", b=2) == {"b": 2}
    stuck.cancel()


async def test_a_flood_of_notifications_is_bounded_and_does_not_hide_the_answer(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(logged_per_s=5)), odd()
    seen = await fleet.manifest(spec)
    harbour.client.changes.clear()
    assert await use(fleet, spec, "flood", times=2_000) == "flooded"
    assert len(harbour.client.logs) < 500
    assert await fleet.manifest(spec) is seen
    assert harbour.client.changes == []


async def test_a_line_that_is_too_long_ends_the_server_by_name(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(line_bytes=100_000)), odd()
    with pytest.raises(ServerFailed, match="server `odd` sent a line of more than 100,000 bytes"):
        await use(fleet, spec, "huge", bytes=10_000_000)
    await until(lambda: fleet.live(spec) is None)


@promise("server:crash-told-at-once")
async def test_a_crash_fails_every_call_at_once_with_the_exit_code_and_last_words(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    waiting = [asyncio.create_task(use(fleet, spec, "silent")) for _ in range(10)]
    await until(lambda: len(harbour.client.logs) == 10)
    with pytest.raises(ServerFailed) as caught:
        await use(fleet, spec, "die", code=7, last_words="out of \x1b[31mmemory")
    assert caught.value.message == "server `odd` ended with exit code 7; its last words: out of memory"
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(failure) for failure in failures} == {caught.value.message}


async def test_only_the_last_of_many_last_words_are_told(harbour: Harbour) -> None:
    words = "\n".join(("Traceback:", "  line 1", "", f"  {'x' * 300}", "  line 3", "", "KeyError", "", ""))
    with pytest.raises(ServerFailed) as caught:
        await use(harbour.fleet(), odd(), "die", last_words=words)
    said = f"{'x' * 200}… | line 3 | KeyError"
    assert caught.value.message == f"server `odd` ended with exit code 3; its last words: {said}"


async def test_a_crash_by_signal_names_the_signal(harbour: Harbour) -> None:
    with pytest.raises(ServerFailed, match="server `odd` was ended by signal SIGKILL"):
        await use(harbour.fleet(), odd(), "die_by_signal")


@pytest.mark.parametrize("tool", ["close_output", "silent"])
async def test_a_server_that_closes_a_pipe_is_lost_and_ended(harbour: Harbour, tool: str) -> None:
    limits = Limits(drain_s=0.05, stop_s=0.1)
    fleet, spec = (
        harbour.fleet(limits=limits, containment=Containment.NONE),
        odd(),
    )  # bwrap holds the pipes too
    if tool == "silent":
        waiting = asyncio.create_task(use(fleet, spec, "silent"))
        await until(lambda: harbour.client.heard("got silent"))
        await use(fleet, spec, "close_input")
    else:
        waiting = asyncio.create_task(use(fleet, spec, "close_output"))
    with pytest.raises(ServerFailed, match="server `odd` closed its input or its output"):
        await waiting
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}


async def test_a_server_that_does_not_read_costs_bounded_memory(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(unread_bytes=300_000, stop_s=0.1)), odd()
    assert await use(fleet, spec, "stop_reading") == "deaf"
    calls = [asyncio.create_task(use(fleet, spec, "echo", text="x" * 50_000)) for _ in range(20)]
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert {str(call.exception()) for call in done} == {"server `odd` does not read its input"}
    for call in calls:
        call.cancel()


@promise("server:never-replayed")
async def test_an_interrupted_call_is_never_sent_again(harbour: Harbour, tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    fleet, spec = harbour.fleet(limits=Limits(backoff_s=0.01)), odd(f"tally={tally}")
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die")
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "die_by_signal")
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}
    assert tally.read_text("utf-8").split() == ["die", "die_by_signal", "echo"]


@promise("server:killed-whole")
async def test_grandchildren_that_outlive_a_dead_server_are_killed(harbour: Harbour) -> None:
    with pytest.raises(ServerFailed) as caught:
        await use(harbour.fleet(containment=Containment.NONE), odd(), "fork", then="die")
    found = re.search(r"exit code 5; its last words: child (\d+)", caught.value.message)
    assert found is not None
    await until(lambda: not runs(int(found[1])))


async def test_a_crash_is_told_also_when_something_that_escaped_holds_the_pipes(harbour: Harbour) -> None:
    fleet = harbour.fleet(limits=Limits(drain_s=0.1), containment=Containment.NONE)
    with pytest.raises(ServerFailed) as caught:
        await use(fleet, odd(), "fork", then="die", escape=True)
    found = re.search(r"child (\d+)", caught.value.message)
    assert found is not None
    os.kill(int(found[1]), signal.SIGKILL)


@promise("server:killed-whole")
async def test_closing_kills_a_stubborn_server_and_its_grandchildren(harbour: Harbour) -> None:
    limits = Limits(stop_s=0.1)
    fleet, spec = harbour.fleet(limits=limits, containment=Containment.NONE), odd("stubborn")
    grandchild = await use(fleet, spec, "fork")
    assert runs(grandchild)
    waiting = asyncio.create_task(use(fleet, spec, "silent"))
    await until(lambda: harbour.client.heard("got silent"))
    await fleet.close()
    assert not runs(grandchild)
    with pytest.raises(ServerFailed, match="server `odd` was stopped: the gateway ends"):
        await waiting
    with pytest.raises(ServerFailed):
        await use(fleet, spec, "echo")


async def test_closing_goes_on_when_it_is_cancelled(harbour: Harbour) -> None:
    limits = Limits(stop_s=0.1)
    fleet, spec = harbour.fleet(limits=limits, containment=Containment.NONE), odd("stubborn")
    grandchild = await use(fleet, spec, "fork")
    closing = asyncio.create_task(fleet.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not runs(grandchild)


async def test_a_server_that_exits_at_start_says_why(harbour: Harbour) -> None:
    with pytest.raises(ServerFailed, match="server `odd` ended with exit code 4; its last words: cannot"):
        await harbour.fleet().manifest(odd("exit=4", "why=no licence"))


async def test_a_server_that_starts_too_slowly_is_ended(harbour: Harbour) -> None:
    fleet = harbour.fleet(limits=Limits(start_s=0.5, stop_s=0.1))
    with pytest.raises(ServerFailed, match=r"within 0\.5 s; its last words: still thinking"):
        await fleet.manifest(odd("mute"))


async def test_a_server_of_an_unknown_protocol_is_refused(harbour: Harbour) -> None:
    with pytest.raises(ServerFailed, match="speaks protocol `2023-01-01`"):
        await harbour.fleet().manifest(odd("version=2023-01-01"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (odd(command="no-such-program"), "command `no-such-program` was not found"),
        (odd(command="/"), "command `/`: permission denied"),
        (odd(cwd="/no/such/folder"), "`/no/such/folder` is not a folder"),
        (odd(command="a\0b"), "command `a"),
    ],
)
async def test_what_cannot_be_started_is_told_with_a_next_step(
    harbour: Harbour, spec: Any, reason: str
) -> None:
    with pytest.raises(ServerFailed) as caught:
        await harbour.fleet().manifest(spec)
    assert caught.value.message.startswith(f"server `odd` cannot be started: {reason}")
    assert caught.value.hint


async def test_a_listener_that_fails_costs_no_answer(harbour: Harbour) -> None:
    def broken(step: JsonObject) -> None:
        raise RuntimeError("a fault of ours")

    said = await use(harbour.fleet(), odd(), "progress", on_progress=broken, steps=2)
    assert isinstance(said["token"], int)
    assert "a fault of ours" in harbour.log()


async def test_a_fault_of_ours_in_the_middle_of_a_start_leaves_no_process(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    def broken(self: RunBoard, name: str, *, process: Process, **more: object) -> None:
        pids.append(process.pid)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(RunBoard, "post", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await harbour.fleet().manifest(odd())
    await until(lambda: not runs(pids[0]))
    await harbour.close()


async def test_a_connection_that_fails_leaves_no_process(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    async def broken(self: ServerProcess) -> None:
        pids.append(self.pid)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(ServerProcess, "connect", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await harbour.fleet().manifest(odd())
    assert not runs(pids[0])
