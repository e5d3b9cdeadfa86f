"""A thousand servers, one after another. Takes minutes, so it runs only when it is asked for."""

import pytest

from tests.upstream.conftest import harbour as harbour
from tests.upstream.cycles import start_and_stop
from tests.upstream.fleets import Harbour

CYCLES = 1_000
TIMEOUT_S = 1_800


@pytest.mark.timeout(TIMEOUT_S)
async def test_a_thousand_starts_and_stops_leave_nothing_behind(harbour: Harbour) -> None:
    await start_and_stop(harbour, CYCLES)
