"""The audit log in SQLite: appended by the writer, read in pages, never changed."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Final

from pml.core.audit import Entry, Head, Link
from pml.core.ports import AuditQuery
from pml.store.chains import heads_kept
from pml.store.database import Value
from pml.store.parts import Part, Reader
from pml.store.rows import link_of, micros
from pml.store.writer import Writer

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
        statement = f"SELECT * FROM audit WHERE {where} ORDER BY seq {order} LIMIT ?"
        found = [link_of(row) for row in self._read.statement(statement, (*values, query.limit))]
        return found[::-1] if query.newest else found

    async def last_seq(self) -> int:
        return self._read.run("last_seq")[0][0]

    async def links(self) -> AsyncIterator[Link]:
        chain, n = "", 0
        while rows := self._read.run("chain_links", (chain, n, _LINKS_AT_ONCE)):
            for row in rows:
                yield link_of(row)
            chain, n = rows[-1][1], rows[-1][2]

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
