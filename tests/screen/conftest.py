"""An office for each test."""

from pathlib import Path

import pytest

from pml.store.memory import MemoryStore
from tests.service.offices import Office


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(MemoryStore(), tmp_path)
