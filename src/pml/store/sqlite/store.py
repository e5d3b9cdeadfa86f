"""The store in SQLite: the default, shared by every PML process of a user on one machine.

Each part answers one Protocol of `core.ports`. State and audit entry are one transaction; rules about
states live in `core.approvals`, here they are only loaded, applied and saved under a version check.
"""

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self

from pml.core.approvals.bounds import MAX_PENDING_BYTES, refuse_more
from pml.core.approvals.events import Allowed, Attached, Claimed, Delivered, Denied, Event, Expired, Unsent
from pml.core.approvals.record import RECONNECT_S, Approval, ApprovalId, Decider, OwnerId, SessionId
from pml.core.approvals.states import advance
from pml.core.audit import entries
from pml.core.audit.chain import Head, Link
from pml.core.audit.entries import Entry
from pml.core.errors import AlreadyClaimed, Conflict, NotFound
from pml.core.ports.queries import ApprovalQuery, AuditQuery
from pml.core.ports.records import Content, Grant, Held, Intent, Pin, Standing, Trust, Workflow
from pml.core.servers.manifest import Manifest
from pml.core.values import Json, canonical
from pml.store.rows.mapper import micros, spell
from pml.store.rows.tables import (
    APPROVALS,
    CONTENTS,
    GRANTS,
    HELD,
    INTENTS,
    LINKS,
    PINS,
    TRUSTS,
    WORKFLOWS,
    link_of,
)
from pml.store.search import search_clause
from pml.store.servers import MANIFESTS_KEPT, manifest_of, manifest_text, pinning
from pml.store.sqlite.chains import heads_kept
from pml.store.sqlite.connection import open_database
from pml.store.sqlite.database import Database, Value
from pml.store.sqlite.journals import SqliteJournals
from pml.store.sqlite.parts import Part, Reader
from pml.store.sqlite.sessions import SqliteReceipts, SqliteRuns, SqliteSessions, SqliteTokens
from pml.store.sqlite.wakeups import SharedChanges
from pml.store.sqlite.writer import Transaction, Writer

_LINKS_AT_ONCE: Final = 1000


class SqliteAudit(Part):
    def __init__(self, reader: Reader, writer: Writer, home: Path) -> None:
        super().__init__(reader, writer)
        self._home = home

    async def record(self, entry: Entry) -> None:
        await self._writer.write(lambda tx: tx.record(entry))

    def note(self, entry: Entry) -> Awaitable[None]:
        return self._writer.note(entry)

    async def list(self, query: AuditQuery) -> list[Link]:
        where, values = _audit_filter(query)
        order = "DESC" if query.newest else "ASC"
        statement = f"SELECT {LINKS.columns} FROM audit WHERE {where} ORDER BY seq {order} LIMIT ?"
        found = [link_of(row) for row in self._read.statement(statement, (*values, query.limit))]
        return found[::-1] if query.newest else found

    async def last_seq(self) -> int:
        return self._read.run("last_seq")[0][0]

    async def links(self) -> AsyncIterator[Link]:
        chain, n = "", 0
        while rows := self._read.run("chain_links", (chain, n, _LINKS_AT_ONCE)):
            for row in rows:
                link = link_of(row)
                chain, n = link.chain, link.n
                yield link

    async def heads_kept(self) -> Sequence[Head]:
        return heads_kept(self._home)


def _audit_filter(query: AuditQuery) -> tuple[str, list[Value]]:
    wanted: list[tuple[str, list[Value]]] = [("seq > ?", [query.after])]
    if query.before is not None:
        wanted.append(("seq < ?", [query.before]))
    if query.since is not None:
        wanted.append(("at >= ?", [micros(query.since)]))
    if query.until is not None:
        wanted.append(("at < ?", [micros(query.until)]))
    if query.session_id is not None:
        wanted.append(("session_id = ?", [query.session_id]))
    if query.kind is not None:
        wanted.append(("kind = ?", [query.kind]))
    if query.tool is not None:
        wanted.append(("tool = ?", [query.tool]))
    if query.decider is not None:
        wanted.append(("(by_id = ? OR by_kind = ?)", [query.decider, query.decider]))
    if query.approval_id is not None:
        wanted.append(("approval_id = ?", [query.approval_id]))
    return " AND ".join(clause for clause, _ in wanted), [value for _, group in wanted for value in group]


