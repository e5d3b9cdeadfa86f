"""One SQLite connection with plain types: statements in, tuples out. The only caller of `apsw`'s API."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import apsw

from pml.core.errors import Invalid

Row: TypeAlias = tuple[Any, ...]
Value: TypeAlias = "str | bytes | int | float | None"


class Database:
    def __init__(self, path: str, *, may_create: bool = True) -> None:
        self.path = path
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if may_create else 0)
        self._connection: Any = apsw.Connection(path, flags=flags)
        self._connection.set_busy_timeout(0)

    def run(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return its rows. Raises: apsw.Error, Invalid for text that is not Unicode."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except UnicodeEncodeError as exc:
            raise _not_unicode(exc) from exc

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run one statement that returns nothing once for each of `rows`. Raises: as `run`."""
        try:
            self._connection.executemany(statement, rows)
        except UnicodeEncodeError as exc:
            raise _not_unicode(exc) from exc

    def script(self, statements: str) -> None:
        """Run several statements that take no values and return nothing."""
        self._connection.execute(statements)

    def define(self, function: Callable[..., Value]) -> None:
        """Let statements use `function`, which answers the same to the same, under its own name."""
        self._connection.create_scalar_function(function.__name__, function, deterministic=True)

    def changed(self) -> int:
        """Return how many rows the last statement changed."""
        return self._connection.changes()

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        self._connection.close()


def _not_unicode(exc: UnicodeEncodeError) -> Invalid:
    return Invalid(
        f"text with half of a surrogate pair (U+{ord(exc.object[exc.start]):04X}) is stored nowhere"
    )
