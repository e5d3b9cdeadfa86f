"""The stream of waiting questions, what runs out first first, and which of them has the focus.

The focus is an id, never a place. What was decided stays as a stub for a while, so nothing slides under the
cursor; the focused one stays until the person moves on. Reads the store; draws nothing.
"""

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pml.core.approvals.record import Approval, ApprovalId, SessionId, State, Subject
from pml.core.approvals.subjects import title
from pml.core.cards.shorten import short_input
from pml.core.ports.records import Session
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import all_pending
from pml.service.context import Context

STUB_S: Final = 6.0  # long enough to read what became of it
_TELLING: Final = ("command", "file_path", "path", "url")
_GLIMPSE: Final = 300  # more characters than any list shows of an input
_SEARCHED: Final = 20_000  # characters of an input that a search looks at


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One question in the stream; `ended_at` is when it was found to wait no longer."""

    record: Approval
    session_name: str
    workspace: str
    glimpse: str
    haystack: str
    ended_at: float | None = None

    @property
    def waits(self) -> bool:
        return self.ended_at is None

    def matches(self, search: str) -> bool:
        """Whether every word of the search stands somewhere in it."""
        return all(word in self.haystack for word in search.casefold().split())

    def ended(self, *, at: float) -> "Entry":
        return replace(self, ended_at=at)


def make_entry(record: Approval, session: Session | None) -> Entry:
    """Return what a list shows of a question, every character of it visible."""
    name = visible(record.session_id if session is None else session.name)
    text = visible_json(short_input(record.tool_input), indent=None)
    workspace = "" if session is None else session.workspace
    glimpse = _glimpse(record.tool_input, workspace) or text
    if record.subject is not Subject.TOOL_CALL:
        glimpse = visible(title(record))
    return Entry(
        record=record,
        session_name=name,
        workspace=visible(workspace),
        glimpse=glimpse[:_GLIMPSE],
        haystack=f"{record.tool_name} {name} {record.id} {text[:_SEARCHED]}".casefold(),
    )


def _glimpse(given: JsonObject, workspace: str) -> str:
    """Return what tells most in a list, "" if nothing stands out; the card has all of it."""
    telling = next((value for name in _TELLING if isinstance(value := given.get(name), str)), "")
    beneath = telling.removeprefix(f"{workspace}/") if workspace else telling
    return " ⏎ ".join(visible(line.strip()) for line in beneath[:_GLIMPSE].split("\n"))


class Stream:
    """What is in the list."""

    def __init__(self) -> None:
        self.focus: ApprovalId | None = None
        self.search = ""
        self.aside: Container[ApprovalId] = ()  # denied here, and not sent yet
        self._entries: dict[ApprovalId, Entry] = {}
        self._sessions: dict[SessionId, Session | None] = {}

    async def read(self, context: Context, *, at: float) -> bool:
        """Take over what the store says; return whether the focus has moved by itself."""
        pending = {record.id: record async for record in all_pending(context)}
        for approval_id in [key for key, entry in self._entries.items() if entry.waits]:
            if approval_id not in pending:
                record = await context.store.approvals.get(approval_id)
                self._end(approval_id, record, at=at)
        for record in pending.values():
            await self._take(context, record)
        self._entries = dict(sorted(self._entries.items(), key=lambda item: _place(item[1])))
        return self._find_focus()

    async def _take(self, context: Context, record: Approval) -> None:
        known = self._entries.get(record.id)
        if known is not None:
            self._entries[record.id] = replace(known, record=record) if known.waits else known
            return
        if record.session_id not in self._sessions:
            self._sessions[record.session_id] = await context.store.sessions.get(record.session_id)
        self._entries[record.id] = make_entry(record, self._sessions[record.session_id])

    def _end(self, approval_id: ApprovalId, record: Approval | None, *, at: float) -> None:
        if record is None:
            del self._entries[approval_id]
            return
        if record.status is not State.PENDING:
            self._entries[approval_id] = replace(self._entries[approval_id], record=record).ended(at=at)

    def _find_focus(self) -> bool:
        if self.focus in self._entries:
            return False
        before, self.focus = self.focus, next((entry.record.id for entry in self.waiting), None)
        return before != self.focus

    def resolve(self, record: Approval, *, at: float) -> None:
        """Show at once what the person at this screen has decided."""
        if record.id in self._entries and self._entries[record.id].waits:
            self._end(record.id, record, at=at)

    def drop_stubs(self, *, at: float) -> bool:
        """Forget what was decided some seconds ago, but never what has the focus; tell if there was any."""
        old = [
            entry.record.id
            for entry in self._entries.values()
            if entry.ended_at is not None and at - entry.ended_at >= STUB_S and entry.record.id != self.focus
        ]
        for approval_id in old:
            del self._entries[approval_id]
        return bool(old)

    @property
    def shown(self) -> list[Entry]:
        """What the list shows: all that the search finds, and always the focused one."""
        return [
            entry
            for entry in self._entries.values()
            if entry.matches(self.search) or entry.record.id == self.focus
        ]

    @property
    def waiting(self) -> list[Entry]:
        """What waits for an answer and is found by the search."""
        return [
            entry
            for entry in self._entries.values()
            if entry.waits and entry.record.id not in self.aside and entry.matches(self.search)
        ]

    @property
    def count(self) -> int:
        return sum(entry.waits and entry.record.id not in self.aside for entry in self._entries.values())

    @property
    def focused(self) -> Entry | None:
        return None if self.focus is None else self._entries.get(self.focus)

    def seconds_until_first_ends(self, ids: Container[ApprovalId], now: datetime) -> float:
        """Return when the first of these runs out; infinity if none of them is here."""
        ends = [each.record.expires_at for each in self._entries.values() if each.record.id in ids]
        return (min(ends) - now).total_seconds() if ends else math.inf

    def move(self, step: int) -> bool:
        """Focus the next or an earlier question that waits; return whether there was one."""
        waits = {entry.record.id for entry in self.waiting}
        ids = [each.record.id for each in self.shown if each.record.id in waits | {self.focus}]
        at = -1 if self.focus is None or self.focus not in ids else ids.index(self.focus)
        last = len(ids) - 1
        target = min(max(at + step, 0), last) if ids else -1
        if target < 0 or ids[target] == self.focus or ids[target] not in waits:
            return False
        self.focus = ids[target]
        return True

    def move_on(self) -> bool:
        """Focus the next one that waits, or else the one before."""
        return self.move(1) or self.move(-1)

    def find(self, search: str) -> bool:
        """Narrow the list; return whether the focus had to move."""
        self.search = search
        focused = self.focused
        waiting = self.waiting
        if focused is not None and any(entry.record.id == self.focus for entry in waiting):
            return False
        if not waiting:
            return False
        self.focus = waiting[0].record.id
        return True


def _place(entry: Entry) -> tuple[object, ...]:
    return entry.record.expires_at, entry.record.created_at, entry.record.id
