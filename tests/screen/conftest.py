"""An office for each test, and a screen that remembers nothing of how it drew a row."""

from pathlib import Path

import pytest
from textual import strip

from pml.store.memory import MemoryStore
from tests.service.offices import Office


class NoCache:
    """What Textual makes seven of for each piece of a row, and seldom asks: making them is a third of drawing."""

    def get(self, key: object, default: object = None) -> None:
        return None

    def set(self, key: object, value: object) -> None: ...

    __setitem__ = set


@pytest.fixture(autouse=True)
def no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = NoCache()
    monkeypatch.setattr(strip, "FIFOCache", lambda size: cache)  # pyright: ignore[reportUnknownLambdaType]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(MemoryStore(), tmp_path)
