"""Opening the database: private, migrated once, refused when a newer PML wrote it."""

import asyncio
import json
from pathlib import Path

import apsw
import msgspec
import pytest

from pml.core.approvals.reasons import CapabilityNeeds, Reason
from pml.core.errors import Unavailable
from pml.store.sqlite.connection import open_database
from pml.store.sqlite.database import Database
from pml.store.sqlite.queries import migrations
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
    monkeypatch.setattr("pml.store.sqlite.connection.migrations", lambda: broken)

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
    monkeypatch.setattr("pml.store.sqlite.connection.migrations", lambda: old)
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


async def test_what_a_capability_needs_is_kept_from_before_it_had_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = next(n for n, sql in migrations() if "'needs'" in sql)
    old = [each for each in migrations() if each[0] < number]
    facts = {"capability": "a.b.c", "source": "registry", "calls": ["x:y"], "covers": ["x:y"], "named": []}
    row = {"verdict": "needs", "entry": json.dumps(facts), "file": None, "line": None, "foreign": False}
    monkeypatch.setattr("pml.store.sqlite.connection.migrations", lambda: old)
    database = await open_database(tmp_path)
    database.script("PRAGMA ignore_check_constraints = ON")
    database.run(
        "INSERT INTO approvals (id, session_id, subject, tool_name, tool_input, tool_use_id, digest, rule, "
        "deciders, ttl_s, created_at, expires_at, owner, status, version) "
        "VALUES ('a', 's', 'tool_call', 'a:b', '{}', '', 'd', ?, '[]', 1, 0, 1, 'o', 'pending', 1)",
        (json.dumps(row),),
    )
    database.close()
    monkeypatch.undo()

    database = await open_database(tmp_path)
    kept = msgspec.json.decode(str(database.run("SELECT rule FROM approvals")[0][0]), type=Reason)
    assert kept == CapabilityNeeds(capability="a.b.c", source="registry", calls=("x:y",), covers=("x:y",))
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
