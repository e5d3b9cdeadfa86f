"""Two processes' stores on one database, at the same moment: one of them is first, and both know which."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from pml.core.approvals.record import OwnerId
from pml.core.errors import IllegalEvent
from pml.core.sessions.agent import ENDED_RUN, RunState
from pml.store.sqlite.store import SqliteStore
from tests.builders import SESSION, later, make_message, make_receipt, make_run
from tests.promises import promise


@pytest_asyncio.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[SqliteStore]]:
    opened = [await SqliteStore.open(tmp_path, OwnerId(name)) for name in ("one", "two")]
    yield opened
    for store in opened:
        await store.close()


@promise("receipt:one-answer")
async def test_of_two_processes_that_begin_with_one_key_exactly_one_is_first(
    stores: list[SqliteStore],
) -> None:
    for n in range(20):
        theirs = [make_receipt(f"key-{n}", request=f"sha256:{name}") for name in "ab"]

        found = await asyncio.gather(
            *(store.receipts.begin(receipt) for store, receipt in zip(stores, theirs, strict=True))
        )

        assert found.count(None) == 1
        assert theirs[found.index(None)] in found


async def test_of_two_processes_that_end_a_run_exactly_one_does(stores: list[SqliteStore]) -> None:
    await stores[0].runs.add(make_run())

    outcomes = await asyncio.gather(
        *(
            store.runs.move(SESSION, state, at=later(1))
            for store, state in zip(stores, (RunState.DONE, RunState.STOPPED), strict=True)
        ),
        return_exceptions=True,
    )

    assert sorted(isinstance(outcome, IllegalEvent) for outcome in outcomes) == [False, True]
    run = await stores[0].runs.get(SESSION)
    assert run in outcomes
    assert run is not None
    assert run.state in ENDED_RUN


async def test_messages_of_two_processes_have_one_order(stores: list[SqliteStore]) -> None:
    said = await asyncio.gather(
        *(store.runs.say(make_message(f"{n}")) for n in range(20) for store in stores)
    )

    in_order = sorted(said, key=lambda message: message.seq)
    assert len({message.seq for message in said}) == 40
    assert [await store.runs.messages(SESSION) for store in stores] == [in_order, in_order]
