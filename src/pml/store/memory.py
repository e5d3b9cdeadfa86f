"""The store in memory: a double for tests, and the plainest statement of what every store must do.

No method gives up the event loop, so each is one transaction: it works out what will be, refuses or
appends the audit entry, and only then changes its rows. Nothing here survives its process or is seen
by another one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Container, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, TypeVar

import msgspec

from pml.core import audit
from pml.core.approvals import (
    RECONNECT_S,
    Approval,
    ApprovalId,
    Attached,
    Decider,
    Event,
    Expired,
    SessionId,
    State,
    advance,
)
from pml.core.audit import GENESIS, Entry, Head, Link
from pml.core.errors import AlreadyClaimed, Conflict, NotFound, TooManyPending
from pml.core.manifests import Manifest
from pml.core.ports import ApprovalQuery, AuditQuery, Grant, Held, Intent, Pin, Session, Trust, Workflow
from pml.core.values import Json, canonical
from pml.store.serving import MANIFESTS_KEPT, manifest_of, manifest_text, pinning

T = TypeVar("T")
V = TypeVar("V", bound=Json)

_OPEN: Final = frozenset({State.PENDING, State.ALLOWED})


class _Kept:
    """What a note returns here: done already."""

    def __await__(self) -> Generator[None]:
        return
        yield


class MemoryStore:
    """Every part of the `Store` port over plain dicts, with one audit chain."""

    def __init__(self, chain: str = "memory") -> None:
        self.audit = MemoryAudit(chain)
        self.changes = MemoryChanges()
        self.grants = MemoryGrants(self.audit)
        self.sessions = MemorySessions(self.audit, self.grants)
        self.workflows = MemoryWorkflows()
        self.trusts = MemoryTrusts(self.audit)
        self.intents = MemoryIntents(self.audit)
        self.manifests = MemoryManifests()
        self.pins = MemoryPins(self.audit)
        self.approvals = MemoryApprovals(self)

    async def close(self) -> None:
        pass


class MemoryAudit:
    def __init__(self, chain: str) -> None:
        self._chain = chain
        self._links: list[Link] = []
        self._kept: dict[str, Head] = {}

    def append(self, entry: Entry) -> None:
        entry = msgspec.structs.replace(entry, detail=_own(entry.detail))
        n = len(self._links) + 1
        prev = self._links[-1].hash if self._links else GENESIS
        found = audit.link_hash(self._chain, n, entry, prev)
        self._links.append(Link(seq=n, chain=self._chain, n=n, entry=entry, prev=prev, hash=found))
        self._kept[self._chain] = Head(chain=self._chain, n=n, hash=found)

    async def record(self, entry: Entry) -> None:
        self.append(entry)

    def note(self, entry: Entry) -> Awaitable[None]:
        self.append(entry)
        return _Kept()

    async def list(self, query: AuditQuery) -> Sequence[Link]:
        found = [link for link in self._links if link.seq > query.after and _matches(link.entry, query)]
        return found[max(0, len(found) - query.limit) :] if query.newest else found[: query.limit]

    async def last_seq(self) -> int:
        return len(self._links)

    async def links(self) -> AsyncIterator[Link]:
        for link in tuple(self._links):
            yield link

    async def heads_kept(self) -> Sequence[Head]:
        return list(self._kept.values())


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

    def tell(self, changed: ApprovalId) -> None:
        for subscription, approval_id in self._watchers.items():
            if approval_id is None or approval_id == changed:
                subscription.changed.set()


class MemoryApprovals:
    def __init__(self, store: MemoryStore) -> None:
        self._log = store.audit
        self._changes = store.changes
        self._workflows = store.workflows
        self._grants = store.grants
        self._intents = store.intents
        self._rows: dict[ApprovalId, Approval] = {}

    async def ask(self, new: Approval, *, max_pending: int) -> Approval:
        same = [
            row for row in self._rows.values() if row.status in _OPEN and _question(row) == _question(new)
        ]
        for row in same:
            if row.expires_at > new.created_at:
                return await self.advance(row.id, Attached(at=new.created_at, owner=new.owner))
            await self.advance(row.id, Expired(at=new.created_at))
        pending = sum(
            row.status is State.PENDING and row.session_id == new.session_id for row in self._rows.values()
        )
        if pending >= max_pending:
            raise TooManyPending(
                f"session `{new.session_id}` already has {pending} undecided approvals, the most it may have",
                hint="decide or cancel some of them, then ask again",
            )
        _refuse_second(new.id, self._rows, "approval")
        return self._put(new, None)

    async def advance(
        self, approval_id: ApprovalId, event: Event, *, remember: Grant | Intent | None = None
    ) -> Approval:
        row = self._rows.get(approval_id)
        if row is None:
            raise NotFound(f"no approval `{approval_id}`")
        after = advance(row, event)
        match remember:
            case Grant():
                self._grants.refuse_second(remember)
                stored = self._put(after, event)
                await self._grants.add(remember)
            case Intent():
                await self._intents.add(remember)
                stored = self._put(after, event)
            case None:
                stored = self._put(after, event)
        return stored

    async def get(self, approval_id: ApprovalId) -> Approval | None:
        row = self._rows.get(approval_id)
        return None if row is None else _own_approval(row)

    async def find(self, prefix: str, *, limit: int) -> list[Approval]:
        found = sorted(row.id for row in self._rows.values() if row.id.startswith(prefix))
        return [_own_approval(self._rows[approval_id]) for approval_id in found[:limit]]

    async def page(self, query: ApprovalQuery) -> list[Approval]:
        found = (
            row
            for row in self._by_age()
            if (query.states is None or row.status in query.states)
            and (query.session_id is None or row.session_id == query.session_id)
            and (query.digest is None or row.digest == query.digest)
            and (query.after is None or (row.created_at, row.id) > query.after)
        )
        return [_own_approval(row) for row in _first(found, query.limit)]

    async def due(self, *, now: datetime, limit: int) -> list[Approval]:
        gone_since = now - timedelta(seconds=RECONNECT_S)
        found = (
            row
            for row in self._by_age()
            if row.status in _OPEN
            and (row.expires_at <= now or (row.abandoned_at is not None and row.abandoned_at <= gone_since))
        )
        return [_own_approval(row) for row in _first(found, limit)]

    async def held(self) -> list[Held]:
        return [
            Held(
                id=row.id,
                session_id=row.session_id,
                status=row.status,
                owner=row.owner,
                abandoned_at=row.abandoned_at,
            )
            for row in self._by_age()
            if row.status is State.EXECUTING
            or (row.status in _OPEN and not self._workflows.continues(row.id))
        ]

    async def cleanup_old(self, *, older_than: datetime, at: datetime) -> int:
        old = {
            row.id for row in self._rows.values() if row.ended_at is not None and row.ended_at < older_than
        }
        if old:
            self._log.append(audit.cleaned(len(old), at=at, older_than=older_than))
            for approval_id in old:
                del self._rows[approval_id]
            self._workflows.forget(old)
        return len(old)

    def _by_age(self) -> list[Approval]:
        return sorted(self._rows.values(), key=lambda row: (row.created_at, row.id))

    def _put(self, record: Approval, event: Event | None) -> Approval:
        row = _own_approval(record)
        self._log.append(audit.entry_of(row, event))
        self._rows[row.id] = row
        self._changes.tell(row.id)
        return _own_approval(row)


class MemoryGrants:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[str, Grant] = {}
        self._ended: set[SessionId] = set()

    async def add(self, grant: Grant) -> None:
        self.refuse_second(grant)
        if grant.session_id in self._ended:
            return
        self._log.append(
            audit.grant_added(
                grant.session_id,
                grant.tool,
                at=grant.created_at,
                by=grant.by,
                approval_id=grant.approval_id,
                digest=grant.digest,
            )
        )
        self._rows[grant.id] = grant

    async def of(self, session_id: SessionId, tool: str) -> list[Grant]:
        return [row for row in await self.all() if row.session_id == session_id and row.tool == tool]

    async def all(self) -> list[Grant]:
        return sorted(self._rows.values(), key=lambda row: (row.created_at, row.id))

    async def revoke(self, grant_id: str, *, at: datetime, by: Decider) -> None:
        row = self._rows.get(grant_id)
        if row is None:
            raise NotFound(f"no grant `{grant_id}`")
        self._log.append(audit.grant_revoked(row.session_id, row.tool, at=at, by=by))
        del self._rows[grant_id]

    def refuse_second(self, grant: Grant) -> None:
        _refuse_second(grant.id, self._rows, "grant")

    def forget(self, session_id: SessionId) -> None:
        """Drop the session's grants; until it begins again it gets no new ones."""
        self._ended.add(session_id)
        self._rows = {key: row for key, row in self._rows.items() if row.session_id != session_id}

    def begin(self, session_id: SessionId) -> None:
        self._ended.discard(session_id)


