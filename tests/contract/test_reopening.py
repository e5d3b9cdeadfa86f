"""What a database still knows when it is opened again: by the same PML, by a later one, and after damage."""

from pathlib import Path

import msgspec
import pytest

from pml.core.approvals import OwnerId
from pml.core.manifests import Manifest
from pml.store.connection import open_database
from pml.store.database import Database
from pml.store.queries import migrations
from pml.store.rows import micros
from pml.store.sqlite import SqliteStore
from tests.builders import OWNER, later, make_workflow
from tests.contract.steps import CALL, LAUNCH, make_pin
from tests.promises import promise

MANIFEST = Manifest(server="github", launch=LAUNCH, capabilities={}, tools=({"name": "create_issue"},))


def damage(home: Path, statement: str) -> None:
    database = Database(str(home / "pml.db"))
    database.script(statement)
    database.close()


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
    monkeypatch.setattr("pml.store.connection.migrations", lambda: first)
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
