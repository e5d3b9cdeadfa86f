"""A database that is damaged, locked, full or read-only: a clear error, nothing lost, no half-written row."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pml.cli.main import main
from pml.core.approvals.record import Approval, OwnerId, State
from pml.core.audit.chain import Link
from pml.core.errors import Unavailable
from pml.core.ports.queries import ApprovalQuery, AuditQuery
from pml.store.sqlite.connection import open_database
from pml.store.sqlite.database import Database
from pml.store.sqlite.store import SqliteStore
from tests.builders import allow, make_approval
from tests.chains import verify
from tests.promises import promise

OWNER = OwnerId("a")
EXIT_FAILED = 1


async def filled(home: Path, count: int = 30) -> list[Approval]:
    """Fill the store of `home` and close it."""
    store = await SqliteStore.open(home, OWNER)
    records = [
        await store.approvals.ask(make_approval(n, tool_input={"text": "x" * 2000}), max_pending=1000)
        for n in range(1, count + 1)
    ]
    await store.close()
    return records


async def content_of(home: Path) -> tuple[list[Approval], list[Link]]:
    """Return all that is stored, after making sure that it is sound."""
    store = await SqliteStore.open(home, OwnerId("reader"))
    rows = await store.approvals.page(ApprovalQuery(limit=1000))
    links = [link async for link in store.audit.links()]
    assert verify(links, {head.chain: head for head in await store.audit.heads_kept()}) == []
    await store.close()
    database = Database(str(home / "pml.db"))
    assert database.run("PRAGMA integrity_check") == [("ok",)]
    database.close()
    return rows, links


# --- damaged


def garbage(file: Path) -> None:
    file.write_bytes(b"this is not a database, whatever its name says" * 100)


def cut_in_half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def flipped_pages(file: Path) -> None:
    content = bytearray(file.read_bytes())
    page = int.from_bytes(content[16:18], "big")
    for start in range(page, len(content), page):
        content[start : start + 64] = bytes(byte ^ 0xFF for byte in content[start : start + 64])
    file.write_bytes(content)


@promise("store:kill-loses-nothing")
@pytest.mark.parametrize("damage", [garbage, cut_in_half, flipped_pages])
@pytest.mark.parametrize(
    "command", [["list"], ["ask", "github:create_issue"], ["allow", "0000"], ["show", "0"]]
)
def test_a_damaged_database_is_told_of_and_left_as_it_is(
    home: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pml_home = home / ".pml"
    asyncio.run(filled(pml_home))
    damage(pml_home / "pml.db")
    before = (pml_home / "pml.db").read_bytes()

    code = main(["approvals", command[0], "--workspace", str(tmp_path), *command[1:]])

    said = capsys.readouterr()
    assert (code, said.out) == (EXIT_FAILED, "")
    assert said.err.startswith(f"pml: {pml_home}/pml.db: ")
    assert "not a database" in said.err or "damaged" in said.err
    assert "move it away and keep it" in said.err
    assert (pml_home / "pml.db").read_bytes() == before


# --- locked


def hold_lock(home: Path) -> Database:
    """Return another connection that keeps the database locked until it is closed."""
    other = Database(str(home / "pml.db"))
    other.script("BEGIN EXCLUSIVE")
    return other


async def test_a_database_locked_beyond_the_bound_is_told_of_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path)
    before = await content_of(tmp_path)
    monkeypatch.setattr("pml.store.sqlite.writer.BUSY_S", 0.02)
    store = await SqliteStore.open(tmp_path, OWNER)
    other = hold_lock(tmp_path)
    new = make_approval(99)

    with pytest.raises(Unavailable, match="another process keeps the database locked"):
        await store.approvals.ask(new, max_pending=1000)
    other.close()

    assert await content_of(tmp_path) == before
    assert await store.approvals.ask(new, max_pending=1000) == new
    await store.close()


async def test_a_lock_that_is_soon_gone_is_waited_out(tmp_path: Path) -> None:
    await filled(tmp_path)
    store = await SqliteStore.open(tmp_path, OWNER)
    other = hold_lock(tmp_path)
    asking = asyncio.create_task(store.approvals.ask(make_approval(99), max_pending=1000))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asking.done()
    other.close()

    assert (await asking).status is State.PENDING
    await store.close()


async def test_a_database_locked_against_opening_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pml.store.sqlite.connection.BUSY_S", 0.02)
    (tmp_path / "pml.db").touch()
    other = Database(str(tmp_path / "pml.db"))
    other.script("BEGIN EXCLUSIVE")

    with pytest.raises(Unavailable, match="another process keeps the database locked"):
        await SqliteStore.open(tmp_path, OWNER)

    other.close()
    assert (await content_of(tmp_path))[0] == []


def test_the_command_says_that_the_database_is_locked_and_exits_1(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(filled(home / ".pml"))
    before = asyncio.run(content_of(home / ".pml"))
    monkeypatch.setattr("pml.store.sqlite.writer.BUSY_S", 0.02)
    other = hold_lock(home / ".pml")

    code = main(["approvals", "ask", "a:b", "--json", "--workspace", str(tmp_path)])

    error = json.loads(capsys.readouterr().out)["error"]
    other.close()
    assert (code, error["code"]) == (EXIT_FAILED, "unavailable")
    assert "locked" in error["message"]
    assert asyncio.run(content_of(home / ".pml")) == before


# --- full and read-only


def limit(monkeypatch: pytest.MonkeyPatch, pragma: str) -> None:
    """Make every connection that is opened from now on bounded by `pragma`."""

    async def limited(home: Path) -> Database:
        database = await open_database(home)
        database.run(pragma)
        return database

    monkeypatch.setattr("pml.store.sqlite.store.open_database", limited)


FAILURES = [
    pytest.param("PRAGMA max_page_count = 1", "the disk is full", id="full"),
    pytest.param("PRAGMA query_only = ON", "read-only", id="read-only"),
]


@promise("store:kill-loses-nothing")
@pytest.mark.parametrize(("pragma", "told"), FAILURES)
async def test_what_cannot_be_written_is_told_of_and_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pragma: str, told: str
) -> None:
    first, *_ = await filled(tmp_path)
    before = await content_of(tmp_path)
    with monkeypatch.context() as patch:
        limit(patch, pragma)
        store = await SqliteStore.open(tmp_path, OWNER)
        big = make_approval(99, tool_input={"text": "x" * 100_000})

        outcomes = await asyncio.gather(
            store.approvals.ask(big, max_pending=1000),
            store.approvals.advance(first.id, allow(first, updated_input={"text": "y" * 100_000})),
            return_exceptions=True,
        )

        assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
        assert all(told in str(outcome) for outcome in outcomes)
        assert await store.approvals.get(first.id) == first
        await store.close()

    assert await content_of(tmp_path) == before


@pytest.mark.parametrize(("pragma", "told"), FAILURES)
def test_the_command_says_what_is_wrong_with_the_disk_and_exits_1(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pragma: str,
    told: str,
) -> None:
    before = [record.id for record in asyncio.run(filled(home / ".pml"))]
    with monkeypatch.context() as patch:
        limit(patch, pragma)
        text = json.dumps({"text": "x" * 100_000})
        code = main(["approvals", "ask", "a:b", text, "--workspace", str(tmp_path)])

    said = capsys.readouterr()
    assert (code, said.out) == (EXIT_FAILED, "")
    assert told in said.err
    rows, _ = asyncio.run(content_of(home / ".pml"))
    assert [row.id for row in rows] == before


async def test_a_store_that_was_full_works_again_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path)
    opened: list[Database] = []

    async def kept(home: Path) -> Database:
        opened.append(await open_database(home))
        return opened[-1]

    monkeypatch.setattr("pml.store.sqlite.store.open_database", kept)
    store = await SqliteStore.open(tmp_path, OWNER)
    big = make_approval(99, tool_input={"text": "x" * 100_000})
    opened[0].run("PRAGMA max_page_count = 1")
    with pytest.raises(Unavailable):
        await store.approvals.ask(big, max_pending=1000)
    opened[0].run("PRAGMA max_page_count = 1000000")

    assert await store.approvals.ask(big, max_pending=1000) == big

    kinds = [link.entry.kind for link in await store.audit.list(AuditQuery(limit=1000))]
    assert kinds == ["approval.requested"] * 31
    await store.close()
    await content_of(tmp_path)


@pytest.mark.parametrize("make", ["file", "beneath a file"])
def test_a_home_that_cannot_be_used_is_told_of(
    tmp_path: Path, make: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    bad = tmp_path / "file" if make == "file" else tmp_path / "file" / "home"
    monkeypatch.setenv("PML_HOME", str(bad))

    code = main(["approvals", "list", "--workspace", str(tmp_path)])

    said = capsys.readouterr()
    assert code == EXIT_FAILED
    assert said.err.startswith(f"pml: {tmp_path}/file")
    assert "PML_HOME" in said.err
    assert (tmp_path / "file").read_text() == "mine"
