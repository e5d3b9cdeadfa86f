"""Styled lines, wrapped to a width in cells. Text from outside goes through `shown`, which lets nothing pass
that a terminal would obey: a hidden character is drawn as its number, in a style that no text can ask for.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from pml.core.cards.card import Line
from pml.core.text import pieces
from pml.screen.draw.styles import DIM, HIDDEN, PLAIN

Span: TypeAlias = tuple[str, Style]
Row: TypeAlias = tuple[Span, ...]

_TAB: Final = 9
_TAB_SHOWN: Final = "⇥   "
_WORDS: Final = re.compile(r"\S+\s*|\s+")
_MORE: Final = "↪ "  # before what did not fit into the line above
_NARROWEST: Final = 8  # cells that are left for the text, whatever stands before it


@dataclass(frozen=True, kw_only=True)
class Styled:
    """One line; `gutter` stands before it, `by_words` breaks it between words."""

    spans: Row
    gutter: Row = ()
    by_words: bool = False


BLANK: Final = Styled(spans=())


def shown(text: str, style: Style = PLAIN) -> Row:
    """Return text of any origin as spans; what is hidden in it becomes a number."""
    return tuple(_span(piece, style) for piece in pieces(text))


def shown_line(line: Line, style: Style = PLAIN) -> Row:
    """Return a card's line as spans."""
    return tuple(
        span
        for piece in line
        for span in (shown(piece, style) if isinstance(piece, str) else (_span(piece, style),))
    )


def _span(piece: str | int, style: Style) -> Span:
    if isinstance(piece, str):
        return piece, style
    return (_TAB_SHOWN, DIM) if piece == _TAB else (f"U+{piece:04X}", HIDDEN)


def width_of(row: Iterable[Span]) -> int:
    return sum(cell_len(text) for text, _ in row)


def as_text(row: Iterable[Span]) -> Text:
    """Return a row for a widget that takes rich text; nothing in it is read as markup."""
    return Text.assemble(*row, no_wrap=True, overflow="ellipsis", end="")


def fitted(row: Iterable[Span], width: int) -> Row:
    """Return as much of a row as fits, with an ellipsis where it was cut."""
    whole = tuple(row)
    if width_of(whole) <= width:
        return whole
    return (*next(_chopped(whole, max(1, width - 1)), ()), ("…", DIM))


def wrapped(line: Styled, width: int) -> Iterator[Row]:
    """Yield the rows of one line."""
    gutter = line.gutter
    before = width_of(gutter)
    room = max(_NARROWEST, width - before)
    parts = _by_words(line.spans, room) if line.by_words else _chopped(line.spans, room)
    filler = _continued(before, by_words=line.by_words)
    for part in parts:
        yield (*gutter, *part)
        gutter = filler


def _continued(cells: int, *, by_words: bool) -> Row:
    if cells == 0:
        return ()
    if by_words or cells < len(_MORE):
        return ((" " * cells, PLAIN),)
    return ((_MORE.rjust(cells), DIM),)


def _chopped(spans: Sequence[Span], width: int) -> Iterator[Row]:
    """Yield rows that are filled to the last cell; one empty row for no text."""
    row: list[Span] = []
    room = width
    for text, style in spans:
        is_ascii = text.isascii()
        start = 0
        while start < len(text):
            count, cells = (min(room, len(text) - start),) * 2 if is_ascii else _fit(text, start, room)
            if count == 0 and row:
                yield tuple(row)
                row, room = [], width
                continue
            count = max(1, count)
            row.append((text[start : start + count], style))
            start += count
            room -= cells
    yield tuple(row)


def _fit(text: str, start: int, room: int) -> tuple[int, int]:
    """Return how many characters fit, and how many cells they take."""
    cells = 0
    for index in range(start, len(text)):
        size = cell_len(text[index])
        if cells + size > room:
            return index - start, cells
        cells += size
    return len(text) - start, cells


def _by_words(spans: Sequence[Span], width: int) -> Iterator[Row]:
    row: list[Span] = []
    room = width
    for text, style in spans:
        for word in _WORDS.findall(text):
            size = cell_len(word.rstrip())
            if size > room and row:
                yield tuple(row)
                row, room = [], width
            if size > width:
                *full, last = _chopped([(word, style)], width)
                yield from full
                row, room = [*last], width - width_of(last)
                continue
            row.append((word, style))
            room -= cell_len(word)
    yield tuple(row)
