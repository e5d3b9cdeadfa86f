"""An office for each test, and a screen that remembers nothing of how it drew a row."""

from pathlib import Path

import pytest
from textual import strip

from pml.testing.store import MemoryStore
from tests.service.offices import Office


class NoCache:
    """What Textual makes seven of for each piece of a row: making them is most of drawing a row once."""

    def get(self, key: object, default: object = None) -> None:
        return None

    def set(self, key: object, value: object) -> None: ...

    __setitem__ = set


@pytest.fixture(autouse=True)
def no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = NoCache()

    def no_cache(size: int) -> NoCache:
        return cache

    monkeypatch.setattr(strip, "FIFOCache", no_cache)


@pytest.fixture
def office(near: Path) -> Office:
    """An office whose folders have paths of one length, wherever temporary folders are."""
    return Office(MemoryStore(), near)
