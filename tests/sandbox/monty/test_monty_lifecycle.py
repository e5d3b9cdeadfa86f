"""Nothing is left of a run that was cancelled, closed or died, and the next one works."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from pathlib import Path

import pytest

from pml.core.code.sandbox import Ended, Ending
from pml.core.errors import Unavailable
from pml.sandbox.monty import worker as monty_worker
from pml.sandbox.monty.limits import MontyLimits
from pml.sandbox.monty.sandbox import MontySandbox
from tests.promises import promise
from tests.sandbox.monty_rig import CONDITIONS, listed, program, reply, sandbox_in, until, value, workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")

FOREVER = program("while True:\n    pass")
WAITING = program("await mcp.a.b()")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[MontySandbox]:
    async with sandbox_in(tmp_path) as made:
        yield made


def cpu_ticks(pids: set[int]) -> int:
    """Return how much the processes have worked, in ticks of the system."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11])
    return total


@promise("sandbox:python-leaves-nothing")
async def test_a_run_that_is_cancelled_in_the_middle_of_a_turn_leaves_no_process_at_work(
    sandbox: MontySandbox,
) -> None:
    before = workers()
    execution = await sandbox.open(FOREVER, CONDITIONS)
    turn = asyncio.create_task(execution.begin())
    await until(lambda: cpu_ticks(workers() - before) > 5)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await until(lambda: workers() <= before)
    assert await value(sandbox, "1") == 1
    await execution.close()


async def test_a_run_that_is_cancelled_at_once_leaves_nothing_either(tmp_path: Path) -> None:
    before = workers()
    async with sandbox_in(tmp_path) as sandbox:
        for steps in range(8):
            turn = asyncio.create_task((await sandbox.open(FOREVER, CONDITIONS)).begin())
            for _ in range(steps):
                await asyncio.sleep(0)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
        assert await value(sandbox, "1") == 1
    assert workers() <= before
    await until(lambda: not any(thread.name.startswith("monty") for thread in threading.enumerate()))


async def test_a_load_or_a_dump_that_is_cancelled_gives_its_place_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monty_worker, "_SPARE", 0)
    async with sandbox_in(tmp_path, MontyLimits(runs=1)) as sandbox:
        execution = await sandbox.open(WAITING, CONDITIONS)
        await execution.begin()
        dump = await execution.dump()
        assert dump is not None
        await cancelled(execution.dump())
        assert await value(sandbox, "1") == 1
        assert (await execution.deliver(reply(0))).ended == Ended(
            how=Ending.BROKEN, message="the run was ended"
        )
        await cancelled(sandbox.load(WAITING, dump))
        assert await value(sandbox, "1") == 1


async def cancelled(job: Coroutine[object, object, object]) -> None:
    task = asyncio.create_task(job)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closing_a_run_ends_what_it_does(sandbox: MontySandbox) -> None:
    before = workers()
    execution = await sandbox.open(FOREVER, CONDITIONS)
    turn = asyncio.create_task(execution.begin())
    await until(lambda: cpu_ticks(workers() - before) > 5)
    await execution.close()
    assert (await turn).ended == Ended(how=Ending.BROKEN, message="the Python sandbox died")
    await execution.close()
    assert await execution.dump() is None


async def test_closing_the_sandbox_ends_every_process(tmp_path: Path) -> None:
    before = workers()
    async with sandbox_in(tmp_path) as sandbox:
        waiting = await sandbox.open(WAITING, CONDITIONS)
        await waiting.begin()
        busy = asyncio.create_task((await sandbox.open(FOREVER, CONDITIONS)).begin())
        await until(lambda: cpu_ticks(workers() - before) > 5)
        await sandbox.close()
        assert workers() <= before
        assert (await busy).ended is not None
        assert (await waiting.deliver(reply(0))).ended is not None
        await waiting.close()
        with pytest.raises(Unavailable, match="closed"):
            await sandbox.open(WAITING, CONDITIONS)


async def test_a_sandbox_that_was_never_used_starts_and_ends_nothing(tmp_path: Path) -> None:
    before = workers()
    async with sandbox_in(tmp_path / "home"):
        pass
    assert workers() <= before
    assert listed(tmp_path) == []


async def test_a_process_that_dies_breaks_its_run_and_no_other(sandbox: MontySandbox) -> None:
    await sandbox.warm()
    other = await sandbox.open(WAITING, CONDITIONS)
    await other.begin()
    before = workers()
    execution = await sandbox.open(WAITING, CONDITIONS)
    await execution.begin()
    for pid in workers() - before:
        with suppress(ProcessLookupError):  # it may have ended with the one above it
            os.kill(pid, signal.SIGKILL)
    broken = await execution.deliver(reply(0))
    assert broken.ended == Ended(how=Ending.BROKEN, message="the Python sandbox died")
    assert (await other.deliver(reply(0, 1))).ended == Ended(how=Ending.RETURNED, value=b"1")
    assert await value(sandbox, "2") == 2


async def test_the_event_loop_goes_on_while_code_runs(sandbox: MontySandbox) -> None:
    before = workers()
    execution = await sandbox.open(FOREVER, CONDITIONS)
    turn = asyncio.create_task(execution.begin())
    await until(lambda: cpu_ticks(workers() - before) > 5)
    assert await value(sandbox, "1") == 1
    assert not turn.done()
    await execution.close()
    await turn


async def test_runs_at_once_do_not_see_each_other(sandbox: MontySandbox) -> None:
    async def one(n: int) -> object:
        return await value(sandbox, f"x = {n}\nawait mcp.a.b()\ny = x\ny")

    assert await asyncio.gather(*(one(n) for n in range(12))) == list(range(12))
    assert "x" not in str(await value(sandbox, "[name for name in locals() if name == 'x']"))


async def test_an_interpreter_that_is_not_there_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monty_worker, "interpreter", lambda: None)
    async with sandbox_in(tmp_path) as sandbox:
        execution = await sandbox.open(WAITING, CONDITIONS)
        with pytest.raises(Unavailable, match="not installed"):
            await execution.begin()


async def test_an_interpreter_that_does_not_start_is_said_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monty_worker, "interpreter", lambda: "/bin/false")
    async with sandbox_in(tmp_path) as sandbox:
        execution = await sandbox.open(WAITING, CONDITIONS)
        with pytest.raises(Unavailable, match="does not start"):
            await execution.begin()


def test_the_interpreter_is_not_imported_with_the_sandbox() -> None:
    code = "import sys, pml.sandbox.monty.sandbox; sys.exit('pydantic_monty' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


KILLED = """\
import asyncio, sys
from pathlib import Path
from tests.sandbox.monty_rig import CONDITIONS, program, sandbox_in, workers

async def main():
    async with sandbox_in(Path(sys.argv[1])) as sandbox:
        execution = await sandbox.open(program("await mcp.a.b()"), CONDITIONS)
        await execution.begin()
        print(*workers(), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_its_processes_end_with_a_process_that_was_killed(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=root,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{root}:{root / 'src'}"},
    )
    assert child.stdout is not None
    async with asyncio.timeout(30):
        pids = [int(pid) for pid in (await child.stdout.readline()).split()]
    assert pids
    child.kill()
    await child.wait()
    await until(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: int) -> bool:
    try:
        return b"monty" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
