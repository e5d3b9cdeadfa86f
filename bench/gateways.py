"""What `pml stdio` costs, beside its peers, no gateway at all, and the least that Python can start in.

All are measured in one run, in turns: each round visits every one, so that a busy machine slows them alike.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

from bench import peers
from bench.caller import Caller, running
from bench.peers import BARE, DIRECT, FASTMCP, LAZY_MCP, PML, Gateway
from bench.table import Row, ms, percentile, print_table

IN_FLIGHT = 32
Begin: TypeAlias = Callable[[Sequence[str]], AbstractContextManager[Caller]]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured: rounds of starts, fresh processes and calls, and what a round of calls holds."""

    starts: int
    fresh: int
    rounds: int
    calls: int
    flood_s: float


FULL = Effort(starts=15, fresh=5, rounds=10, calls=200, flood_s=0.5)
QUICK = Effort(starts=3, fresh=1, rounds=3, calls=50, flood_s=0.1)


@dataclass(kw_only=True)
class Numbers:
    """What was measured of one gateway; times in seconds, rates in calls a second."""

    starts: list[float] = field(default_factory=list[float])
    calls: list[float] = field(default_factory=list[float])
    fresh_rates: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])
    big_calls: list[float] = field(default_factory=list[float])
    big_rates: list[float] = field(default_factory=list[float])
    rss_mb: float = 0


