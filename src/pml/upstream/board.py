"""RunBoard of what runs: one small file per server in `PML_HOME/run/servers`, for `pml servers`.

A file ends with its server; what a killed gateway left is removed by whoever reads next. A person's wish to
stop a server is a mark beside its file, so that the gateway that owns it does not take it for a crash.
"""

import contextlib
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from pml.core.approvals.record import OwnerId
from pml.core.ports.world import Processes
from pml.core.servers.run import ContainedBy, ServerRun
from pml.core.sessions.process import Process
from pml.host.private import private_directory
from pml.host.processes import SystemProcesses, identify
from pml.host.watchdog import KILL, end_tree

_STOP_S: Final = 2.0  # for a server to end by itself, before it is killed
_LOOK_S: Final = 0.05


class RunBoard:
    """The files of one gateway's servers. A disk that is full or gone costs the file, never the server."""

    def __init__(self, home: Path, *, workspace: str, owner: OwnerId) -> None:
        self._home = home
        self._workspace = workspace
        self._owner = owner
        self._me = identify(os.getpid())

    def post(
        self,
        name: str,
        *,
        target_digest: str,
        state: str,
        process: Process | None,
        restarts: int,
        last_error: str | None,
        containment: ContainedBy | None = None,
        since: datetime | None = None,
    ) -> None:
        posted = ServerRun(
            name=name,
            workspace=self._workspace,
            target_digest=target_digest,
            state=state,
            since=since or datetime.now(UTC),
            restarts=restarts,
            process=process,
            last_error=last_error,
            owner=self._owner,
            owner_process=self._me,
            above=tuple(SystemProcesses().ancestors()[1:]),
            containment=containment,
        )
        with contextlib.suppress(OSError):
            _replace(_file(private_directory(_folder(self._home)), posted), msgspec.json.encode(posted))

    def take_down(self, name: str) -> None:
        _remove(self._path(name))

    def was_stopped(self, name: str, process: Process | None) -> bool:
        """Tell whether a person wished this very process to stop; what is not a process, nobody can."""
        mark = self._path(name).with_suffix(".stop")
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(mark.read_bytes(), type=Process) == process
        return False

    def _path(self, name: str) -> Path:
        return _folder(self._home) / f"{self._owner}-{name}.json"


def list_servers(home: Path, processes: Processes | None = None) -> list[ServerRun]:
    """Return the servers of all living gateways, by name; remove what killed gateways left."""
    seen = processes or SystemProcesses()
    found: list[ServerRun] = []
    for path in sorted(_folder(home).glob("*.json")):
        try:
            posted = msgspec.json.decode(path.read_bytes(), type=ServerRun)
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError):
            posted = None
        if posted is not None and seen.running(posted.owner_process):
            found.append(posted)
        elif posted is None or posted.process is None or not seen.running(posted.process):
            _remove(path)  # an orphan that still runs keeps its file: `end_orphans` finds it by that
    return sorted(found, key=lambda posted: (posted.name, posted.workspace, posted.owner))


def end_orphans(home: Path, processes: Processes | None = None) -> int:
    """Kill what gateways that were killed left running, and return how many servers that were."""
    seen = processes or SystemProcesses()
    ended = 0
    for path in _folder(home).glob("*.json"):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            posted = msgspec.json.decode(path.read_bytes(), type=ServerRun)
            if seen.running(posted.owner_process):
                continue
            if posted.process is not None and seen.running(posted.process):
                end_tree(posted.process.pid, posted.process.started, KILL)
                ended += 1
            _remove(path)
    return ended


def ask_stop(home: Path, posted: ServerRun, processes: Processes | None = None) -> bool:
    """Stop the server, whoever owns it; False if it does not run any more. Waits until it has ended."""
    seen = processes or SystemProcesses()
    process = posted.process
    if process is None or not seen.running(process):
        return False
    _replace(_file(_folder(home), posted).with_suffix(".stop"), msgspec.json.encode(process))
    for how in (signal.SIGTERM, KILL):
        if not seen.running(process):  # just before each signal: the number may be another's by then
            break
        _signal(process.pid, how)
        _wait_end(process, seen)
    return True


def _wait_end(process: Process, seen: Processes) -> None:
    until = time.monotonic() + _STOP_S
    while seen.running(process) and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _signal(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(OSError):  # it is gone
        if sys.platform == "win32":
            os.kill(pid, how)
        else:
            os.killpg(pid, how)


def _folder(home: Path) -> Path:
    return home / "run" / "servers"


def _file(folder: Path, posted: ServerRun) -> Path:
    return folder / f"{posted.owner}-{posted.name}.json"


def _replace(path: Path, content: bytes) -> None:
    temporary = _temporary(path)
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
    os.replace(temporary, path)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp")


def _remove(path: Path) -> None:
    mark = path.with_suffix(".stop")
    for left in (path, mark, _temporary(path), _temporary(mark)):
        with contextlib.suppress(OSError):
            left.unlink()
