"""Panes of styled rows that scroll by whole rows, however many there are: only what is in view is drawn."""

from collections.abc import Sequence
from typing import Final

from rich.segment import Segment
from textual.events import Resize
from textual.strip import Strip
from textual.widget import Widget

from pml.core.cards import Card
from pml.screen.card_lines import draw
from pml.screen.lines import Row, Styled, wrapped
from pml.screen.styles import BLUE, DIM, PLAIN

_BAR: Final = 2  # cells at the right: one blank, one that shows the place
_PAGE_OVERLAP: Final = 2  # rows of the last page that stay in view


class Pane(Widget, can_focus=False):
    """Rows, of which those from `top` on are in view."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[Row] = ()
        self.top = 0

    @property
    def room(self) -> int:
        """Cells that a row may take."""
        return max(1, self.size.width - _BAR)

    @property
    def is_at_end(self) -> bool:
        return self.size.height > 0 and self.top + self.size.height >= len(self.rows)

    @property
    def pages_left(self) -> int:
        below = len(self.rows) - self.top - self.size.height
        return -(-max(0, below) // self._page)

    @property
    def _page(self) -> int:
        return max(1, self.size.height - _PAGE_OVERLAP)

    def show(self, rows: Sequence[Row], *, top: int | None = None) -> None:
        """Put these rows in place of the others; the place stays, as far as there are rows."""
        self.rows = rows
        self.go(self.top if top is None else top)

    def go(self, top: int) -> None:
        self.top = min(max(0, top), max(0, len(self.rows) - self.size.height))
        self.refresh()

    def scroll(self, rows: int) -> None:
        self.go(self.top + rows)

    def page(self, pages: int) -> None:
        self.scroll(pages * self._page)

    def bring_into_view(self, first: int, last: int) -> None:
        """Scroll as little as it takes to show these rows."""
        if first < self.top:
            self.go(first)
        elif last >= self.top + self.size.height:
            self.go(last - self.size.height + 1)

    def render_line(self, y: int) -> Strip:
        at = self.top + y
        row = self.rows[at] if at < len(self.rows) else ()
        strip = Strip([Segment(text, style) for text, style in row])
        return Strip.join([strip.adjust_cell_length(self.room, PLAIN), self._bar(y)])

    def _bar(self, y: int) -> Strip:
        height, total = self.size.height, len(self.rows)
        if total <= height:
            return Strip([Segment(" " * _BAR, PLAIN)], _BAR)
        size = max(1, height * height // total)
        start = round((height - size) * self.top / (total - height))
        mark = Segment("┃", BLUE) if start <= y < start + size else Segment("│", DIM)
        return Strip([Segment(" ", PLAIN), mark], _BAR)


class LinesPane(Pane):
    """Lines that are wrapped to the width that there is."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Styled] = ()

    def show_lines(self, lines: Sequence[Styled], *, top: int | None = None) -> None:
        self._lines = lines
        if self.size.width == 0:  # not laid out yet; `on_resize` follows
            return
        self.show([row for line in lines for row in wrapped(line, self.room)], top=top)

    def on_resize(self, _: Resize) -> None:
        self.show_lines(self._lines)


class CardPane(LinesPane):
    """One card, and whether it was seen whole: its end was in view with every fold open."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.card: Card | None = None
        self.is_open = False
        self._folded = 0
        self._seen: set[tuple[str, str]] = set()

    def show_card(self, card: Card | None) -> None:
        """Draw the card; another one than before begins at its top, folded."""
        is_same = card is not None and self.card is not None and card.id == self.card.id
        self.card = card
        self.is_open = self.is_open and is_same
        self._draw(top=None if is_same else 0)

    def _draw(self, *, top: int | None) -> None:
        drawn = None if self.card is None else draw(self.card, is_open=self.is_open)
        self._folded = 0 if drawn is None else drawn.folded
        self.show_lines(() if drawn is None else drawn.lines, top=top)

    def toggle_folds(self) -> None:
        self.is_open = not self.is_open
        self._draw(top=None)

    def go(self, top: int) -> None:
        super().go(top)
        if self.card is not None and self.is_at_end and not self._folded and not self.card.cut:
            self._seen.add((self.card.id, self.card.digest))

    @property
    def has_folds(self) -> bool:
        return self._folded > 0

    @property
    def is_seen(self) -> bool:
        return self.card is not None and (self.card.id, self.card.digest) in self._seen

    def read_on(self) -> str:
        """Bring more of the card into view, and say what is still to be seen."""
        if self.is_at_end and self._folded:
            self.toggle_folds()
            return "the folded lines are open now: read on to the end"
        self.page(1)
        left = self.pages_left + (1 if self._folded else 0)
        if left:
            return f"not decided: {left} more {'page' if left == 1 else 'pages'} to read first (space)"
        return "not decided: that was the rest of it, press it again"
