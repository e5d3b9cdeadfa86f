"""How long a waiter sleeps on after a decision, in the same process and in another one."""

import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from bench.contexts import ME, bench_context, bench_session, busy_writers
from bench.table import Row, ms, percentile
from pml.core.approvals.record import Approval
from pml.core.ports.records import Session
from pml.service.approvals.lifecycle import Decision, Question, ask, decide, wait
from pml.service.context import Context


def rows(*, quick: bool = False) -> list[Row]:
    count = 20 if quick else 300
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        same = asyncio.run(_same_process(Path(directory), count))
    found.append(_row("same process", same, "p50 ≤ 1 ms"))
    for label, neighbours, bar in (
        ("other process", 0, "p50 ≤ 5 ms"),
        ("other process, beside 2 busy writers", 2, "p50 ≤ 5 ms, p99 ≤ 20 ms"),
    ):
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            with busy_writers(home, neighbours) if neighbours else nullcontext():
                found.append(_row(label, asyncio.run(_other_process(home, count)), bar))
    return found


def _row(label: str, times: list[float], bar: str) -> Row:
    ours = f"p50 {ms(median(times))}, p99 {ms(percentile(times, 0.99))}"
    return f"decision → waiter resumed, {label}", ours, "pollers 500 ms", f"{0.5 / median(times):,.0f}x", bar


async def _question(context: Context, session: Session, number: int) -> Approval:
    return await ask(context, Question(session=session, tool="t:wait", arguments={"number": number}))


async def _same_process(home: Path, count: int) -> list[float]:
    times: list[float] = []
    async with bench_context(home) as context:
        session = await bench_session(context, home, "same")
        for number in range(count):
            record = await _question(context, session, number)
            waiter = asyncio.create_task(_resumed_at(context, record))
            await asyncio.sleep(0)
            start = time.monotonic()
            await decide(context, record.id, Decision(by=ME, digest=record.digest, allow=True))
            times.append(await waiter - start)
    return times


async def _resumed_at(context: Context, record: Approval) -> float:
    await wait(context, record.id)
    return time.monotonic()


async def _other_process(home: Path, count: int) -> list[float]:
    """A child asks and waits; we decide; both read the same monotonic clock."""
    command = [sys.executable, "-m", "bench.wakeups", str(home), str(count)]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    times: list[float] = []
    async with bench_context(home) as context:
        while line := (await child.stdout.readline()).decode().split():
            record = await context.store.approvals.get(line[0])  # type: ignore[arg-type]
            assert record is not None
            await asyncio.sleep(0.002)
            start = time.monotonic()
            await decide(context, record.id, Decision(by=ME, digest=record.digest, allow=True))
            times.append(float((await child.stdout.readline()).decode()) - start)
    await child.wait()
    return times


async def _child(home: Path, count: int) -> None:
    async with bench_context(home) as context:
        session = await bench_session(context, home, "child")
        for number in range(count):
            record = await _question(context, session, number)
            print(record.id, flush=True)
            print(await _resumed_at(context, record), flush=True)


if __name__ == "__main__":
    asyncio.run(_child(Path(sys.argv[1]), int(sys.argv[2])))