class MemorySessions:
    def __init__(self, log: MemoryAudit, grants: MemoryGrants) -> None:
        self._log = log
        self._grants = grants
        self._rows: dict[SessionId, Session] = {}

    async def start(self, session: Session) -> Session:
        row = self._rows.get(session.id)
        if row is not None and row.joined_by(session) is row:
            return row
        self._grants.begin(session.id)
        self._log.append(
            audit.session_started(
                session.id, session.name, at=session.started_at, parent_id=session.parent_id
            )
        )
        self._rows[session.id] = session
        return session

    async def end(self, session_id: SessionId, *, at: datetime) -> None:
        row = self._rows.get(session_id)
        if row is None or row.ended_at is not None:
            return
        self._log.append(audit.session_ended(session_id, at=at))
        self._rows[session_id] = msgspec.structs.replace(row, ended_at=at)
        self._grants.forget(session_id)

    async def get(self, session_id: SessionId) -> Session | None:
        return self._rows.get(session_id)

    async def live(self) -> list[Session]:
        found = (row for row in self._rows.values() if row.ended_at is None)
        return sorted(found, key=lambda row: (row.started_at, row.id))


class MemoryWorkflows:
    def __init__(self) -> None:
        self._rows: dict[str, Workflow] = {}

    async def issue(self, workflow: Workflow) -> None:
        self._rows.setdefault(workflow.id, _own_workflow(workflow))

    async def get(self, workflow_id: str) -> Workflow | None:
        row = self._rows.get(workflow_id)
        return None if row is None else _own_workflow(row)

    async def consume(self, workflow_id: str, *, at: datetime) -> None:
        row = self._rows.get(workflow_id)
        if row is None:
            raise NotFound(f"no workflow `{workflow_id}`")
        if row.continued_at is not None:
            raise AlreadyClaimed(f"workflow `{workflow_id}` was continued before")
        self._rows[workflow_id] = msgspec.structs.replace(row, continued_at=at)

    def continues(self, approval_id: ApprovalId) -> bool:
        return any(row.approval_id == approval_id for row in self._rows.values())

    def forget(self, approval_ids: Collection[ApprovalId]) -> None:
        self._rows = {row.id: row for row in self._rows.values() if row.approval_id not in approval_ids}


