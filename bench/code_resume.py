"""Code that waited for an answer, taken up again: from a snapshot in a new process, and by replay.

What is measured in the new process begins when its store is open: taking the run from its journal, checking
and loading the snapshot, and the first turn. `python -m bench.code_resume HOME RUN [warm]` is that process.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.caller import Wrong
from bench.code_gate import CodeGate, check
from bench.contexts import bench_context
from bench.echo_server import BIG_BYTES
from pml.core.code.sandbox import Language, Program, Reply
from pml.sandbox.monty.sandbox import MontySandbox

CHILD_TIMEOUT_S = 60.0
WAITS = """
first = await mcp.echo.echo(text="first")
second = await mcp.echo.big(text="second")
[first, len(second)]
"""
_ANSWER = "taken up"
MANY_STEPS = {
    Language.TYPESCRIPT: """
        let total = 0;
        for (let n = 0; n < STEPS; n++) total += (await mcp.echo.echo({ text: "step" })).length;
        return total + (await mcp.echo.big({ text: "last" })).length;
    """,
    Language.PYTHON: """
total = 0
for n in range(STEPS):
    total += len(await mcp.echo.echo(text="step"))
total + len(await mcp.echo.big(text="last"))
""",
}


async def snapshot_times(here: CodeGate, home: Path, *, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds it takes new processes, with the interpreter's own start and without it."""
    run_id = await here.pause(Language.PYTHON, WAITS)
    cold = [await _in_new_process(home, run_id) for _ in range(count)]
    warm = [await _in_new_process(home, run_id, "warm") for _ in range(count)]
    check(await here.go_on(run_id), ["first", BIG_BYTES])
    return cold, warm


async def replay_time(here: CodeGate, language: Language, steps: int) -> float:
    """Return the seconds until code has ended that waited after so many calls, and whose process is gone."""
    run_id = await here.pause(language, MANY_STEPS[language].replace("STEPS", str(steps)))
    async with here.elsewhere() as there:
        await there.warm()
        began = time.perf_counter()
        result = await there.go_on(run_id)
        took = time.perf_counter() - began
    check(result, steps * len("step") + BIG_BYTES)
    return took


async def _in_new_process(home: Path, run_id: str, *how: str) -> float:
    def run() -> float:
        command = [sys.executable, "-m", "bench.code_resume", str(home), run_id, *how]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=CHILD_TIMEOUT_S)
        return float(json.loads(ran.stdout))

    return await asyncio.to_thread(run)


async def _take_up(home: Path, run_id: str, how: Sequence[str]) -> float:
    """Take the run up and let the code have its answer, then leave the run as it was."""
    async with bench_context(home) as context:
        sandbox = MontySandbox(home / "pml")
        if "warm" in how:
            await sandbox.warm()
        began = time.perf_counter()
        kept = await context.store.journals.take(run_id, context.owners.me, dead=())
        if kept is None or kept.dump is None:
            raise Wrong("there is no snapshot")
        run = kept.run
        program = Program(language=run.language, code=run.code, args=run.args, export=run.export)
        execution = await sandbox.load(program, kept.dump)
        if execution is None:
            raise Wrong("the snapshot cannot be loaded")
        (request,) = (await execution.begin()).requests
        value = json.dumps(_ANSWER).encode()
        turn = await execution.deliver(Reply(number=request.number, value=value, at_ms=0))
        took = time.perf_counter() - began
        await context.store.journals.leave(run_id, dump=kept.dump, dumped=kept.dumped)
        await sandbox.close()
    if turn.ended is None or json.loads(turn.ended.value) != ["first", len(_ANSWER)]:
        raise Wrong(f"the code did not go on: {turn}")
    return took


if __name__ == "__main__":
    print(asyncio.run(_take_up(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])))
