"""The writer: batches in one transaction, one refused operation disturbs no other, sync where it matters."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import pytest_asyncio

from pml.core.approvals.record import ApprovalId, OwnerId
from pml.core.audit.entries import session_ended
from pml.core.errors import Conflict, NotFound, Unavailable
from pml.core.ports.queries import ApprovalQuery, AuditQuery
from pml.store.sqlite.database import Database
from pml.store.sqlite.store import SqliteStore
from pml.store.sqlite.writer import Transaction, Writer
from tests.builders import NOW, allow, make_approval, make_grant, uuid
from tests.chains import verify

OWNER = OwnerId("a")
BOUND_S = 60.0


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path, OWNER)
    yield opened
    await opened.close()


class Recording(Database):
    """A database that keeps the scripts it ran."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.scripts: list[str] = []

    def script(self, statements: str) -> None:
        self.scripts.append(statements)
        super().script(statements)


@pytest_asyncio.fixture
async def recording(tmp_path: Path, store: SqliteStore) -> AsyncIterator[Recording]:
    opened = Recording(str(tmp_path / "pml.db"))
    yield opened
    opened.close()


def note(tx: Transaction) -> None:
    tx.record(session_ended("s", at=NOW))


async def test_what_arrives_in_one_turn_is_one_transaction(tmp_path: Path, recording: Recording) -> None:
    writer = Writer(tmp_path, recording, lambda touched: None)

    await asyncio.gather(*(writer.write(note) for _ in range(10)))

    assert recording.scripts.count("BEGIN IMMEDIATE") == 1
    assert recording.scripts.count("COMMIT") == 1
    writer.close()


async def test_a_batch_with_a_decision_in_it_is_committed_with_full_sync(
    tmp_path: Path, recording: Recording
) -> None:
    writer = Writer(tmp_path, recording, lambda touched: None)

    await asyncio.gather(writer.write(note), writer.write(note, durable=True), writer.write(note))
    await writer.write(note)

    pragmas = [script for script in recording.scripts if script.startswith(("PRAGMA", "COMMIT"))]
    assert pragmas == ["PRAGMA synchronous = FULL", "COMMIT", "PRAGMA synchronous = NORMAL", "COMMIT"]
    writer.close()


async def test_one_that_is_refused_changes_nothing_and_disturbs_no_other(store: SqliteStore) -> None:
    await store.grants.add(make_grant(1))
    record = make_approval(1)

    outcomes = await asyncio.gather(
        store.approvals.ask(record, max_pending=20),
        store.grants.add(make_grant(1)),
        store.approvals.advance(ApprovalId(uuid(9)), allow(record)),
        store.approvals.ask(make_approval(2), max_pending=20),
        return_exceptions=True,
    )

    assert [type(outcome) for outcome in outcomes] == [type(record), Conflict, NotFound, type(record)]
    assert len(await store.approvals.page(ApprovalQuery())) == 2
    kinds = [link.entry.kind for link in await store.audit.list(AuditQuery())]
    assert kinds == ["grant.added", "approval.requested", "approval.requested"]
    links = [link async for link in store.audit.links()]
    assert verify(links, {head.chain: head for head in await store.audit.heads_kept()}) == []


async def test_one_that_is_refused_after_it_was_recorded_leaves_no_gap_in_the_log_and_wakes_nobody(
    store: SqliteStore,
) -> None:
    await store.grants.add(make_grant(1))
    record = await store.approvals.ask(make_approval(1), max_pending=20)
    other = make_approval(2)
    with store.changes.watch(record.id) as refused, store.changes.watch(other.id) as asked:
        outcomes = await asyncio.gather(
            store.approvals.advance(record.id, allow(record), remember=make_grant(1)),
            store.approvals.ask(other, max_pending=20),
            return_exceptions=True,
        )

        assert [type(outcome) for outcome in outcomes] == [Conflict, type(other)]
        assert await asked.wait(0)
        assert not await refused.wait(0)
    assert await store.approvals.get(record.id) == record
    links = [link async for link in store.audit.links()]
    kinds = [(link.n, link.entry.kind) for link in links]
    assert kinds == [(1, "grant.added"), (2, "approval.requested"), (3, "approval.requested")]
    assert verify(links, {head.chain: head for head in await store.audit.heads_kept()}) == []


