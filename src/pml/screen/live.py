"""The inbox as it stands: the stream at the left, the focused card at the right, both kept up to date.

Subscribes, reads, then waits, so no question is lost or shown twice; other processes on the same store may
be first. Knows how things are drawn and followed, not what a key does.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Container, Vertical
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Static

from pml.core.approvals.record import ApprovalId, Decider
from pml.core.approvals.subjects import frame_of
from pml.core.cards.card import Card
from pml.screen.answers.denials import Denials
from pml.screen.draw.chrome import TALL, buttons, card_title, head, keys_line, list_rows
from pml.screen.draw.panes import CardPane, LinesPane, Pane, count_pages
from pml.screen.draw.styled_lines import BLANK, Row, Styled, as_text
from pml.screen.draw.styles import BOLD, DIM, YELLOW
from pml.screen.draw.words import TOLD, problem
from pml.screen.keystrokes import Ticks
from pml.screen.queue import Entry, Stream
from pml.service.approvals.cards import card as make_card
from pml.service.approvals.notices import Notice, notices
from pml.service.context import Context
from pml.service.policy.policy import current_policy, kept_notice
from pml.service.upkeep import sweep

WIDE: Final = 100  # columns from which list and card stand side by side
SWEEP_S: Final = 2.0  # as often as a hub looks for what time and crashes left behind
_LOOK_S: Final = 5.0  # looks again this often, whatever woke it or did not
_TICK_S: Final = 1.0
_LIST_SHARE: Final = 3  # the list takes at the most a third of a narrow screen
_NOTHING: Final = (
    BLANK,
    Styled(spans=(("Nothing waits for you.", BOLD),)),
    BLANK,
    Styled(spans=(("What your agents ask for appears here by itself.", DIM),), by_words=True),
    Styled(spans=(("h shows what was asked before, q leaves.", DIM),), by_words=True),
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the inbox works with. `store_key` keeps a value that a server needs, and says where."""

    context: Context
    by: Decider
    who: str
    workspace: str
    ticks: Ticks = field(default_factory=Ticks)
    store_key: Callable[[str, str], Awaitable[str]] | None = None


def program(screen: Screen[None]) -> App[int]:
    """Return the program that shows the screen, as it is typed."""
    return cast("App[int]", screen.app)  # pyright: ignore[reportUnknownMemberType]


