"""Whether the database is sound: looked at for `pml doctor`, never changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from pml.store.database import Database
from pml.store.failures import unavailable

OLDEST_SQLITE: Final = (3, 51, 3)  # older ones can corrupt a write-ahead log under several writers


@dataclass(frozen=True, kw_only=True)
class Health:
    """What SQLite found; `problems` is empty for a sound database."""

    sqlite: str
    problems: tuple[str, ...]

    @property
    def sqlite_is_safe(self) -> bool:
        return tuple(int(part) for part in self.sqlite.split(".")) >= OLDEST_SQLITE


def inspect_database(path: Path) -> Health:
    """Return the state of the database at `path`, which exists. Raises: Unavailable."""
    try:
        database = Database(str(path))
        try:
            rows = database.run("PRAGMA quick_check")
            version = database.run("SELECT sqlite_version()")[0][0]
        finally:
            database.close()
    except apsw.Error as exc:
        raise unavailable(exc, str(path)) from exc
    return Health(sqlite=version, problems=tuple(row[0] for row in rows if row[0] != "ok"))