async def test_a_writer_that_is_cancelled_before_its_turn_writes_nothing(store: SqliteStore) -> None:
    asking = asyncio.create_task(store.approvals.ask(make_approval(1), max_pending=20))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    other = await store.approvals.ask(make_approval(2), max_pending=20)

    assert await store.approvals.page(ApprovalQuery()) == [other]


async def test_a_failure_that_nobody_foresaw_reaches_the_caller_and_leaves_no_transaction_open(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(home: Path, database: Database) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("pml.store.sqlite.writer.take_chain", broken)
        with pytest.raises(ZeroDivisionError):
            await store.approvals.ask(make_approval(1), max_pending=20)

    assert (await store.approvals.ask(make_approval(1), max_pending=20)).id == uuid(1)


async def test_a_batch_that_fails_leaves_nothing_of_any_of_its_operations(
    tmp_path: Path, recording: Recording, store: SqliteStore
) -> None:
    def fail(tx: Transaction) -> None:
        note(tx)
        raise apsw.IOError("the disk is gone")

    writer = Writer(tmp_path, recording, lambda touched: None)

    outcomes = await asyncio.gather(writer.write(note), writer.write(fail), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
    assert await store.audit.last_seq() == 0
    await writer.write(note)
    assert await store.audit.last_seq() == 1
    writer.close()


async def test_what_is_queued_when_the_writer_closes_is_refused_and_never_tried(
    tmp_path: Path, recording: Recording
) -> None:
    writer = Writer(tmp_path, recording, lambda touched: None)
    queued = [asyncio.create_task(writer.write(note)) for _ in range(2)]
    await asyncio.sleep(0)

    writer.close()

    outcomes = await asyncio.gather(*queued, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["the store was closed; nothing was changed"] * 2
    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    assert recording.scripts == []


async def test_what_waits_for_a_busy_database_when_the_store_closes_is_refused_and_no_timer_is_left(
    tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    waiting = asyncio.Event()
    call_later = loop.call_later

    def recorded(delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        timers.append(call_later(delay, callback, *args))
        waiting.set()
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", recorded)
    closing = await SqliteStore.open(tmp_path, OwnerId("b"))
    other = Database(str(tmp_path / "pml.db"))
    other.script("BEGIN IMMEDIATE")
    asking = asyncio.create_task(closing.approvals.ask(make_approval(1), max_pending=20))
    async with asyncio.timeout(BOUND_S):
        await waiting.wait()

    await closing.close()

    with pytest.raises(Unavailable, match="the store was closed"):
        await asking
    assert timers[-1].cancelled()
    other.close()
    assert await store.approvals.page(ApprovalQuery()) == []


async def test_notes_and_operations_of_one_turn_are_one_transaction_and_one_chain(
    tmp_path: Path, recording: Recording, store: SqliteStore
) -> None:
    writer = Writer(tmp_path, recording, lambda touched: None)

    noted = [writer.note(session_ended(name, at=NOW)) for name in "abc"]
    await writer.write(note)
    for each in noted:
        await each

    assert recording.scripts.count("COMMIT") == 1
    assert [link.entry.session_id for link in await store.audit.list(AuditQuery())] == ["a", "b", "c", "s"]
    links = [link async for link in store.audit.links()]
    assert verify(links, {head.chain: head for head in await store.audit.heads_kept()}) == []
    writer.close()


async def test_who_gives_up_waiting_for_a_note_does_not_give_it_up_for_the_others(
    store: SqliteStore,
) -> None:
    async def wait_for(name: str) -> None:
        await store.audit.note(session_ended(name, at=NOW))

    impatient, patient = asyncio.create_task(wait_for("a")), asyncio.create_task(wait_for("b"))
    asyncio.get_running_loop().call_soon(impatient.cancel)  # after both have noted, before the commit
    outcomes = await asyncio.gather(impatient, patient, return_exceptions=True)

    assert outcomes[1] is None
    assert [link.entry.session_id for link in await store.audit.list(AuditQuery())] == ["a", "b"]


async def test_a_note_that_cannot_be_committed_is_told_to_whoever_waits_for_it(store: SqliteStore) -> None:
    noted = [store.audit.note(session_ended(name, at=NOW)) for name in "ab"]

    await store.close()

    for each in noted:
        with pytest.raises(Unavailable, match="nothing was changed"):
            await each
