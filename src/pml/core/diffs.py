"""Two texts as a person compares them: what goes, what comes, and a few lines around it.

Made for texts that somebody wrote to make comparing slow: lines that occur once in both are matched first,
in time that grows with the text, and only short stretches between them are compared line by line.
"""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pml.core.cards import DiffLine, Mark
from pml.core.text import pieces

_CONTEXT: Final = 3
_COMPARED: Final = 10_000  # pairs of lines; more of them are shown as replaced whole
MAX_LINES: Final = 20_000  # nobody reads more, and a page that draws a million lines stands still


class _Hunk(NamedTuple):
    """Lines `a` to `b` of the old text become lines `c` to `d` of the new one."""

    a: int
    b: int
    c: int
    d: int


def split_lines(text: str) -> list[str]:
    """Return the lines of `text`; a line break at its end begins no line."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def diff_lines(old: str, new: str, *, numbered: bool = True) -> tuple[tuple[DiffLine, ...], int]:
    """Return how `old` becomes `new`, and how many lines are left out for there being too many."""
    was, now = split_lines(old), split_lines(new)
    found = [*_drawn(was, now, numbered)] if was != now else []
    return tuple(found[:MAX_LINES]), max(0, len(found) - MAX_LINES)


def _drawn(was: Sequence[str], now: Sequence[str], numbered: bool) -> Iterator[DiffLine]:
    def same(start: int, end: int) -> Iterator[DiffLine]:
        for at in range(start, end):
            yield _line(Mark.SAME, was[at], at, at + shift, numbered)

    done = shift = 0  # of the old text; how far the new one is ahead of it
    for number, hunk in enumerate(_hunks(was, now)):
        after = min(done + _CONTEXT, hunk.a) if number else 0
        before = max(after, hunk.a - _CONTEXT)
        yield from same(done, after)
        yield from _gap(before - after)
        yield from same(before, hunk.a)
        yield from (_line(Mark.REMOVED, was[at], at, None, numbered) for at in range(hunk.a, hunk.b))
        yield from (_line(Mark.ADDED, now[at], None, at, numbered) for at in range(hunk.c, hunk.d))
        done, shift = hunk.b, hunk.d - hunk.b
    after = min(done + _CONTEXT, len(was))
    yield from same(done, after)
    yield from _gap(len(was) - after)


def _gap(count: int) -> Iterator[DiffLine]:
    if count:
        yield DiffLine(mark=Mark.GAP, line=(f"{count:,} line{'' if count == 1 else 's'} more, the same",))


def _line(mark: Mark, text: str, old: int | None, new: int | None, numbered: bool) -> DiffLine:
    return DiffLine(
        mark=mark,
        line=pieces(text),
        old=None if old is None or not numbered else old + 1,
        new=None if new is None or not numbered else new + 1,
    )


def _hunks(was: Sequence[str], now: Sequence[str]) -> Iterator[_Hunk]:
    a, c = 0, 0
    for next_a, next_c in [*_anchors(was, now), (len(was), len(now))]:
        yield from _between(was, now, _Hunk(a, next_a, c, next_c))
        a, c = next_a + 1, next_c + 1


def _between(was: Sequence[str], now: Sequence[str], hunk: _Hunk) -> Iterator[_Hunk]:
    a, b, c, d = hunk
    while a < b and c < d and was[a] == now[c]:
        a, c = a + 1, c + 1
    while a < b and c < d and was[b - 1] == now[d - 1]:
        b, d = b - 1, d - 1
    if (b - a) * (d - c) in range(1, _COMPARED + 1):
        matcher = difflib.SequenceMatcher(None, was[a:b], now[c:d], autojunk=False)
        for tag, i, j, k, m in matcher.get_opcodes():
            if tag != "equal":
                yield _Hunk(a + i, a + j, c + k, c + m)
    elif a < b or c < d:
        yield _Hunk(a, b, c, d)


def _anchors(was: Sequence[str], now: Sequence[str]) -> list[tuple[int, int]]:
    """Return where lines that occur once in each text stand, as many of them as keep their order."""
    once_was, once_now = Counter(was), Counter(now)
    places = {line: at for at, line in enumerate(now) if once_now[line] == 1}
    pairs = [(at, places[line]) for at, line in enumerate(was) if once_was[line] == 1 and line in places]
    ends: list[int] = []  # the lowest place at which an ordered run of each length can end
    holders: list[int] = []
    before: list[int | None] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(holders[length - 1] if length else None)
        ends[length : length + 1] = [place]
        holders[length : length + 1] = [index]
    kept: list[tuple[int, int]] = []
    at = holders[-1] if holders else None
    while at is not None:
        kept.append(pairs[at])
        at = before[at]
    return kept[::-1]
