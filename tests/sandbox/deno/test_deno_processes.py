"""The processes of the Deno sandbox: each serves one program, and none is left, whatever happens."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pml.core.code.sandbox import Ending, Reply
from pml.core.errors import Unavailable
from pml.install.package_managers import find_deno
from pml.sandbox.deno.command import script
from pml.sandbox.deno.limits import Limits
from pml.sandbox.deno.process import DenoProcess, Recipe, start
from pml.sandbox.deno.sandbox import DenoSandbox, Pool
from tests.promises import promise
from tests.sandbox.deno_rig import (
    BARE,
    BOTH,
    BOXED,
    NOON_MS,
    WAIT_S,
    deno_processes,
    deno_sandbox,
    find_box,
    of_process,
    opened,
    program,
    run,
    until,
    until_gone,
)

LOOP = "for (;;);"


async def until_some(count: int) -> set[int]:
    """Return the processes once there are so many."""
    await until(lambda: len(deno_processes()) >= count)
    return deno_processes()


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@promise("code:one-process-each")
async def test_a_process_serves_one_program_and_is_replaced(tmp_path: Path) -> None:
    async with deno_sandbox(BARE, tmp_path, ready=2) as sandbox:
        await sandbox.warm()
        used: set[int] = set()
        for _ in range(4):
            await until_some(3)  # the two that are ready, and the one that makes JavaScript
            execution = await opened(sandbox, program("globalThis.left = 1; await mcp.a.b(); return 1"))
            before = deno_processes()
            assert len((await execution.begin()).requests) == 1
            last = await execution.deliver(Reply(number=0, at_ms=NOON_MS))
            assert last.ended is not None
            await until(lambda: before - deno_processes())  # noqa: B023  it is over before the next round
            gone = before - deno_processes()
            assert gone.isdisjoint(used)
            used |= gone
            assert (await run(sandbox, "return typeof (globalThis as any).left")).value == "undefined"
        await until_some(3)
    assert deno_processes() == set()


async def test_many_programs_run_at_once_each_in_its_own_process(tmp_path: Path) -> None:
    async with deno_sandbox(BARE, tmp_path, ready=1) as sandbox:
        runs = [run(sandbox, f"await mcp.a.b(); return {n}") for n in range(6)]
        assert [ran.value for ran in await asyncio.gather(*runs)] == list(range(6))
    assert deno_processes() == set()


@pytest.mark.parametrize("kind", BOTH)
async def test_nothing_is_left_after_close(kind: str, tmp_path: Path) -> None:
    await asyncio.to_thread(os.getpid)  # the threads of the loop have descriptors of their own
    before = open_files()
    async with deno_sandbox(kind, tmp_path / "code", ready=2) as sandbox:
        await sandbox.warm()
        waiting = await opened(sandbox, program("await mcp.a.b()"))
        await waiting.begin()
        await run(sandbox, "return 1")
        await until_some(3)
    assert deno_processes() == set()
    await asyncio.to_thread(os.getpid)  # the loop closes descriptors in its next turn
    assert len(open_files() - before) == 0
    assert os.listdir(tmp_path) == []
    with pytest.raises(Unavailable, match="closed"):
        await run(sandbox, "return 1")


@pytest.mark.parametrize("kind", BOTH)
async def test_closing_an_execution_ends_it_whatever_it_does(kind: str, tmp_path: Path) -> None:
    async with deno_sandbox(kind, tmp_path) as sandbox:
        execution = await opened(sandbox, program("await mcp.a.b(); for (;;);"))
        await execution.begin()
        running = await until_some(1)
        delivery = asyncio.create_task(execution.deliver(Reply(number=0, at_ms=NOON_MS)))
        await asyncio.sleep(0)
        await execution.close()
        turn = await delivery
        assert turn.ended is not None
        assert turn.ended.how in (Ending.LIMIT, Ending.BROKEN)
        await until_gone(running)


@pytest.mark.parametrize("kind", BOTH)
@promise("code:no-process-left")
async def test_a_caller_that_is_cancelled_at_any_step_of_starting_leaves_no_process(
    kind: str, tmp_path: Path
) -> None:
    async with deno_sandbox(kind, tmp_path) as sandbox:
        for steps in range(16):
            beginning = asyncio.create_task((await opened(sandbox, program(LOOP))).begin())
            for _ in range(steps):
                await asyncio.sleep(0)
            beginning.cancel()
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait([beginning])
            assert beginning.cancelled()
    await until_gone(deno_processes())


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("moment", ["while translating", "while starting", "while running"])
@promise("code:no-process-left")
async def test_a_caller_that_is_cancelled_leaves_no_process(kind: str, moment: str, tmp_path: Path) -> None:
    async with deno_sandbox(kind, tmp_path) as sandbox:
        execution = await opened(sandbox, program(LOOP, export=None))
        beginning = asyncio.create_task(execution.begin())
        first = await until_some(1)
        if moment != "while translating":
            await until(lambda: deno_processes() - first)
        if moment == "while running":
            await until_busy()
        beginning.cancel()
        await asyncio.wait([beginning])
        assert beginning.cancelled()
        await until_gone(deno_processes())
        assert (await run(sandbox, "return 1")).value == 1


async def until_busy(processes: set[int] | None = None) -> None:
    """Return once a process has used half a second of CPU: it loops then."""
    ticks = os.sysconf("SC_CLK_TCK") / 2
    await until(lambda: any(cpu_ticks(pid) >= ticks for pid in processes or deno_processes()))


def cpu_ticks(pid: int) -> int:
    try:
        return int(of_process(pid, "stat").rpartition(b")")[2].split()[11])
    except OSError:
        return 0


HOST = """
import asyncio, sys
from pathlib import Path
from pml.core.code.sandbox import Reply
from pml.sandbox.deno.command import script
from pml.sandbox.deno.limits import Limits
from pml.sandbox.deno.sandbox import Pool
from pml.sandbox.deno.process import DenoProcess, Recipe, start
from tests.sandbox.deno_rig import deno_processes, deno_sandbox, opened, program

