"""What a person or a run relies on is on the disk before its caller goes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pml.core.approvals.record import OwnerId
from pml.store.sqlite.database import Database
from pml.store.sqlite.store import SqliteStore
from tests.builders import (
    NOW,
    PATH,
    PERSON,
    SESSION,
    allow,
    claim,
    deny,
    make_approval,
    make_grant,
    make_intent,
    make_receipt,
    make_token,
    make_trust,
    make_workflow,
)
from tests.contract.journals import begun, finished, make_code_run
from tests.contract.steps import make_pin
from tests.promises import promise

NORMAL, FULL = 1, 2  # the answers to `PRAGMA synchronous`


class Observed(Database):
    """A database that keeps how it was set to sync at each commit."""

    def __init__(self, path: str, syncs: list[int]) -> None:
        super().__init__(path)
        self._syncs = syncs

    def script(self, statements: str) -> None:
        if statements == "COMMIT":
            self._syncs.append(self.run("PRAGMA synchronous")[0][0])
        super().script(statements)


@pytest.fixture
def syncs() -> list[int]:
    return []


@pytest_asyncio.fixture
async def store(
    tmp_path: Path, syncs: list[int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SqliteStore]:
    def observed(path: str) -> Observed:
        return Observed(path, syncs)

    monkeypatch.setattr("pml.store.sqlite.connection.Database", observed)
    opened = await SqliteStore.open(tmp_path, OwnerId("a"))
    syncs.clear()
    yield opened
    await opened.close()


@promise("store:kill-loses-nothing")
async def test_decisions_and_claims_are_committed_with_full_sync(
    store: SqliteStore, syncs: list[int]
) -> None:
    record = await store.approvals.ask(make_approval(1), max_pending=20)
    other = await store.approvals.ask(make_approval(2), max_pending=20)
    assert syncs == [NORMAL, NORMAL]

    allowed = await store.approvals.advance(record.id, allow(record))
    assert syncs[2:] == [FULL]
    await store.approvals.advance(record.id, claim(allowed))
    assert syncs[3:] == [FULL]
    await store.approvals.advance(other.id, deny(other))
    assert syncs[4:] == [FULL]


async def test_what_is_remembered_and_what_is_taken_back_is_committed_with_full_sync(
    store: SqliteStore, syncs: list[int]
) -> None:
    record = await store.approvals.ask(make_approval(1), max_pending=20)
    workflow = make_workflow(1, approval_id=record.id)
    await store.workflows.issue(workflow)
    await store.tokens.add(make_token(1), by=None)
    await store.tokens.add(make_token(2), by=None)
    await store.receipts.begin(make_receipt())
    syncs.clear()

    await store.grants.add(make_grant(1))
    await store.grants.revoke(make_grant(1).id, at=NOW, by=PERSON)
    await store.trusts.add(make_trust())
    await store.trusts.remove(PATH, at=NOW, by=PERSON)
    await store.intents.add(make_intent(1))
    await store.workflows.consume(workflow.id, at=NOW)
    await store.pins.put(make_pin(), by=None)
    await store.pins.put(make_pin("Closes an issue."), by=PERSON)
    await store.tokens.revoke(make_token(1).id, at=NOW, by=PERSON)
    await store.tokens.revoke_of(SESSION, at=NOW)
    await store.receipts.close(make_receipt())

    assert syncs == [FULL] * 11


async def test_what_happens_in_one_loop_turn_to_journals_is_one_commit_with_normal_sync(
    store: SqliteStore, syncs: list[int]
) -> None:
    await store.journals.start(make_code_run())
    await store.journals.begin(begun(0))
    await asyncio.gather(
        store.journals.finish(finished(0, place=0)), *(store.journals.begin(begun(n)) for n in range(1, 9))
    )

    assert syncs == [NORMAL] * 3