def rows(*, quick: bool = False) -> list[Row]:
    """Measure and return the rows; `quick` compares only with what needs no installation."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        workspace = home / "workspace"
        workspace.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": directory, "PML_HOME": str(home / "pml")}
        gateways = [peers.direct(), peers.pml(workspace, env), *([] if quick else _peers(home))]
        effort = QUICK if quick else FULL
        found = {name: Numbers() for name in (BARE, *(gateway.name for gateway in gateways))}
        begin = partial(running, env=env, cwd=workspace)
        _measure_starts(gateways, found, begin, effort)
        _measure_fresh(gateways, found, begin, effort)
        _measure_calls(gateways, found, begin, effort)
    return _rows(found)


def _peers(home: Path) -> list[Gateway]:
    """Return the peers that can be had here; one that cannot be installed is named and left out."""
    found: list[Gateway] = []
    makers: tuple[Callable[[], Gateway], ...] = (peers.fastmcp, lambda: peers.lazy_mcp(home))
    for make in makers:
        try:
            found.append(make())
        except subprocess.CalledProcessError as exc:
            print(f"left out a peer that cannot be installed here: {exc}", file=sys.stderr)
    return found


def _measure_starts(
    gateways: Sequence[Gateway], found: Mapping[str, Numbers], begin: Begin, effort: Effort
) -> None:
    commands = {gateway.name: gateway.start_command or gateway.command for gateway in gateways}
    commands[BARE] = peers.bare_command()
    for number in range(effort.starts + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            with begin(command) as caller:
                caller.initialize()
                took = time.perf_counter() - start
            if number:  # the first one only fills the caches
                found[name].starts.append(took)


def _measure_fresh(
    gateways: Sequence[Gateway], found: Mapping[str, Numbers], begin: Begin, effort: Effort
) -> None:
    """Measure the first calls of new processes: most sessions of an agent never make more."""
    for _ in range(effort.fresh):
        for gateway in gateways:
            with begin(gateway.command) as caller:
                caller.initialize()
                caller.initialized()
                echo = gateway.echo
                caller.call(echo.params, expected=echo.expected)
                rate = caller.flood(
                    echo.params, expected=echo.expected, for_s=effort.flood_s, in_flight=IN_FLIGHT
                )
                found[gateway.name].fresh_rates.append(rate)


def _measure_calls(
    gateways: Sequence[Gateway], found: Mapping[str, Numbers], begin: Begin, effort: Effort
) -> None:
    with ExitStack() as stack:
        callers = [(gateway, stack.enter_context(begin(gateway.command))) for gateway in gateways]
        for gateway, caller in callers:
            caller.initialize()
            caller.initialized()
            _one_round(gateway, caller, Numbers(), effort)  # each is warm before any is measured
        for _ in range(effort.rounds):
            for gateway, caller in callers:
                _one_round(gateway, caller, found[gateway.name], effort)
        for gateway, caller in callers:
            found[gateway.name].rss_mb = caller.rss_mb()


def _one_round(gateway: Gateway, caller: Caller, into: Numbers, effort: Effort) -> None:
    echo, big = gateway.echo, gateway.big
    into.calls += [caller.call(echo.params, expected=echo.expected) for _ in range(effort.calls)]
    into.rates.append(
        caller.flood(echo.params, expected=echo.expected, for_s=effort.flood_s, in_flight=IN_FLIGHT)
    )
    into.big_calls += [caller.call(big.params, expected=big.expected) for _ in range(effort.calls // 4)]
    into.big_rates.append(
        caller.flood(big.params, expected=big.expected, for_s=effort.flood_s, in_flight=IN_FLIGHT)
    )


def _rows(found: Mapping[str, Numbers]) -> list[Row]:
    peer_names = [name for name in (FASTMCP, LAZY_MCP) if name in found]
    others = peer_names or [DIRECT]
    return [
        *(_start_row(found, name) for name in (*peer_names, BARE)),
        *(_added_row(found, name) for name in others),
        *(_fresh_row(found, name) for name in others),
        *(_rate_row(found, name) for name in others),
        *(_big_row(found, name) for name in others),
        *(_big_rate_row(found, name) for name in others),
        *(_rss_row(found, name) for name in others),
    ]


def _start_row(found: Mapping[str, Numbers], name: str) -> Row:
    ours, theirs = median(found[PML].starts), median(found[name].starts)
    bar = {FASTMCP: "≤ 1/8", BARE: "≤ 2x"}.get(name, "stated")
    return ("start → initialize answered", ms(ours), f"{name}: {ms(theirs)}", _times(ours, theirs), bar)


def _added_row(found: Mapping[str, Numbers], name: str) -> Row:
    """Compare what each adds to a call; beside no gateway at all, the whole call."""
    base = 0 if name == DIRECT else median(found[DIRECT].calls)
    ours, theirs = median(found[PML].calls) - base, median(found[name].calls) - base
    what = "call, one in flight: p50" if name == DIRECT else "call, one in flight: added to p50"
    p99 = percentile(found[PML].calls, 0.99), percentile(found[name].calls, 0.99)
    return (
        what,
        f"{ms(ours)} (p99 {ms(p99[0])})",
        f"{name}: {ms(theirs)} (p99 {ms(p99[1])})",
        _times(ours, theirs),
        "≤ 1/6" if name == FASTMCP else "stated",
    )


def _fresh_row(found: Mapping[str, Numbers], name: str) -> Row:
    what = f"calls, {IN_FLIGHT} in flight, first half second"
    return _rates(what, found[PML].fresh_rates, found[name].fresh_rates, name)


def _rate_row(found: Mapping[str, Numbers], name: str) -> Row:
    return _rates(f"calls, {IN_FLIGHT} in flight, later", found[PML].rates, found[name].rates, name)


def _rates(what: str, our: Sequence[float], their: Sequence[float], name: str) -> Row:
    ours, theirs = median(our), median(their)
    bar = {FASTMCP: "≥ 15x", LAZY_MCP: "≥ 2x"}.get(name, "stated")
    return (what, f"{ours:,.0f}/s", f"{name}: {theirs:,.0f}/s", _times(ours, theirs), bar)


def _big_row(found: Mapping[str, Numbers], name: str) -> Row:
    ours, theirs = median(found[PML].big_calls), median(found[name].big_calls)
    what = "64 KB result, one in flight: p50"
    return (what, ms(ours), f"{name}: {ms(theirs)}", _times(ours, theirs), "stated")


def _big_rate_row(found: Mapping[str, Numbers], name: str) -> Row:
    ours, theirs = median(found[PML].big_rates), median(found[name].big_rates)
    what = f"64 KB results, {IN_FLIGHT} in flight"
    return (what, f"{ours:,.0f}/s", f"{name}: {theirs:,.0f}/s", _times(ours, theirs), "stated")


def _rss_row(found: Mapping[str, Numbers], name: str) -> Row:
    ours, theirs = found[PML].rss_mb, found[name].rss_mb
    what = "memory of the gateway after the calls"
    return (what, f"{ours:.0f} MB", f"{name}: {theirs:.0f} MB", _times(ours, theirs), "stated")


def _times(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.1f}x" if ours >= theirs else f"1/{theirs / ours:.1f}"


if __name__ == "__main__":
    print_table(rows(quick="--quick" in sys.argv[1:]))
