"""The store in memory: a double for tests, and the plainest statement of what every store must do.

No method gives up the event loop, so each is one transaction: it works out what will be, refuses or
appends the audit entry, and only then changes its rows. Nothing here survives its process or is seen
by another one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, TypeVar

import msgspec

from pml.core.approvals.bounds import MAX_PENDING_BYTES, input_bytes, refuse_more
from pml.core.approvals.events import Attached, Event, Expired, Unsent
from pml.core.approvals.record import LIVE, RECONNECT_S, Approval, ApprovalId, Decider, SessionId, State
from pml.core.approvals.states import advance
from pml.core.audit import entries as audit
from pml.core.errors import AlreadyClaimed, Conflict, NotFound
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Content, Grant, Held, Intent, Pin, Session, Standing, Trust, Workflow
from pml.core.servers.manifest import Manifest
from pml.core.values import Json, canonical
from pml.store.search import is_found
from pml.store.servers import MANIFESTS_KEPT, manifest_of, manifest_text, pinning
from pml.testing.audit import MemoryAudit, MemoryChanges, own, refuse_second
from pml.testing.sessions import (
    MemoryGrants,
    MemoryJournals,
    MemoryReceipts,
    MemoryRuns,
    MemorySessions,
    MemoryTokens,
)

T = TypeVar("T")

_OPEN: Final = frozenset({State.PENDING, State.ALLOWED})


class MemoryStore:
    """Every part of the `Store` port over plain dicts, with one audit chain."""

    def __init__(self, chain: str = "memory") -> None:
        self.changes = MemoryChanges()
        self.audit = MemoryAudit(chain, self.changes)
        self.grants = MemoryGrants(self.audit)
        self.tokens = MemoryTokens(self.audit)
        self.runs = MemoryRuns(self.audit)
        self.receipts = MemoryReceipts()
        self.workflows = MemoryWorkflows()
        self.trusts = MemoryTrusts(self.audit)
        self.intents = MemoryIntents(self.audit)
        self.manifests = MemoryManifests()
        self.pins = MemoryPins(self.audit)
        self.approvals = MemoryApprovals(self)
        self.journals = MemoryJournals(asked_by=self.approvals.awaited_runs)
        self.sessions = MemorySessions(
            self.audit, self.grants, self.tokens, self.runs, asked_in=self.approvals.sessions
        )

    async def close(self) -> None:
        pass


class MemoryApprovals:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._log = store.audit
        self._workflows = store.workflows
        self._grants = store.grants
        self._intents = store.intents
        self._rows: dict[ApprovalId, Approval] = {}

    async def ask(self, new: Approval, *, max_pending: int, max_bytes: int = MAX_PENDING_BYTES) -> Approval:
        same = [
            row for row in self._rows.values() if row.status in _OPEN and _question(row) == _question(new)
        ]
        for row in same:
            if row.expires_at > new.created_at:
                return await self.advance(row.id, Attached(at=new.created_at, owner=new.owner))
            await self.advance(row.id, Expired(at=new.created_at))
        waiting = [
            input_bytes(row.tool_input)
            for row in self._rows.values()
            if row.status is State.PENDING and row.session_id == new.session_id
        ]
        refuse_more(new, len(waiting), sum(waiting), max_pending=max_pending, max_bytes=max_bytes)
        refuse_second(new.id, self._rows, "approval")
        return self._put(new, None)

    async def advance(
        self, approval_id: ApprovalId, event: Event, *, remember: Grant | Intent | None = None
    ) -> Approval:
        row = self._rows.get(approval_id)
        if row is None:
            raise NotFound(f"no approval `{approval_id}`")
        if isinstance(event, Unsent) and any(
            other.status in _OPEN and _question(other) == _question(row) for other in self._rows.values()
        ):
            raise Conflict(f"the question of approval `{approval_id}` was asked anew")
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
        sessions = {each: await self._store.sessions.get(each) for each in self.sessions()}
        rows = reversed(self._by_age()) if query.newest else self._by_age()
        found = (
            row
            for row in rows
            if (query.states is None or row.status in query.states)
            and (query.session_id is None or row.session_id == query.session_id)
            and (query.sessions is None or row.session_id in query.sessions)
            and (query.digest is None or row.digest == query.digest)
            and (query.run_id is None or row.run_id == query.run_id)
            and (query.workspace is None or _works_in(query.workspace, sessions[row.session_id]))
            and (query.search is None or is_found(query.search, row, sessions[row.session_id]))
            and (query.after is None or _is_beyond(row, query.after, newest=query.newest))
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

    async def count_pending(self) -> int:
        return sum(row.status is State.PENDING for row in self._by_age())

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

    def sessions(self) -> set[SessionId]:
        """Return whose approvals there are."""
        return {row.session_id for row in self._rows.values()}

    def awaited_runs(self, at: datetime) -> set[str]:
        """Return whose code a question is open for, or has an answer that it may still go on with at `at`."""
        return {
            row.run_id
            for row in self._rows.values()
            if row.run_id is not None
            and (row.status in LIVE or (row.status is not State.CANCELLED and row.expires_at > at))
        }

    def _by_age(self) -> list[Approval]:
        return sorted(self._rows.values(), key=lambda row: (row.created_at, row.id))

    def _put(self, record: Approval, event: Event | None) -> Approval:
        row = _own_approval(record)
        self._log.append(audit.entry_of(row, event))
        self._rows[row.id] = row
        return _own_approval(row)


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
        self._kept: dict[str, Content] = {}

    async def add(self, trust: Trust, *, ends: Collection[str] = ()) -> None:
        self._log.append(audit.workspace_trusted(trust.path, trust.digest, at=trust.trusted_at, by=trust.by))
        for digest in ends:
            self._rows.pop((trust.path, digest), None)
        self._rows[trust.path, trust.digest] = trust
        self._kept[trust.path] = Content(digest=trust.digest, content=trust.content)

    async def forget(self, path: str, digest: str) -> None:
        self._rows.pop((path, digest), None)

    async def holds(self, path: str, digest: str) -> bool:
        return (path, digest) in self._rows

    async def standing(self, path: str, digest: str | None) -> Standing:
        kept = self._kept.get(path)
        return Standing(trusted=(path, digest) in self._rows, kept=None if kept is None else kept.digest)

    async def of(self, path: str) -> Sequence[Content]:
        rows = sorted(key for key in self._rows if key[0] == path)
        return [Content(digest=key[1], content=self._rows[key].content) for key in rows]

    async def keep(self, path: str, content: Content) -> None:
        self._kept[path] = content

    async def kept(self, path: str) -> Content | None:
        return self._kept.get(path)

    async def remove(self, path: str, *, at: datetime, by: Decider, kept: bool = False) -> int:
        gone = [key for key in self._rows if key[0] == path]
        dropped = self._kept.pop(path, None) if kept else None
        if gone or dropped is not None:
            self._log.append(audit.workspace_untrusted(path, at=at, by=by))
            for key in gone:
                del self._rows[key]
        return len(gone)


class MemoryIntents:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[str, Intent] = {}
        self._models: dict[tuple[str, str], str] = {}

    async def add(self, intent: Intent) -> None:
        refuse_second(intent.id, self._rows, "intent")
        self._rows[intent.id] = msgspec.structs.replace(intent, entry=own(intent.entry))

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
        if row.model is not None:
            self._models[row.workspace, canonical(row.entry).decode()] = row.model

    async def of_models(self, workspace: str) -> Mapping[str, str]:
        rows = [row for row in self._rows.values() if row.workspace == workspace]
        return {entry: model for (place, entry), model in self._models.items() if place == workspace} | {
            canonical(row.entry).decode(): row.model for row in rows if row.model is not None
        }

    async def unmark(self, workspace: str, entry: Json) -> None:
        self._models.pop((workspace, canonical(entry).decode()), None)


class MemoryManifests:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], str] = {}

    async def get(self, server: str, target_digest: str) -> Manifest | None:
        text = self._rows.get((server, target_digest))
        return None if text is None else manifest_of(server, target_digest, text)

    async def put(self, manifest: Manifest) -> None:
        key, text = (manifest.server, manifest.target_digest), manifest_text(manifest)
        self._rows.pop(key, None)  # the newest stands last
        self._rows[key] = text
        if len(self._rows) > MANIFESTS_KEPT:
            del self._rows[next(iter(self._rows))]


class MemoryPins:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[tuple[str, str, str], Pin] = {}

    async def get(self, server: str, target_digest: str, action: str) -> Pin | None:
        row = self._rows.get((server, target_digest, action))
        return None if row is None else _own_pin(row)

    async def put(self, pin: Pin, *, by: Decider | None) -> None:
        row, known = _own_pin(pin), self._rows.get((pin.server, pin.target_digest, pin.action))
        entry = pinning(row, None if known is None else known.digest, by)
        if entry is not None:
            self._log.append(entry)
            self._rows[pin.server, pin.target_digest, pin.action] = row


def _question(record: Approval) -> tuple[str, ...]:
    return record.session_id, record.tool_use_id, record.subject, record.digest, record.run_id or ""


def _works_in(workspace: str, session: Session | None) -> bool:
    return session is not None and session.workspace == workspace


def _is_beyond(row: Approval, last: tuple[datetime, ApprovalId], *, newest: bool) -> bool:
    here = (row.created_at, row.id)
    return here < last if newest else here > last


def _first(rows: Iterable[T], limit: int) -> list[T]:
    return list(islice(rows, limit))


def _own_approval(record: Approval) -> Approval:
    edited = None if record.updated_input is None else own(record.updated_input)
    return msgspec.structs.replace(record, tool_input=own(record.tool_input), updated_input=edited)


def _own_workflow(workflow: Workflow) -> Workflow:
    if workflow.call is None:
        return workflow
    call = msgspec.structs.replace(workflow.call, arguments=own(workflow.call.arguments))
    return msgspec.structs.replace(workflow, call=call)


def _own_pin(pin: Pin) -> Pin:
    return msgspec.structs.replace(pin, definition=own(pin.definition))
