"""What runs, as another process sees it."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pml.core.approvals import OwnerId
from pml.core.manifests import launch_digest
from pml.core.ports import Process
from pml.host.processes import SystemProcesses
from pml.upstream.board import Board, ask_stop, end_orphans, list_servers
from pml.upstream.process import identify
from tests.fakes import FakeProcesses
from tests.upstream.fleets import Harbour, odd, runs, until, use

ME = SystemProcesses().ancestors()[0]


def post(home: Path, process: Process | None, *, name: str = "odd") -> None:
    board = Board(home, workspace="/repo", owner=OwnerId("other"))
    board.post(name, launch="sha256:1", state="running", process=process, restarts=0, last_error=None)


def leftovers(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "run" / "servers").iterdir())


async def test_a_running_server_is_listed_until_it_ends(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    await fleet.manifest(spec)
    [posted] = list_servers(harbour.home)
    assert (posted.name, posted.state, posted.restarts) == ("odd", "running", 0)
    assert (posted.workspace, posted.launch) == (str(harbour.workspace), launch_digest(spec))
    assert posted.owner_process == ME
    assert posted.process is not None
    assert SystemProcesses().running(posted.process)
    [path] = (harbour.home / "run" / "servers").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await fleet.close()
    assert list_servers(harbour.home) == []
    assert leftovers(harbour.home) == []


def test_what_a_killed_gateway_left_is_not_listed_and_removed(tmp_path: Path) -> None:
    post(tmp_path, None)
    assert list_servers(tmp_path, FakeProcesses([ME])) != []
    assert list_servers(tmp_path, FakeProcesses([])) == []
    assert leftovers(tmp_path) == []


def test_a_file_that_cannot_be_read_is_removed(tmp_path: Path) -> None:
    post(tmp_path, None)
    [path] = (tmp_path / "run" / "servers").iterdir()
    path.write_bytes(b"{")
    assert list_servers(tmp_path) == []
    assert leftovers(tmp_path) == []


@pytest.fixture
def stubborn() -> Process:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
    return identify(child.pid)
