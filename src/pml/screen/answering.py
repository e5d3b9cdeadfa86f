"""Answers of a person at the terminal, and the dialogs that lead to one.

Each is given by the digest that was shown. What is refused is told, and the first decision wins.
"""

from collections.abc import Sequence
from functools import partial

from pml.core.approvals import ApprovalId, Scope
from pml.core.cards import Card
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject
from pml.screen.batch import batch_lines, find_listed, report_lines
from pml.screen.deciding import Given, give, misfits
from pml.screen.dialogs import Editing, Reading, Typing
from pml.screen.lines import Styled
from pml.screen.live import Live, Work, program
from pml.screen.questions import always_lines
from pml.screen.stream import Entry
from pml.screen.words import TOLD, problem
from pml.service.approvals import Decision


class Answering(Live):
    """What waits, and how it is answered."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.is_deciding = False
        self.is_listing = False  # what "all" would cover is being looked at
        self._edits: dict[ApprovalId, str] = {}  # begun and left

    def give(self, approval_id: ApprovalId, decision: Decision) -> None:
        self.is_deciding = True
        self.run_worker(partial(self._given, approval_id, decision), group="decide")

    async def _given(self, approval_id: ApprovalId, decision: Decision) -> Given:
        """Decide, show what came of it, and move on by ourselves if it was done here."""
        try:
            given = await give(self.work.desk, approval_id, decision)
        except TOLD as exc:
            given = Given(words=problem(exc), is_done=False)
        finally:
            self.is_deciding = False
        if given.record is not None:
            self.stream.resolve(given.record, at=self.work.ticks.now())
        if given.is_done and self.stream.focus == approval_id and self.stream.move_on():
            self.came_by_itself = True
        self.tell(given.words)
        self.redraw()
        return given

    def remember(self, card: Card) -> None:
        if card.remember is None:
            self.tell("an answer to this cannot be remembered")
            return
        self.remembered ^= {card.id}
        if card.id in self.remembered:
            self.tell(f"Return will also allow, in this session: {card.remember}")
        else:
            self.tell("Return allows just this one")

    def write(self, card: Card) -> None:
        def written(text: str | None) -> None:
            if text is not None:
                message = text.strip() or None
                decision = Decision(by=self.work.by, digest=card.digest, allow=False, message=message)
                self.give(card.id, decision)

        hint = "Return denies it and tells the agent this · Esc goes back"
        program(self).push_screen(
            Typing(self.work.ticks, f"deny {visible(card.tool)} with a message", hint), written
        )

    def edit(self, card: Card) -> None:
        if card.input is None:
            self.tell("this cannot be edited; it is allowed or denied as it is")
            return
        if not self.pane.is_seen:
            self.tell(self.pane.show_more())
            return
        whole = visible_json(card.input)

        async def submit(value: JsonObject, is_sure: bool) -> str | None:
            wrong = misfits(card.schema, value)
            if wrong and not is_sure:
                return f"{'; '.join(wrong)} · Ctrl+S again sends it all the same"
            scope = Scope.SESSION if card.id in self.remembered else Scope.ONCE
            decision = Decision(
                by=self.work.by, digest=card.digest, allow=True, scope=scope, updated_input=value
            )
            given = await self._given(card.id, decision)
            return None if given.record is not None else given.words

        def left(text: str | None) -> None:
            self._edits.pop(card.id, None)
            if text is not None and text != whole:
                self._edits[card.id] = text
                self.tell("nothing was decided; your edit is kept, and e continues it")

        text = self._edits.get(card.id, whole)
        program(self).push_screen(Editing(self.work.ticks, card.tool, text, submit=submit), left)

    def ask_always(self, card: Card) -> None:
        if card.always is None:
            self.tell("no rule can say always for this; it is allowed once")
            return
        if not self.pane.is_seen:
            self.tell(self.pane.show_more())
            return

        def chosen(key: str | None) -> None:
            if key is not None:
                decision = Decision(
                    by=self.work.by,
                    digest=card.digest,
                    allow=True,
                    scope=Scope.ALWAYS,
                    literal=key == "x",
                    release=tuple(other.id for other in card.covers) if key == "c" else (),
                )
                self.give(card.id, decision)

        keys = ("x" if card.always_exactly is not None else "") + ("c" if card.covers else "")
        hint = "Return allows and writes it" + "".join(f" · {key}" for key in keys) + " · Esc goes back"
        title = f"always allow {visible(card.tool)}?"
        program(self).push_screen(
            Reading(self.work.ticks, title, hint, always_lines(card), keys=keys), chosen
        )

    def ask_all(self, *, allow: bool) -> None:
        waiting = self.stream.waiting
        if not waiting:
            self.tell("nothing waits")
            return
        self.is_listing = True
        self.tell("making the list: a moment")
        self.run_worker(partial(self._list_all, waiting, allow=allow), group="list")

    async def _list_all(self, waiting: Sequence[Entry], *, allow: bool) -> None:
        try:
            unseen = [entry for entry in waiting if not self._is_seen(entry)]
            listed = await find_listed(self.work.desk, unseen)
        finally:
            self.is_listing = False
        self.tell("")

        def is_known(entry: Entry) -> bool:
            return self._is_seen(entry) or entry.record.id in listed

        entries = [entry for entry in waiting if is_known(entry) or not allow]
        left_out = [entry for entry in waiting if allow and not is_known(entry)]
        if not entries:
            self.tell("none of them was seen whole: read each by itself")
            return
        lines = batch_lines(entries, left_out=left_out, is_known=is_known)
        self._ask_all(entries, lines, allow=allow)

    def _ask_all(self, entries: Sequence[Entry], lines: Sequence[Styled], *, allow: bool) -> None:
        def chosen(key: str | None) -> None:
            if key is not None:
                self.run_worker(partial(self._give_all, entries, allow=allow), group="decide")

        verb = "allow" if allow else "deny"
        title = f"{verb} {'this one' if len(entries) == 1 else f'these {len(entries)}'}?"
        hint = f"Return {'allows' if allow else 'denies'} exactly these, once · Esc goes back"
        program(self).push_screen(Reading(self.work.ticks, title, hint, lines, keys=""), chosen)

    def _is_seen(self, entry: Entry) -> bool:
        return self.pane.has_seen(entry.record.id, entry.record.digest)

    async def _give_all(self, entries: Sequence[Entry], *, allow: bool) -> None:
        """Decide each by the digest that was listed; one that is refused does not stop the others."""
        results: list[tuple[Entry, Given]] = []
        for entry in entries:
            record = entry.record
            decision = Decision(by=self.work.by, digest=record.digest, allow=allow)
            results.append((entry, await self._given(record.id, decision)))
        done = sum(given.is_done for _, given in results)
        title = f"{'allowed' if allow else 'denied'} {done} of {len(results)}"
        self.tell(title)
        program(self).push_screen(
            Reading(self.work.ticks, title, "Return or Esc closes", report_lines(results))
        )

    def store_key(self, card: Card) -> None:
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
            except TOLD as exc:
                self.tell(problem(exc))

        def typed(value: str | None) -> None:
            if value:
                self.run_worker(partial(keep, value), group="key")

        hint = "Return stores it; nobody sees it, agents neither · Esc goes back"
        program(self).push_screen(
            Typing(self.work.ticks, f"value of {visible(name)}", hint, is_secret=True), typed
        )
