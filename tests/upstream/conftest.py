from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.upstream.fleets import Harbour


@pytest.fixture
async def harbour(home: Path, tmp_path: Path) -> AsyncGenerator[Harbour]:
    """A home and a workspace; what was started is stopped at the end."""
    made = Harbour(home / ".pml", tmp_path)
    try:
        yield made
    finally:
        await made.close()
