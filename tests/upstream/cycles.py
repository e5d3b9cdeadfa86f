"""Starting and stopping servers over and over, and what must not be left of it."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Final

import pytest

from pml.core.errors import ServerFailed
from pml.host import watchdog
from pml.upstream.limits import Limits
from tests.upstream.fleets import Harbour, odd, until, use

MARK: Final = {"CYCLES_OF": str(os.getpid())}  # inherited by all that a server starts
LIMITS: Final = Limits(stop_s=0.2, backoff_s=0.001)


async def start_and_stop(harbour: Harbour, cycles: int) -> None:
    """Start and end `cycles` servers, each in one of the ways a server ends; then nothing must be left."""
    await _cycle(harbour, 0)
    before = _descriptors()
    for n in range(cycles):
        await _cycle(harbour, n)
    await until(lambda: _left_running() == [] and _threads() == 0)
    assert _descriptors() == before
    assert [path for path in harbour.home.rglob("*") if path.is_file() and path.parent.name != "logs"] == []
    assert list(harbour.workspace.iterdir()) == []


async def _cycle(harbour: Harbour, n: int) -> None:
    fleet, spec = harbour.fleet(limits=LIMITS), odd(env=MARK)
    match n % 5:
        case 0:
            assert await use(fleet, spec, "echo", n=n) == {"n": n}
        case 1:
            await use(fleet, spec, "fork")
        case 2:
            with pytest.raises(ServerFailed):
                await use(fleet, spec, "fork", then="die")
        case 3:
            with pytest.raises(ServerFailed):
                await use(fleet, spec, "die_by_signal")
        case _:
            with pytest.raises(ServerFailed):
                await fleet.manifest(odd("exit=1", env=MARK))
    await fleet.close()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _threads() -> int:
    return sum(thread.name.startswith("pml-wait-") for thread in threading.enumerate())


def _left_running() -> list[str]:
    """Return the processes, also zombies, of this one, and whatever else a server of ours has started."""
    mark = "=".join(*MARK.items()).encode()
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (path / "stat").read_text("utf-8").rpartition(") ")[2].split()[1]
            if (path / "cmdline").read_bytes().split(b"\0")[-2:-1] == [watchdog.__file__.encode()]:
                continue  # it is this process's, and ends with it
            if parent == str(os.getpid()) or mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(path.name)
    return found
