"""What a database still knows when it is opened again: by the same PML, by a later one, and after damage."""

from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from pml.core.approvals.record import OwnerId, SessionId
from pml.core.code.journal import Kept
from pml.core.servers.manifest import Manifest
from pml.core.sessions.agent import RunState
from pml.core.sessions.process import Process
from pml.core.sessions.token import TokenRole
from pml.store.rows.mapper import Mapper, micros
from pml.store.rows.tables import APPROVALS, TOKENS, WORKFLOWS
from pml.store.sqlite.connection import open_database
from pml.store.sqlite.database import Database
from pml.store.sqlite.queries import migrations
from pml.store.sqlite.store import SqliteStore
from tests.builders import (
    OWNER,
    SESSION,
    allow,
    later,
    make_approval,
    make_message,
    make_receipt,
    make_run,
    make_session,
    make_token,
    make_workflow,
)
from tests.contract.journals import RUN, begun, finished, make_code_run
from tests.contract.steps import CALL, LAUNCH, make_pin
from tests.promises import promise

T = TypeVar("T", bound=msgspec.Struct)
MANIFEST = Manifest(server="github", target_digest=LAUNCH, capabilities={}, tools=({"name": "create_issue"},))


def damage(home: Path, statement: str) -> None:
    database = Database(str(home / "pml.db"))
    database.script(statement)
    database.close()


def contents_of(home: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}


@promise("approval:survives-restart")
async def test_a_workflow_with_its_call_a_manifest_and_a_pin_outlive_their_process(tmp_path: Path) -> None:
    workflow = msgspec.structs.replace(make_workflow(), call=CALL)
    store = await SqliteStore.open(tmp_path, OWNER)
    await store.workflows.issue(workflow)
    await store.manifests.put(MANIFEST)
    await store.pins.put(make_pin(), by=None)
    await store.close()

    store = await SqliteStore.open(tmp_path, OwnerId("later"))

    assert await store.workflows.get(workflow.id) == workflow
    assert await store.manifests.get("github", LAUNCH) == MANIFEST
    assert await store.pins.get("github", LAUNCH, "create_issue") == make_pin()
    await store.close()


async def test_a_database_of_before_the_gateway_is_migrated_and_keeps_its_workflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = migrations()[:1]
    monkeypatch.setattr("pml.store.sqlite.connection.migrations", lambda: first)
    (await open_database(tmp_path)).close()
    monkeypatch.undo()
    old = make_workflow(1)
    damage(
        tmp_path,
        "INSERT INTO workflows (id, approval_id, principal, created_at)"
        f" VALUES ('{old.id}', '{old.approval_id}', '{old.principal}', {micros(old.created_at)})",
    )

    store = await SqliteStore.open(tmp_path, OWNER)
    new = msgspec.structs.replace(make_workflow(2), call=CALL)
    await store.workflows.issue(new)
    await store.manifests.put(MANIFEST)
    await store.pins.put(make_pin(), by=None)

    assert await store.workflows.get(old.id) == old
    assert await store.workflows.get(new.id) == new
    assert await store.manifests.get("github", LAUNCH) == MANIFEST
    await store.workflows.consume(old.id, at=later(1))
    await store.close()


