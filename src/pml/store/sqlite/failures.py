"""Failures of the database, in words for people: one table from SQLite's errors to ours."""

import os
from typing import Final

import apsw

from pml.core.errors import Unavailable
from pml.host import disk

_FREE: Final = "free some space; nothing was changed"
_MEANINGS: tuple[tuple[type[apsw.Error], str, str], ...] = (
    (apsw.FullError, "the disk is full", _FREE),
    (apsw.ReadOnlyError, "the database is read-only", "make PML_HOME writable for this user"),
    (apsw.PermissionsError, "the database may not be opened", "make PML_HOME writable for this user"),
    (apsw.CantOpenError, "the database cannot be opened", "check that PML_HOME exists and is writable"),
    (apsw.AuthError, "the database may not be opened", "check the permissions of PML_HOME"),
    (
        apsw.NotADBError,
        "the file is not a database",
        "move it away and keep it; PML starts with an empty one, and `pml audit verify` will show the gap",
    ),
    (
        apsw.CorruptError,
        "the database is damaged",
        "move it away and keep it; `sqlite3 FILE .recover` can save its rows",
    ),
    (apsw.BusyError, "another process keeps the database locked", "find it with `pml doctor`, or try again"),
    (apsw.IOError, "the disk does not answer", "check the disk that holds PML_HOME"),
)


def unavailable(error: apsw.Error | OSError, path: str) -> Unavailable:
    """Return the error to raise for what SQLite said about the database at `path`."""
    if isinstance(error, OSError):
        return disk.unavailable(path, error)
    if isinstance(error, apsw.IOError | apsw.CantOpenError) and disk.is_full(os.path.dirname(path)):
        # what SQLite writes beside the database does not always say so
        return Unavailable(f"{path}: the disk is full ({error})", hint=_FREE)
    for kind, meaning, hint in _MEANINGS:
        if isinstance(error, kind):
            return Unavailable(f"{path}: {meaning} ({error})", hint=hint)
    return Unavailable(f"{path}: {type(error).__name__}: {error}")