class SqliteStore:
    """All parts over one connection. Open with `SqliteStore.open`."""

    def __init__(self, home: Path, owner: OwnerId, database: Database) -> None:
        self._database = database
        self.changes = SharedChanges(home, owner, database)
        self._writer = Writer(home, database, self.changes.committed)
        reader = Reader(database)
        self.approvals = _Approvals(reader, self._writer)
        self.sessions = SqliteSessions(reader, self._writer)
        self.tokens = SqliteTokens(reader, self._writer)
        self.runs = SqliteRuns(reader, self._writer)
        self.receipts = SqliteReceipts(reader, self._writer)
        self.grants = _Grants(reader, self._writer)
        self.workflows = _Workflows(reader, self._writer)
        self.journals = SqliteJournals(reader, self._writer)
        self.trusts = _Trusts(reader, self._writer)
        self.intents = _Intents(reader, self._writer)
        self.manifests = _Manifests(reader, self._writer)
        self.pins = _Pins(reader, self._writer)
        self.audit = SqliteAudit(reader, self._writer, home)

    @classmethod
    async def open(cls, home: Path, owner: OwnerId) -> Self:
        """Return the store of `home`, created or migrated as needed. Raises: Unavailable."""
        return cls(home, owner, await open_database(home))

    async def close(self) -> None:
        self.changes.close()
        self._writer.close()
        self.journals.wipe()
        self._database.close()


class _Approvals(Part):
    async def ask(self, new: Approval, *, max_pending: int, max_bytes: int = MAX_PENDING_BYTES) -> Approval:
        def operation(tx: Transaction) -> Approval:
            question = (new.session_id, new.tool_use_id, new.subject, new.digest, new.run_id)
            same = tx.run("same_question", question)
            if same and (known := APPROVALS.read(same[0])).expires_at > new.created_at:
                return _save(tx, known, Attached(at=new.created_at, owner=new.owner))
            if same:
                _save(tx, APPROVALS.read(same[0]), Expired(at=new.created_at))
            [(count, size)] = tx.run("count_pending", (new.session_id,))
            refuse_more(new, count, size, max_pending=max_pending, max_bytes=max_bytes)
            tx.run("insert_approval", APPROVALS.values(new))
            tx.record(entries.entry_of(new, None))
            return new

        return await self._writer.write(operation)

    async def advance(
        self, approval_id: ApprovalId, event: Event, *, remember: Grant | Intent | None = None
    ) -> Approval:
        def operation(tx: Transaction) -> Approval:
            rows = tx.run("approval", (approval_id,))
            if not rows:
                raise NotFound(f"no approval `{approval_id}`")
            record = APPROVALS.read(rows[0])
            if isinstance(event, Unsent):
                _refuse_second(tx, record)
            after = _save(tx, record, event)
            match remember:
                case Grant():
                    _add_grant(tx, remember)
                case Intent():
                    tx.run("insert_intent", INTENTS.values(remember))
                case None:
                    pass
            return after

        return await self._writer.write(
            operation, durable=isinstance(event, Allowed | Claimed | Delivered | Denied)
        )

    async def get(self, approval_id: ApprovalId) -> Approval | None:
        rows = self._read.run("approval", (approval_id,))
        return APPROVALS.read(rows[0]) if rows else None

    async def find(self, prefix: str, *, limit: int) -> list[Approval]:
        rows = self._read.run("find_approvals", (prefix, prefix + "\U0010ffff", limit))
        return [APPROVALS.read(row) for row in rows]

    async def page(self, query: ApprovalQuery) -> list[Approval]:
        where, values = _approval_filter(query)
        order = "created_at DESC, id DESC" if query.newest else "created_at, id"
        statement = f"SELECT {APPROVALS.columns} FROM approvals WHERE {where} ORDER BY {order} LIMIT ?"
        if query.search is not None:
            rows = await self._read.look_through(statement, (*values, query.limit))
        else:
            rows = self._read.statement(statement, (*values, query.limit))
        return [APPROVALS.read(row) for row in rows]

    async def due(self, *, now: datetime, limit: int) -> list[Approval]:
        gone = now - timedelta(seconds=RECONNECT_S)
        rows = self._read.run("due_approvals", (micros(now), micros(gone), limit))
        return [APPROVALS.read(row) for row in rows]

    async def count_pending(self) -> int:
        return self._read.run("count_waiting")[0][0]

    async def held(self) -> list[Held]:
        return [HELD.read(row) for row in self._read.run("held_approvals")]

    async def cleanup_old(self, *, older_than: datetime, at: datetime) -> int:
        if not self._read.run("ended_before", (micros(older_than),)):
            return 0

        def operation(tx: Transaction) -> int:
            tx.run("delete_ended_approvals", (micros(older_than),))
            count = tx.changed()
            tx.run("delete_workflows_of_no_approval")
            if count:
                tx.record(entries.cleaned(count, at=at, older_than=older_than))
            return count

        return await self._writer.write(operation)


