"""A hundred gateways killed with `kill -9`, at any moment of a real server's life: nothing outlives them."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.installed import npm_server
from tests.faults.gateways import Place, stdio, until

TIMES = 100
TIMEOUT_S = 1_800
PROMISED_S = 5.0


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("server", ["everything", "stubborn"])
def test_a_hundred_killed_gateways_leave_nothing_behind(tmp_path: Path, server: str) -> None:
    chance = random.Random(15)
    slowest = 0.0
    for number in range(TIMES):
        place = Place(tmp_path / str(number))
        if server != "stubborn":
            place.configure(npm_server(server).as_config())
            place.call = {"name": "odd__trigger-long-running-operation", "arguments": {"duration": 600}}
        with stdio(place, answered=False) as gateway:
            time.sleep(chance.uniform(0.0, 2.0))  # while it is started, greeted, or at work
            gateway.send_signal(signal.SIGKILL)
            killed_at = time.monotonic()
            until(lambda: place.left() == [], "all that it started has ended")  # noqa: B023
            slowest = max(slowest, time.monotonic() - killed_at)
    print(f"{server}: the slowest took {slowest:.2f} s")
    assert slowest <= PROMISED_S
