"""Output of commands: one JSON object with `--json`, otherwise words for people. Rich is imported late."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TextIO

from pml.core.errors import CodeFailed, PmlError
from pml.core.text import visible
from pml.core.values import JsonObject
from pml.core.wire import error_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Shown(str):
    """Text that has passed `visible` or `visible_json` and must not be escaped twice."""


def print_json(shape: JsonObject) -> None:
    """Print one object, every character of it printable ASCII."""
    print(json.dumps(shape, indent=2), flush=True)


def say(text: str) -> None:
    """Print a line for people; what came from outside must have passed `visible`."""
    print(text, flush=True)


def say_prose(text: str) -> None:
    """Print sentences for people; a terminal that is narrower has them broken between words."""
    for line in wrapped(text, columns()):
        say(line)


def say_command(words: Sequence[str], *, margin: str = "  ") -> None:
    """Print a command line, broken between its words so that it can still be copied."""
    import shlex

    lines, width = [margin], columns()
    for word in (visible(shlex.quote(word)) for word in words):
        is_begun = bool(lines[-1].strip())
        if is_begun and width is not None and len(f"{lines[-1]} {word} \\") > width:
            lines[-1] += " \\"
            lines.append(f"{margin}  {word}")
        else:
            lines[-1] += f" {word}" if is_begun else word
    for line in lines:
        say(line)


def wrapped(text: str, width: int | None) -> list[str]:
    """Return the lines of a text, the long ones broken between words; a word that is longer stays whole."""
    import textwrap

    lines: list[str] = []
    for line in text.split("\n"):
        margin = line[: len(line) - len(line.lstrip())]
        if width is None or len(line) <= width:
            lines.append(line)
        else:
            more = f"{margin}  "
            lines += textwrap.wrap(
                line, width, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
            )
    return lines


def columns(stream: TextIO | None = None) -> int | None:
    """Return how wide the terminal is that is printed to; None where it is not one: a line stays a line."""
    out: TextIO | None = stream or sys.stdout  # a closed one is None
    return shutil.get_terminal_size().columns if out is not None and out.isatty() else None


def complain(text: str) -> None:
    """Print a line for people to stderr."""
    print(text, file=sys.stderr, flush=True)


def complain_prose(text: str) -> None:
    """Print sentences to stderr; a terminal that is narrower has them broken between words."""
    for line in wrapped(text, columns(sys.stderr)):
        complain(line)


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
    complain_prose(f"pml: {where}{visible(error.message)}")
    if error.hint:
        complain_prose(f"  → {visible(error.hint)}")


def print_logs(lines: Iterable[str]) -> None:
    """Show what code printed, where it is not taken for its result."""
    for line in lines:
        complain(f"  │ {visible(line)}")


def console(*, to_stderr: bool = False) -> "Console":
    """Return rich's console; markup is off, since text from outside must not style itself."""
    from rich.console import Console

    return Console(stderr=to_stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_beside(out: "Console", label: "Text", body: "Text") -> None:
    """Print `body` beside `label`, at a terminal broken between words; a longer word stays whole."""
    from rich.text import Text

    margin = len(body.plain) - len(body.plain.lstrip(" "))
    indent = " " * (margin + 2 if margin else 0)
    body.overflow = "ignore"
    room = out.width - label.cell_len
    if not out.is_terminal or body.cell_len <= room:
        out.print(label + body)
        return
    first, *rest = body[margin:].wrap(out, max(room - len(indent), 1))
    first.rstrip()
    out.print(label + Text(" " * margin) + first)
    for line in rest:
        line.rstrip()
        out.print(Text(" " * label.cell_len + indent) + line)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, wrapped to a terminal; elsewhere a row is a line, to be searched and copied."""
    from rich.text import Text

    from pml.cli.terminal.text_table import table_lines

    shown = [[cell if isinstance(cell, Shown) else visible(cell) for cell in row] for row in rows]
    out = console()
    width = out.width if out.is_terminal else None
    for style, line in table_lines([columns, *shown], width=width):
        out.print(Text(line, style=style))
