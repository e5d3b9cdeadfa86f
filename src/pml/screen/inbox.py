"""The keys of the inbox, and what they decide.

A key decides only what is focused, still waits, was seen whole, and did not come up by itself a moment ago;
it decides by the digest that was shown. Everything refused is told at the card.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from textual.events import Key

from pml.core.approvals import Scope
from pml.core.cards import Card
from pml.core.errors import PmlError
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject
from pml.screen.deciding import Answer, Given, answer_to, give, misfits
from pml.screen.dialogs import Editing, Reading, Typing
from pml.screen.history import History
from pml.screen.keys import ALLOW, GRACE_S, Dropped, Held, Strokes
from pml.screen.live import Live, Work
from pml.screen.questions import always_lines, batch_lines, help_lines, report_lines
from pml.screen.stream import Entry
from pml.screen.words import problem


class Inbox(Live):
    """Waiting questions and their answers."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._strokes = Strokes()
        self._is_deciding = False
        self._arrows_scroll = False

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        match self._strokes.press(event.key, event.time, is_bare=event.character == "\x1b"):
            case Held() as held:
                self.set_timer(held.for_s, partial(self._settle, held, event.time))
            case Dropped(why=why):
                if why is not None:
                    self.tell(why)
            case key:
                self._act(key)

    def _settle(self, held: Held, at: float) -> None:
        if self._strokes.settle(held):
            self._decide(allow=held.key in ALLOW, at=at)

    def _act(self, key: str) -> None:
        self.tell("")
        match key:
            case "j" | "k":
                self._move(1 if key == "j" else -1)
            case "down" | "up":
                step = 1 if key == "down" else -1
                self._scroll(step) if self._arrows_scroll else self._move(step)
            case "space" | "pagedown" | "pageup" | "b":
                self.pane.page(1 if key in ("space", "pagedown") else -1)
            case "g" | "home" | "G" | "end":
                self.pane.go(0 if key in ("g", "home") else len(self.pane.rows))
            case "tab" | "shift+tab":
                self._arrows_scroll = not self._arrows_scroll
                self.tell(f"arrows move in the {'request' if self._arrows_scroll else 'list'}")
            case "o":
                self.pane.toggle_folds()
            case "q":
                self.app.exit(0)
            case "question_mark":
                self.app.push_screen(Reading("keys", "Esc closes", help_lines()))
            case "slash":
                self._search()
            case "h":
                self.app.push_screen(History(self.work))
            case "A" | "alt+enter" | "D" | "alt+escape":
                self._ask_all(allow=key in ("A", "alt+enter"))
            case "s" | "a" | "e" | "m" | "p":
                self._act_on_card(key)
            case _:
                return
        self.redraw()

    def _act_on_card(self, key: str) -> None:
        card = self._waiting_card()
        if card is None:
            return
        match key:
            case "s":
                self._remember(card)
            case "a":
                self._ask_always(card)
            case "e":
                self._edit(card)
            case "m":
                self._write(card)
            case _:
                self._store_key(card)

    def _move(self, step: int) -> None:
        if self.stream.move(step):
            self.came_by_itself = False

    def _scroll(self, rows: int) -> None:
        self.pane.scroll(rows)

    def _waiting_card(self) -> Card | None:
        entry, card = self.stream.focused, self.card
        if entry is None:
            self.tell("nothing waits")
        elif not entry.waits:
            self.tell("this one is settled; j and k move to others")
        elif card is None:
            self.tell("it is being read: a moment")
        else:
            return card
        return None

    def _guarded(self, *, at: float) -> Card | None:
        """Return the card that a key pressed `at` may decide; else say why it may not."""
        entry = self.stream.focused
        if entry is not None and not entry.waits:
            if self.stream.move_on():
                self.came_by_itself = True
            self.tell("")
            self.redraw()
            return None
        card = self._waiting_card()
        if card is None or self._is_deciding:
            return None
        grace_s = GRACE_S if self.came_by_itself else 0.0
        if at < self.shown_at + grace_s:
            self.tell("this request came up a moment ago: read it, then press the key again")
            return None
        if not self.pane.is_seen:
            self.tell(self.pane.read_on())
            self.redraw()
            return None
        return card

    def _decide(self, *, allow: bool, at: float) -> None:
        card = self._guarded(at=at)
        if card is not None:
            scope = Scope.SESSION if allow and card.id in self.remembered else Scope.ONCE
            self._give(answer_to(card, allow=allow, scope=scope))

    def _give(self, answer: Answer) -> None:
        self._is_deciding = True
        self.run_worker(self._given(answer), group="decide")

    async def _given(self, answer: Answer) -> Given:
        """Decide, show what came of it, and move on by ourselves if it was done here."""
        try:
            given = await give(self.work.desk, self.work.by, answer)
        except PmlError as exc:
            given = Given(words=problem(exc), is_done=False)
        finally:
            self._is_deciding = False
        if given.record is not None:
            self.stream.resolve(given.record, at=self.work.monotonic())
        if given.is_done and self.stream.focus == answer.id and self.stream.move_on():
            self.came_by_itself = True
        self.tell(given.words)
        self.redraw()
        return given

    def _remember(self, card: Card) -> None:
        if card.remember is None:
            self.tell("an answer to this cannot be remembered")
            return
        self.remembered ^= {card.id}
        on = card.id in self.remembered
        self.tell(
            f"Return will also allow, in this session: {card.remember}" if on else "Return allows just this one"
        )

    def _search(self) -> None:
        def searched(text: str | None) -> None:
            if text is not None and self.stream.find(text.strip()):
                self.came_by_itself = True
            self.redraw()

        hint = "Return searches tools, sessions and arguments; empty shows all · Esc closes"
        self.app.push_screen(Typing("search", hint, value=self.stream.search), searched)

    def _write(self, card: Card) -> None:
        def written(text: str | None) -> None:
            if text is not None:
                self._give(replace(answer_to(card, allow=False), message=text.strip() or None))

        hint = "Return denies it and tells the agent this · Esc goes back"
        self.app.push_screen(Typing(f"deny {visible(card.tool)} with a message", hint), written)

    def _edit(self, card: Card) -> None:
        if card.input is None:
            self.tell("this cannot be edited; it is allowed or denied as it is")
            return

        async def submit(value: JsonObject, is_sure: bool) -> str | None:
            wrong = misfits(card.schema, value)
            if wrong and not is_sure:
                return f"{'; '.join(wrong)} · Ctrl+S again sends it all the same"
            scope = Scope.SESSION if card.id in self.remembered else Scope.ONCE
            given = await self._given(
                replace(answer_to(card, allow=True, scope=scope), updated_input=value)
            )
            return None if given.record is not None else given.words

        self.app.push_screen(Editing(card.tool, visible_json(card.input), submit=submit))

    def _ask_always(self, card: Card) -> None:
        if card.always is None:
            self.tell("no rule can say always for this; it is allowed once")
            return
        if not self.pane.is_seen:
            self.tell(self.pane.read_on())
            return

        def chosen(key: str | None) -> None:
            if key is not None:
                release = tuple(other.id for other in card.covers) if key == "c" else ()
                answer = answer_to(card, allow=True, scope=Scope.ALWAYS)
                self._give(replace(answer, literal=key == "x", release=release))

        keys = ("x" if card.always_exactly is not None else "") + ("c" if card.covers else "")
        hint = "Return allows and writes it" + "".join(f" · {key}" for key in keys) + " · Esc goes back"
        title = f"always allow {visible(card.tool)}?"
        self.app.push_screen(Reading(title, hint, always_lines(card), keys=keys), chosen)

    def _ask_all(self, *, allow: bool) -> None:
        entries = self.stream.waiting
        if not entries:
            self.tell("nothing waits")
            return

        def chosen(key: str | None) -> None:
            if key is not None:
                self.run_worker(self._give_all(entries, allow=allow), group="decide")

        verb = "allow" if allow else "deny"
        title = f"{verb} {'this one' if len(entries) == 1 else f'these {len(entries)}'}?"
        hint = f"Return {'allows' if allow else 'denies'} exactly these, once · Esc goes back"
        self.app.push_screen(Reading(title, hint, batch_lines(entries), keys=""), chosen)

    async def _give_all(self, entries: Sequence[Entry], *, allow: bool) -> None:
        """Decide each by the digest that was listed; one that is refused does not stop the others."""
        results: list[tuple[Entry, Given]] = []
        for entry in entries:
            record = entry.record
            given = await self._given(Answer(id=record.id, digest=record.digest, allow=allow))
            results.append((entry, given))
        done = sum(given.is_done for _, given in results)
        title = f"{'allowed' if allow else 'denied'} {done} of {len(results)}"
        self.tell(title)
        self.app.push_screen(Reading(title, "Return or Esc closes", report_lines(results)))

    def _store_key(self, card: Card) -> None:
        if not card.missing:
            self.tell("this one needs no key")
            return
        name = card.missing[0]
        store_key = self.work.store_key
        if store_key is None:
            self.tell(f"store it with `pml secrets set {visible(name)}`")
            return

        async def keep(value: str) -> None:
            try:
                self.tell(f"{await store_key(name, value)}: Return lets the server start")
            except PmlError as exc:
                self.tell(problem(exc))

        def typed(value: str | None) -> None:
            if value:
                self.run_worker(keep(value), group="key")

        hint = "Return stores it; nobody sees it, agents neither · Esc goes back"
        self.app.push_screen(Typing(f"value of {visible(name)}", hint, is_secret=True), typed)
