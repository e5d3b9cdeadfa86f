"""What every part of the SQLite store has: reads at once on the one connection, writes in the next batch."""

from collections.abc import Sequence

import apsw

from pml.store.database import Database, Row, Value
from pml.store.failures import unavailable
from pml.store.queries import queries
from pml.store.writer import Writer


class Reader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, query: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return the rows of a named query. Raises: Unavailable."""
        return self.statement(queries()[query], values)

    def statement(self, statement: str, values: Sequence[Value]) -> list[Row]:
        try:
            return self._database.run(statement, values)
        except apsw.Error as exc:
            raise unavailable(exc, self._database.path) from exc


class Part:
    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._read = reader
        self._writer = writer
