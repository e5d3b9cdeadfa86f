"""Permits that wait in a crowd: what each holds of the server's memory, and that none is lost.

The clients are a process of their own: it asks over real connections, tells when all wait, and checks that
each got its own answer. Every even question is allowed and every odd one denied, by its number.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bench.contexts import bench_context
from bench.http_caller import HttpCaller, check_permit, connect, head_of, permit_body, shake_hands
from bench.hubs import ASKED, Server, person_token, session_tokens
from bench.table import Row
from pml.service.approvals.lifecycle import MAX_PENDING

OPENING = 256  # connections that are being made at a time: a listener's queue has its limits
ALL_S = 900.0  # ten thousand of anything, also on a busy machine
BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """What was measured with `count` that waited."""

    count: int
    kb_each: float
    ask_s: float
    decide_s: float


async def measure_hub(server: Server, count: int) -> Crowd:
    home = server.home
    assert home is not None
    async with bench_context(home) as context:
        tokens = await session_tokens(context, home, count // MAX_PENDING)
        person = await person_token(context)
    return await _measure(server, tokens, person)


async def measure_peer(server: Server, count: int) -> Crowd:
    return await _measure(server, [None] * (count // MAX_PENDING), None)


async def _measure(server: Server, tokens: "list[str] | list[None]", person: str | None) -> Crowd:
    before = server.rss_kb()
    clients = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.crowd",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert clients.stdin is not None
    assert clients.stdout is not None
    try:
        clients.stdin.write(json.dumps({"url": server.url, "tokens": tokens}).encode() + b"\n")
        asked = json.loads(await clients.stdout.readline())
        count = asked["count"]
        kb_each = (server.rss_kb() - before) / count
        decider = await connect(server.url, head_of(server.url, person))
        batches = [] if person is None else await _batches(decider)
        start = time.monotonic()
        if person is None:
            await decider.send(b"", line=b"POST /decide")
        for batch in batches:
            results = (await decider.send(batch, line=b"POST /api/approvals/decisions")).json()["results"]
            assert not any("error" in result for result in results), results
        answered = json.loads(await clients.stdout.readline())
        decider.close()
    finally:
        with suppress(ProcessLookupError):
            clients.kill()  # it has ended, or nobody needs it any more
        await clients.wait()
    if answered["right"] != count:
        raise SystemExit(f"{count - answered['right']} of {count} answers were lost or another's")
    return Crowd(count=count, kb_each=kb_each, ask_s=asked["took_s"], decide_s=answered["last_at"] - start)


async def _batches(decider: HttpCaller) -> list[bytes]:
    """Return the decision on each that waits, in bodies for the API."""
    found: list[bytes] = []
    after = ""
    while True:
        reply = await decider.send(b"", line=f"GET /api/approvals?limit={BATCH}{after}".encode())
        page = reply.json()
        decisions = [_decision(each) for each in page["approvals"]]
        if decisions:
            found.append(json.dumps({"decisions": decisions}).encode())
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def _decision(approval: Mapping[str, Any]) -> Mapping[str, object]:
    number = approval["input"]["number"]
    shown = {"id": approval["id"], "digest": approval["digest"]}
    return shown | ({"allow": False, "message": f"no {number}."} if number % 2 else {"allow": True})


def rows(ours: Crowd, theirs: Crowd, name: str) -> list[Row]:
    what = f"{ours.count:,} permits waiting over HTTP"
    return [
        (
            f"{what}: memory of the hub for each",
            f"{ours.kb_each:.0f} kB",
            f"{name}, nothing stored: {theirs.kb_each:.0f} kB",
            f"{ours.kb_each / theirs.kb_each:.1f}x",
            "≤ 80 kB",
        ),
        (
            f"{what}: until all wait",
            f"{ours.ask_s:.1f} s ({ours.count / ours.ask_s:,.0f}/s)",
            f"{name}, nothing stored: {theirs.ask_s:.1f} s",
            f"{ours.ask_s / theirs.ask_s:.1f}x",
            "stated",
        ),
        (
            f"{what}: all decided and answered, none lost",
            f"{ours.decide_s:.1f} s ({ours.count / ours.decide_s:,.0f}/s)",
            f"{name}, nothing stored: {theirs.decide_s:.1f} s",
            f"{ours.decide_s / theirs.decide_s:.1f}x",
            "stated, none lost",
        ),
    ]


async def _clients() -> None:
    given = json.loads(sys.stdin.readline())
    url, tokens = given["url"], given["tokens"]
    count = len(tokens) * MAX_PENDING
    wait_for_all = asyncio.Semaphore(0)
    opening = asyncio.Semaphore(OPENING)

    def heard(data: bytes, at: float) -> None:
        if b"notifications/progress" in data and b'"progress":1' in data.replace(b" ", b""):
            wait_for_all.release()

    async def ask(number: int, caller: HttpCaller) -> float:
        caller.heard = heard
        reply = await caller.send(permit_body(number, ASKED))
        caller.close()
        check_permit(reply, number, denial=f"no {number}." if number % 2 else None)
        return reply.at

    async def ask_anew(number: int, head: bytes) -> float:
        async with opening:
            caller = await connect(url, head)
        return await ask(number, caller)

    async with asyncio.timeout(ALL_S):
        firsts = [await shake_hands(url, token) for token in tokens]
        start = time.monotonic()
        asking = [asyncio.ensure_future(ask(n, first)) for n, first in enumerate(firsts)]
        for number in range(len(firsts), count):
            asking.append(asyncio.ensure_future(ask_anew(number, firsts[number % len(firsts)].head)))
        for _ in range(count):
            await _next(wait_for_all, asking)
        print(json.dumps({"count": count, "took_s": time.monotonic() - start}), flush=True)
        answers = await asyncio.gather(*asking, return_exceptions=True)
    right = [each for each in answers if isinstance(each, float)]
    for wrong in [each for each in answers if not isinstance(each, float)][:5]:
        print(wrong, file=sys.stderr)
    print(json.dumps({"right": len(right), "last_at": max(right, default=0.0)}), flush=True)


async def _next(released: asyncio.Semaphore, asking: "Sequence[asyncio.Future[float]]") -> None:
    """Wait for one more that waits; one that fails instead ends it all."""
    try:
        async with asyncio.timeout(10):
            await released.acquire()
    except TimeoutError:
        for each in asking:
            if each.done():
                each.result()
        await released.acquire()


if __name__ == "__main__":
    asyncio.run(_clients())
