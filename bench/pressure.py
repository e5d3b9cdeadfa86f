"""What one call with very long arguments costs everybody else: how long another caller of the hub waits.

Each kind of arguments is the worst of its sort for something that PML does with every call. The other caller
is answered by a rule, one call after the other, all the while.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.desks import bench_desk
from bench.http_caller import permit_body, shake_hands
from bench.hubs import ALLOWED, DENIED, Server, hub, session_tokens
from bench.table import Row, ms, print_table
from pml.downstream.messages import MAX_VALUES

MIB = 1024 * 1024
SIZES = ((1, 0.050), (16, 1.0))  # MiB, and how long others may wait, in seconds
SPARE = 64 * 1024  # of the largest message, for what is around the arguments
CALM = 200
ALL_S = 600.0


def _filled(size: int, item: Callable[[int], str]) -> list[str]:
    """Return as many texts as make `size` bytes of JSON."""
    count = size // (len(item(10**5)) + 3)
    return [item(number) for number in range(count)]


KINDS: dict[str, Callable[[int], object]] = {
    "short paths": lambda size: {"paths": _filled(size, lambda n: f"/{n}")},
    "deep paths": lambda size: {"paths": _filled(size, lambda n: f"/{n}" + "/a" * 2000)},
    "paths that go up": lambda size: {"paths": _filled(size, lambda n: f"/usr/{n}" + "/../../usr" * 400)},
    "paths that could mean many": lambda size: {"paths": _filled(size, lambda n: f"[abcdefgh]{n}/[ab]" * 60)},
    "names": lambda size: {name: 0 for name in _filled(size * 3 // 5, lambda n: f"k{n}")},
    "lists": lambda size: {"rows": [list[int]()] * (size // 3)},
    "as many lists as there may be": lambda size: {"rows": [list[int]()] * min(size // 3, MAX_VALUES - 99)},
    "one text": lambda size: {"text": "//a'" * (size // 4)},
    "a text and pml": lambda size: {"text": "é " * (size // 3 - 9) + " pml"},
}


def rows(*, quick: bool = False) -> list[Row]:
    """Measure and return the rows."""
    return asyncio.run(_measure(SIZES[:1] if quick else SIZES))


async def _measure(sizes: tuple[tuple[int, float], ...]) -> list[Row]:
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory, hub(Path(directory)) as server:
        calm = await _longest_wait(server, None)
        for mib, most_s in sizes:
            size = mib * MIB - SPARE
            waits = {kind: await _longest_wait(server, make(size)) for kind, make in KINDS.items()}
            kind, wait_s = max(waits.items(), key=lambda each: each[1])
            found.append(
                (
                    f"a call with {mib} MiB of the worst arguments: the longest that another waits",
                    f"{ms(wait_s)} ({kind})",
                    f"without it: {ms(calm)}",
                    f"{wait_s / calm:.0f}x",
                    f"≤ {most_s * 1000:.0f} ms",
                )
            )
    return found


async def _longest_wait(server: Server, arguments: object) -> float:
    """Return the longest wait of another caller while a call with `arguments` is under way."""
    home = server.home
    assert home is not None
    async with bench_desk(home) as desk:
        tokens = await session_tokens(desk, home, 2)
    other, heavy = [await shake_hands(server.url, token) for token in tokens]
    body = None if arguments is None else _heavy_body(arguments)
    waits: list[float] = []
    async with asyncio.timeout(ALL_S):
        replied = None if body is None else heavy.send(body)
        until = time.monotonic() + 5.0
        while len(waits) < CALM or (replied is not None and not replied.done() and time.monotonic() < until):
            start = time.monotonic()
            reply = await other.send(permit_body(len(waits), DENIED))
            waits.append(reply.at - start)
            await asyncio.sleep(0.001)
    if replied is not None:
        replied.cancel()
    heavy.close()
    other.close()
    return max(waits) if body is not None else sorted(waits)[-2] or median(waits)


def _heavy_body(arguments: object) -> bytes:
    use = {"tool_name": ALLOWED, "input": arguments, "tool_use_id": "use-heavy"}
    params = {"name": "loopback_permit", "arguments": use}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    return json.dumps(call, ensure_ascii=False, separators=(",", ":")).encode()


if __name__ == "__main__":
    print_table(rows(quick="--quick" in sys.argv[1:]))
