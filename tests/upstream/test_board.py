"""What runs, as another process sees it."""

import asyncio
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from pml.core.approvals.record import OwnerId
from pml.core.sessions.process import Process
from pml.host.processes import SystemProcesses, identify
from pml.upstream import board
from pml.upstream.board import RunBoard, ask_stop, end_orphans, list_servers
from tests.fakes import FakeProcesses
from tests.upstream.fleets import SOON_S, Harbour, odd, runs, until, use

ME = SystemProcesses().ancestors()[0]


def post(home: Path, process: Process | None, *, name: str = "odd") -> None:
    RunBoard(home, workspace="/repo", owner=OwnerId("other")).post(
        name, target_digest="sha256:1", state="running", process=process, restarts=0, last_error=None
    )


def leftovers(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "run" / "servers").iterdir())


async def test_a_running_server_is_listed_until_it_ends(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    await fleet.manifest(spec)
    [posted] = list_servers(harbour.home)
    assert (posted.name, posted.state, posted.restarts) == ("odd", "running", 0)
    assert (posted.workspace, posted.target_digest) == (str(harbour.workspace), spec.target_digest)
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
def stubborn() -> Generator[Process]:
    """A process in a group of its own that only SIGKILL ends."""
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield identify(child.pid)
        child.kill()


def test_a_process_is_told_apart_by_when_it_started(stubborn: Process) -> None:
    assert SystemProcesses().running(stubborn)


def test_what_a_killed_gateway_left_running_is_killed(tmp_path: Path, stubborn: Process) -> None:
    post(tmp_path, stubborn)
    assert list_servers(tmp_path, FakeProcesses([stubborn])) == []
    assert end_orphans(tmp_path, FakeProcesses([stubborn])) == 1
    assert _ends(stubborn)
    assert leftovers(tmp_path) == []


def test_the_servers_of_a_living_gateway_are_no_orphans(tmp_path: Path, stubborn: Process) -> None:
    post(tmp_path, stubborn)
    assert end_orphans(tmp_path) == 0
    assert SystemProcesses().running(stubborn)


def test_a_later_process_with_the_same_number_is_left_alone(tmp_path: Path, stubborn: Process) -> None:
    earlier = Process(pid=stubborn.pid, started=stubborn.started - 1)
    post(tmp_path, earlier)
    [posted] = list_servers(tmp_path)
    assert not ask_stop(tmp_path, posted)
    end_orphans(tmp_path, FakeProcesses([stubborn]))
    assert SystemProcesses().running(stubborn)


def test_a_server_that_will_not_stop_for_a_person_is_killed(
    tmp_path: Path, stubborn: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "_STOP_S", 0.1)
    post(tmp_path, stubborn)
    [posted] = list_servers(tmp_path)
    assert ask_stop(tmp_path, posted)
    assert _ends(stubborn)


async def test_a_gateway_that_was_killed_leaves_no_server(harbour: Harbour) -> None:
    """It ends with its gateway, although it ignores the end of its input, and the next forgets it."""
    code = (
        "import asyncio, sys, os, signal; from pathlib import Path\n"
        "from tests.upstream.fleets import SOON_S, Harbour, odd\n"
        "async def main():\n"
        "    harbour = Harbour(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "    await harbour.fleet().manifest(odd('stubborn'))\n"
        "    print(harbour.pids()[0], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(harbour.home), str(harbour.workspace), stdout=subprocess.PIPE
    )
    out, _ = await gateway.communicate()
    pid = int(out)
    await until(lambda: not runs(pid))
    await use(harbour.fleet(), odd(name="other"), "echo")
    assert [posted.name for posted in list_servers(harbour.home)] == ["other"]


def _ends(process: Process) -> bool:
    """Wait for a process that was killed to be gone."""
    until_at = time.monotonic() + SOON_S
    while SystemProcesses().running(process):
        if time.monotonic() > until_at:
            return False
    return True
