"""Panes of styled rows that scroll by whole rows, however many there are: only what is in view is drawn."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from rich.segment import Segment
from textual.events import Resize
from textual.strip import Strip
from textual.widget import Widget

from pml.core.approvals.record import ApprovalId, State
from pml.core.cards.card import Card
from pml.screen.draw.card_lines import Drawn, draw
from pml.screen.draw.styled_lines import Row, Styled, shown, wrapped
from pml.screen.draw.styles import ALARM, BLUE, BOLD, DIM, PLAIN
from pml.screen.draw.words import problem

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
    def page_size(self) -> int:
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
        self.scroll(pages * self.page_size)

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
    """Lines, wrapped to the width that there is; it knows how far they were seen, with none skipped."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Styled] = ()
        self._ends: list[int] = []  # how many rows there are up to the end of each line
        self._needed = 0
        self._seen_to = 0

    def show_lines(
        self,
        lines: Sequence[Styled],
        *,
        needed: int | None = None,
        kept: int = 0,
        top: int | None = None,
    ) -> None:
        """Show these lines, the first `needed` of which (None: all) are those that must be seen.

        The first `kept` are the same as before: what was seen of them stays seen.
        """
        seen_lines = min(kept, bisect_right(self._ends, self._seen_to))
        self._lines, self._needed = lines, len(lines) if needed is None else needed
        if self.size.width == 0:  # not laid out yet; `on_resize` follows
            return
        rows: list[Row] = []
        self._ends = []
        for line in lines:
            rows.extend(wrapped(line, self.room))
            self._ends.append(len(rows))
        self._seen_to = self._ends[seen_lines - 1] if seen_lines else 0
        self.show(rows, top=top)

    def on_resize(self, _: Resize) -> None:
        self.show_lines(self._lines, needed=self._needed, kept=len(self._lines))

    def go(self, top: int) -> None:
        super().go(top)
        if self.top <= self._seen_to:
            self._seen_to = max(self._seen_to, self.top + self.size.height)

    @property
    def _needed_rows(self) -> int:
        return self._ends[self._needed - 1] if self._ends and self._needed else 0

    @property
    def was_read(self) -> bool:
        """Whether all that must be seen was in view."""
        return self.size.height > 0 and self._seen_to >= self._needed_rows

    @property
    def pages_left(self) -> int:
        return -(-max(0, self._needed_rows - self._seen_to) // self.page_size)


class CardPane(LinesPane):
    """One card, and whether it was seen whole: all that is asked was in view, with every fold open."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.card: Card | None = None
        self.is_open = False
        self.is_raw = False
        self._folded = 0
        self._seen: dict[tuple[str, str], tuple[object, ...]] = {}  # what of each card was seen

    def show_card(self, card: Card | None) -> bool:
        """Draw the card; another one than before begins at its top, folded.

        Return whether it was seen whole as something else, such as a diff against what a file had in it then.
        """
        is_changed = card is not None and card.status is State.PENDING and self._has_changed(card)
        if card is not None and is_changed:
            del self._seen[card.id, card.digest]
        is_same = card is not None and self.card is not None and card.id == self.card.id
        self.card = card
        self.is_open = self.is_open and is_same
        self.is_raw = self.is_raw and is_same
        self._draw(top=None if is_same else 0)
        return is_changed

    def show_failure(self, approval_id: ApprovalId, error: Exception) -> None:
        """Say in place of a card why there is none, and where else the question can be read and decided."""
        self.card = None
        self._folded = 0
        words = (
            ("This request cannot be shown here.", ALARM),
            (problem(error), PLAIN),
            ("This shows it, and tells how it is decided:", PLAIN),
            (f"pml approvals show {approval_id}", BOLD),
        )
        lines = [Styled(spans=shown(text, style), by_words=True) for text, style in words]
        self.show_lines(lines, top=0)

    def _has_changed(self, card: Card) -> bool:
        seen = self._seen.get((card.id, card.digest))
        return seen is not None and seen != _substance(card)

    def _draw(self, *, top: int | None, kept: int = 0) -> None:
        drawn = Drawn() if self.card is None else draw(self.card, is_open=self.is_open, is_raw=self.is_raw)
        self._folded = drawn.folded
        self.show_lines((*drawn.asked, *drawn.around), needed=len(drawn.asked), kept=kept, top=top)

    def toggle_folds(self) -> None:
        self.is_open = not self.is_open
        kept = 0 if self.card is None else draw(self.card, is_open=False).until_fold
        self._draw(top=None, kept=kept)

    def toggle_raw(self) -> None:
        """Show the arguments as they are sent, or not; all that is asked stands above them."""
        self.is_raw = not self.is_raw
        asked = 0 if self.card is None else len(draw(self.card, is_open=self.is_open).asked)
        self._draw(top=None, kept=asked)

    def go(self, top: int) -> None:
        super().go(top)
        if self.card is not None and self.was_read and not self._folded and not self.card.cut:
            self._seen[self.card.id, self.card.digest] = _substance(self.card)

    @property
    def is_seen(self) -> bool:
        return self.card is not None and self.has_seen(self.card.id, self.card.digest)

    def has_seen(self, approval_id: str, digest: str) -> bool:
        return (approval_id, digest) in self._seen

    @property
    def to_read(self) -> int:
        """Pages that are still to be seen, the folded ones counted as one."""
        return self.pages_left + (1 if self._folded else 0)

    def what_is_left(self) -> str:
        """Say why no key decides it yet; the key that asked does not turn the page for it."""
        if self.was_read and self._folded:
            return "not decided: open the folded lines first (o), then scroll to the end"
        if self.pages_left:
            left = count_pages(self.to_read)
            return f"not decided: {left}. Scroll to the end first (space), then press again."
        return "not decided: this request is shortened here"


def _substance(card: Card) -> tuple[object, ...]:
    """Return what is drawn of a question, which its digest does not cover."""
    return card.sentence, card.blocks, card.warnings


def count_pages(count: int) -> str:
    return f"{count} more {'page' if count == 1 else 'pages'}"
