"""An office for each test, and a gate in it."""

from pathlib import Path

import pytest

from pml.store.memory import MemoryStore
from tests.service.gatehouses import Gatehouse, enter
from tests.service.offices import Office


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(MemoryStore(), tmp_path)


@pytest.fixture
async def house(office: Office) -> Gatehouse:
    return await enter(office)
