"""A client for each test, with one server behind the gateway."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.downstream.parties import Party, tool


@pytest.fixture
async def party(tmp_path: Path) -> AsyncGenerator[Party]:
    """A client that has said nothing yet. The server `files` offers `read`, `write` and `stat`."""
    party = Party(tmp_path)
    party.serve(
        "files",
        tool("read", required=["path"]),
        tool("write", required=["path", "text"]),
        tool("stat", outputSchema={"type": "object", "properties": {"size": {"type": "integer"}}}),
    )
    yield party
    await party.close()
