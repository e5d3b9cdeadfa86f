from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.registry.liar import Liar, lying
from tests.registry.places import Reader


@pytest.fixture
def reader(home: Path) -> Reader:
    return Reader(home / ".pml")


@pytest.fixture
async def liar() -> AsyncGenerator[Liar]:
    async with lying() as liar:
        yield liar
