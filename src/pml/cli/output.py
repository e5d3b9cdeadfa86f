"""What commands print: one JSON object with `--json`, otherwise words for people. Rich is imported late."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pml.core.errors import CodeFailed, PmlError
from pml.core.text import visible
from pml.core.values import JsonObject
from pml.core.wire import error_json

if TYPE_CHECKING:
    from rich.console import Console


class Shown(str):
    """Text that has passed `visible` or `visible_json` and must not be escaped twice."""


def print_json(shape: JsonObject) -> None:
    """Print one object, every character of it printable ASCII."""
    print(json.dumps(shape, indent=2), flush=True)


def say(text: str) -> None:
    """Print a line for people; what came from outside must have passed `visible`."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print a line for people to stderr."""
    print(text, file=sys.stderr, flush=True)


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


def local_time(at: datetime) -> str:
    """Return an instant as the clock on this machine's wall shows it; `--json` has UTC."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def print_error(error: PmlError, *, as_json: bool) -> None:
    """Tell what went wrong and what to do next."""
    if as_json:
        print_json(error_json(error))
        return
    where = ""
    if isinstance(error, CodeFailed):
        print_logs(error.logs)
        where = "" if error.line is None else f"line {error.line}, column {error.column}: "
    complain(f"pml: {where}{visible(error.message)}")
    if error.hint:
        complain(f"  → {visible(error.hint)}")


def print_logs(lines: Iterable[str]) -> None:
    """Show what code printed, where it is not taken for its result."""
    for line in lines:
        complain(f"  │ {visible(line)}")


def console(*, to_stderr: bool = False) -> "Console":
    """Return rich's console; markup is off, since text from outside must not style itself."""
    from rich.console import Console

    return Console(stderr=to_stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, wrapped to a terminal; elsewhere a row is a line, to be searched and copied."""
    from rich.text import Text

    from pml.cli.tables import table_lines

    shown = [[cell if isinstance(cell, Shown) else visible(cell) for cell in row] for row in rows]
    out = console()
    width = out.width if out.is_terminal else None
    for style, line in table_lines([columns, *shown], width=width):
        out.print(Text(line, style=style))
