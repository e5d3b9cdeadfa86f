from collections.abc import AsyncGenerator

import pytest

from tests.upstream.remote.rough_server import RoughServer, rough_server


@pytest.fixture
async def rough() -> AsyncGenerator[RoughServer]:
    """A server on loopback whose answers the test writes."""
    async with rough_server() as server:
        yield server
