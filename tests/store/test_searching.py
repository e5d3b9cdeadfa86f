"""A search looks through all there is, and nobody waits for it but who searches."""

import asyncio
from pathlib import Path

import pytest

from pml.core.errors import Unavailable
from pml.core.ports.queries import ApprovalQuery
from pml.store.sqlite.store import SqliteStore
from tests.builders import OWNER, make_approval


@pytest.mark.parametrize("text", ["hello", "HÉLLO"])
async def test_others_are_served_while_a_search_runs(tmp_path: Path, text: str) -> None:
    store = await SqliteStore.open(tmp_path, OWNER)
    asked = await store.approvals.ask(make_approval(tool_input={"text": "hello, héllo"}), max_pending=1)
    searching = asyncio.ensure_future(store.approvals.page(ApprovalQuery(search=text)))
    await asyncio.sleep(0)
    was_over = searching.done()  # on this thread it would be: nothing else could have run before its end
    assert await store.approvals.get(asked.id) == asked
    assert await searching == [asked]
    assert not was_over
    await store.close()


async def test_a_search_in_what_is_no_database_any_more_is_refused_in_words(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, OWNER)
    (tmp_path / "pml.db").write_bytes(b"no database" * 1000)
    (tmp_path / "pml.db-wal").unlink()
    with pytest.raises(Unavailable, match="not a database"):
        await store.approvals.page(ApprovalQuery(search="x"))
    await store.close()
