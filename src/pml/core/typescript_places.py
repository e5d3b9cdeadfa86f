"""Where a word stands in TypeScript: the tokens of the code, and line and column of those that are the word.

The scan keeps no places. So each occurrence of the word carries its own through it: those in comments and
strings are gone, or known to be strings, as ever.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pml.core.typescript import Token, tokens_of


class Place(NamedTuple):
    """Both count from 1."""

    line: int
    column: int


def places_of(code: str, word: str) -> tuple[list[Token], Mapping[int, Place]]:
    """Return the tokens, and by their index the places of those that are `word`. Raises: NotUnderstood."""
    begun = f"{word}$at$"
    marked = re.compile(rf"{re.escape(begun)}(\d+)")
    plain = re.compile(rf"(?<![\w$]){re.escape(word)}(?![\w$])")
    placed = _placing(code)
    tokens: list[Token] = []
    places: dict[int, Place] = {}
    for token in tokens_of(plain.sub(lambda found: f"{begun}{found.start()}", code)):
        if token.kind == "word" and (found := marked.fullmatch(token.text)):
            places[len(tokens)] = placed(int(found[1]))
        tokens.append(token._replace(text=marked.sub(word, token.text)))
    return tokens, places


def _placing(code: str) -> Callable[[int], Place]:
    starts = [0, *(found.end() for found in re.finditer("\n", code))]

    def placed(offset: int) -> Place:
        line = bisect_right(starts, offset)
        return Place(line, offset - starts[line - 1] + 1)

    return placed
