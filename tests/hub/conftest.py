"""A hub for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.hub.hubs import HubRig, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[HubRig]:
    rig = await open_rig(tmp_path)
    yield rig
    await rig.launcher.close()
    assert rig.complaints == [], "a request met a mistake of ours"
