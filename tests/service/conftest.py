"""An office for each test, and a gate in it."""

from pathlib import Path

import pytest

from pml.testing.store import MemoryStore
from tests.fakes_loading import make_dependency
from tests.service.gatehouses import Gatehouse, enter
from tests.service.offices import Office
from tests.service.warehouses import Warehouse, enter_warehouse


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(MemoryStore(), tmp_path)


@pytest.fixture
async def house(office: Office) -> Gatehouse:
    return await enter(office)


@pytest.fixture
async def warehouse(office: Office) -> Warehouse:
    warehouse = await enter_warehouse(office)
    warehouse.sources.offer("memory", make_dependency())
    return warehouse