OLD_SESSION = (
    "INSERT INTO sessions (id, name, principal, workspace, parent_id, pid, process_started, is_agent,"
    " started_at, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _insert_old(database: Database, table: str, mapper: Mapper[T], record: T) -> None:
    """Store `record` with as much of it as the table has columns for."""
    known = {row[0] for row in database.run("SELECT name FROM pragma_table_info(?)", (table,))}
    values = zip(mapper.names, mapper.values(record), strict=True)
    old = {name: value for name, value in values if name in known}
    marks = ", ".join("?" * len(old))
    database.run(f"INSERT INTO {table} ({', '.join(old)}) VALUES ({marks})", tuple(old.values()))


async def test_a_database_of_before_the_hub_is_migrated_and_keeps_its_sessions_and_approvals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = migrations()[:3]
    monkeypatch.setattr("pml.store.sqlite.connection.migrations", lambda: third)
    database = await open_database(tmp_path)
    monkeypatch.undo()
    old, ended, record = make_session(), SessionId("session-2"), make_approval()
    plain = (old.name, old.principal, old.workspace)
    database.run(OLD_SESSION, (SESSION, *plain, None, 4711, 1.5, 1, micros(old.started_at), None))
    database.run(OLD_SESSION, (ended, *plain, SESSION, None, None, 0, micros(later(1)), micros(later(2))))
    _insert_old(database, "approvals", APPROVALS, record)
    assert database.run("PRAGMA user_version") == [(3,)]
    database.close()

    store = await SqliteStore.open(tmp_path, OWNER)

    known = msgspec.structs.replace(old, process=Process(pid=4711, started=1.5))
    child = make_session(ended, parent_id=SESSION, is_agent=False, started_at=later(1))
    child = msgspec.structs.replace(child, ended_at=later(2))
    assert known.role is TokenRole.SESSION
    assert (known.tools, known.waits, known.ttl_s) == (None, False, None)
    assert await store.sessions.get(SESSION) == known
    assert await store.sessions.page(after=None, limit=10) == [child, known]
    assert await store.sessions.descendants(SESSION) == [child]
    assert await store.sessions.start(old) == known
    assert await store.approvals.get(record.id) == record
    await store.approvals.advance(record.id, allow(record))
    await store.runs.add(make_run())
    await store.tokens.add(make_token(), by=None)
    await store.close()


@promise("approval:survives-restart")
async def test_tokens_runs_messages_and_receipts_outlive_their_process(tmp_path: Path) -> None:
    session = make_session(role=TokenRole.CHILD, tools=("Bash",), waits=True, ttl_s=20)
    store = await SqliteStore.open(tmp_path, OWNER)
    await store.sessions.start(session)
    await store.tokens.add(make_token(), by=None)
    await store.runs.add(make_run(config="/run/session-1"))
    run = await store.runs.move(SESSION, RunState.RUNNING, at=later(1))
    message = await store.runs.say(make_message())
    await store.receipts.begin(make_receipt())
    await store.close()

    store = await SqliteStore.open(tmp_path, OwnerId("later"))

    assert await store.sessions.get(SESSION) == session
    assert await store.tokens.all() == [make_token()]
    assert await store.runs.live() == [run]
    assert await store.runs.messages(SESSION) == [message]
    assert await store.receipts.begin(make_receipt()) == make_receipt()
    await store.close()


async def test_a_database_of_before_code_ran_is_migrated_and_keeps_its_workflows_and_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fourth = migrations()[:4]
    monkeypatch.setattr("pml.store.sqlite.connection.migrations", lambda: fourth)
    database = await open_database(tmp_path)
    monkeypatch.undo()
    workflow, record = msgspec.structs.replace(make_workflow(), call=CALL), make_approval()
    _insert_old(database, "workflows", WORKFLOWS, workflow)
    _insert_old(database, "approvals", APPROVALS, record)
    assert database.run("PRAGMA user_version") == [(4,)]
    database.close()

    store = await SqliteStore.open(tmp_path, OWNER)

    assert await store.workflows.get(workflow.id) == workflow
    again = await store.approvals.ask(make_approval(2, tool_use_id=record.tool_use_id), max_pending=20)
    assert again.id == record.id
    of_run = msgspec.structs.replace(make_approval(3, tool_use_id=record.tool_use_id), run_id=RUN)
    assert await store.approvals.ask(of_run, max_pending=20) == of_run
    await store.journals.start(make_code_run())
    await store.journals.finish(finished(place=0))
    await store.close()


@promise("approval:survives-restart")
async def test_a_journal_outlives_its_process(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, OWNER)
    await store.journals.start(make_code_run())
    await store.journals.finish(finished(0, place=0, value=b"1"))
    await store.journals.begin(begun(1))
    await store.journals.leave(RUN, dump=b"dump", dumped=1)
    await store.close()

    store = await SqliteStore.open(tmp_path, OwnerId("later"))
    kept = await store.journals.take(RUN, OwnerId("later"), dead=())

    run = msgspec.structs.replace(make_code_run(), owner=OwnerId("later"), taken=1)
    steps = [finished(0, place=0, value=b"1"), begun(1)]
    assert kept == Kept(run=run, steps=steps, dump=b"dump", dumped=1)
    await store.close()


async def test_a_database_of_before_logins_is_migrated_and_keeps_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = migrations()[:5]
    monkeypatch.setattr("pml.store.sqlite.connection.migrations", lambda: before)
    database = await open_database(tmp_path)
    monkeypatch.undo()
    old = [make_token(1), make_token(2, role=TokenRole.PERSON, expires_at=later(60))]
    old.append(msgspec.structs.replace(make_token(3), revoked_at=later(1)))
    for token in old:
        _insert_old(database, "tokens", TOKENS, token)
    database.close()

    store = await SqliteStore.open(tmp_path, OWNER)

    assert await store.tokens.all() == old
    login = make_token(4, role=TokenRole.LOGIN, expires_at=later(60))
    await store.tokens.add(login, by=None)
    assert await store.tokens.all() == [*old, login]
    await store.tokens.revoke_of(SESSION, at=later(2))
    assert [token.revoked_at for token in await store.tokens.all()] == [later(2), None, later(1), None]
    await store.close()


@promise("token:kept-as-hash")
async def test_no_file_of_the_home_holds_the_secret_of_a_token(tmp_path: Path) -> None:
    token = make_token(secret="the-very-secret-of-this-token")
    store = await SqliteStore.open(tmp_path, OWNER)
    await store.tokens.add(token, by=None)

    while_open = contents_of(tmp_path)
    await store.close()
    after = contents_of(tmp_path)

    for contents in (while_open, after):
        assert any(token.hash.encode() in content for content in contents.values())
        assert [file for file, content in contents.items() if b"the-very-secret" in content] == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"tools": [1]}',
        '{"capabilities": 1}',
        '{"capabilities": {"deep": ' + "[" * 100_000,
    ],
)
async def test_a_manifest_that_cannot_be_read_counts_as_absent_until_it_is_put_again(
    tmp_path: Path, content: str
) -> None:
    store = await SqliteStore.open(tmp_path, OWNER)
    await store.manifests.put(MANIFEST)
    damage(tmp_path, f"UPDATE manifests SET content = '{content}'")

    assert await store.manifests.get("github", LAUNCH) is None

    await store.manifests.put(MANIFEST)
    assert await store.manifests.get("github", LAUNCH) == MANIFEST
    await store.close()


@promise("pins:never-silently")
async def test_a_pin_that_cannot_be_read_is_not_taken_for_a_tool_that_was_never_used(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, OWNER)
    await store.pins.put(make_pin(), by=None)
    damage(tmp_path, "UPDATE pins SET definition = '{'")

    with pytest.raises(ValueError, match="Expecting property name"):
        await store.pins.get("github", LAUNCH, "create_issue")
    await store.close()
