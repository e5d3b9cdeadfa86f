"""All that was ever asked, newest first, with what became of it. It can be searched; it decides nothing."""

from collections.abc import Callable
from functools import partial
from typing import Final

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.events import Key, Resize
from textual.widgets import Static

from pml.core.approvals.record import SessionId, State
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.screen.answers.dialogs import Escapable, Typing
from pml.screen.draw.chrome import TALL, card_title, list_rows, spread
from pml.screen.draw.panes import CardPane, Pane
from pml.screen.draw.styled_lines import Row, as_text, shown
from pml.screen.draw.styles import DIM, HEADING, YELLOW
from pml.screen.draw.words import TOLD, problem
from pml.screen.live import WIDE, Work, program
from pml.screen.queue import Entry, make_entry
from pml.service.approvals.cards import card as make_card

_PAGE: Final = 100
_KEYS: Final = "j/k move · space page · o open folds · / search · Esc or h back · q quit"


class History(Escapable[None]):
    """A list of what was asked, and the card of one."""

    def __init__(self, work: Work, *, quit: Callable[[], None]) -> None:
        super().__init__(work.ticks)
        self._work = work
        self._quit = quit
        self._entries: list[Entry] = []
        self._sessions: dict[SessionId, Session | None] = {}
        self._at = 0
        self._search = ""
        self._has_more = True
        self._status = ""

    def compose(self) -> ComposeResult:
        yield Static("", markup=False, id="head")
        with Container(id="body"):
            yield Pane(id="list")
            with Vertical(id="right"):
                yield Static("", markup=False, id="title")
                yield CardPane(id="card")
        yield Static("", markup=False, id="status")
        yield Static(as_text([(f" {_KEYS}", DIM)]), markup=False, id="keys")

    def on_mount(self) -> None:
        self._read(anew=True)

    def _read(self, *, anew: bool) -> None:
        self.run_worker(partial(self._fetch, anew=anew), group="history", exclusive=True)

    async def _fetch(self, *, anew: bool) -> None:
        context = self._work.context
        last = None if anew or not self._entries else self._entries[-1].record
        query = ApprovalQuery(
            newest=True,
            search=self._search or None,
            after=None if last is None else (last.created_at, last.id),
            limit=_PAGE,
        )
        try:
            found = await context.store.approvals.page(query)
            for session_id in {record.session_id for record in found} - set(self._sessions):
                self._sessions[session_id] = await context.store.sessions.get(session_id)
        except TOLD as exc:
            self._status = problem(exc)
            self._draw()
            return
        if anew:
            self._entries, self._at = [], 0
        for record in found:
            entry = make_entry(record, self._sessions[record.session_id])
            self._entries.append(entry if record.status is State.PENDING else entry.ended(at=0.0))
        self._has_more = len(found) == _PAGE
        self._status = "" if self._entries else "nothing found" if self._search else "nothing was asked yet"
        self._show_card()

    def _show_card(self) -> None:
        self._draw()
        self.run_worker(self._load, group="load", exclusive=True)

    async def _load(self) -> None:
        entry = self._focused
        try:
            card = None if entry is None else await make_card(self._work.context, entry.record, whole=True)
            if program(self).is_running:
                self.query_one(CardPane).show_card(card)
        except Exception as exc:  # whatever is wrong with one, the others can be looked at
            if entry is not None and program(self).is_running:
                self.query_one(CardPane).show_failure(entry.record.id, exc)
        self._draw()

    @property
    def _focused(self) -> Entry | None:
        return self._entries[self._at] if self._entries else None

    def _draw(self) -> None:
        if not program(self).is_running:
            return
        width, now = max(1, self.size.width), self._work.context.clock.now()
        is_wide = width >= WIDE
        self.set_class(is_wide, "-wide")
        pane = self.query_one("#list", Pane)
        pane.styles.height = "1fr" if is_wide else 2 + min(len(self._entries), self.size.height // 3)
        focused = self._focused
        focus = None if focused is None else focused.record.id
        rows = list_rows(self._entries, focus=focus, is_past=True, now=now, width=pane.room, is_tall=is_wide)
        pane.show(rows)
        size = TALL if is_wide else 1
        pane.bring_into_view(self._at * size, self._at * size + min(size, 2) - 1)
        found: Row = (("   search ", DIM), *shown(self._search, YELLOW)) if self._search else ()
        count = f"{len(self._entries)}{'+' if self._has_more else ''}"
        left: Row = ((" PML history", HEADING), (f"   {count} requests", DIM), *found)
        self._put("#head", spread(left, ((f"{self._work.who} ", DIM),), width))
        card = self.query_one(CardPane).card
        title: Row = ()
        if card is not None and focused is not None and card.id == focus:
            title = card_title(card, focused, now, max(1, self.query_one("#title").size.width - 2))
        self._put("#title", title)
        self.query_one("#status", Static).update(Text(self._status, style=YELLOW))

    def _put(self, selector: str, row: Row) -> None:
        self.query_one(selector, Static).update(as_text(row))

    def on_resize(self, _: Resize) -> None:
        self._draw()

    def leave(self) -> None:
        # what is still being read has nowhere to be drawn
        self.workers.cancel_node(self)  # pyright: ignore[reportUnknownMemberType]
        self.dismiss(None)

    def on_key(self, event: Key) -> None:
        if self.takes(event):
            return
        pane = self.query_one(CardPane)
        match event.key:
            case "j" | "down":
                self._move(1)
            case "k" | "up":
                self._move(-1)
            case "space" | "pagedown" | "pageup" | "b":
                pane.page(1 if event.key in ("space", "pagedown") else -1)
            case "o":
                pane.toggle_folds()
            case "slash":
                hint = "Return searches; empty shows all · Esc closes"
                program(self).push_screen(
                    Typing(self._work.ticks, "search the history", hint, value=self._search), self._find
                )
            case "h":
                self.leave()
            case "q":
                self._quit()
            case _:
                return
        event.stop()

    def _move(self, step: int) -> None:
        target = self._at + step
        if 0 <= target < len(self._entries):
            self._at = target
            self._show_card()
        if target >= len(self._entries) - 1 and self._has_more:
            self._read(anew=False)

    def _find(self, text: str | None) -> None:
        if text is not None:
            self._search = text.strip()
            self._read(anew=True)
