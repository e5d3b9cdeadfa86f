"""What code costs: capabilities, calls from within code, `execute`, taking up again, and memory.

Calls go through a real gate in this process: rules, audit log, journal, sandboxes with their boxes, and the
echo server. What is compared with a peer goes over stdio through one client.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import code_stdio
from bench.code_gate import CodeGate, check, code_gate, configure
from bench.code_resume import replay_time, snapshot_times
from bench.code_stdio import CODE_MODE, Memory
from bench.code_trips import AT_ONCE, IN_A_ROW, TOGETHER, WORD, trip_times
from bench.peers import PML
from bench.table import Row, ms, percentile, print_table
from pml.core.code.sandbox import Language
from pml.core.values import Json, JsonObject
from pml.install.package_managers import find_deno

PAUSE_S = 0.1  # by then a process that was used is replaced, if the machine is not busy
SPOKEN = {Language.TYPESCRIPT: "TypeScript", Language.PYTHON: "Python"}

Work = Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured. `trips` are the calls that one program makes, `steps` those of a long journal."""

    paced: int
    calls: int
    programs: int
    trips: int
    resumed: int
    replayed: int
    steps: int
    rounds: int
    round_calls: int


FULL = Effort(
    paced=80,
    calls=200,
    programs=5,
    trips=200,
    resumed=7,
    replayed=3,
    steps=1000,
    rounds=5,
    round_calls=20,
)
QUICK = Effort(
    paced=5, calls=20, programs=1, trips=48, resumed=1, replayed=1, steps=50, rounds=1, round_calls=5
)


def rows(*, quick: bool = False) -> list[Row]:
    """Measure and return the rows; `quick` compares only with what needs no installation."""
    effort = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory:
        home = Path(directory)
        configure(home)
        found = asyncio.run(_in_process(home, effort))
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory:
        home = Path(directory)
        configure(home)
        return [*found, *_over_stdio(home, effort, alone=quick)]


async def _in_process(home: Path, effort: Effort) -> list[Row]:
    async with code_gate(home) as gate:
        await gate.warm()
        return [
            *await _capability_rows(gate, effort),
            *await _execute_rows(gate, effort),
            *await _trip_rows(gate, effort),
            *await _resume_rows(gate, home, effort),
        ]


