"""The connection to the database: private files, WAL, migrations in order. Processes may open it at once."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import apsw

from pml.core.errors import Unavailable
from pml.host import disk
from pml.host.private import private_directory, private_file
from pml.store.sqlite.database import Database
from pml.store.sqlite.failures import unavailable
from pml.store.sqlite.queries import migrations

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


BUSY_S: Final = 5.0  # long enough for a sibling's checkpoint, short enough that a person is told
RETRY_S: Final = (0.0005, 0.0015)  # SQLite's own handler starves beside busy writers; this does not

T = TypeVar("T")


def retry_s() -> float:
    """Return how long to stand back from a busy database before the next try."""
    return random.uniform(*RETRY_S)


async def open_database(home: Path) -> Database:
    """Return a connection to the up-to-date database of `home`. Raises: Unavailable."""
    path = home / "pml.db"
    try:
        private_directory(home)
        private_file(path)
    except OSError as exc:
        raise disk.unavailable(str(path), exc, hint="make PML_HOME a directory this user can write") from exc
    try:
        database = Database(str(path))
        await _patiently(lambda: database.run("PRAGMA journal_mode = WAL"))
        database.script("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF")
        database.run("PRAGMA secure_delete = ON")  # journals hold what tools answered, secrets among it
        await _patiently(lambda: _migrate(database))
    except apsw.Error as exc:
        raise unavailable(exc, str(path)) from exc
    return database


async def _patiently(step: Callable[[], T]) -> T:
    deadline = asyncio.get_running_loop().time() + BUSY_S
    while True:
        try:
            return step()
        except apsw.BusyError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(retry_s())


def _migrate(database: Database) -> None:
    known = migrations()
    if _version(database) == known[-1][0]:
        return
    database.script("BEGIN IMMEDIATE")
    try:
        version = _version(database)
        if version > known[-1][0]:
            raise Unavailable(
                f"{database.path}: written by a newer PML (schema {version}, this one knows {known[-1][0]})",
                hint="upgrade with `pip install --upgrade pml-gateway`",
            )
        for number, script in known:
            if number > version:
                database.script(script)
                database.script(f"PRAGMA user_version = {number}")
        database.script("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.script("ROLLBACK")
        raise


def _version(database: Database) -> int:
    return database.run("PRAGMA user_version")[0][0]
