"""The holder of the port that the hub wanted: which process, and whether it is a hub itself."""

import contextlib
import errno
import http.client
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp

from pml.core.errors import Invalid, Unavailable
from pml.core.text import quote
from pml.core.values import loads_object
from pml.hub.app import NAME
from pml.hub.guard import OPEN_PATH
from pml.web.connections import Limits
from pml.web.http_server import Tls, allow_many_files, listen, serve, share_time

# Permits wait for as long as people take; 10,000 of them, and all other requests beside them.
LIMITS: Final = Limits(connections=30_000, per_peer=30_000, answers_last=True)
_ASK_S: Final = 1.0  # a hub answers at once; whatever else is there may never
_MAX_COMMAND: Final = 80
_MAX_HEALTH: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A process that listens; what the system does not let us see is None."""

    pid: int
    command: str


def listen_as_hub(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises: Unavailable, naming who has the port, if somebody does."""
    try:
        return listen(host, port)
    except Unavailable as exc:
        cause = exc.__cause__
        if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
            raise
        raise Unavailable(
            f"port {port} is taken by {_told(find_listener(port), is_hub=is_hub(host, port))}",
            hint="end it, or give another with `--port`; port 0 picks a free one",
        ) from exc


async def serve_hub(
    app: ASGIApp, listening: socket.socket, *, on_stop: Callable[[], None], tls: Tls | None = None
) -> None:
    """Serve until cancelled, with the patience that waiting for people takes."""
    allow_many_files()
    share_time()
    await serve(app, listening, limits=LIMITS, tls=tls, on_stop=on_stop)


def is_hub(host: str, port: int) -> bool:
    """Tell whether a hub answers there."""
    near = {"0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(near, port, timeout=_ASK_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, Invalid, http.client.HTTPException):
        connection.request("GET", OPEN_PATH)
        answer = loads_object(connection.getresponse().read(_MAX_HEALTH))
        return answer.get("name") == NAME
    return False


def _told(found: Listener | None, *, is_hub: bool) -> str:
    what = "another hub, of another PML_HOME" if is_hub else "another program"
    if found is None:
        return f"{what} (of another user: its process cannot be seen)"
    return f"{what}: process {found.pid} ({quote(found.command, limit=_MAX_COMMAND)})"


if sys.platform == "linux":
    _LISTENS: Final = "0A"

    def find_listener(port: int) -> Listener | None:
        """Return the process that listens on the port, if the system lets us see it."""
        wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                folder = f"/proc/{name}/fd"
                if wanted & {_link(f"{folder}/{fd}") for fd in os.listdir(folder)}:
                    return Listener(pid=int(name), command=_command(name))
        return None

    def _inodes(port: int) -> Iterator[str]:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with contextlib.suppress(OSError), open(table) as file:
                for line in file.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                        yield fields[9]

    def _link(path: str) -> str:
        try:
            return os.readlink(path)
        except OSError:  # closed meanwhile
            return ""

    def _command(pid: str) -> str:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.fsdecode(file.read().replace(b"\0", b" ").strip())
else:

    def find_listener(port: int) -> Listener | None:
        """Return the process that listens on the port, if the system lets us see it."""
        import psutil

        with contextlib.suppress(psutil.Error, OSError):
            for found in psutil.net_connections("tcp"):
                is_it = found.status == psutil.CONN_LISTEN and found.laddr and found.laddr.port == port
                if is_it and found.pid is not None:
                    return Listener(pid=found.pid, command=" ".join(psutil.Process(found.pid).cmdline()))
        return None
