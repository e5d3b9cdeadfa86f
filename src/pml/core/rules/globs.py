"""Globs: `*` is any run of characters, `?` is one, everything else (also `[`) stands for itself.

A glob matches a whole text, case and all, and never backtracks over what a `*` has taken, so no pattern makes
a verdict slow. It knows nothing of tools, except for `covers`, which compares two globs over tool names.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Glob:
    """One glob, cut into the fixed pieces between its stars."""

    text: str
    _head: str = field(init=False, repr=False, compare=False)
    _middle: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _tail: str | None = field(init=False, repr=False, compare=False)  # None: there is no star

    def __post_init__(self) -> None:
        head, *rest = self.text.split("*")
        object.__setattr__(self, "_head", head)
        object.__setattr__(self, "_middle", tuple(piece for piece in rest[:-1] if piece))
        object.__setattr__(self, "_tail", rest[-1] if rest else None)

    def matches(self, text: str) -> bool:
        """Say whether the whole of `text` is matched."""
        head, tail = self._head, self._tail
        if tail is None:
            return len(text) == len(head) and _stands_at(head, text, 0)
        start, end = len(head), len(text) - len(tail)
        if start > end or not _stands_at(head, text, 0) or not _stands_at(tail, text, end):
            return False
        for piece in self._middle:  # the leftmost place leaves the most room for the pieces that follow
            found = _find(piece, text, start, end)
            if found < 0:
                return False
            start = found + len(piece)
        return True

    def covers(self, other: "Glob") -> bool:
        """Say whether every text that `other` matches is surely matched here; False when in doubt.

        A glob that matches the other's spelling covers it, because only a star can have matched a star there;
        a `?` could have too, and that proves nothing.
        """
        if self.text == other.text:
            return True
        return ("?" not in self.text or "*" not in other.text) and self.matches(other.text)


class GlobIndex:
    """Positions of globs, found by a name they match; only those of no simple form are tried one by one."""

    def __init__(self) -> None:
        self._exact: defaultdict[str, list[int]] = defaultdict(list)
        self._prefixes: defaultdict[str, list[int]] = defaultdict(list)
        self._others: list[tuple[Glob, int]] = []
        self._prefix_lengths: set[int] = set()

    def add(self, glob: str, position: int) -> None:
        prefix = literal_prefix(glob)
        if prefix is not None:
            self._prefixes[prefix].append(position)
            self._prefix_lengths.add(len(prefix))
        elif has_wildcard(glob):
            self._others.append((Glob(glob), position))
        else:
            self._exact[glob].append(position)

    def find(self, name: str) -> list[int]:
        """Return the positions of all globs that match `name`, in no order."""
        found = [position for glob, position in self._others if glob.matches(name)]
        found += self._exact.get(name, ())
        for length in self._prefix_lengths:
            if length <= len(name):
                found += self._prefixes.get(name[:length], ())
        return found


def has_wildcard(text: str) -> bool:
    """Say whether `text`, read as a glob, can match anything but itself."""
    return "*" in text or "?" in text


def literal_prefix(text: str) -> str | None:
    """Return `foo` for a glob of the form `foo*`, else None."""
    prefix = text[:-1]
    return prefix if text.endswith("*") and not has_wildcard(prefix) else None


def bare_action(tool: str) -> str:
    """Return `action` of `namespace:action`, or a client's built-in name as it is."""
    namespace, colon, action = tool.partition(":")
    return action if colon else namespace


def covers(wide: str, narrow: str) -> bool:
    """Say whether the tool glob `wide` surely matches every tool that the tool glob `narrow` matches."""
    if ":" in wide or ":" not in narrow:
        return Glob(wide).covers(Glob(narrow))
    if not wide.strip("*"):
        return True
    namespace, _, action = narrow.partition(":")
    # a wildcard in the namespace may itself match a colon, and then the bare action is another
    return not has_wildcard(namespace) and Glob(wide).covers(Glob(action))


def _stands_at(piece: str, text: str, start: int) -> bool:
    if "?" not in piece:
        return text.startswith(piece, start)
    return _single_wildcards(piece).match(text, start) is not None


def _find(piece: str, text: str, start: int, end: int) -> int:
    if "?" not in piece:
        return text.find(piece, start, end)
    found = _single_wildcards(piece).search(text, start, end)
    return found.start() if found else -1


@lru_cache(maxsize=1024)
def _single_wildcards(piece: str) -> re.Pattern[str]:
    """Return `piece` as a regular expression of fixed length: nothing in it can repeat."""
    return re.compile("".join("." if char == "?" else re.escape(char) for char in piece), re.DOTALL)