def _refuse_second(tx: Transaction, record: Approval) -> None:
    """Raise Conflict if the same question waits, or is answered, beside the one that is put back."""
    question = (record.session_id, record.tool_use_id, record.subject, record.digest, record.run_id)
    if tx.run("same_question", question):
        raise Conflict(f"the question of approval `{record.id}` was asked anew")


def _save(tx: Transaction, record: Approval, event: Event) -> Approval:
    after = advance(record, event)
    changes = APPROVALS.changes(record, after)  # few of many: most indexes are left as they are
    columns = ", ".join(f"{column} = ?" for column in changes)
    statement = f"UPDATE approvals SET {columns} WHERE id = ? AND version = ?"
    tx.statement(statement, (*changes.values(), record.id, record.version))
    if tx.changed() != 1:
        raise Conflict(f"approval `{record.id}` changed while it was being decided")
    tx.record(entries.entry_of(after, event))
    return after


def _approval_filter(query: ApprovalQuery) -> tuple[str, list[Value]]:
    """Return the WHERE clause of `query`, in the words that its partial indexes know."""
    where: list[str] = ["1"]
    values: list[Value] = []
    if query.states is not None and len(query.states) == 1:
        where.append(f"status = '{next(iter(query.states))}'")
    elif query.states is not None:
        where.append(f"status IN ({', '.join('?' * len(query.states))})")
        values.extend(sorted(query.states))
    if query.session_id is not None:
        where.append("session_id = ?")
        values.append(query.session_id)
    if query.sessions is not None:  # as one value: a statement holds only so many
        where.append("session_id IN (SELECT value FROM json_each(?))")
        values.append(spell(sorted(query.sessions)))
    if query.digest is not None:
        where.append("digest = ?")
        values.append(query.digest)
    if query.run_id is not None:
        where.append("run_id = ?")
        values.append(query.run_id)
    if query.workspace is not None:
        where.append("session_id IN (SELECT id FROM sessions WHERE workspace = ?)")
        values.append(query.workspace)
    if query.search is not None:
        condition, looked_for = search_clause(query.search)
        where.append(condition)
        values.extend(looked_for)
    if query.after is not None:
        where.append(f"(created_at, id) {'<' if query.newest else '>'} (?, ?)")
        values.extend((micros(query.after[0]), query.after[1]))
    return " AND ".join(where), values


def _add_grant(tx: Transaction, grant: Grant) -> None:
    tx.run("insert_grant", GRANTS.values(grant))
    if not tx.changed():
        return  # its session has ended, and what it remembers with it
    tx.record(
        entries.grant_added(
            grant.session_id,
            grant.tool,
            at=grant.created_at,
            by=grant.by,
            approval_id=grant.approval_id,
            digest=grant.digest,
        )
    )


class _Grants(Part):
    async def add(self, grant: Grant) -> None:
        await self._writer.write(lambda tx: _add_grant(tx, grant), durable=True)

    async def of(self, session_id: SessionId, tool: str) -> list[Grant]:
        return [GRANTS.read(row) for row in self._read.run("grants_of", (session_id, tool))]

    async def all(self) -> list[Grant]:
        return [GRANTS.read(row) for row in self._read.run("all_grants")]

    async def revoke(self, grant_id: str, *, at: datetime, by: Decider) -> None:
        def operation(tx: Transaction) -> None:
            rows = tx.run("delete_grant", (grant_id,))
            if not rows:
                raise NotFound(f"no grant `{grant_id}`")
            tx.record(entries.grant_revoked(rows[0][0], rows[0][1], at=at, by=by))

        await self._writer.write(operation, durable=True)


class _Workflows(Part):
    async def issue(self, workflow: Workflow) -> None:
        values = WORKFLOWS.values(workflow)
        await self._writer.write(lambda tx: tx.run("insert_workflow", values))

    async def get(self, workflow_id: str) -> Workflow | None:
        rows = self._read.run("workflow", (workflow_id,))
        return WORKFLOWS.read(rows[0]) if rows else None

    async def consume(self, workflow_id: str, *, at: datetime) -> None:
        def operation(tx: Transaction) -> None:
            tx.run("continue_workflow", (micros(at), workflow_id))
            if not tx.changed():
                if tx.run("workflow", (workflow_id,)):
                    raise AlreadyClaimed(f"workflow `{workflow_id}` was continued before")
                raise NotFound(f"no workflow `{workflow_id}`")

        await self._writer.write(operation, durable=True)


