"""The stores that must keep the contract: every test here runs on each of them, empty at its start."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from pml.core.ports.store import Store
from pml.testing.store import MemoryStore
from tests.builders import OWNER


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await _open(cast(str, request.param), tmp_path / "home")
    yield opened
    await opened.close()


async def _open(name: str, home: Path) -> Store:
    if name == "memory":
        return MemoryStore()
    from pml.store.sqlite.store import SqliteStore

    return await SqliteStore.open(home, OWNER)
