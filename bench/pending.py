"""Ten thousand approvals that wait: what a row weighs, and whether a page costs more among many."""

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.contexts import bench_context, bench_session
from bench.table import Row, ms
from pml.service.approvals.lifecycle import MAX_PENDING, Question, ask, pending
from pml.service.context import Context


def rows(*, quick: bool = False) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_measure(Path(directory), 1_000 if quick else 10_000))


async def _measure(home: Path, many: int) -> list[Row]:
    async with bench_context(home) as context:
        await _fill(context, home, 0, 200)
        few_s = await _page_s(context)
        await _fill(context, home, 200, many)
        many_s = await _page_s(context)
    size = (home / "pml" / "pml.db").stat().st_size
    return [
        (f"{many:,} waiting: bytes each", f"{size / many:,.0f} B", "", "", "≤ 5,000 B"),
        (
            f"one page of 100 among {many:,}",
            ms(many_s),
            f"among 200: {ms(few_s)}",
            f"{many_s / few_s:.2f}x",
            "does not grow",
        ),
    ]


async def _fill(context: Context, home: Path, start: int, stop: int) -> None:
    for first in range(start, stop, MAX_PENDING):
        session = await bench_session(context, home, f"session-{first}")
        arguments = [
            {"title": f"issue {n}", "body": "It breaks. " * 40} for n in range(first, first + MAX_PENDING)
        ]
        await asyncio.gather(
            *(
                ask(context, Question(session=session, tool="github:create_issue", arguments=a))
                for a in arguments
            )
        )


async def _page_s(context: Context) -> float:
    times: list[float] = []
    for _ in range(50):
        start = time.perf_counter()
        assert len(await pending(context, limit=100)) == 100
        times.append(time.perf_counter() - start)
    return median(times)
