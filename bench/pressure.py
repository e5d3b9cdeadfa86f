"""What one call with very long arguments costs everybody else: how long another caller of the hub waits.

Each kind of arguments is the worst of its sort for something that PML does with every call. The other caller
is answered by a rule, one call after the other, all the while. Beside its wait stands the processor time that
the hub used meanwhile, which is what the wait would be on a machine with nothing else to do: of three rounds
the best. Then: two sessions put as many questions as they may, of the largest size, and more.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.contexts import bench_context
from bench.http_caller import connect, head_of, permit_body, shake_hands
from bench.hubs import ALLOWED, ASKED, DENIED, Server, hub, person_token, session_tokens
from bench.table import Row, ms, print_table
from pml.core.approvals.bounds import MAX_PENDING, MAX_PENDING_BYTES
from pml.jsonrpc.messages import MAX_VALUES

MIB = 1024 * 1024
SIZES = ((1, 0.050), (16, 1.0))  # MiB, and how long others may wait, in seconds
SPARE = 64 * 1024  # of the largest message, for what is around the arguments
CALM = 100
ROUNDS = 3
QUESTIONS = (1 * MIB - SPARE, 15 * MIB)  # the largest that are put, and what is refused
FLOOD_S = 60.0  # until what waits is looked at, whatever else is still coming
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


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The longest wait of one caller; `cpu_s` is the most that the hub used during one of its calls."""

    wall_s: float
    cpu_s: float


def rows(*, quick: bool = False) -> list[Row]:
    """Measure and return the rows."""
    return asyncio.run(_measure(SIZES[:1] if quick else SIZES, rounds=1 if quick else ROUNDS))


async def _measure(sizes: tuple[tuple[int, float], ...], *, rounds: int) -> list[Row]:
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory, hub(Path(directory)) as server:
        await _longest_wait(server, None)  # the first calls of a hub import what they need
        calm = await _best(server, None, rounds)
        for mib, most_s in sizes:
            size = mib * MIB - SPARE
            waits = {kind: await _best(server, make(size), rounds) for kind, make in KINDS.items()}
            kind, wait = max(waits.items(), key=lambda each: each[1].cpu_s)
            found.append(
                (
                    f"a call with {mib} MiB of the worst arguments: the longest that another waits",
                    f"{ms(wait.cpu_s)} of processor time ({kind}), {ms(wait.wall_s)} in all",
                    f"without it: {ms(calm.cpu_s)}, {ms(calm.wall_s)} in all",
                    f"{wait.cpu_s / calm.cpu_s:.0f}x",
                    f"≤ {most_s * 1000:.0f} ms: {'met' if wait.cpu_s <= most_s else 'missed'}",
                )
            )
    for size in QUESTIONS[:1] if len(sizes) == 1 else QUESTIONS:
        with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory, hub(Path(directory)) as server:
            found.append(await _flood(server, size))
    return found


async def _best(server: Server, arguments: object, rounds: int) -> Wait:
    waits = [await _longest_wait(server, arguments) for _ in range(rounds)]
    return Wait(wall_s=min(each.wall_s for each in waits), cpu_s=min(each.cpu_s for each in waits))


async def _longest_wait(server: Server, arguments: object) -> Wait:
    """Return the longest wait of another caller while a call with `arguments` is under way."""
    home = server.home
    assert home is not None
    async with bench_context(home) as context:
        tokens = await session_tokens(context, home, 2)
    other, heavy = [await shake_hands(server.url, token) for token in tokens]
    waits: list[Wait] = []
    async with asyncio.timeout(ALL_S):
        replied = None if arguments is None else heavy.send(_heavy_body(arguments))
        until = time.monotonic() + 5.0
        while len(waits) < CALM or (replied is not None and not replied.done() and time.monotonic() < until):
            cpu_s, start = _used_s(server), time.monotonic()
            reply = await other.send(permit_body(len(waits), DENIED))
            waits.append(Wait(wall_s=reply.at - start, cpu_s=_used_s(server) - cpu_s))
            await asyncio.sleep(0.001)
    if replied is not None:
        replied.cancel()
    heavy.close()
    other.close()
    return Wait(wall_s=max(each.wall_s for each in waits), cpu_s=max(each.cpu_s for each in waits))


def _used_s(server: Server) -> float:
    """Return the processor time that the hub has used so far; Linux tells that of any process."""
    return time.clock_gettime((~server.process.pid << 3) | 2)


async def _flood(server: Server, size: int) -> Row:
    """Put twenty questions of `size` bytes in each of two sessions, and look at the inbox."""
    home = server.home
    assert home is not None
    async with bench_context(home) as context:
        tokens = await session_tokens(context, home, 2)
        person = await person_token(context)
    heads = [(await shake_hands(server.url, token)).head for token in tokens]
    callers = [await connect(server.url, head) for head in heads for _ in range(MAX_PENDING)]
    bodies = [_heavy_body({"text": "x" * size}, tool=ASKED, number=number) for number in range(len(callers))]
    sent = [caller.send(body) for caller, body in zip(callers, bodies, strict=True)]
    waiting = len(tokens) * (MAX_PENDING_BYTES // size)  # what is neither refused nor answered
    until, peak_kb = time.monotonic() + FLOOD_S, 0
    async with asyncio.timeout(ALL_S):
        while sum(each.done() for each in sent) < len(sent) - waiting and time.monotonic() < until:
            peak_kb = max(peak_kb, server.rss_kb())
            await asyncio.sleep(0.1)
        answered = sum(each.done() for each in sent)
        reader = await connect(server.url, head_of(server.url, person))
        start, cpu_s = time.monotonic(), _used_s(server)
        reply = await reader.send(b"", line=b"GET /api/inbox?limit=50")
        reply.json()
        took_s, cpu_s = reply.at - start, _used_s(server) - cpu_s
    for caller in (*callers, reader):
        caller.close()
    await asyncio.gather(*sent, return_exceptions=True)  # one that is refused unread may lose its connection
    stored = sum(file.stat().st_size for file in (home / "pml").glob("*.db*"))
    return (
        f"2 sessions, 20 questions of {size / MIB:.1f} MiB each: the inbox, the hub, the database",
        f"{ms(cpu_s)} of processor time ({ms(took_s)} in all), at most {peak_kb // 1024} MB, "
        f"{stored // MIB} MB ({answered} refused)",
        "unbounded: 63 s, 2.3 GB, 1.2 GB (15 MiB each)",
        "",
        "stated",
    )


def _heavy_body(arguments: object, *, tool: str = ALLOWED, number: int = 0) -> bytes:
    use = {"tool_name": tool, "input": arguments, "tool_use_id": f"use-{number}"}
    params = {"name": "loopback_permit", "arguments": use}
    call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(call, ensure_ascii=False, separators=(",", ":")).encode()


if __name__ == "__main__":
    print_table(rows(quick="--quick" in sys.argv[1:]))