class Live(Screen[None]):
    """What waits, drawn and followed."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.stream = Stream()
        self.denials = Denials()
        self.stream.aside = self.denials
        self.status = ""
        self.notices: list[Notice] = []
        self.kept: str | None = None
        self.remembered: set[ApprovalId] = set()  # to be allowed for the session
        self.shown_at = float("inf")  # when the card in view came into view
        self.came_by_itself = True
        self._loaded: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static("", markup=False, id="head")
        yield Static("", markup=False, id="kept")
        yield Static("", markup=False, id="refused")
        with Container(id="body"):
            yield Pane(id="list")
            with Vertical(id="right"):
                yield Static("", markup=False, id="title")
                yield CardPane(id="card")
                yield LinesPane(id="nothing")
        yield Static("", markup=False, id="status")
        yield Static("", markup=False, id="buttons")
        yield Static("", markup=False, id="keys")

    def on_mount(self) -> None:
        self.query_one("#nothing", LinesPane).show_lines(_NOTHING)
        self.run_worker(self._follow, group="follow")
        self.run_worker(self._keep_up, group="keep up")
        self.set_interval(_TICK_S, self._tick)

    @property
    def pane(self) -> CardPane:
        return self.query_one(CardPane)

    @property
    def card(self) -> Card | None:
        """The card in view, if it is that of the question that has the focus."""
        card = self.pane.card
        return card if card is not None and card.id == self.stream.focus else None

    async def _follow(self) -> None:
        with self.work.context.store.changes.watch(None) as changes:
            while True:
                try:
                    await self.reread()
                except TOLD as exc:
                    self.tell(f"the store cannot be read: {problem(exc)}; trying again")
                await changes.wait(_LOOK_S)

    async def _keep_up(self) -> None:
        """Do the hub's upkeep too: where none runs, expiry and ended agents are noticed all the same."""
        with self.work.context.store.changes.watch(None) as changes:
            while True:
                try:
                    await sweep(self.work.context)
                except TOLD as exc:
                    self.tell(f"the store cannot be kept up: {problem(exc)}; trying again")
                until = self.work.ticks.now() + SWEEP_S
                while (left_s := until - self.work.ticks.now()) > 0:
                    await changes.wait(left_s)

    async def reread(self) -> None:
        """Show what the store says now."""
        if await self.stream.read(self.work.context, at=self.work.ticks.now()):
            self.came_by_itself = True
        self.notices = await notices(self.work.context)
        self.kept = kept_notice(await current_policy(self.work.context, self.work.workspace))
        self.redraw()

    def tell(self, words: str) -> None:
        """Say something below the card, until something else is said."""
        self.status = words
        self._draw_status()

    def _tick(self) -> None:
        if self.stream.drop_stubs(at=self.work.ticks.now()):
            self.redraw()
        else:
            self._draw_times()

    def on_resize(self, _: Resize) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Draw everything as it is now, and fetch the card if another one has the focus."""
        if not program(self).is_running:  # it is being taken down
            return
        entry = self.stream.focused
        wanted = () if entry is None else (entry.record.id, entry.record.status)
        if wanted != self._loaded:
            self._loaded = wanted
            self.run_worker(self._load, group="load", exclusive=True)
        self._lay_out()
        self._draw_times()
        self._draw_status()

    async def _load(self) -> None:
        entry = self.stream.focused
        try:
            card = None if entry is None else await make_card(self.work.context, entry.record, whole=True)
            if not program(self).is_running:
                return
            card = None if card is None else self.denials.leave_out(card)
            is_other = card is None or self.pane.card is None or card.id != self.pane.card.id
            if self.pane.show_card(card):
                self.tell("it has changed since you read it: look again")
            if is_other:
                self.shown_at = self.work.ticks.now()
        except Exception as exc:  # whatever is wrong with one, the others can be decided
            self._fail(entry, exc)
        self._lay_out()
        self._draw_times()
        self._draw_status()

    def _fail(self, entry: Entry | None, error: Exception) -> None:
        self._loaded = ()  # the next look tries again
        self.came_by_itself = True  # if that shows it, the person did not ask for it just then
        if entry is not None and program(self).is_running:
            self.pane.show_failure(entry.record.id, error)

    def _lay_out(self) -> None:
        is_wide = self.size.width >= WIDE
        has_any = self.stream.focused is not None
        self.set_class(is_wide, "-wide")
        self.query_one("#list").display = has_any
        self.query_one("#title").display = has_any
        self.pane.display = has_any
        self.query_one("#nothing").display = not has_any
        most = max(2, (self.size.height - 6) // _LIST_SHARE)
        rows = min(len(self.stream.shown), most) + 1  # and the line below it
        self.query_one("#list").styles.height = "1fr" if is_wide else rows
        self.call_after_refresh(self._draw_times)  # now it is known how wide everything is

    def _draw_times(self) -> None:
        """Draw what changes by the second."""
        if not program(self).is_running:
            return
        now, width = self.work.context.clock.now(), max(1, self.size.width)
        self._put(
            "#head",
            head(
                waiting=self.stream.count,
                found=len(self.stream.waiting),
                search=self.stream.search,
                who=self.work.who,
                width=width,
            ),
        )
        self._draw_notice("#kept", self.kept)
        self._draw_notice("#refused", self.notices[0].text if self.notices else None)
        self._draw_list()
        entry, card = self.stream.focused, self.card
        if entry is not None and card is not None:
            room = max(1, self.query_one("#title").size.width - 2)
            self._put("#title", card_title(card, entry, now, room, held_s=self._held_seconds(card.id)))
        elif self.pane.card is None:
            self._put("#title", ())
        self._put("#keys", keys_line(width, can_edit=card is None or card.input is not None))

    def _draw_notice(self, where: str, words: str | None) -> None:
        line = self.query_one(where, Static)
        line.display = words is not None
        line.update(Text(words or "", style=YELLOW))

    def _draw_list(self) -> None:
        pane = self.query_one("#list", Pane)
        is_tall = self.size.width >= WIDE
        entries = self.stream.shown
        rows = list_rows(
            entries,
            focus=self.stream.focus,
            now=self.work.context.clock.now(),
            width=pane.room,
            is_tall=is_tall,
            held=self._held_seconds,
        )
        pane.show(rows)
        size = TALL if is_tall else 1
        at = next((n for n, each in enumerate(entries) if each.record.id == self.stream.focus), None)
        if at is not None:
            pane.bring_into_view(at * size, at * size + min(size, 2) - 1)

    def _held_seconds(self, approval_id: ApprovalId) -> float | None:
        return self.denials.seconds_left(approval_id, at=self.work.ticks.now())

    def _draw_status(self) -> None:
        if not program(self).is_running:
            return
        width = max(1, self.size.width)
        card = self.card if self.stream.focus not in self.denials else None
        is_seen = card is not None and self.pane.is_seen
        words = self.status
        if not words and card is not None and not is_seen:
            words = f"{count_pages(self.pane.to_read)} to read: space"
        self.query_one("#status", Static).update(Text(words, style=YELLOW))
        self._put(
            "#buttons",
            buttons(
                card,
                is_seen=is_seen,
                remembers=card is not None and card.id in self.remembered,
                together=sum(frame_of(entry.record) is None for entry in self.stream.waiting),
                width=width - 1,
            ),
        )

    def _put(self, selector: str, row: Row) -> None:
        self.query_one(selector, Static).update(as_text(row))
