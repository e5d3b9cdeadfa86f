"""What PML started ends with it, however it ends; and what is left all the same, with the next start."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from pml.core.packages.permissions import Containment
from pml.host import watchdog
from tests.faults.gateways import Place, hub, stdio, until
from tests.promises import promise
from tests.upstream.boxes import need

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
Door = Callable[[Place], AbstractContextManager["subprocess.Popen[bytes]"]]
DOORS = pytest.mark.parametrize(
    "door", [stdio, partial(stdio, modern=True), hub], ids=["stdio", "stdio of 2026", "hub"]
)
KINDS = [Containment.BUBBLEWRAP, Containment.LANDLOCK, Containment.NONE]
# Starts, in a process of its own, what a gateway or a hub starts, with the containment of a weaker machine.
STARTING = """
import asyncio, os, sys
from pathlib import Path
from pml.core.packages.permissions import Containment
from pml.upstream.containment.agents import AgentBox
from tests.upstream.fleets import Harbour, odd, use

async def main():
    what, kind, home, workspace, mark = sys.argv[1:]
    name, _, value = mark.partition("=")
    if what == "server":
        fleet = Harbour(Path(home), Path(workspace)).fleet(containment=Containment(kind))
        await use(fleet, odd("stubborn", env={name: value}), "fork")
    else:
        box = AgentBox(home=Path(home), user_home=Path(home).parent, kind=Containment(kind))
        script = "trap '' TERM HUP; (setsid sleep 1000 &) ; setsid sleep 1000 & while :; do sleep 0.1; done"
        script = script.replace("(setsid sleep 1000 &) ;", "") if kind != "bubblewrap" else script
        given = dict(cwd=workspace, environment={name: value, "PATH": os.environ["PATH"]}, own=home)
        argv = ("/bin/sh", "-c", script)
        if what == "agent":
            started = await box.start(argv, heard=print, complained=print, **given)
        else:
            started = await box.start_here(argv, **given)
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    place = Place(tmp_path)
    yield place
    for pid in place.left():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def started(place: Place, what: str, kind: Containment) -> Generator["subprocess.Popen[bytes]"]:
    words = (what, str(kind), str(place.pml_home), str(place.workspace), place.mark)
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", STARTING, *words],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as pml:
        try:
            yield pml
        finally:
            pml.kill()


@DOORS
@promise("process:ends-with-pml")
def test_what_a_killed_gateway_or_hub_started_ends_with_it(place: Place, door: Door) -> None:
    with door(place) as gateway:
        assert len(place.left()) >= 2
        gateway.send_signal(signal.SIGKILL)
        until(lambda: place.left() == [], "all that it started has ended")


@DOORS
@promise("process:ends-with-pml")
def test_a_second_request_to_stop_does_not_interrupt_the_first(place: Place, door: Door) -> None:
    with door(place) as gateway:
        until(lambda: _ended_after_asking(gateway), "it has ended")
        assert place.left() == []
        assert list((place.pml_home / "run" / "servers").iterdir()) == [], "it was cut short"


@promise("process:ends-with-pml")
def test_a_server_with_declared_permissions_ends_with_a_killed_gateway(place: Place) -> None:
    need(Containment.BUBBLEWRAP)
    read = [str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix]
    place.configure(place.server | {"permissions": {"read": read}})
    with stdio(place) as gateway:
        assert len(place.left()) >= 2
        gateway.send_signal(signal.SIGKILL)
        until(lambda: place.left() == [], "all that it started has ended")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["server", "agent", "agent at the terminal"])
@promise("process:ends-with-pml")
def test_whatever_holds_it_nothing_outlives_a_killed_pml(place: Place, what: str, kind: Containment) -> None:
    need(kind)
    with started(place, what, kind) as pml:
        assert pml.stdout is not None
        assert pml.stdout.readline() == b"up\n"
        until(lambda: len(place.left()) >= 2, "it has started something itself")
        pml.kill()
        until(lambda: place.left() == [], "all of it has ended")


@promise("process:ends-with-pml")
def test_what_is_left_all_the_same_is_ended_by_the_next_start(place: Place) -> None:
    with started(place, "server", Containment.NONE) as pml:
        assert pml.stdout is not None
        assert pml.stdout.readline() == b"up\n"
        for pid in watchdogs_of(pml.pid):
            os.kill(pid, signal.SIGKILL)
        pml.kill()
    assert len(place.left()) >= 2
    with place.pml("serve", "--port", "0", stdin=subprocess.DEVNULL) as running:
        try:
            until(lambda: place.left() == [], "the next start has ended it")
        finally:
            running.kill()


def _ended_after_asking(gateway: "subprocess.Popen[bytes]") -> bool:
    gateway.send_signal(signal.SIGTERM)
    return gateway.poll() is not None


def watchdogs_of(pid: int) -> list[int]:
    lines = {name: Path(f"/proc/{name}/cmdline") for name in os.listdir("/proc") if name.isdigit()}
    script = watchdog.__file__.encode()
    return [
        int(name)
        for name, line in lines.items()
        if script in line.read_bytes().split(b"\0") and _parent(name) == pid
    ]


def _parent(name: str) -> int:
    return int(Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()[1])