class MemoryTrusts:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[tuple[str, str], Trust] = {}

    async def add(self, trust: Trust, *, alone: bool) -> None:
        self._log.append(audit.workspace_trusted(trust.path, trust.digest, at=trust.trusted_at, by=trust.by))
        if alone:
            self._rows = {key: row for key, row in self._rows.items() if row.path != trust.path}
        self._rows[trust.path, trust.digest] = trust

    async def forget(self, path: str, digest: str) -> None:
        self._rows.pop((path, digest), None)

    async def holds(self, path: str, digest: str) -> bool:
        return (path, digest) in self._rows

    async def remove(self, path: str, *, at: datetime, by: Decider) -> int:
        gone = [key for key in self._rows if key[0] == path]
        if gone:
            self._log.append(audit.workspace_untrusted(path, at=at, by=by))
            for key in gone:
                del self._rows[key]
        return len(gone)


class MemoryIntents:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[str, Intent] = {}

    async def add(self, intent: Intent) -> None:
        _refuse_second(intent.id, self._rows, "intent")
        self._rows[intent.id] = msgspec.structs.replace(intent, entry=_own(intent.entry))

    async def open(self) -> list[Intent]:
        return sorted(self._rows.values(), key=lambda row: (row.created_at, row.id))

    async def forget(self, intent_id: str) -> None:
        self._rows.pop(intent_id, None)

    async def close(self, intent_id: str, *, at: datetime) -> None:
        row = self._rows.get(intent_id)
        if row is None:
            return
        self._log.append(
            audit.rule_added(row.workspace, row.effect, row.entry, at=at, approval_id=row.approval_id)
        )
        del self._rows[intent_id]


