"""The events of the store, read once for everybody who listens, and told each only what they may see.

One tailer follows the audit log while somebody reads, and keeps the newest events, encoded, in a ring.
Readers pull; one that falls behind the ring reads the log itself until it has caught up, so a slow reader
costs no memory and nobody waits for it. How events travel is not known here.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

import msgspec

from pml.core.approvals.record import ApprovalId, SessionId
from pml.core.audit.chain import Link
from pml.core.audit.entries import Entry
from pml.core.audit.feed_events import EventType, HubEvent, Payload, event_json, event_text, may_see, type_of
from pml.core.errors import Forbidden, PmlError, Unavailable
from pml.core.ports.queries import AuditQuery
from pml.core.sessions.token import Identity, TokenRole
from pml.service.context import Context

RING_EVENTS: Final = 1000
RING_BYTES: Final = 8 * 1024 * 1024
BATCH_BYTES: Final = 64 * 1024  # what one read returns, but for its last event
PAGE: Final = 100  # entries read at once: the loop stands still for a few milliseconds
LOOK_S: Final = 0.1  # not every entry wakes whoever watches: the store's own poll is as frequent
GATHER_S: Final = 0.05  # readers wake at most so often: a hundred that wake for each event are a burden
_GENERATIONS: Final = 64  # many more than sessions can be nested
_KIN: Final = 10_000  # sessions remembered: a few hundred bytes each

ALL_TYPES: Final = frozenset(EventType)


class Encoded(NamedTuple):
    """One event as it is sent, in one line of JSON."""

    id: int | None
    type: EventType
    session_id: SessionId | None
    text: bytes


class Feed:
    """What the hub's listeners follow. `close` ends every reader's reading."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tail: _Tail | None = None
        self._is_closed = False

    @asynccontextmanager
    async def follow(
        self, viewer: Identity, *, after: int | None, types: frozenset[EventType] = ALL_TYPES
    ) -> AsyncGenerator["Reader"]:
        """Read what happens after that place in the log; None, or a place not reached yet, is from now on.

        Raises: Forbidden if the viewer's token counts no longer; Unavailable.
        """
        tail = self._join()
        try:
            await tail.begun.wait()
            tail.guard()
            newest = await self._context.store.audit.last_seq()
            place = newest if after is None else min(after, newest)
            reader = Reader(self._context, tail, viewer, place=place, types=types)
            await reader.check_token()
            yield reader
        finally:
            await self._leave(tail)

    def publish(self, event: HubEvent) -> None:
        """Tell those who listen now of what is in no log."""
        if self._tail is not None:
            text = msgspec.json.encode(event_json(event))
            self._tail.add(Encoded(None, event.type, event.session_id, text))
            self._tail.tell()

    def close(self) -> None:
        """Let nobody read any longer: the hub stops."""
        self._is_closed = True
        if self._tail is not None:
            self._tail.end(Unavailable("the hub stops"))

    def _join(self) -> "_Tail":
        if self._is_closed:
            raise Unavailable("the hub stops")
        if self._tail is None or self._tail.ended is not None:
            self._tail = _Tail(self._context)
        self._tail.readers += 1
        return self._tail

    async def _leave(self, tail: "_Tail") -> None:
        tail.readers -= 1
        if tail.readers:
            return
        if self._tail is tail:
            self._tail = None
        await tail.stop()


class _Kin:
    """Who started whom, remembered: a session's parent never changes while the session is stored."""

    def __init__(self, context: Context) -> None:
        self._sessions = context.store.sessions
        self._known: dict[SessionId, tuple[str, SessionId | None]] = {}

    async def line(self, session_id: SessionId | None) -> list[SessionId]:
        """Return the session and all above it, nearest first, as far as they are stored."""
        line: list[SessionId] = []
        while session_id is not None and len(line) < _GENERATIONS:
            line.append(session_id)
            _, session_id = await self._look_up(session_id)
        return line

    async def name(self, session_id: SessionId) -> str | None:
        return (await self._look_up(session_id))[0] or None

    def forget(self, session_id: SessionId) -> None:
        self._known.pop(session_id, None)

    async def _look_up(self, session_id: SessionId) -> tuple[str, SessionId | None]:
        known = self._known.get(session_id)
        if known is not None:
            return known
        session = await self._sessions.get(session_id)
        if session is None:
            return "", None
        if len(self._known) >= _KIN:
            self._known.clear()
        self._known[session_id] = session.name, session.parent_id
        return self._known[session_id]


