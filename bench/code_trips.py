"""Programs that do nothing but call the echo server, and how long each of their calls takes.

From one reply to the next is a whole round trip: the reply is delivered, the code runs on and calls, the
call is judged, kept in journal and audit log, made, and its result kept.
"""

import itertools
import time
from collections.abc import Mapping

from bench.caller import Wrong
from bench.code_gate import CodeGate, check
from pml.core.code.sandbox import Language
from pml.core.values import JsonObject

AT_ONCE = 16
WORD = "word"
IN_A_ROW = {
    Language.TYPESCRIPT: """
        let total = 0;
        for (let n = 0; n < TIMES; n++) total += (await mcp.echo.echo({ text: "word" })).length;
        return total;
    """,
    Language.PYTHON: """
total = 0
for n in range(TIMES):
    total += len(await mcp.echo.echo(text="word"))
total
""",
}
TOGETHER = {
    Language.TYPESCRIPT: """
        let total = 0;
        for (let n = 0; n < TIMES; n += 16) {
            const said = await Promise.all([...Array(16)].map(() => mcp.echo.echo({ text: "word" })));
            total += said.join("").length;
        }
        return total;
    """,
    Language.PYTHON: """
import asyncio
total = 0
for n in range(0, TIMES, 16):
    said = await asyncio.gather(*[mcp.echo.echo(text="word") for _ in range(16)])
    total += len("".join(said))
total
""",
}


async def trip_times(
    gate: CodeGate, language: Language, programs: Mapping[Language, str], times: int
) -> list[float]:
    """Run the program, and return the seconds from each reply to the next. Raises: Wrong."""
    replied: list[float] = []

    def heard(step: JsonObject) -> None:
        replied.append(time.perf_counter())

    result = await gate.execute(language, programs[language].replace("TIMES", str(times)), heard=heard)
    check(result, times * len(WORD))
    if len(replied) != times:
        raise Wrong(f"the code made {len(replied)} calls")
    return [after - before for before, after in itertools.pairwise(replied)]
