"""The rows that every benchmark returns, and how they are printed."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Row: TypeAlias = tuple[str, str, str, str, str]
HEADER: Row = ("what", "ours", "compared with", "ratio", "bar")


def print_table(rows: Iterable[Row]) -> None:
    """Print as a Markdown table, so that it can stand in the docs as it is."""
    table = [HEADER, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    for number, row in enumerate(table):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
