from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.packages.permissions import Containment
from tests.upstream.boxes import need
from tests.upstream.fleets import Harbour


@pytest.fixture
async def harbour(home: Path, tmp_path: Path) -> AsyncGenerator[Harbour]:
    """A home and a workspace; what was started is stopped at the end."""
    made = Harbour(home / ".pml", tmp_path)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(params=[Containment.BUBBLEWRAP, Containment.LANDLOCK])
def kind(request: pytest.FixtureRequest) -> Containment:
    """Each containment that this machine has."""
    need(request.param)
    return request.param


@pytest.fixture
def boxed() -> Containment:
    need(Containment.BUBBLEWRAP)
    return Containment.BUBBLEWRAP
