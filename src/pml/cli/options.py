"""Command lines as people type them: options anywhere, and no raw text of theirs in a complaint."""

import argparse
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NoReturn, cast

from pml.cli.exits import Exit
from pml.core.errors import Invalid
from pml.core.text import visible
from pml.core.values import MAX_BYTES, JsonObject, loads_object

_NOTED: Final = re.compile(r"(\s+\S.*?)(\s{2,})(\S.*)")  # an example, and what it is for beside it
_BREAKS: Final = re.compile(r" (?=--|\|)")
_NARROW: Final = 24  # a note that has less room goes below its example


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Help as it was written where that fits, otherwise broken between words; examples can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        lines: list[str] = []
        for is_prose, group in itertools.groupby(text.split("\n"), key=lambda it: it[:1].strip() != ""):
            given = list(group)
            if all(len(line) <= width for line in given):
                lines += given
            elif is_prose:
                lines += textwrap.wrap(" ".join(given), width, break_long_words=False, break_on_hyphens=False)
            else:
                lines += [each for line in given for each in _example_lines(line, width)]
        return "\n".join(indent + line for line in lines)


def _example_lines(line: str, width: int) -> list[str]:
    import textwrap

    noted = _NOTED.fullmatch(line)
    if len(line) <= width:
        return [line]
    if noted is not None:
        command, gap, note = noted.groups()
        column = len(command + gap)
        is_below = width - column < _NARROW
        margin = " " * (6 if is_below else column)
        notes = textwrap.wrap(note, width - len(margin), break_long_words=False, break_on_hyphens=False)
        below = [margin + each for each in (notes if is_below else notes[1:])]
        return [*_example_lines(command, width), *below] if is_below else [command + gap + notes[0], *below]
    ends = [found.start() for found in _BREAKS.finditer(line) if found.start() <= width - 2]
    if not ends:
        return [line]
    return [f"{line[: ends[-1]]} \\", *_example_lines(f"     {line[ends[-1] :]}", width)]


class Parser(argparse.ArgumentParser):
    """Parsers that fit each other; subcommands get the same class.

    With `set_defaults(is_hushed=True)` no complaint repeats what was given: a secret may be among it.
    """

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        if self.get_default("is_hushed"):
            message = message.partition(" '")[0]
        self.exit(Exit.USAGE, f"{self.prog}: {visible(message)}\n")

    def innermost(self, words: Sequence[str]) -> "Parser":
        """Return the parser of the command that `words` name."""
        for action in self._actions:
            commands = cast("object", action.choices)
            if isinstance(commands, Mapping):
                for at, word in enumerate(words):
                    found = cast("Mapping[str, object]", commands).get(word)
                    if isinstance(found, Parser):
                        return found.innermost(words[at + 1 :])
        return self

    def near_options(self, rest: Sequence[str]) -> str:
        """Return which options may have been meant, as the end of a complaint."""
        near = [
            found
            for word in rest
            for found in get_close_matches(word.partition("=")[0], self._option_string_actions, n=1)
            if word.startswith("--")
        ]
        return f"; did you mean {', '.join(f'`{name}`' for name in near)}?" if near else ""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        words = [str(choice) for choice in action.choices]
        near = get_close_matches(str(value), words, n=1)
        meant = f"; did you mean `{near[0]}`?" if near else ""
        raise argparse.ArgumentError(action, f"no `{value}`{meant} (there are {', '.join(words)})")


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Return what `words` say. Raises: SystemExit after telling what is wrong.

    argparse takes an optional argument for absent once an option follows the one before it; a command
    that has such an argument names it with `set_defaults(late=…)`, and finds it here.
    """
    args, rest = parser.parse_known_args(words)
    late = getattr(args, "late", None)
    if late is not None and len(rest) == 1 and (rest[0] == "-" or not rest[0].startswith("-")):
        setattr(args, late, rest[0])
    elif rest:
        shown = " ".join(map(_without_value, rest))
        if getattr(args, "is_hushed", False):
            shown = "not shown, since a value may be among them"
        meant = parser.innermost(words)
        meant.error(f"unrecognized arguments: {shown}{meant.near_options(rest)}")
    return args


def _without_value(word: str) -> str:
    name, equals, _ = word.partition("=")
    return f"{name}=…" if equals and word.startswith("-") else word


def read_object(given: str, *, what: str) -> JsonObject:
    """Return the JSON object given on the command line, or on stdin for `-`: a command line is bounded."""
    if given == "-" and cast("object", sys.stdin) is None:
        raise Invalid(f"{what} is to be read from stdin, which is closed")
    try:
        return loads_object(sys.stdin.buffer.read(MAX_BYTES + 1) if given == "-" else given, what=what)
    except Invalid as exc:
        lost_quotes = given != "-" and "is not JSON" in exc.message
        hint = (
            """put it in single quotes: '{"a": 1}', or give it on stdin with `-`""" if lost_quotes else None
        )
        raise Invalid(exc.message, hint=hint) from exc


def port_number(text: str) -> int:
    """Return the number of a port, for argparse."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError("must be a port number from 0 to 65535")
    return int(text)
