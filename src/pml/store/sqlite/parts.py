"""Parts of the SQLite store: each reads at once on the one connection and writes in the next batch.

Only a search through all rows is read on a thread of its own, so that no other caller waits for it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import closing

import apsw

from pml.store.search import is_within
from pml.store.sqlite.database import Database, Row, Value
from pml.store.sqlite.failures import unavailable
from pml.store.sqlite.queries import queries
from pml.store.sqlite.writer import Writer


class Reader:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._aside = asyncio.Lock()  # one at a time: threads are there for others too

    def run(self, query: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return the rows of a named query. Raises: Unavailable."""
        return self.statement(queries()[query], values)

    def statement(self, statement: str, values: Sequence[Value]) -> list[Row]:
        try:
            return self._database.run(statement, values)
        except apsw.Error as exc:
            raise unavailable(exc, self._database.path) from exc

    async def look_through(self, statement: str, values: Sequence[Value]) -> list[Row]:
        """As `statement`, for a search that takes long: on another thread, with a connection of its own."""
        async with self._aside:
            return await asyncio.to_thread(_look_through, self._database.path, statement, values)


def _look_through(path: str, statement: str, values: Sequence[Value]) -> list[Row]:
    try:
        with closing(Database(path, may_create=False)) as database:
            database.define(is_within)
            return database.run(statement, values)
    except apsw.Error as exc:
        raise unavailable(exc, path) from exc


class Part:
    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._read = reader
        self._writer = writer
