"""Events to many readers: how many arrive a second, and when the last reader has one.

The readers are a process of their own, on real connections; it tells when each event has reached them all.
Events of the hub come from another process that asks and decides on the same store; those of the peer are
made in its own memory.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from statistics import median

from bench.contexts import ME, bench_context, bench_session
from bench.http_caller import connect, head_of
from bench.hubs import Server, person_token
from bench.table import Row, ms, percentile
from pml.core.ports.records import Session
from pml.service.approvals.lifecycle import Decision, Question, ask, decide
from pml.service.context import Context

READERS = 100
AT_A_TIME = 8
PAUSE_S = 0.15  # between events that are measured alone: readers are told of those together that come close
ALL_S = 300.0

Emit = Callable[[int], Awaitable[list[float]]]  # makes so many events, and returns when each was begun


async def rows(ours: Server, other: Server, *, events: int, alone: int) -> list[Row]:
    """Measure `alone` events one after the other, then `events` as fast as they can be made."""
    home = ours.home
    assert home is not None
    async with bench_context(home) as context:
        session = await bench_session(context, home, "events")
        token = await person_token(context)
        our_delays, our_rate = await _measure(
            ours,
            token,
            "/events?types=approval.*",
            events,
            alone,
            lambda n: _ask_and_decide(context, session, n),
        )
    emitter = await connect(other.url, head_of(other.url, None))

    async def emit(count: int) -> list[float]:
        begun = time.monotonic()
        await emitter.send(b"", line=f"POST /emit?count={count}".encode())
        return [begun] * count

    their_delays, their_rate = await _measure(other, None, "/events", events, alone, emit)
    emitter.close()
    return [_delay_row(our_delays, their_delays), _rate_row(our_rate, their_rate, events)]


def _delay_row(ours: list[float], theirs: list[float]) -> Row:
    return (
        f"one event: write begun → the last of {READERS} readers has it",
        f"p50 {ms(median(ours))}, p99 {ms(percentile(ours, 0.99))}",
        f"sse-starlette, in memory: p50 {ms(median(theirs))}, p99 {ms(percentile(theirs, 0.99))}",
        f"{median(ours) / median(theirs):.1f}x",
        "stated",
    )


def _rate_row(ours: float, theirs: float, events: int) -> Row:
    return (
        f"{events:,} events to {READERS} readers",
        f"{ours * READERS:,.0f}/s delivered",
        f"sse-starlette, in memory: {theirs * READERS:,.0f}/s",
        f"{ours / theirs:.2f}x",
        "stated",
    )


async def _ask_and_decide(context: Context, session: Session, count: int) -> list[float]:
    """Ask and decide: two events a pair, several pairs at a time unless it is one event alone."""
    begun: list[float] = []

    async def pair(number: int) -> None:
        arguments = {"number": number, "body": "It breaks. " * 20}
        begun.append(time.monotonic())
        record = await ask(
            context,
            Question(session=session, tool="Edit", arguments=arguments, tool_use_id=context.ids.new()),
        )
        if count == 2:
            await asyncio.sleep(PAUSE_S)
        begun.append(time.monotonic())
        await decide(context, record.id, Decision(by=ME, digest=record.digest, allow=True))

    for first in range(0, count // 2, AT_A_TIME):
        await asyncio.gather(*(pair(number) for number in range(first, min(first + AT_A_TIME, count // 2))))
    return begun


async def _measure(
    server: Server, token: str | None, path: str, events: int, alone: int, emit: Emit
) -> tuple[list[float], float]:
    """Return the delays of those alone, and the rate of the others."""
    readers = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.fanout",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert readers.stdin is not None
    assert readers.stdout is not None
    wanted = {"url": server.url, "token": token, "path": path, "events": alone + events}
    readers.stdin.write(json.dumps(wanted).encode() + b"\n")
    try:
        await readers.stdout.readline()
        begun: list[float] = []
        while len(begun) < alone:
            begun += await emit(1 if token is None else 2)
            await asyncio.sleep(PAUSE_S)
        start = time.monotonic()
        await emit(events)
        reached: list[float] = json.loads(await readers.stdout.readline())
    finally:
        with suppress(ProcessLookupError):
            readers.kill()  # it has ended, or nobody needs it any more
        await readers.wait()
    delays = [at - since for at, since in zip(reached, begun, strict=False)]
    return delays, events / (reached[-1] - start)


async def _readers() -> None:
    given = json.loads(sys.stdin.readline())
    count = given["events"]
    reached = [0.0] * count
    left = READERS
    done = asyncio.Event()

    def reader() -> Callable[[bytes, float], None]:
        seen = 0

        def heard(data: bytes, at: float) -> None:
            nonlocal seen, left
            reached[seen] = max(reached[seen], at)
            seen += 1
            if seen == count:
                left -= 1
                if not left:
                    done.set()

        return heard

    head = head_of(given["url"], given["token"])
    callers = [await connect(given["url"], head, reader()) for _ in range(READERS)]
    for caller in callers:
        caller.send(b"", line=f"GET {given['path']}".encode())
    async with asyncio.timeout(ALL_S):
        for caller in callers:
            await caller.begun.wait()
        print("reading", flush=True)
        await done.wait()
    print(json.dumps(reached), flush=True)


if __name__ == "__main__":
    asyncio.run(_readers())
