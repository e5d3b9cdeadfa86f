"""The audit log in memory, and the wake-ups that go with each of its entries."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Container, Generator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TypeVar

import msgspec

from pml.core.approvals.record import ApprovalId
from pml.core.audit.chain import GENESIS, Head, Link, link_hash
from pml.core.audit.entries import Entry
from pml.core.errors import Conflict
from pml.core.ports.queries import AuditQuery
from pml.core.values import Json, canonical

V = TypeVar("V", bound=Json)


class MemorySubscription:
    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.changed.wait()  # what changed already is seen even when there is no time to wait
        except TimeoutError:
            return False
        self.changed.clear()
        return True


class MemoryChanges:
    def __init__(self) -> None:
        self._watchers: dict[MemorySubscription, ApprovalId | None] = {}

    @contextmanager
    def watch(self, approval_id: ApprovalId | None = None) -> Generator[MemorySubscription]:
        subscription = MemorySubscription()
        self._watchers[subscription] = approval_id
        try:
            yield subscription
        finally:
            del self._watchers[subscription]

    def tell(self, changed: str | None) -> None:
        """Wake who watches that approval, and who watches all."""
        for subscription, approval_id in self._watchers.items():
            if approval_id is None or approval_id == changed:
                subscription.changed.set()


class _Kept:
    """What a note returns here: done already."""

    def __await__(self) -> Generator[None]:
        return
        yield


class MemoryAudit:
    def __init__(self, chain: str, changes: MemoryChanges) -> None:
        self._chain = chain
        self._changes = changes
        self._links: list[Link] = []
        self._kept: dict[str, Head] = {}

    def append(self, entry: Entry) -> None:
        """Append `entry`, and wake who watches what it tells of, once they get their turn."""
        self._link(entry)
        self._changes.tell(entry.approval_id)

    async def record(self, entry: Entry) -> None:
        self.append(entry)

    def note(self, entry: Entry) -> Awaitable[None]:
        self._link(entry)  # wakes nobody: notes tell of calls that nobody waits for
        return _Kept()

    async def list(self, query: AuditQuery) -> Sequence[Link]:
        links = [link for link in self._links if query.after < link.seq < (query.before or inf)]
        found = [link for link in links if _matches(link.entry, query)]
        return found[max(0, len(found) - query.limit) :] if query.newest else found[: query.limit]

    async def last_seq(self) -> int:
        return len(self._links)

    async def links(self) -> AsyncIterator[Link]:
        for link in tuple(self._links):
            yield link

    async def heads_kept(self) -> Sequence[Head]:
        return list(self._kept.values())

    def _link(self, entry: Entry) -> None:
        entry = msgspec.structs.replace(entry, detail=own(entry.detail))
        n = len(self._links) + 1
        prev = self._links[-1].hash if self._links else GENESIS
        found = link_hash(self._chain, n, entry, prev)
        self._links.append(Link(seq=n, chain=self._chain, n=n, entry=entry, prev=prev, hash=found))
        self._kept[self._chain] = Head(chain=self._chain, n=n, hash=found)


def _matches(entry: Entry, query: AuditQuery) -> bool:
    deciders = (None,) if entry.by is None else (None, entry.by.kind, entry.by.id)
    return (
        (query.since is None or entry.at >= query.since)
        and (query.until is None or entry.at < query.until)
        and query.session_id in (None, entry.session_id)
        and query.tool in (None, entry.tool)
        and query.kind in (None, entry.kind)
        and query.approval_id in (None, entry.approval_id)
        and query.decider in deciders
    )


def refuse_second(row_id: str, rows: Container[str], what: str) -> None:
    """Raise Conflict if there is a row with that id."""
    if row_id in rows:
        raise Conflict(f"the id of {what} `{row_id}` is taken")


def own(value: V) -> V:
    """Return a copy that no caller holds: what was judged stays as it was, whoever changes theirs."""
    return msgspec.json.decode(canonical(value))
