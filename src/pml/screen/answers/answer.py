"""Answers of a person at the terminal, and the dialogs that lead to one.

Each is given by the digest that was shown. What is refused is told, and the first decision wins.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from pml.core.approvals.record import Approval, ApprovalId, Scope, Subject
from pml.core.approvals.subjects import frame_of
from pml.core.cards.card import Arguments, Block, Card, Code, Command, Diff, Facts
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.sessions.launch import PARENT_MAY, TOOLS, launch_facts
from pml.core.sessions.token import ParentMay
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject
from pml.screen.answers.decide import Given, give, misfits, undo
from pml.screen.answers.denials import holding_s
from pml.screen.answers.dialogs import Editing, Reading, Typing, item
from pml.screen.answers.questions import always_lines
from pml.screen.draw.styled_lines import BLANK, Row, Span, Styled, shown
from pml.screen.draw.styles import BOLD, CYAN, DIM, GREEN, PLAIN, RED, YELLOW
from pml.screen.draw.words import TOLD, problem, what_became
from pml.screen.live import Live, Work, program
from pml.screen.queue import Entry
from pml.service.approvals.cards import cards
from pml.service.approvals.lifecycle import Decision
from pml.service.context import Context

_SHOWN: Final = 1000  # characters of an input; the rest is counted
_PAGE: Final = 100  # cards that are made at a time, as for a page of many
_BREAK: Final = r"\n"  # a line break, as JSON writes it
_PARTS: Final = re.compile(r"[^\\]+|\\.")  # an escape is a part of its own
_MARK: Final[Span] = (" ⏎ ", CYAN)


async def find_listed(context: Context, entries: Sequence[Entry]) -> frozenset[ApprovalId]:
    """Return which of them the list tells to their last character, as their cards are now."""
    short = [entry.record for entry in entries if len(_input(entry)) <= _SHOWN]
    found: list[Card] = []
    for at in range(0, len(short), _PAGE):
        found += await _cards(context, short[at : at + _PAGE])
    return frozenset(card.id for card in found if _is_listed_whole(card))


async def _cards(context: Context, records: Sequence[Approval]) -> list[Card]:
    """Return their cards, but for those that cannot be made: what cannot be shown is not listed whole."""
    try:
        return await cards(context, records)
    except Exception:
        if len(records) == 1:
            return []
        return [card for record in records for card in await _cards(context, [record])]


def _is_listed_whole(card: Card) -> bool:
    """Tell whether a card would tell nothing more: not where a link leads, not a folder, code or warning."""
    is_plain = card.subject is Subject.TOOL_CALL and card.run_id is None and not card.cut
    return is_plain and not card.warnings and all(_repeats(block, card) for block in card.blocks)


def _repeats(block: Block, card: Card) -> bool:
    """Tell whether the part has only what stands in the arguments, or in the list beside them."""
    match block:
        case Arguments() | Code():
            return True
        case Command():
            return block.cwd == card.workspace
        case Diff() | Facts():
            return False


def _input(entry: Entry) -> str:
    return visible_json(entry.record.tool_input, indent=None)


def batch_lines(
    entries: Sequence[Entry], *, left_out: Sequence[Entry], is_known: Callable[[Entry], bool]
) -> list[Styled]:
    """Each request that "all" would decide and what it would do, below those that are left out."""
    lines: list[Styled] = []
    if left_out:
        which = "it" if len(left_out) == 1 else "each"
        told = f"{len(left_out)} left out: open {which} to decide"
        lines.append(Styled(spans=((told, YELLOW),), by_words=True))
        lines += [Styled(spans=_title(entry), gutter=(("✗ ", YELLOW),)) for entry in left_out]
        lines.append(BLANK)
    for entry in entries:
        is_call = entry.record.subject is Subject.TOOL_CALL
        below: Row = (*_listed(_input(entry)),) if is_call else ((entry.glimpse, PLAIN),)
        doubt: Row = () if is_known(entry) else (("  not seen whole", YELLOW),)
        lines += [*item(_title(entry, doubt), below), BLANK]
    return lines


def _title(entry: Entry, doubt: Row = ()) -> Row:
    where = f"  {entry.session_name}  in {entry.workspace}"
    return (*shown(entry.record.tool_name, BOLD), *doubt, (where, DIM))


def _listed(text: str) -> Iterator[Span]:
    """Yield the start of an input, its line breaks marked, and how much follows."""
    end = 0
    for part in _PARTS.finditer(text[:_SHOWN]):
        yield from (_MARK,) if part[0] == _BREAK else shown(part[0])
        end = part.end()
    rest = text[end:]
    if rest:
        breaks = _PARTS.findall(rest).count(_BREAK)
        count, what = (breaks, "lines") if breaks else (len(rest), "characters")
        yield f"… {count:,} more {what}", YELLOW


def report_lines(given: Iterable[tuple[Entry, Given]]) -> list[Styled]:
    """What came of each; one that was refused did not keep the others from being decided."""
    lines: list[Styled] = []
    for entry, each in given:
        mark = ("✓ ", GREEN) if each.is_done else ("✗ ", RED)
        lines.append(Styled(spans=shown(entry.record.tool_name, BOLD), gutter=(mark,)))
        lines.append(Styled(spans=((each.words, PLAIN),), gutter=(("  ", PLAIN),), by_words=True))
    return lines


class Answering(Live):
    """What waits, and how it is answered."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.is_deciding = False
        self.is_listing = False  # what "all" would cover is being looked at
        self._edits: dict[ApprovalId, str] = {}  # begun and left
        self._sending = asyncio.Lock()  # held denials, so that what comes after them can wait
        self._undo: Callable[[], None] | None = None  # of what was done last
        self.narrowed: dict[ApprovalId, JsonObject] = {}  # launches, with what the agent is given instead

    def give(self, approval_id: ApprovalId, decision: Decision) -> None:
        self.is_deciding = True
        self.run_worker(partial(self._given, approval_id, decision), group="decide")

    async def _given(self, approval_id: ApprovalId, decision: Decision) -> Given:
        """Decide, show what came of it, and move on by ourselves if it was done here."""
        try:
            if decision.release:
                await self.send_held()
            given = await self._send(approval_id, decision)
        finally:
            self.is_deciding = False
        self._undo = partial(self._take_back, approval_id, decision.literal) if given.can_undo else None
        self.tell(f"{given.words} · u undoes" if given.can_undo else given.words)
        self.redraw()
        return given

    async def _send(self, approval_id: ApprovalId, decision: Decision) -> Given:
        try:
            given = await give(self.work.context, approval_id, decision)
        except TOLD as exc:
            given = Given(words=problem(exc), is_done=False)
        if given.record is not None:
            self.stream.resolve(given.record, at=self.work.ticks.now())
        if given.is_done and self.stream.focus == approval_id and self.stream.move_on():
            self.came_by_itself = True
        return given

    def hold(self, decisions: Mapping[ApprovalId, Decision], words: str) -> None:
        """Deny in a moment: until then it can be undone, and others may be first."""
        left_s = self.stream.seconds_until_first_ends(decisions, self.work.context.clock.now())
        for_s = holding_s(left_s)
        group = self.denials.hold(decisions, at=self.work.ticks.now(), for_s=for_s)
        self._undo = partial(self._release, group)
        if self.stream.focus in decisions and self.stream.move_on():
            self.came_by_itself = True
        self.tell(f"denied {words}; sent in {for_s:.0f} s · u undoes")
        self.redraw()
        if for_s > 0:
            self.set_timer(for_s, self.send_due)
        else:
            self.send_due()

    def send_due(self) -> None:
        """Send the denials whose time is over."""
        due = self.denials.take(at=self.work.ticks.now())
        if due:
            self.run_worker(partial(self._send_denials, due), group="deny")

    async def send_held(self) -> None:
        """Send all that is held: a person who leaves, or answers several, takes nothing back any more."""
        await self._send_denials(self.denials.take())

    async def send_left(self) -> None:
        """Send what is held still when the program has ended, however it did: nothing is drawn any more."""
        for approval_id, decision in self.denials.take().items():
            with contextlib.suppress(*TOLD):
                await give(self.work.context, approval_id, decision)

    async def _send_denials(self, decisions: Mapping[ApprovalId, Decision]) -> None:
        is_told = "u undoes" in self.status
        async with self._sending:
            results = [await self._send(approval_id, each) for approval_id, each in decisions.items()]
        done = [given for given in results if given.is_done]
        failed = [given for given in results if not given.is_done]
        if failed:
            self.tell(failed[0].words)
        elif is_told and not self.denials and done:
            self._undo = None
            self.tell(done[0].words if len(done) == 1 else f"denied {len(done)}")
        self.redraw()

    def undo(self) -> None:
        """Undo what was done last, if it still can be."""
        undo, self._undo = self._undo, None
        if undo is None:
            self.tell("there is nothing to undo")
        else:
            undo()

    def _release(self, group: int) -> None:
        found = self.denials.undo(group)
        if not found:
            self.tell("there is nothing to undo")
            return
        self.stream.focus = found[0]
        self.came_by_itself = True
        self.shown_at = self.work.ticks.now()
        self.tell("undone: nothing was denied")
        self.redraw()

    def _take_back(self, approval_id: ApprovalId, literal: bool) -> None:
        async def run() -> None:
            self.tell(await undo(self.work.context, approval_id, by=self.work.by, literal=literal))

        self.run_worker(run, group="undo")

    async def reread(self) -> None:
        await super().reread()
        for entry in self.stream.shown:
            if entry.record.id in self.denials and not entry.waits:
                self.denials.drop(entry.record.id)
                became = what_became(entry.record, self.work.context.clock.now())
                self.tell(f"not denied by you: {became}, before your denial was sent")

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
                self.hold({card.id: decision}, f"{visible(card.tool)} with your message")

        hint = "Return denies it and tells the agent this · Esc goes back"
        program(self).push_screen(
            Typing(self.work.ticks, f"deny {visible(card.tool)} with a message", hint), written
        )

    def edit(self, card: Card) -> None:
        if card.input is None:
            self.tell("this cannot be edited; it is allowed or denied as it is")
            return
        if not self.pane.is_seen:
            self.tell(self.pane.what_is_left())
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

    def narrow_tools(self, card: Card) -> None:
        """Ask which tools a new agent may use."""
        given = self._launch(card)
        if given is None:
            return
        tools = given.get(TOOLS)
        value = ", ".join(map(str, tools)) if isinstance(tools, list | tuple) else ""

        def typed(text: str | None) -> None:
            names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
            if text is not None and (names or TOOLS in given):
                self._narrow(card, {**given, TOOLS: [*names]})

        hint = "names or globs with commas: Read, github:get_* · Return keeps them · Esc goes back"
        program(self).push_screen(
            Typing(self.work.ticks, "tools that the agent may use", hint, value=value), typed
        )

    def narrow_answers(self, card: Card) -> None:
        """Let the parent answer less for a new agent, down to nothing, then as was asked."""
        given = self._launch(card)
        widest = None if card.input is None else card.input.get(PARENT_MAY)
        options = [*ParentMay]
        if given is None or widest not in options:
            return
        below = options[: options.index(ParentMay(str(widest))) + 1]
        at = below.index(ParentMay(str(given.get(PARENT_MAY))))
        self._narrow(card, {**given, PARENT_MAY: below[at - 1]})

    def _launch(self, card: Card) -> JsonObject | None:
        """Return what a new agent would be given by now; None, and say so, if it is not a launch."""
        if card.input is None or card.tool != LAUNCH_TOOL:
            self.tell("only the start of an agent is narrowed so; e edits the arguments")
            return None
        return self.narrowed.get(card.id, card.input)

    def _narrow(self, card: Card, given: JsonObject) -> None:
        self.narrowed[card.id] = given
        facts = " · ".join(f"{name}: {value}" for name, value in launch_facts(given))
        self.tell(f"Return starts it with {facts}")

    def ask_always(self, card: Card) -> None:
        card = self.denials.leave_out(card)
        if card.always is None:
            self.tell("no rule can say always for this; it is allowed once")
            return
        if not self.pane.is_seen:
            self.tell(self.pane.what_is_left())
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
        waiting = [entry for entry in self.stream.waiting if frame_of(entry.record) is None]
        if not waiting:
            self.tell(
                "nothing waits that is answered with others" if self.stream.waiting else "nothing waits"
            )
            return
        self.is_listing = True
        self.tell("making the list: a moment")
        self.run_worker(partial(self._list_all, waiting, allow=allow), group="list")

    async def _list_all(self, waiting: Sequence[Entry], *, allow: bool) -> None:
        try:
            unseen = [entry for entry in waiting if not self._is_seen(entry)]
            listed = await find_listed(self.work.context, unseen)
        finally:
            self.is_listing = False
        self.tell("")

        def is_known(entry: Entry) -> bool:
            return self._is_seen(entry) or entry.record.id in listed

        entries = [entry for entry in waiting if is_known(entry) or not allow]
        left_out = [entry for entry in self.stream.waiting if entry not in entries]
        if not entries:
            self.tell("each of these is too long to list: open each to decide")
            return
        lines = batch_lines(entries, left_out=left_out, is_known=is_known)
        self._ask_all(entries, lines, allow=allow)

    def _ask_all(self, entries: Sequence[Entry], lines: Sequence[Styled], *, allow: bool) -> None:
        def chosen(key: str | None) -> None:
            if key is not None and allow:
                self.run_worker(partial(self._allow_all, entries), group="decide")
            elif key is not None:
                self._deny_all(entries)

        verb = "allow" if allow else "deny"
        title = f"{verb} {'this one' if len(entries) == 1 else f'these {len(entries)}'}?"
        hint = f"Return {'allows' if allow else 'denies'} exactly these, once · Esc goes back"
        program(self).push_screen(Reading(self.work.ticks, title, hint, lines, keys=""), chosen)

    def _is_seen(self, entry: Entry) -> bool:
        return self.pane.has_seen(entry.record.id, entry.record.digest)

    def _deny_all(self, entries: Sequence[Entry]) -> None:
        """Deny by the digests that were listed what is still there to be denied."""
        waits = {entry.record.id for entry in self.stream.waiting}
        denied = {
            entry.record.id: Decision(by=self.work.by, digest=entry.record.digest, allow=False)
            for entry in entries
            if entry.record.id in waits
        }
        self.hold(denied, f"{len(denied)} of {len(entries)}")

    async def _allow_all(self, entries: Sequence[Entry]) -> None:
        """Allow each by the digest that was listed; one that is refused does not stop the others."""
        await self.send_held()
        results: list[tuple[Entry, Given]] = []
        for entry in entries:
            record = entry.record
            decision = Decision(by=self.work.by, digest=record.digest, allow=True, is_batch=True)
            results.append((entry, await self._given(record.id, decision)))
        done = sum(given.is_done for _, given in results)
        title = f"allowed {done} of {len(results)}"
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