async def main(kind, folder, code, cpu_s):
    async with deno_sandbox(kind, Path(folder), limits=Limits(cpu_s=int(cpu_s))) as sandbox:
        execution = await opened(sandbox, program(code))
        await execution.begin()
        print(*deno_processes(), flush=True)
        await execution.deliver(Reply(number=0, at_ms=0))
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("code", ["await mcp.a.b(); await mcp.a.b()", f"await mcp.a.b(); {LOOP}"])
@promise("code:no-process-left")
async def test_code_ends_with_its_host_also_when_that_is_killed(kind: str, code: str, tmp_path: Path) -> None:
    find_box(kind)
    # Nothing but the kernel ends what loops without a box; what waits, and what is in a box, ends at once.
    cpu_s = 1 if kind == BARE and code.endswith(LOOP) else 600
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOST, kind, str(tmp_path), code, str(cpu_s)),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(Path.cwd()), *sys.path))},
    )
    try:
        assert host.stdout is not None
        async with asyncio.timeout(WAIT_S):
            processes = {int(word) for word in (await host.stdout.readline()).split()}
        if code.endswith(LOOP):
            await until_busy(processes)
    finally:
        host.send_signal(signal.SIGKILL)
        await host.wait()
    assert processes
    await until_gone(processes)


async def test_a_ready_process_that_has_died_is_not_used() -> None:
    started: list[DenoProcess] = []

    async def start_one() -> DenoProcess:
        recipe = Recipe(deno=find_deno(), bwrap=None, script=script("runner.js"), limits=Limits())
        started.append(await start(recipe))
        return started[-1]

    pool = Pool(start_one, size=2)
    await pool.warm()
    os.kill(started[0].pid, signal.SIGKILL)
    await until(lambda: not started[0].alive)
    assert await pool.take() is started[1]
    await pool.close()
    assert deno_processes() == set()


async def test_a_box_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    sandbox = DenoSandbox(deno=find_deno, bwrap=lambda: "/bin/false", cache=tmp_path, ready=0)
    assert (await run(sandbox, "return typeof Deno")).value == "undefined"
    await sandbox.close()


async def test_without_a_deno_that_starts_the_sandbox_is_unavailable(tmp_path: Path) -> None:
    def none() -> str:
        raise Unavailable("the program `deno` was not found")

    for deno, message in (
        (none, "`deno` was not found"),
        (lambda: str(tmp_path / "none"), "the sandbox does not start: no such file"),
        (lambda: "/bin/false", "the sandbox does not start"),
    ):
        sandbox = DenoSandbox(deno=deno, bwrap=lambda: None, cache=tmp_path, ready=2)
        with pytest.raises(Unavailable, match=message):
            await run(sandbox, "return 1")
        await sandbox.close()
    assert deno_processes() == set()


async def test_closing_while_processes_start_leaves_none(tmp_path: Path) -> None:
    for kind in (BOXED, BARE):
        find_box(kind)
        async with deno_sandbox(kind, tmp_path, ready=3) as sandbox:
            warming = asyncio.create_task(sandbox.warm())
            await until_some(1)
        await asyncio.wait([warming])
        await until_gone(deno_processes())


def test_limits_have_defaults_that_fit_together() -> None:
    limits = Limits()
    assert limits.result_bytes < limits.line_bytes
    assert limits.heap_mb < limits.memory_mb
