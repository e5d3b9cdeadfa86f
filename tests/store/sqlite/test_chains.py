"""Audit chains on disk: one writer each, taken over when free, never continued when they do not fit."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pml.core.approvals.record import OwnerId
from pml.core.audit.chain import GENESIS, Head
from pml.core.audit.entries import session_ended
from pml.core.errors import Unavailable
from pml.store.sqlite.chains import Chain, heads_kept, take_chain
from pml.store.sqlite.connection import open_database
from pml.store.sqlite.database import Database
from pml.store.sqlite.store import SqliteStore
from tests.builders import NOW
from tests.chains import verify


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database(tmp_path)
    yield opened
    opened.close()


async def record(store: SqliteStore, count: int = 1) -> None:
    for n in range(count):
        await store.audit.record(session_ended(f"session-{n}", at=NOW))


async def problems(store: SqliteStore) -> list[str]:
    links = [link async for link in store.audit.links()]
    kept = {head.chain: head for head in await store.audit.heads_kept()}
    return [problem.what for problem in verify(links, kept)]


async def test_two_writers_have_two_chains_and_both_verify(tmp_path: Path) -> None:
    one = await SqliteStore.open(tmp_path, OwnerId("a"))
    two = await SqliteStore.open(tmp_path, OwnerId("b"))
    await record(one, 2)
    await record(two, 3)
    await record(one, 1)

    assert [(head.chain, head.n) for head in heads_kept(tmp_path)] == [("0001", 3), ("0002", 3)]
    assert await problems(one) == []
    await one.close()
    await two.close()


async def test_a_chain_that_nobody_holds_is_continued(tmp_path: Path) -> None:
    for _ in range(3):
        store = await SqliteStore.open(tmp_path, OwnerId("a"))
        await record(store, 2)
        await store.close()

    assert [(head.chain, head.n) for head in heads_kept(tmp_path)] == [("0001", 6)]


async def test_a_chain_whose_kept_head_lags_behind_is_continued(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("a"))
    await record(store)
    lagging = (tmp_path / "audit" / "0001").read_bytes()
    await record(store)
    await store.close()
    (tmp_path / "audit" / "0001").write_bytes(lagging)  # as after a kill between commit and writing it down

    store = await SqliteStore.open(tmp_path, OwnerId("b"))
    await record(store)

    assert [(head.chain, head.n) for head in heads_kept(tmp_path)] == [("0001", 3)]
    assert await problems(store) == []
    await store.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"99 abc\n", "² abc".encode(), b"9" * 5000, b"1 not-the-hash\n", b"\xff\xfe\x00"],
)
async def test_a_chain_that_does_not_fit_its_kept_head_is_left_as_evidence(
    tmp_path: Path, content: bytes
) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("a"))
    await record(store)
    await store.close()
    (tmp_path / "audit" / "0001").write_bytes(content)

    store = await SqliteStore.open(tmp_path, OwnerId("b"))
    await record(store)

    chains = [(link.chain, link.n) async for link in store.audit.links()]
    assert chains == [("0001", 1), ("0002", 1)]
    assert (tmp_path / "audit" / "0001").read_bytes() == content
    await store.close()


async def test_a_database_that_was_replaced_by_an_empty_one_shows_as_a_cut_tail(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("a"))
    await record(store, 2)
    await store.close()
    (tmp_path / "pml.db").unlink()

    store = await SqliteStore.open(tmp_path, OwnerId("b"))
    await record(store)

    assert await problems(store) == ["the chain should reach entry 2: its tail was cut off"]
    await store.close()


async def test_a_new_chain_begins_at_nothing(tmp_path: Path, database: Database) -> None:
    taken = take_chain(tmp_path, database)
    beside: Chain = take_chain(tmp_path, database)

    assert taken.head == Head(chain="0001", n=0, hash=GENESIS)
    assert beside.head == Head(chain="0002", n=0, hash=GENESIS)
    assert heads_kept(tmp_path) == [taken.head, beside.head]
    taken.close()
    beside.close()


async def test_a_chain_that_was_taken_but_never_written_keeps_a_head_for_who_writes_it(
    tmp_path: Path, database: Database
) -> None:
    take_chain(tmp_path, database).close()
    again = take_chain(tmp_path, database)
    head = Head(chain="0001", n=1, hash="ab" * 32)

    again.keep(head)

    assert heads_kept(tmp_path) == [head]
    again.close()


async def test_writes_that_fail_for_want_of_a_chain_leave_nothing_open_and_begin_no_more_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, content: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = await SqliteStore.open(tmp_path, OwnerId("a"))
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(Unavailable, match="the disk is full"):
                await record(store)

    assert len(os.listdir("/dev/fd")) == before
    assert os.listdir(tmp_path / "audit") == ["0001"]
    await record(store)
    assert [(head.chain, head.n) for head in heads_kept(tmp_path)] == [("0001", 1)]
    await store.close()


@pytest.mark.parametrize("unreadable", ["audit/0001", "audit"])
async def test_a_head_that_cannot_be_read_is_told_of_by_name(tmp_path: Path, unreadable: str) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("a"))
    if unreadable == "audit":
        (tmp_path / "audit").write_text("a file where a directory should be")
    else:
        (tmp_path / unreadable).mkdir(parents=True)

    with pytest.raises(Unavailable) as refused:
        await store.audit.heads_kept()

    assert refused.value.message.startswith(f"{tmp_path / unreadable}: ")
    assert refused.value.hint is not None
    await store.close()