async def _capability_rows(gate: CodeGate, effort: Effort) -> list[Row]:
    calls: Sequence[tuple[str, str, JsonObject, Json, str]] = (
        ("no calls", "quick:nothing", {"n": 1}, 2, "p50 ≤ 10 ms"),
        ("one call", "quick:one", {"text": WORD}, WORD, "stated"),
    )
    bare = median([_bare_deno() for _ in range(max(1, effort.paced // 5))])
    beside = f"`deno run` of no code: {ms(bare)}"
    found: list[Row] = []
    for label, tool, arguments, expected, bar in calls:

        async def call(tool: str = tool, arguments: JsonObject = arguments) -> bytes:
            return await gate.call(tool, arguments)

        await _times(call, 2, expected)
        paced = await _times(call, effort.paced, expected, before=lambda: _rested(gate))
        ready = f"1/{bare / median(paced):.1f}"
        found.append((f"capability, {label}, runner ready", _spread(paced), beside, ready, bar))
        await _rested(gate)
        hurried = await _times(call, effort.paced, expected)
        started = f"1/{bare / median(hurried):.1f}"
        found.append((f"capability, {label}, back to back", _spread(hurried), beside, started, "stated"))
    return found


async def _rested(gate: CodeGate) -> None:
    await asyncio.sleep(PAUSE_S)
    await gate.warm()


def _bare_deno() -> float:
    """Return what a Deno process takes to start and end, without a box and without anything to run."""
    began = time.perf_counter()
    subprocess.run([find_deno(), "run", "-"], input=b"", check=True, timeout=60)
    return time.perf_counter() - began


async def _execute_rows(gate: CodeGate, effort: Effort) -> list[Row]:
    async def python() -> bytes:
        return await gate.execute(Language.PYTHON, "sum(range(10))")

    async def typescript() -> bytes:
        return await gate.execute(Language.TYPESCRIPT, "return 40 + 5;")

    await _times(python, 10, 45)
    in_python = await _times(python, effort.calls, 45)
    await _times(typescript, 1, 45)
    in_typescript = await _times(typescript, effort.paced, 45, before=lambda: _rested(gate))
    return [
        ("`execute`, Python, no calls", _spread(in_python), "", "", "p50 ≤ 2 ms"),
        ("`execute`, TypeScript, no calls, runner ready", _spread(in_typescript), "", "", "stated"),
    ]


async def _trip_rows(gate: CodeGate, effort: Effort) -> list[Row]:
    """Measure from one reply to the next, within programs that do nothing else."""

    async def direct() -> bytes:
        return await gate.call("echo:echo", {"text": WORD})

    await direct()
    plain = median([await _timed(direct) for _ in range(effort.calls)])
    beside = f"the same call without code: {ms(plain)}"
    found: list[Row] = []
    for language in Language:
        trips: list[float] = []
        each: list[float] = []
        for _ in range(effort.programs):
            await _rested(gate)
            trips += await trip_times(gate, language, IN_A_ROW, effort.trips)
        for _ in range(effort.programs):
            await _rested(gate)
            count = effort.trips // AT_ONCE * AT_ONCE
            ends = await trip_times(gate, language, TOGETHER, count)
            each.append(sum(ends) / len(ends))
        spoken, p50, one = SPOKEN[language], median(trips), median(each)
        row = (f"`mcp.*` round trip, {spoken}", _spread(trips), beside, f"{p50 / plain:.1f}x", "p50 ≤ 1 ms")
        found.append(row)
        what = f"`mcp.*`, {AT_ONCE} at once, {spoken}: each"
        found.append((what, ms(one), beside, f"{one / plain:.1f}x", "stated"))
    return found


async def _resume_rows(gate: CodeGate, home: Path, effort: Effort) -> list[Row]:
    cold, warm = await snapshot_times(gate, home, count=effort.resumed)
    long = {
        language: median([await replay_time(gate, language, effort.steps) for _ in range(effort.replayed)])
        for language in Language
    }
    replayed, loaded = long[Language.TYPESCRIPT], long[Language.PYTHON]
    steps = f"{effort.steps:,} steps"
    return [
        (
            "Python resumed from its snapshot in a new process, interpreter ready",
            ms(median(warm)),
            f"and with its import and start: {ms(median(cold))}",
            "",
            "≤ 5 ms",
        ),
        (
            f"TypeScript resumed by replaying {steps}",
            f"{ms(replayed)} ({ms(replayed / effort.steps)} a step)",
            f"Python, from the snapshot after {steps}: {ms(loaded)}",
            f"{replayed / loaded:.1f}x",
            "stated",
        ),
    ]


def _over_stdio(home: Path, effort: Effort, *, alone: bool) -> list[Row]:
    workspace = home / "workspace"
    workspace.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PML_HOME": str(home / "pml")}
    compared = [code_stdio.pml()]
    try:
        compared += [] if alone else [code_stdio.code_mode()]
    except subprocess.CalledProcessError as exc:
        print(f"left out a peer that cannot be installed here: {exc}", file=sys.stderr)
    times = code_stdio.call_times(compared, env, workspace, rounds=effort.rounds, calls=effort.round_calls)
    ours, theirs = times[PML], times.get(CODE_MODE)
    peer = "" if theirs is None else f"{CODE_MODE}: {_spread(theirs)}"
    ratio = "" if theirs is None else f"1/{median(theirs) / median(ours):.1f}"
    what = "`execute` over stdio, Python, three calls"
    return [(what, _spread(ours), peer, ratio, "stated"), *_memory_rows(code_stdio.memory(env, workspace))]


def _memory_rows(found: Memory) -> list[Row]:
    return [
        ("memory of a ready TypeScript runner", f"{found.runner:.0f} MB", "", "", "stated"),
        ("memory of a Python worker", f"{found.worker:.0f} MB", "", "", "stated"),
        (
            "memory of the gateway after code in both",
            f"{found.after:.0f} MB",
            f"before any code: {found.before:.0f} MB",
            f"{found.after / found.before:.1f}x",
            "stated",
        ),
        (
            "memory of all that is kept ready, shared pages counted each time",
            f"{found.all:.0f} MB",
            "",
            "",
            "stated",
        ),
    ]


async def _times(
    work: Work, count: int, expected: Json, *, before: Callable[[], Awaitable[None]] | None = None
) -> list[float]:
    """Return the seconds of each; what is done `before` does not count. Raises: Wrong."""
    found: list[float] = []
    for _ in range(count):
        if before is not None:
            await before()
        began = time.perf_counter()
        result = await work()
        found.append(time.perf_counter() - began)
        check(result, expected)
    return found


async def _timed(work: Work) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _spread(times: Sequence[float]) -> str:
    return f"p50 {ms(median(times))}, p99 {ms(percentile(times, 0.99))}"


if __name__ == "__main__":
    print_table(rows(quick="--quick" in sys.argv[1:]))
