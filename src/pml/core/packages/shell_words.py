"""A command line split into words as a shell would, and nothing else that a shell does.

What a shell would act on (operators, substitutions, variables) is refused, so a line means here what it means
to the person who tries it in a terminal. Nothing is ever executed.
"""

from dataclasses import dataclass
from typing import Final

from pml.core.errors import Invalid
from pml.core.text import has_hidden, quote

PLACEHOLDERS: Final = ("${workspace}", "${state}", "${tree}")

_MAX_LINE: Final = 4096
_OPERATORS: Final = frozenset(";|&<>()`$")
_EXPANDED: Final = frozenset("*?{")  # a shell would put file names or several words in their place
_EXPANDED_FIRST: Final = frozenset("~#")
_ESCAPED_IN_QUOTES: Final = frozenset('"\\$`')


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """One word of the line; `expands` if a shell would put something else in its place."""

    text: str
    expands: bool


def split_words(line: str) -> tuple[Word, ...]:
    """Return the words of `line`. Raises: Invalid for all that only a shell could do."""
    if len(line) > _MAX_LINE:
        raise Invalid(f"it has {len(line):,} characters, more than {_MAX_LINE:,}")
    if "\n" in line or "\r" in line:
        raise Invalid("it has a line break")
    if has_hidden(line):
        raise Invalid("it has hidden characters")
    return _Splitter(line).words()


def check_placeholders(text: str) -> None:
    """Raise Invalid for a `${…}` that is not filled in."""
    rest = text
    for known in PLACEHOLDERS:
        rest = rest.replace(known, "")
    if "${" in rest:
        raise Invalid(
            f"{quote(text)} has a placeholder that is none of {', '.join(map(quote, PLACEHOLDERS))}"
        )


class _Splitter:
    """One pass over one line; `_at` is the offset of the next character."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0

    def words(self) -> tuple[Word, ...]:
        found: list[Word] = []
        while True:
            while self._at < len(self._line) and self._line[self._at] == " ":
                self._at += 1
            if self._at == len(self._line):
                return tuple(found)
            found.append(self._word())

    def _word(self) -> Word:
        start, text, expands = self._at, "", False
        while self._at < len(self._line) and self._line[self._at] != " ":
            char = self._line[self._at]
            if char == "'":
                text += self._single_quoted()
            elif char == '"':
                text += self._double_quoted()
            elif char == "\\":
                text += self._escaped()
            elif char in _OPERATORS:
                text += self._placeholder(char)
            else:
                expands |= char in _EXPANDED or (self._at == start and char in _EXPANDED_FIRST)
                text += char
                self._at += 1
        return Word(text=text, expands=expands)

    def _single_quoted(self) -> str:
        end = self._line.find("'", self._at + 1)
        if end < 0:
            raise Invalid("it has a `'` that is never closed")
        text = self._line[self._at + 1 : end]
        self._at = end + 1
        return text

    def _double_quoted(self) -> str:
        text = ""
        self._at += 1
        while self._at < len(self._line):
            char = self._line[self._at]
            if char == '"':
                self._at += 1
                return text
            if char in "$`":
                text += self._placeholder(char)
            elif char == "\\" and self._line[self._at + 1 : self._at + 2] in _ESCAPED_IN_QUOTES:
                text += self._escaped()
            else:
                text += char
                self._at += 1
        raise Invalid('it has a `"` that is never closed')

    def _escaped(self) -> str:
        if self._at + 1 == len(self._line):
            raise Invalid("it ends in a backslash")
        self._at += 2
        return self._line[self._at - 1]

    def _placeholder(self, char: str) -> str:
        for known in PLACEHOLDERS:
            if self._line.startswith(known, self._at):
                self._at += len(known)
                return known
        rest = quote(self._line[self._at :], limit=20)
        raise Invalid(f"it has `{char}` at {rest}: that is for a shell, and none runs it")