class MemoryManifests:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], str] = {}

    async def get(self, server: str, launch: str) -> Manifest | None:
        text = self._rows.get((server, launch))
        return None if text is None else manifest_of(server, launch, text)

    async def put(self, manifest: Manifest) -> None:
        key, text = (manifest.server, manifest.launch), manifest_text(manifest)
        self._rows.pop(key, None)  # the newest stands last
        self._rows[key] = text
        if len(self._rows) > MANIFESTS_KEPT:
            del self._rows[next(iter(self._rows))]


class MemoryPins:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[tuple[str, str, str], Pin] = {}

    async def get(self, server: str, launch: str, action: str) -> Pin | None:
        row = self._rows.get((server, launch, action))
        return None if row is None else _own_pin(row)

    async def put(self, pin: Pin, *, by: Decider | None) -> None:
        row, known = _own_pin(pin), self._rows.get((pin.server, pin.launch, pin.action))
        entry = pinning(row, None if known is None else known.digest, by)
        if entry is not None:
            self._log.append(entry)
            self._rows[pin.server, pin.launch, pin.action] = row


def _question(record: Approval) -> tuple[str, ...]:
    return record.session_id, record.tool_use_id, record.subject, record.digest


def _matches(entry: Entry, query: AuditQuery) -> bool:
    deciders = (None,) if entry.by is None else (None, entry.by.kind, entry.by.id)
    return (
        (query.since is None or entry.at >= query.since)
        and (query.until is None or entry.at < query.until)
        and query.session_id in (None, entry.session_id)
        and query.tool in (None, entry.tool)
        and query.approval_id in (None, entry.approval_id)
        and query.decider in deciders
    )


def _refuse_second(row_id: str, rows: Container[str], what: str) -> None:
    if row_id in rows:
        raise Conflict(f"the id of {what} `{row_id}` is taken")


def _first(rows: Iterable[T], limit: int) -> list[T]:
    return list(islice(rows, limit))


def _own_approval(record: Approval) -> Approval:
    edited = None if record.updated_input is None else _own(record.updated_input)
    return msgspec.structs.replace(record, tool_input=_own(record.tool_input), updated_input=edited)


def _own_workflow(workflow: Workflow) -> Workflow:
    if workflow.call is None:
        return workflow
    call = msgspec.structs.replace(workflow.call, arguments=_own(workflow.call.arguments))
    return msgspec.structs.replace(workflow, call=call)


def _own_pin(pin: Pin) -> Pin:
    return msgspec.structs.replace(pin, definition=_own(pin.definition))


def _own(value: V) -> V:
    """Return a copy that no caller holds: what was judged stays as it was, whoever changes theirs."""
    return msgspec.json.decode(canonical(value))