class _Tail:
    """The end of the log: one task that reads it, and the ring of what it read.

    Items of the ring are numbered from `first`. Every event of the log between `since` and `place` is in it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ring: deque[Encoded] = deque()
        self._ring_bytes = 0
        self._news = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at = 0.0
        self.kin = _Kin(context)
        self.readers = 0
        self.first = 0
        self.since = 0
        self.place = 0
        self.begun = asyncio.Event()
        self.ended: Exception | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def next(self) -> int:
        return self.first + len(self._ring)

    def item(self, number: int) -> Encoded:
        return self._ring[number - self.first]

    def number_after(self, place: int) -> int:
        """Return the number of the first event of the log after `place`; what is in no log is past."""
        found = self.next
        for number in range(self.next - 1, self.first - 1, -1):
            event_id = self.item(number).id
            if event_id is not None and event_id <= place:
                break
            found = found if event_id is None else number
        return found

    def add(self, item: Encoded) -> None:
        self._ring.append(item)
        self._ring_bytes += len(item.text)
        while len(self._ring) > RING_EVENTS or (self._ring_bytes > RING_BYTES and len(self._ring) > 1):
            gone = self._ring.popleft()
            self.first += 1
            self._ring_bytes -= len(gone.text)
            self.since = gone.id or self.since

    def tell(self) -> None:
        """Wake every reader that waits: at once if it was quiet, else with what else comes in a moment."""
        loop = asyncio.get_running_loop()
        if self._waking is None:
            self._waking = loop.call_at(self._woken_at + GATHER_S, self._wake)

    def _wake(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        self._woken_at = asyncio.get_running_loop().time()
        self._news.set()
        self._news = asyncio.Event()

    async def news(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()

    def end(self, why: Exception) -> None:
        self.ended = self.ended or why
        self.begun.set()
        self._wake()

    def guard(self) -> None:
        """Raises: Unavailable once nothing more is read here."""
        if isinstance(self.ended, Unavailable):
            raise Unavailable(self.ended.message, hint=self.ended.hint)
        if self.ended is not None:
            raise Unavailable("events cannot be read now") from self.ended

    async def stop(self) -> None:
        """End the task. Raises: what it failed of, if that was not on purpose."""
        if self._waking is not None:
            self._waking.cancel()
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (failure := self._task.exception()) is not None:
            raise failure

    async def encode(self, link: Link) -> Encoded | None:
        """Return the event that `link` is, with all that is still known of it."""
        event_type = type_of(link.entry)
        if event_type is None:
            return None
        text = event_text(link, await self._payload(link.entry, event_type))
        if text is None:
            return None
        return Encoded(link.seq, event_type, _session_of(link.entry), text)

    async def _run(self) -> None:
        try:
            with self._context.store.changes.watch() as watch:
                self.place = self.since = await self._context.store.audit.last_seq()
                self.begun.set()
                while True:
                    if await self._read_page() < PAGE:
                        await watch.wait(LOOK_S)
                    else:
                        await asyncio.sleep(0)
        except PmlError as exc:
            self.end(exc)
        except Exception as exc:
            self.end(exc)
            raise

    async def _read_page(self) -> int:
        links = await self._context.store.audit.list(AuditQuery(after=self.place, limit=PAGE))
        before = self.next
        for link in links:
            if link.entry.kind == "session.started" and link.entry.session_id is not None:
                self.kin.forget(SessionId(link.entry.session_id))
            item = await self.encode(link)
            if item is not None:
                self.add(item)
            self.place = link.seq
        if self.next != before:
            self.tell()
        return len(links)

    async def _payload(self, entry: Entry, event_type: EventType) -> Payload:
        session_id = _session_of(entry)
        if event_type is EventType.SESSION_SAID and session_id is not None:
            seq = entry.detail["seq"]
            assert isinstance(seq, int)
            said = await self._context.store.runs.messages(session_id, after=seq - 1, limit=1)
            return Payload(message=next((each for each in said if each.seq == seq), None))
        if entry.approval_id is None:
            return Payload()
        record = await self._context.store.approvals.get(ApprovalId(entry.approval_id))
        name = None if session_id is None else await self.kin.name(session_id)
        return Payload(approval=record, session_name=name)


class Reader:
    """One listener's place in the events."""

    def __init__(
        self, context: Context, tail: _Tail, viewer: Identity, *, place: int, types: frozenset[EventType]
    ) -> None:
        self._context = context
        self._tail = tail
        self._viewer = viewer
        self._types = types
        self._place = place
        self._token_ends_at: datetime | None = None
        self._number: int | None = None  # of the next item in the ring; None while it reads the log itself
        self._find_number()

    @property
    def place(self) -> int:
        """The place in the log up to which everything was returned."""
        is_level = self._number == self._tail.next
        return max(self._place, self._tail.place) if is_level else self._place

    async def read(self, timeout_s: float) -> list[Encoded]:
        """Return the next events that the viewer may see, in order; none if there are none in that time.

        Raises: Forbidden once the viewer's token counts no longer; Unavailable when reading is over.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            self._tail.guard()
            self._find_number()
            batch = await (self._from_log() if self._number is None else self._from_ring())
            await self.check_token()  # also with nothing to return: not every viewer is told of its end
            if batch or loop.time() >= until:
                return batch
            if self._number == self._tail.next:
                await self._tail.news(min(until - loop.time(), self._token_lasts_s()))

    async def check_token(self) -> None:
        """Raises: Forbidden if the viewer's token counts no longer."""
        token = await self._context.store.tokens.get(self._viewer.token_id)
        if token is None or not token.is_live(self._context.clock.now()):
            raise Forbidden("the token is no longer valid")
        self._token_ends_at = token.expires_at

    def _token_lasts_s(self) -> float:
        if self._token_ends_at is None:
            return inf
        return (self._token_ends_at - self._context.clock.now()).total_seconds()

    def _find_number(self) -> None:
        if self._number is not None and self._number < self._tail.first:
            self._number = None
        if self._number is None and self._place >= self._tail.since:
            self._number = self._tail.number_after(self._place)

    async def _from_ring(self) -> list[Encoded]:
        batch: list[Encoded] = []
        size = 0
        tail = self._tail
        while self._number is not None and tail.first <= self._number < tail.next and size < BATCH_BYTES:
            item = tail.item(self._number)
            self._number += 1
            if item.id is not None and item.id <= self._place:
                continue
            self._place = item.id or self._place
            if await self._sees(item.type, item.session_id):
                batch.append(item)
                size += len(item.text)
        return batch

    async def _from_log(self) -> list[Encoded]:
        batch: list[Encoded] = []
        size = 0
        for link in await self._context.store.audit.list(AuditQuery(after=self._place, limit=PAGE)):
            event_type = type_of(link.entry)
            if event_type is not None and await self._sees(event_type, _session_of(link.entry)):
                item = await self._tail.encode(link)
                assert item is not None
                batch.append(item)
                size += len(item.text)
            self._place = link.seq
            if size >= BATCH_BYTES:
                break
        await asyncio.sleep(0)  # a long way to catch up leaves the loop to others in between
        return batch

    async def _sees(self, event_type: EventType, session_id: SessionId | None) -> bool:
        if event_type not in self._types:
            return False
        if self._viewer.role is TokenRole.PERSON:
            return True
        return may_see(self._viewer, event_type, await self._tail.kin.line(session_id))


def _session_of(entry: Entry) -> SessionId | None:
    return None if entry.session_id is None else SessionId(entry.session_id)
