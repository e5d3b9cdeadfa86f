"""Journals in SQLite beyond the contract: two processes, what the files still hold, what finds what."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from pml.core.approvals.record import OwnerId
from pml.core.code.journal import Kept
from pml.core.errors import Conflict
from pml.store.sqlite.connection import open_database
from pml.store.sqlite.database import Value
from pml.store.sqlite.queries import queries
from pml.store.sqlite.store import SqliteStore
from tests.builders import later
from tests.contract.journals import RUN, begun, finished, make_code_run, started, steps_of
from tests.promises import promise

SECRET = b"the-very-secret-answer-of-a-tool"


@pytest_asyncio.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[SqliteStore]]:
    opened = [await SqliteStore.open(tmp_path, OwnerId(name)) for name in ("one", "two")]
    yield opened
    for store in opened:
        await store.close()


@promise("code:one-runner")
@pytest.mark.parametrize("left", [None, OwnerId("dead")])
async def test_of_two_processes_that_take_a_run_exactly_one_has_it(
    stores: list[SqliteStore], left: OwnerId | None
) -> None:
    for n in range(20):
        run_id = f"run-{n}"
        await stores[0].journals.start(make_code_run(run_id, owner=left))

        outcomes = await asyncio.gather(
            *(
                store.journals.take(run_id, OwnerId(name), dead=(OwnerId("dead"),))
                for store, name in zip(stores, ("one", "two"), strict=True)
            ),
            return_exceptions=True,
        )

        (kept,) = (outcome for outcome in outcomes if isinstance(outcome, Kept))
        (refused,) = (outcome for outcome in outcomes if isinstance(outcome, Conflict))
        assert f"`{kept.run.owner}`" in refused.message
        assert await stores[1].journals.get(run_id) == kept.run


async def test_steps_are_there_for_the_next_process_once_their_caller_goes_on(
    stores: list[SqliteStore],
) -> None:
    one, two = stores
    await started(one)
    await one.journals.begin(begun(0))
    assert await steps_of(two) == [begun(0)]

    await asyncio.gather(
        one.journals.begin(begun(1)),
        one.journals.finish(finished(0, place=0)),
        one.journals.finish(finished(2, place=1)),
    )

    assert await steps_of(two) == [finished(0, place=0), begun(1), finished(2, place=1)]


def with_secret(home: Path) -> list[str]:
    return sorted(file.name for file in home.rglob("*") if file.is_file() and SECRET in file.read_bytes())


async def keep_secrets(store: SqliteStore) -> None:
    """Keep the secret in a run wherever it can be, and beside it a run that lives on."""
    await started(store, make_code_run(), make_code_run(f"{RUN}.0", root=RUN), make_code_run("run-2"))
    for n, size in enumerate((1, 20, 300, 20_000)):
        for run_id in (RUN, f"{RUN}.0"):
            await store.journals.finish(finished(n, place=n, value=SECRET * size, run_id=run_id))
        await store.journals.finish(finished(n, place=n, value=b"other" * size, run_id="run-2"))
    await store.journals.leave(RUN, dump=SECRET * 1_000, dumped=4)


@promise("code:results-go")
async def test_what_a_run_had_is_in_no_file_after_its_end_and_the_next_upkeep(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("one"))
    await keep_secrets(store)
    assert with_secret(tmp_path)

    await store.journals.end(RUN)
    await store.journals.forget(older_than=later(-1), dead=())

    assert with_secret(tmp_path) == []
    assert len(await steps_of(store, "run-2")) == 4
    await store.close()


@promise("code:results-go")
async def test_what_a_forgotten_run_had_is_in_no_file(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("one"))
    await keep_secrets(store)

    await store.journals.forget(older_than=later(1), dead=())

    assert with_secret(tmp_path) == []
    await store.close()


@promise("code:results-go")
async def test_what_a_run_had_is_in_no_file_once_its_process_has_closed_beside_another(
    tmp_path: Path, stores: list[SqliteStore]
) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("third"))
    await keep_secrets(store)
    await store.journals.end(RUN)

    await store.close()

    assert with_secret(tmp_path) == []


async def test_while_another_process_reads_the_end_of_a_run_waits_for_nobody_and_is_made_good_later(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path, OwnerId("one"))
    await keep_secrets(store)
    reader = await open_database(tmp_path)
    reader.script("BEGIN")
    assert reader.run("SELECT count(*) FROM code_runs") == [(3,)]

    await store.journals.end(RUN)
    assert await store.journals.forget(older_than=later(-1), dead=()) == 0
    assert with_secret(tmp_path) == ["pml.db-wal"]

    reader.script("COMMIT")
    await store.journals.forget(older_than=later(-1), dead=())
    assert with_secret(tmp_path) == []
    reader.close()
    await store.close()


@pytest.mark.parametrize(
    ("query", "values", "index"),
    [
        ("code_runs_begun_with", ("ana", "execute"), "code_runs_begun"),
        ("owners_of_code_runs", (), "code_runs_owned"),
        ("same_question", ("s", "u", "tool_call", "d", None), "approvals_one_question"),
        ("over_code_runs", (0, "[]", 0), "approvals_of_run"),
    ],
)
async def test_what_is_looked_for_often_is_found_by_its_index(
    tmp_path: Path, query: str, values: Sequence[Value], index: str
) -> None:
    database = await open_database(tmp_path)

    plan = [row[3] for row in database.run(f"EXPLAIN QUERY PLAN {queries()[query]}", values)]

    assert [step for step in plan if index in step]
    assert not [step for step in plan if "TEMP B-TREE" in step]
    database.close()
