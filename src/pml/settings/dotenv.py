"""`.env` files: `NAME=value` lines, read and never executed: a `$` is a `$`, and nothing is substituted.

A line that cannot be read is skipped and told by its number, never by its text, which may hold a secret.
Names that change which code runs are ignored, wherever they stand. Whose file it is is not known here.
"""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pml.core.servers.process_launch import variable_problem

MAX_DOTENV_BYTES: Final = 256 * 1024
MAX_PROBLEMS: Final = 20  # reported for one file: with more, it is another kind of file
MAX_NAME: Final = 128

_LINE: Final = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=(?P<rest>.*)", re.DOTALL)
_SINGLE: Final = re.compile(r"'(?P<text>[^']*)'(?P<after>.*)", re.DOTALL)
_DOUBLE: Final = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<after>.*)', re.DOTALL)
_COMMENT: Final = re.compile(r"(?:[ \t]+#.*|[ \t]*)", re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\n])')
_BLANKS: Final = " \t"


@dataclass(frozen=True, kw_only=True, slots=True)
class DotEnv:
    """What a `.env` file sets, and what in it is ignored, by line."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    problems: tuple[str, ...] = ()


def name_problem(name: str) -> str | None:
    """Return why the variable `name` is ignored, or None."""
    return "is too long" if len(name) > MAX_NAME else variable_problem(name)


def parse_dotenv(content: bytes) -> DotEnv:
    """Return what the file sets; of a name that is set twice, the last applies."""
    if len(content) > MAX_DOTENV_BYTES:
        return DotEnv(problems=(f"larger than {MAX_DOTENV_BYTES // 1024} KiB: it is ignored",))
    values: dict[str, str] = {}
    problems: list[str] = []
    for number, raw in enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        try:
            found = _parse_line(raw)
        except _BadLine as bad:
            problems.append(f"line {number} {bad.problem}")
        else:
            values |= found
    return DotEnv(values=values, problems=_first(problems))


class _BadLine(Exception):
    """A line that is ignored; says why in words of ours."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _parse_line(raw: bytes) -> dict[str, str]:
    """Return the one variable of a line, or none. Raises: _BadLine."""
    text = _decode(raw).strip(_BLANKS)
    if not text or text.startswith("#"):
        return {}
    line = _LINE.fullmatch(text)
    if line is None or len(line["name"]) > MAX_NAME:
        raise _BadLine("is not `NAME=value`")
    if name_problem(line["name"]) is not None:
        raise _BadLine(f"sets `{line['name']}`, which changes which code runs, and is ignored")
    return {line["name"]: _value(line["rest"])}


def _decode(raw: bytes) -> str:
    try:
        text = raw.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or "\r" in text:
        raise _BadLine("has characters that are not text")
    return text


def _value(rest: str) -> str:
    opening = rest.lstrip(_BLANKS)
    if opening.startswith(("'", '"')):
        return _quoted(opening)
    comment = re.search(r"(?<=[ \t])#", rest)
    return (rest if comment is None else rest[: comment.start()]).strip(_BLANKS)


def _quoted(text: str) -> str:
    is_double = text.startswith('"')
    found = (_DOUBLE if is_double else _SINGLE).fullmatch(text)
    if found is None:
        raise _BadLine("has a quote that is not closed in the line")
    if not _COMMENT.fullmatch(found["after"]):
        raise _BadLine("has text after the closing quote")
    return _ESCAPED.sub(_unescape, found["text"]) if is_double else found["text"]


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _first(problems: list[str]) -> tuple[str, ...]:
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], *([f"{more} more lines are ignored"] if more > 0 else []))
