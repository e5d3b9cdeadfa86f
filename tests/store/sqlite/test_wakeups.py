"""Waking across connections: by a hint where one arrives, by the poll where none does."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import apsw
import pytest

from pml.core.approvals.record import Approval, OwnerId
from pml.core.errors import Unavailable
from pml.core.sessions.agent import RunState
from pml.store.sqlite.database import Database, Row, Value
from pml.store.sqlite.store import SqliteStore
from tests.builders import (
    NOW,
    SESSION,
    allow,
    make_approval,
    make_message,
    make_run,
    make_session,
    make_token,
)
from tests.promises import promise

BOUND_S = 60.0
NEVER_S = 3600.0


@contextlib.asynccontextmanager
async def two_stores(home: Path) -> AsyncGenerator[tuple[SqliteStore, SqliteStore, Approval]]:
    """Yield the store of one who waits, that of one who decides, and a question."""
    waiting = await SqliteStore.open(home, OwnerId("waiting"))
    deciding = await SqliteStore.open(home, OwnerId("deciding"))
    try:
        yield waiting, deciding, await waiting.approvals.ask(make_approval(), max_pending=20)
    finally:
        await waiting.close()
        await deciding.close()


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pml.store.sqlite.wakeups.POLL_S", NEVER_S)


def long_home(tmp_path: Path) -> Path:
    """Return a home whose sockets have no name that fits a socket address."""
    return tmp_path / ("long" * 30)


@promise("approval:decision-never-lost")
@pytest.mark.usefixtures("no_poll")
async def test_a_hint_alone_wakes_the_waiter(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (waiting, deciding, record):
        with waiting.changes.watch(record.id) as watch:
            await deciding.approvals.advance(record.id, allow(record))

            assert await watch.wait(BOUND_S)


@promise("approval:decision-never-lost")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a short path to every directory")
@pytest.mark.usefixtures("no_poll")
async def test_a_hint_arrives_where_the_path_is_too_long_for_a_socket(tmp_path: Path) -> None:
    async with two_stores(long_home(tmp_path)) as (waiting, deciding, record):
        with waiting.changes.watch(record.id) as watch:
            await deciding.approvals.advance(record.id, allow(record))

            assert await watch.wait(BOUND_S)


@promise("approval:decision-never-lost")
async def test_the_poll_alone_wakes_the_waiter(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (waiting, deciding, record):
        with waiting.changes.watch(record.id) as watch:
            (tmp_path / "run" / "waiting.sock").unlink()
            await deciding.approvals.advance(record.id, allow(record))

            assert await watch.wait(BOUND_S)


@promise("approval:decision-never-lost")
async def test_a_waiter_whose_socket_cannot_be_made_is_woken_by_the_poll(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (waiting, deciding, record):
        (tmp_path / "run" / "waiting.sock").mkdir()
        with waiting.changes.watch(record.id) as watch:
            await deciding.approvals.advance(record.id, allow(record))

            assert await watch.wait(BOUND_S)


@pytest.mark.usefixtures("no_poll")
async def test_a_change_to_another_approval_does_not_wake(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (waiting, deciding, record):
        other = await deciding.approvals.ask(make_approval(2), max_pending=20)
        with waiting.changes.watch(record.id) as watch, waiting.changes.watch() as any_change:
            await deciding.approvals.advance(other.id, allow(other))

            assert await any_change.wait(BOUND_S)
            assert not await watch.wait(0)


@pytest.mark.parametrize("heard_by", ["hint", "poll"])
async def test_who_watches_all_is_woken_by_what_another_process_writes_of_sessions_and_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard_by: str
) -> None:
    if heard_by == "hint":
        monkeypatch.setattr("pml.store.sqlite.wakeups.POLL_S", NEVER_S)
    async with two_stores(tmp_path) as (waiting, writing, _):
        with waiting.changes.watch() as watch:
            if heard_by == "poll":
                (tmp_path / "run" / "waiting.sock").unlink()
            for change in (
                writing.sessions.start(make_session()),
                writing.runs.add(make_run()),
                writing.runs.move(SESSION, RunState.RUNNING, at=NOW),
                writing.runs.say(make_message()),
                writing.tokens.add(make_token(), by=None),
                writing.tokens.revoke_of(SESSION, at=NOW),
                writing.sessions.end(SESSION, at=NOW),
            ):
                await change

                assert await watch.wait(BOUND_S), change.__qualname__
        assert len(await waiting.runs.messages(SESSION)) == 1


@promise("approval:decision-never-lost")
async def test_a_database_that_does_not_answer_for_a_while_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = asyncio.Event()

    def fail(database: Database, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        failed.set()
        raise apsw.IOError("the disk does not answer")

    async with two_stores(tmp_path) as (waiting, deciding, record):
        with waiting.changes.watch(record.id) as watch:
            (tmp_path / "run" / "waiting.sock").unlink()
            with monkeypatch.context() as patch:
                patch.setattr(Database, "run", fail)
                async with asyncio.timeout(BOUND_S):
                    await failed.wait()
            await deciding.approvals.advance(record.id, allow(record))

            assert await watch.wait(BOUND_S)
    assert caplog.records == []


async def test_watching_a_database_that_does_not_answer_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(database: Database, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        raise apsw.IOError("gone")

    async with two_stores(tmp_path) as (waiting, _, record):
        with monkeypatch.context() as patch:
            patch.setattr(Database, "run", fail)
            with pytest.raises(Unavailable) as refused, waiting.changes.watch(record.id):
                pass

        assert refused.value.message == f"{tmp_path}/pml.db: the disk does not answer (gone)"
        with waiting.changes.watch(record.id):
            pass


async def test_the_socket_of_a_dead_process_is_tidied_up(near: Path) -> None:
    async with two_stores(near) as (_, deciding, record):
        left = near / "run" / "dead.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind(str(left))
        await deciding.approvals.advance(record.id, allow(record))

        assert not left.exists()


async def test_an_inbox_that_is_full_does_not_hold_up_the_sender(near: Path) -> None:
    async with two_stores(near) as (_, deciding, record):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
            deaf.bind(str(near / "run" / "deaf.sock"))
            async with asyncio.timeout(BOUND_S):
                await deciding.approvals.advance(record.id, allow(record))
                for n in range(2, 602):
                    await deciding.approvals.ask(make_approval(n), max_pending=1000)

        assert (near / "run" / "deaf.sock").exists()


async def test_watching_ends_without_a_trace(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (waiting, _, record):
        with waiting.changes.watch(record.id):
            assert (tmp_path / "run" / "waiting.sock").exists()
    assert not (tmp_path / "run" / "waiting.sock").exists()
