"""Opening the database: private, migrated once, refused when a newer PML wrote it."""

import asyncio
from pathlib import Path

import apsw
import pytest

from pml.core.errors import Unavailable
from pml.store.connection import open_database
from pml.store.database import Database
from pml.store.queries import migrations
from tests.promises import promise


async def test_a_new_home_and_all_in_it_are_private(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    database = await open_database(home)
    database.script("BEGIN IMMEDIATE; COMMIT")

    modes = {path.name: path.stat().st_mode & 0o777 for path in home.iterdir()}

    assert home.stat().st_mode & 0o777 == 0o700
    assert modes
    assert set(modes.values()) == {0o600}
    database.close()


async def test_many_that_open_a_new_database_at_once_all_get_it_migrated(tmp_path: Path) -> None:
    opened = await asyncio.gather(*(open_database(tmp_path) for _ in range(8)))

    versions = [database.run("PRAGMA user_version") for database in opened]

    assert versions == [[(migrations()[-1][0],)]] * 8
    for database in opened:
        database.close()


async def test_the_database_runs_with_the_settings_it_is_safe_with(tmp_path: Path) -> None:
    database = await open_database(tmp_path)

    assert database.run("PRAGMA journal_mode") == [("wal",)]
    assert database.run("PRAGMA foreign_keys") == [(1,)]
    assert database.run("PRAGMA trusted_schema") == [(0,)]
    sqlite_version = tuple(int(part) for part in database.run("SELECT sqlite_version()")[0][0].split("."))
    assert sqlite_version >= (3, 51, 3)  # older ones can damage a WAL under several writers
    database.close()


async def test_a_database_of_a_newer_pml_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    database = await open_database(tmp_path)
    database.script("PRAGMA user_version = 9999")
    database.close()

    with pytest.raises(Unavailable, match="newer PML") as refused:
        await open_database(tmp_path)

    assert refused.value.hint is not None
    again = await open_unchecked(tmp_path)
    assert again == 9999


async def open_unchecked(home: Path) -> int:
    database = Database(str(home / "pml.db"))
    version = database.run("PRAGMA user_version")[0][0]
    database.close()
    return version


async def test_a_migration_that_fails_leaves_the_database_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (await open_database(tmp_path)).close()
    last = migrations()[-1][0]
    broken = [*migrations(), (last + 1, "CREATE TABLE extra (x); CREATE TABLE extra (x)")]
    monkeypatch.setattr("pml.store.connection.migrations", lambda: broken)

    with pytest.raises(Unavailable):
        await open_database(tmp_path)

    monkeypatch.undo()
    database = await open_database(tmp_path)
    assert database.run("SELECT count(*) FROM sqlite_master WHERE name = 'extra'") == [(0,)]
    assert database.run("PRAGMA user_version") == [(last,)]
    database.close()


@promise("supervise:power-from-a-person")
async def test_nobody_above_answers_for_a_session_of_before_launches_were_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [each for each in migrations() if "parent_may" not in each[1]]
    assert len(before) == len(migrations()) - 1
    old = [each for each in before if each[0] < next(n for n, sql in migrations() if "parent_may" in sql)]
    monkeypatch.setattr("pml.store.connection.migrations", lambda: old)
    database = await open_database(tmp_path)
    database.script(
        "INSERT INTO sessions (id, name, principal, workspace, parent_id, is_agent, started_at, role) "
        "VALUES ('old', 'old', 'ana', '/repo', 'above', 1, 0, 'session')"
    )
    database.close()
    monkeypatch.undo()

    database = await open_database(tmp_path)
    assert database.run("SELECT parent_may, launches_unasked FROM sessions") == [("nothing", 0)]
    database.close()


async def test_the_audit_log_cannot_be_edited_or_removed_through_the_schema(tmp_path: Path) -> None:
    database = await open_database(tmp_path)
    database.script(
        "INSERT INTO audit (chain, n, at, kind, detail, prev, hash) VALUES ('c', 1, 0, 'k', '{}', '', 'h')"
    )

    for statement in ("UPDATE audit SET kind = 'x'", "DELETE FROM audit"):
        with pytest.raises(apsw.ConstraintError, match="append-only"):
            database.script(statement)
    database.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))