class _Trusts(Part):
    async def add(self, trust: Trust, *, ends: Collection[str] = ()) -> None:
        def operation(tx: Transaction) -> None:
            for digest in ends:
                tx.run("delete_trust", (trust.path, digest))
            tx.run("insert_trust", TRUSTS.values(trust))
            tx.run("keep_content", (trust.path, trust.digest, trust.content))
            tx.record(entries.workspace_trusted(trust.path, trust.digest, at=trust.trusted_at, by=trust.by))

        await self._writer.write(operation, durable=True)

    async def forget(self, path: str, digest: str) -> None:
        await self._writer.write(lambda tx: tx.run("delete_trust", (path, digest)), durable=True)

    async def holds(self, path: str, digest: str) -> bool:
        return bool(self._read.run("trust_holds", (path, digest)))

    async def standing(self, path: str, digest: str | None) -> Standing:
        ((trusted, kept),) = self._read.run("trust_standing", (path, digest))
        return Standing(trusted=bool(trusted), kept=kept)

    async def of(self, path: str) -> Sequence[Content]:
        return [CONTENTS.read(row) for row in self._read.run("trusts_of", (path,))]

    async def keep(self, path: str, content: Content) -> None:
        values = (path, content.digest, content.content)
        await self._writer.write(lambda tx: tx.run("keep_content", values), durable=True)

    async def kept(self, path: str) -> Content | None:
        rows = self._read.run("kept_content", (path,))
        return CONTENTS.read(rows[0]) if rows else None

    async def remove(self, path: str, *, at: datetime, by: Decider, kept: bool = False) -> int:
        def operation(tx: Transaction) -> int:
            tx.run("delete_trusts", (path,))
            count = tx.changed()
            if kept:
                tx.run("delete_kept_content", (path,))
            if count or (kept and tx.changed()):
                tx.record(entries.workspace_untrusted(path, at=at, by=by))
            return count

        return await self._writer.write(operation, durable=True)


class _Intents(Part):
    async def add(self, intent: Intent) -> None:
        await self._writer.write(lambda tx: tx.run("insert_intent", INTENTS.values(intent)), durable=True)

    async def open(self) -> list[Intent]:
        return [INTENTS.read(row) for row in self._read.run("open_intents")]

    async def forget(self, intent_id: str) -> None:
        await self._writer.write(lambda tx: tx.run("delete_intent", (intent_id,)))

    async def close(self, intent_id: str, *, at: datetime) -> None:
        def operation(tx: Transaction) -> None:
            for row in tx.run("delete_intent", (intent_id,)):
                intent = INTENTS.read(row)
                if intent.model is not None:
                    tx.run("mark_rule", (intent.workspace, canonical(intent.entry).decode(), intent.model))
                tx.record(
                    entries.rule_added(
                        intent.workspace, intent.effect, intent.entry, at=at, approval_id=intent.approval_id
                    )
                )

        await self._writer.write(operation)

    async def of_models(self, workspace: str) -> Mapping[str, str]:
        rows = [row for row in await self.open() if row.workspace == workspace]
        return {entry: model for entry, model in self._read.run("model_rules", (workspace,))} | {
            canonical(row.entry).decode(): row.model for row in rows if row.model is not None
        }

    async def unmark(self, workspace: str, entry: Json) -> None:
        await self._writer.write(lambda tx: tx.run("unmark_rule", (workspace, canonical(entry).decode())))


class _Manifests(Part):
    async def get(self, server: str, target_digest: str) -> Manifest | None:
        rows = self._read.run("manifest", (server, target_digest))
        return manifest_of(server, target_digest, rows[0][0]) if rows else None

    async def put(self, manifest: Manifest) -> None:
        values = (manifest.server, manifest.target_digest, manifest_text(manifest))

        def operation(tx: Transaction) -> None:
            tx.run("insert_manifest", values)
            tx.run("delete_old_manifests", (MANIFESTS_KEPT,))

        await self._writer.write(operation)


class _Pins(Part):
    async def get(self, server: str, target_digest: str, action: str) -> Pin | None:
        rows = self._read.run("pin", (server, target_digest, action))
        return PINS.read(rows[0]) if rows else None

    async def put(self, pin: Pin, *, by: Decider | None) -> None:
        values = PINS.values(pin)

        def operation(tx: Transaction) -> None:
            rows = tx.run("pin_digest", (pin.server, pin.target_digest, pin.action))
            entry = pinning(pin, rows[0][0] if rows else None, by)
            if entry is not None:
                tx.run("insert_pin", values)
                tx.record(entry)

        # synced: a pin lost with the power would make the next use, of a changed tool perhaps, the first
        await self._writer.write(operation, durable=True)
