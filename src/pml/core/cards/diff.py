"""Two texts as a person compares them: what goes, what comes, and a few lines around it.

Made for texts that somebody wrote to make comparing slow: lines that occur once in both are matched first,
in time that grows with the text, and only short stretches between them are compared line by line.
"""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pml.core.cards.card import DiffLine, Mark
from pml.core.text import pieces

_CONTEXT: Final = 3
_COMPARED: Final = 10_000  # pairs of lines in one place; more of them are shown as replaced whole
_EFFORT: Final = 10_000_000  # steps of comparing in all; what is left after them is shown as replaced whole
MAX_LINES: Final = 20_000  # nobody reads more, and a page that draws a million lines stands still


class _Hunk(NamedTuple):
    """Lines `a` to `b` of the old text become lines `c` to `d` of the new one."""

    a: int
    b: int
    c: int
    d: int


class _Run(NamedTuple):
    """Lines of one kind: where they begin in each text, and how many they are."""

    mark: Mark
    old: int
    new: int
    size: int


def split_lines(text: str) -> list[str]:
    """Return the lines of `text`; a line break at its end begins no line."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def diff_lines(old: str, new: str, *, numbered: bool = True) -> tuple[tuple[DiffLine, ...], int]:
    """Return how `old` becomes `new`, and how many lines are left out for there being too many."""
    was, now = split_lines(old), split_lines(new)
    runs = [run for run in _runs(was, now) if run.size] if was != now else []
    total = sum(1 if run.mark is Mark.GAP else run.size for run in runs)
    lines = tuple(islice(_drawn(runs, was, now, numbered=numbered), MAX_LINES))
    return lines, total - len(lines)


def _runs(was: Sequence[str], now: Sequence[str]) -> Iterator[_Run]:
    done = shift = 0  # of the old text; how far the new one is ahead of it
    for number, hunk in enumerate(_hunks(was, now)):
        after = min(done + _CONTEXT, hunk.a) if number else 0
        before = max(after, hunk.a - _CONTEXT)
        yield _Run(Mark.SAME, done, done + shift, after - done)
        yield _gap(after, after + shift, before - after)
        yield _Run(Mark.SAME, before, before + shift, hunk.a - before)
        yield _Run(Mark.REMOVED, hunk.a, hunk.c, hunk.b - hunk.a)
        yield _Run(Mark.ADDED, hunk.b, hunk.c, hunk.d - hunk.c)
        done, shift = hunk.b, hunk.d - hunk.b
    after = min(done + _CONTEXT, len(was))
    yield _Run(Mark.SAME, done, done + shift, after - done)
    yield _gap(after, after + shift, len(was) - after)


def _gap(old: int, new: int, size: int) -> _Run:
    """Return a gap, or the line itself where it would be the only one left out."""
    return _Run(Mark.GAP if size > 1 else Mark.SAME, old, new, size)


def _drawn(
    runs: Sequence[_Run], was: Sequence[str], now: Sequence[str], *, numbered: bool
) -> Iterator[DiffLine]:
    for run in runs:
        if run.mark is Mark.GAP:
            yield DiffLine(mark=Mark.GAP, line=(f"{run.size:,} unchanged lines",))
            continue
        for at in range(run.size):
            old = None if run.mark is Mark.ADDED else run.old + at
            new = None if run.mark is Mark.REMOVED else run.new + at
            yield DiffLine(
                mark=run.mark,
                line=pieces(now[run.new + at] if old is None else was[old]),
                old=None if old is None or not numbered else old + 1,
                new=None if new is None or not numbered else new + 1,
            )


def _hunks(was: Sequence[str], now: Sequence[str]) -> Iterator[_Hunk]:
    changed = _trimmed(was, now, _Hunk(0, len(was), 0, len(now)))
    a, c = changed.a, changed.c
    effort = _EFFORT
    anchors = _anchors(was[changed.a : changed.b], now[changed.c : changed.d])
    for old, new in [*((changed.a + old, changed.c + new) for old, new in anchors), (changed.b, changed.d)]:
        hunk = _trimmed(was, now, _Hunk(a, old, c, new))
        effort -= _cost(hunk)
        yield from _compared(was, now, hunk) if effort > 0 else _whole(hunk)
        a, c = old + 1, new + 1


def _trimmed(was: Sequence[str], now: Sequence[str], hunk: _Hunk) -> _Hunk:
    """Return the hunk without the lines at its ends that are the same."""
    a, b, c, d = hunk
    while a < b and c < d and was[a] == now[c]:
        a, c = a + 1, c + 1
    while a < b and c < d and was[b - 1] == now[d - 1]:
        b, d = b - 1, d - 1
    return _Hunk(a, b, c, d)


def _compared(was: Sequence[str], now: Sequence[str], hunk: _Hunk) -> Iterator[_Hunk]:
    """Yield what differs within the hunk: line by line where it is short, else all of it."""
    a, b, c, d = hunk
    if _cost(hunk):
        matcher = difflib.SequenceMatcher(None, was[a:b], now[c:d], autojunk=False)
        for tag, i, j, k, m in matcher.get_opcodes():
            if tag != "equal":
                yield _Hunk(a + i, a + j, c + k, c + m)
    else:
        yield from _whole(hunk)


def _whole(hunk: _Hunk) -> Iterator[_Hunk]:
    if hunk.a < hunk.b or hunk.c < hunk.d:
        yield hunk


def _cost(hunk: _Hunk) -> int:
    """Return how many steps comparing line by line can take at the worst, 0 where that is not done."""
    a, b, c, d = hunk
    pairs = (b - a) * (d - c)
    return pairs * min(b - a, d - c) if pairs <= _COMPARED else 0


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
