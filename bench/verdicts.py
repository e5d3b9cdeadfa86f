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

from bench.table import Row, print_table
from pml.core.rules.ruleset import Call, Effect, Rule, RuleSet, parse_entry
from pml.core.values import Json

SIZES = (10, 1_000, 10_000)
CALLS = 400
BAR = "≤ 20 µs"
NOW = datetime(2027, 1, 1, tzinfo=UTC)


class _Paths:
    home = "/home/ada"

    def real(self, path: str) -> str:
        return path

    def link(self, path: str) -> str | None:
        return None

    def is_writable(self, folder: str) -> bool:
        return False

    def is_folder(self, path: str) -> bool:
        return False


def rows(*, quick: bool = False) -> list[Row]:
    """Return three rows for each size; `quick` leaves out the largest."""
    return [row for size in (SIZES[:-1] if quick else SIZES) for row in _measure(size)]


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
        return (
            f"verdict among {size:,} rules, {what}",
            f"{ours:,.1f} µs",
            f"fnmatch loop: {loop:,.1f} µs",
            f"{loop / ours:.1f}x",
            bar,
        )

    cold = ours(mixed)
    ours(pathed)  # so that it is warm below
    return [
        row("cold", cold, mixed, "stated"),
        row("warm", ours(mixed), mixed, BAR),
        row("warm, path compared", ours(pathed), pathed, "stated"),
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
                "args": {"path": {"under": f"/srv/{number}"}},
            }
        case part if part < 8:
            entry = f"{namespace}:list_{number}_*"
        case _:
            entry = f"{namespace}:read_{number}"
    effect = list(Effect)[number % 3]
    rule = parse_entry(effect, entry, source=None, base_dir="/srv", paths=_Paths())
    assert rule is not None
    return rule


def _call(number: int) -> Call:
    """Return a call of the tool that rule `number` is about; every fourth is of a tool that no rule knows."""
    tool = f"unknown{number}:run" if number % 4 == 3 else _rule(number).tool.replace("*", "x")
    return Call(tool=tool, arguments={"path": f"/srv/{number}/notes"}, cwd="/srv")


def _p50(judge: Callable[[Call], object], calls: Sequence[Call]) -> float:
    """Return the median in microseconds."""
    times: list[int] = []
    for call in calls:
        start = perf_counter_ns()
        judge(call)
        times.append(perf_counter_ns() - start)
    return median(times) / 1000


if __name__ == "__main__":
    print_table(rows())
