"""The keys of the inbox, and what they decide.

A key decides only what is focused, still waits, was seen whole, and did not come up by itself a moment ago;
it decides by the digest that was shown. Everything refused is told at the card.
"""

from functools import partial
from typing import Final

from textual.events import Key, ScreenResume

from pml.core.approvals.record import Scope
from pml.core.cards.card import Card
from pml.core.text import visible
from pml.screen.answers.answer import Answering
from pml.screen.answers.dialogs import Reading, Typing
from pml.screen.answers.questions import help_lines
from pml.screen.history import History
from pml.screen.keystrokes import ALLOW, GRACE_S, Dropped, Held, Strokes
from pml.screen.live import Work, program
from pml.screen.order import INTERRUPT
from pml.service.approvals.lifecycle import Decision

INTERRUPTED: Final = 130
CODES: Final = {"q": 0, INTERRUPT: INTERRUPTED}


class Inbox(Answering):
    """Waiting questions and their answers."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.strokes = Strokes()
        self._arrows_scroll = False
        self._nothing_opened = False  # by the key before, which may have been meant to

    def on_screen_resume(self, _: ScreenResume) -> None:
        """A key that was still meant for the dialog before must not decide what appears beneath it."""
        self.came_by_itself = True
        self.shown_at = self.work.ticks.now()
        self.strokes.come_back()
        self._nothing_opened = False

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        if self.is_listing:  # a Return may be meant for the list that is about to open
            return
        at = self.work.ticks.of(event.time)
        match self.strokes.press(event.key, at, is_bare=event.character == "\x1b"):
            case Held() as held:
                self.set_timer(held.for_s, partial(self._settle, held, at))
            case Dropped(why=why):
                if why is not None:
                    self.tell(why)
            case key:
                self._act(key)

    def _settle(self, held: Held, at: float) -> None:
        if self.strokes.settle(held):
            self._decide(allow=held.key in ALLOW, at=at)

    def _act(self, key: str) -> None:
        self.tell("")
        self._nothing_opened = False
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
            case "r":
                self.pane.toggle_raw()
            case "q" | "ctrl+z":
                self.leave(key)
            case "u":
                self.undo()
            case "question_mark":
                program(self).push_screen(Reading(self.work.ticks, "keys", "Esc closes", help_lines()))
            case "slash":
                self._search()
            case "h":
                program(self).push_screen(History(self.work, quit=partial(self.leave, "q")))
            case "A" | "alt+enter" | "D" | "alt+escape":
                self.ask_all(allow=key in ("A", "alt+enter"))
            case "s" | "a" | "e" | "m" | "p" | "t" | "w":
                self._act_on_card(key)
            case _:
                self.tell(f"{visible(key)} does nothing here; ? shows the keys")
                return
        self.redraw()

    def leave(self, key: str) -> None:
        """End or suspend it, once what is held was sent."""

        app = program(self)

        def go() -> None:
            app.action_suspend_process() if key == "ctrl+z" else app.exit(CODES[key])

        async def send() -> None:
            await self.send_held()
            go()

        if self.denials:
            self.run_worker(send, group="leave")
        else:
            go()

    def _act_on_card(self, key: str) -> None:
        card = self._waiting_card()
        if card is None:
            return
        match key:
            case "s":
                self.remember(card)
            case "a":
                self.ask_always(card)
            case "e":
                self.edit(card)
            case "m":
                self.write(card)
            case "t":
                self.narrow_tools(card)
            case "w":
                self.narrow_answers(card)
            case _:
                self.store_key(card)
        self._nothing_opened = key not in "sw" and program(self).screen is self

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
        elif entry.record.id in self.denials:
            self.tell("you denied this one, and it is about to be sent: u undoes")
        elif card is None:
            self.tell("it is not shown yet: nothing was decided")
        else:
            return card
        return None

    def _guarded(self, *, at: float) -> Card | None:
        """Return the card that a key pressed `at` may decide; else say why it may not."""
        card = self._waiting_card()
        if card is None:
            return None
        if self.is_deciding:
            self.tell("nothing was decided: the answer before is still on its way")
            return None
        grace_s = GRACE_S if self.came_by_itself else 0.0
        if at < self.shown_at + grace_s:
            self.tell("this request came up a moment ago: read it, then press the key again")
            return None
        if not self.pane.is_seen:
            self.tell(self.pane.what_is_left())
            return None
        return card

    def _decide(self, *, allow: bool, at: float) -> None:
        had_opened, self._nothing_opened = not self._nothing_opened, False
        if not allow and not had_opened:  # this Escape was to close what the key before did not open
            self.tell("nothing is open, and nothing was denied: Esc again denies the request")
            return
        card = self._guarded(at=at)
        if card is None:
            return
        scope = Scope.SESSION if allow and card.id in self.remembered else Scope.ONCE
        edited = self.narrowed.get(card.id) if allow else None
        decision = Decision(
            by=self.work.by, digest=card.digest, allow=allow, scope=scope, updated_input=edited
        )
        if allow:
            self.give(card.id, decision)
        else:
            self.hold({card.id: decision}, visible(card.tool))

    def _search(self) -> None:
        def searched(text: str | None) -> None:
            if text is not None and self.stream.find(text.strip()):
                self.came_by_itself = True
            self.redraw()

        hint = "Return searches tools, sessions and arguments; empty shows all · Esc closes"
        program(self).push_screen(Typing(self.work.ticks, "search", hint, value=self.stream.search), searched)
