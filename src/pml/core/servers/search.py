"""Finding tools by words or by a glob, best first. Knows no server and no client."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from pml.core.rules.globs import Glob

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_EXACT: Final = 12
_NAME_WORD: Final = 6
_NAME_START: Final = 4
_NAME_PART: Final = 2
_TEXT_WORD: Final = 2
_TEXT_PART: Final = 1

T = TypeVar("T")


def find_tools(query: str, tools: Iterable[tuple[str, str, T]]) -> list[T]:
    """Return those of `tools` (name, description, whatever) that `query` fits, best first, then by name.

    An empty query fits all; one with `*` or `?` is a glob over names; otherwise its words are looked for.
    """
    if "*" in query or "?" in query:
        glob = Glob(query.strip())
        found = [(name, 0, item) for name, _, item in tools if _glob_fits(glob, query, name)]
    else:
        words = [word.lower() for word in _WORD.findall(query)]
        found = [(name, _score(words, name, text), item) for name, text, item in tools]
        found = [entry for entry in found if entry[1] > 0 or not words]
    return [item for _, _, item in sorted(found, key=lambda entry: (-entry[1], entry[0]))]


def _glob_fits(glob: Glob, query: str, name: str) -> bool:
    return glob.matches(name if ":" in query else name.partition(":")[2]) or glob.matches(name)


def _score(words: Sequence[str], name: str, text: str) -> int:
    """Return how well `words` fit, each adding its part, so that the fullest match leads."""
    names = _words(name)
    texts = set(_words(text))
    total = 0
    for word in words:
        stem = word[:-1] if len(word) > 3 and word.endswith("s") else word
        if stem in names or word in names:
            total += _NAME_WORD
        elif any(part.startswith(stem) for part in names):
            total += _NAME_START
        elif stem in name.lower():
            total += _NAME_PART
        elif word in texts or stem in texts:
            total += _TEXT_WORD
        elif stem in text.lower():
            total += _TEXT_PART
    exact = "".join(words) in ("".join(names), "".join(_words(name.partition(":")[2])))
    return total + (_NAME_EXACT if exact and words else 0)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]
