"""How long a verdict takes among 10, 1,000 and 10,000 rules, beside a loop over compiled `fnmatch` patterns.

The mix is that of a long-lived file: 60 % exact names, 30 % prefixes, 5 % infixes, 5 % with arguments. Cold
is the first verdict on a name, warm every later one. The loop is spared the arguments: it judges names only.
"""

import fnmatch
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median
from time import perf_counter_ns
from typing import TypeAlias

from pml.core.rules import Call, Effect, Rule, RuleSet, parse_entry
from pml.core.values import Json

Row: TypeAlias = tuple[str, str, str, str, str]
HEADER: Row = ("what", "ours", "fnmatch loop", "ratio", "bar")
SIZES = (10, 1_000, 10_000)
CALLS = 400
BAR = "≤ 20 µs"
NOW = datetime(2027, 1, 1, tzinfo=UTC)


class _Paths:
    home = "/home/ada"

    def real(self, path: str) -> str:
        return path


def rows() -> list[Row]:
    """Return three rows for each size."""
    return [row for size in SIZES for row in _measure(size)]


def _measure(size: int) -> list[Row]:
    rules = [_rule(number) for number in range(size)]
    patterns = [re.compile(fnmatch.translate(rule.tool)) for rule in rules]
    judged = RuleSet(rules, paths=_Paths())
    mixed = [_call(number * 7919 % size) for number in range(min(CALLS, size))]
    pathed = ([_call(number) for number in range(1, size, 20)] * CALLS)[:CALLS]

    def ours(calls: Sequence[Call]) -> float:
        return _p50(lambda call: judged.judge(call, now=NOW), calls)

    def row(what: str, ours: float, calls: Sequence[Call], bar: str) -> Row:
        loop = _p50(lambda call: any(glob.match(call.tool) for glob in patterns), calls)
        return f"{size:,} rules, {what}", f"{ours:,.1f} µs", f"{loop:,.1f} µs", f"{loop / ours:.1f}x", bar

    return [
        row("cold", ours(mixed), mixed, "stated"),
        row("warm", ours(mixed), mixed, BAR),
        row("warm, path compared", (ours(pathed), ours(pathed))[1], pathed, BAR),
    ]


def _rule(number: int) -> Rule:
    namespace = f"server{number % 97}"
    entry: Json
    match number % 20:
        case 0:
            entry = f"*_kind{number}_*"
        case 1:
            entry = {
                "tool": f"{namespace}:write_{number // 60}",
                "args": {"path": {"under": f"/work/{number}"}},
            }
        case part if part < 8:
            entry = f"{namespace}:list_{number}_*"
        case _:
            entry = f"{namespace}:read_{number}"
    effect = list(Effect)[number % 3]
    rule = parse_entry(effect, entry, source=None, base_dir="/work", paths=_Paths())
    assert rule is not None
    return rule


def _call(number: int) -> Call:
    """Return a call of the tool that rule `number` is about; every fourth is of a tool that no rule knows."""
    tool = f"unknown{number}:run" if number % 4 == 3 else _rule(number).tool.replace("*", "x")
    return Call(tool=tool, arguments={"path": f"/work/{number}/notes"}, cwd="/work")


def _p50(judge: Callable[[Call], object], calls: Sequence[Call]) -> float:
    """Return the median in microseconds."""
    times: list[int] = []
    for call in calls:
        start = perf_counter_ns()
        judge(call)
        times.append(perf_counter_ns() - start)
    return median(times) / 1000


if __name__ == "__main__":
    for line in (HEADER, *rows()):
        print("{:<36}{:>12}{:>14}{:>12}{:>10}".format(*line))
