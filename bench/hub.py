"""What the hub costs: permits answered by rule and by people, in a crowd, and events to many readers.

The permission tool of the peers decides nothing and stores nothing: it is what HTTP and the SDK take at
least. All are measured in one run, in turns.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import crowd, fanout, peers
from bench.contexts import ME, bench_context
from bench.http_caller import HttpCaller, check_permit, connect, head_of, permit_body, shake_hands
from bench.hubs import ALLOWED, ASKED, DENIED, Server, hub, peer, person_token, session_tokens
from bench.peers import FASTMCP, SDK
from bench.table import Row, ms, percentile, print_table
from pml.core.approvals.record import Approval
from pml.core.ports.queries import ApprovalQuery
from pml.core.sessions.token import read_token
from pml.service.approvals.lifecycle import MAX_PENDING, Decision, decide
from pml.service.context import Context

IN_FLIGHT = (1, 32)
STREAMING_S = 0.4  # by then the answer of a permit that waits has become a stream
PAUSE_S = 0.005  # between decisions, so that each is measured alone
SOON_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Effort:
    """`decisions` are made in rounds of as many as may wait."""

    decisions: int
    rounds: int
    flood_s: float
    crowd: int
    events: int
    alone: int


FULL = Effort(decisions=300, rounds=5, flood_s=1.0, crowd=10_000, events=1_000, alone=100)
QUICK = Effort(decisions=20, rounds=1, flood_s=0.1, crowd=200, events=200, alone=10)


def rows(*, quick: bool = False) -> list[Row]:
    """Measure and return the rows; `quick` compares only with what needs no installation."""
    return asyncio.run(_measure(QUICK if quick else FULL, [SDK] if quick else [SDK, FASTMCP]))


async def _measure(effort: Effort, names: list[str]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory, ExitStack() as stack:
        home = Path(directory)
        ours = stack.enter_context(hub(home))
        others = [other for name in names if (other := _started(stack, name, home)) is not None]
        found = await _decision_rows(ours, effort)
        found += await _rate_rows(ours, others, effort)
        found += await fanout.rows(ours, others[0], events=effort.events, alone=effort.alone)
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory, hub(Path(directory)) as ours:
        our_crowd = await crowd.measure_hub(ours, effort.crowd)
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory, peer(SDK, Path(directory)) as other:
        their_crowd = await crowd.measure_peer(other, effort.crowd)
    return [*found, *crowd.rows(our_crowd, their_crowd, SDK)]


def _started(stack: ExitStack, name: str, home: Path) -> Server | None:
    try:
        return stack.enter_context(peer(name, home))
    except subprocess.CalledProcessError as exc:
        print(f"left out a peer that cannot be installed here: {exc}", file=sys.stderr)
        return None


async def _decision_rows(server: Server, effort: Effort) -> list[Row]:
    """Decide, in another process than the hub's, what real connections wait for."""
    home = server.home
    assert home is not None
    async with bench_context(home) as context:
        head = head_of(server.url, await person_token(context))

        async def in_store(record: Approval) -> None:
            await decide(context, record.id, Decision(by=ME, digest=record.digest, allow=True))

        async def over_http(record: Approval) -> None:
            body = b'{"allow":true,"digest":"%b"}' % record.digest.encode()
            (await person.send(body, line=f"POST /api/approvals/{record.id}/decision".encode())).json()

        found: list[Row] = []
        for label, way in (("by another process", in_store), ("over HTTP", over_http)):
            times: list[float] = []
            person = await connect(server.url, head)
            while len(times) < effort.decisions:
                (token,) = await session_tokens(context, home, 1)
                times += await _decided(context, server, token, way)
            ours = f"p50 {ms(median(times))}, p99 {ms(percentile(times, 0.99))}"
            ratio = f"{0.5 / median(times):,.0f}x"
            what = f"permit waits over HTTP: decided {label} → returned"
            found.append((what, ours, "pollers 500 ms", ratio, "p50 ≤ 5 ms"))
            person.close()
    return found


async def _decided(
    context: Context, server: Server, token: str, way: Callable[[Approval], Awaitable[None]]
) -> list[float]:
    """Let as many permits wait as one session may have, and decide one after the other."""
    first = await shake_hands(server.url, token)
    callers = [first, *[await connect(server.url, first.head) for _ in range(MAX_PENDING - 1)]]
    waiting = [caller.send(permit_body(number, ASKED)) for number, caller in enumerate(callers)]
    records = await _asked(context, token, len(waiting))
    await asyncio.sleep(STREAMING_S)
    times: list[float] = []
    for record in records:
        number = record.tool_input["number"]
        assert isinstance(number, int)
        start = time.monotonic()
        await way(record)
        reply = await waiting[number]
        check_permit(reply, number)
        times.append(reply.at - start)
        await asyncio.sleep(PAUSE_S)
    for caller in callers:
        caller.close()
    return times


async def _asked(context: Context, token: str, count: int) -> list[Approval]:
    """Return the questions of the token's session, once there are so many."""
    read = read_token(token)
    assert read is not None
    stored = await context.store.tokens.get(read[0])
    assert stored is not None
    query = ApprovalQuery(session_id=stored.session_id, limit=count)
    async with asyncio.timeout(SOON_S):
        with context.store.changes.watch() as changes:
            while len(found := await context.store.approvals.page(query)) < count:
                await changes.wait(1.0)
    return list(found)


async def _rate_rows(ours: Server, others: list[Server], effort: Effort) -> list[Row]:
    home = ours.home
    assert home is not None
    async with bench_context(home) as context:
        (token,) = await session_tokens(context, home, 1)
    servers = [ours, *others]
    heads = {each.name: await _head(each, token if each is ours else None) for each in servers}
    found: list[Row] = []
    for tool, word, denial in ((ALLOWED, "allowed", None), (DENIED, "denied", "denied")):
        for in_flight in IN_FLIGHT:
            rates: dict[str, list[float]] = {each.name: [] for each in servers}
            for number in range(effort.rounds + 1):
                for each in servers:
                    callers = [await connect(each.url, heads[each.name]) for _ in range(in_flight)]
                    rate = await _flood(callers, tool, denial, effort.flood_s)
                    if number:  # the first one only warms up
                        rates[each.name].append(rate)
            what = f"permits {word} by rule over HTTP, {in_flight} in flight"
            found += [_rate_row(what, rates, each) for each in others]
    return found


async def _head(server: Server, token: str | None) -> bytes:
    """Return what every request of one session has."""
    caller = await shake_hands(server.url, token)
    caller.close()
    return caller.head


async def _flood(callers: list[HttpCaller], tool: str, denial: str | None, for_s: float) -> float:
    """Keep one permit under way on each connection for so long, and return how many a second."""
    start = time.perf_counter()
    until = start + for_s
    numbers = iter(range(1, sys.maxsize))

    async def ask_on(caller: HttpCaller) -> int:
        count = 0
        while time.perf_counter() < until:
            number = next(numbers)
            check_permit(await caller.send(permit_body(number, tool)), number, denial=denial)
            count += 1
        caller.close()
        return count

    counts = await asyncio.gather(*(ask_on(caller) for caller in callers))
    return sum(counts) / (time.perf_counter() - start)


def _rate_row(what: str, rates: dict[str, list[float]], other: Server) -> Row:
    ours, theirs = median(rates[peers.PML]), median(rates[other.name])
    compared = f"{other.name}, no rules, nothing stored: {theirs:,.0f}/s"
    return (what, f"{ours:,.0f}/s", compared, f"{ours / theirs:.2f}x", "stated")


if __name__ == "__main__":
    print_table(rows(quick="--quick" in sys.argv[1:]))
