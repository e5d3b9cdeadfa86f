"""Wake-ups for those who wait for an approval, or for any audit entry, whichever process wrote it.

In this process a commit wakes its watchers at once. Other processes get a payload-free datagram, a
hint to re-read the log from their cursor; hints may be lost, so a look at `data_version` every 100 ms
is the net. What is read decides, never what was sent.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

import apsw

from pml.core.approvals.record import ApprovalId, OwnerId
from pml.host.private import private_directory
from pml.store.owners import socket_name
from pml.store.sqlite.database import Database
from pml.store.sqlite.failures import unavailable
from pml.store.sqlite.queries import queries

POLL_S: Final = 0.1
_SOCKET_PATH_BYTES: Final = 100  # the system's limit is 104 to 108
_HINT: Final = b"\x00"


class Watch:
    """One watcher: remembers that something changed until it is waited for."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        self._changed.set()

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


class Watchers:
    """Who in this process waits for which approval; None stands for whatever the log tells."""

    def __init__(self) -> None:
        self._watches: dict[ApprovalId | None, set[Watch]] = {}

    def add(self, approval_id: ApprovalId | None) -> Watch:
        watch = Watch()
        self._watches.setdefault(approval_id, set()).add(watch)
        return watch

    def remove(self, approval_id: ApprovalId | None, watch: Watch) -> None:
        watches = self._watches[approval_id]
        watches.remove(watch)
        if not watches:
            del self._watches[approval_id]

    def wake(self, touched: Sequence[ApprovalId]) -> None:
        for approval_id in touched:
            for watch in self._watches.get(approval_id, ()):
                watch.wake()
        for watch in self._watches.get(None, ()):
            watch.wake()

    def __bool__(self) -> bool:
        return bool(self._watches)


class SharedChanges:
    """Changes made by every process on one database."""

    def __init__(self, home: Path, owner: OwnerId, database: Database) -> None:
        self._directory = private_directory(home / "run")
        self._name = socket_name(owner)
        self._database = database
        self._watchers = Watchers()
        self._cursor = 0
        self._seen_version = -1
        self._poll: asyncio.TimerHandle | None = None
        self._inbox: socket.socket | None = None

    @contextlib.contextmanager
    def watch(self, approval_id: ApprovalId | None = None) -> Generator[Watch]:
        """Notice changes to one approval, or all that the log tells, for the block. Raises: Unavailable."""
        if not self._watchers:
            self._listen()
        watch = self._watchers.add(approval_id)
        try:
            yield watch
        finally:
            self._watchers.remove(approval_id, watch)

    def committed(self, touched: Sequence[ApprovalId]) -> None:
        """Wake this process's watchers and hint to every other process."""
        self._watchers.wake(touched)
        with contextlib.suppress(OSError):  # a hint that cannot be sent is replaced by the poll
            self._hint_others()

    def close(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
        if self._inbox is not None:
            asyncio.get_running_loop().remove_reader(self._inbox)
            self._inbox.close()
            self._inbox = None
            with contextlib.suppress(OSError):
                (self._directory / self._name).unlink()

    def _listen(self) -> None:
        try:
            self._seen_version = self._version()
            self._cursor = self._database.run(queries()["last_seq"])[0][0]
        except apsw.Error as exc:
            raise unavailable(exc, self._database.path) from exc
        if self._inbox is None:
            self._inbox = _bind(self._directory, self._name)
            if self._inbox is not None:
                asyncio.get_running_loop().add_reader(self._inbox, self._on_hint)
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_S, self._on_poll)

    def _on_hint(self) -> None:
        if self._inbox is None:
            return
        with contextlib.suppress(BlockingIOError):
            while self._inbox.recv(1):
                pass
        self._catch_up()

    def _on_poll(self) -> None:
        self._poll = None
        if not self._watchers:
            return
        self._poll = asyncio.get_running_loop().call_later(POLL_S, self._on_poll)
        with contextlib.suppress(apsw.Error):  # looked at again soon; whoever reads is told what is wrong
            if self._version() != self._seen_version:
                self._catch_up()

    def _catch_up(self) -> None:
        try:
            self._seen_version = self._version()
            rows = self._database.run(queries()["changed_after"], (self._cursor,))
        except apsw.Error:
            self._seen_version = -1  # look again at the next poll
            return
        if rows:
            self._cursor = rows[-1][0]
            self._watchers.wake([row[1] for row in rows if row[1] is not None])

    def _version(self) -> int:
        return self._database.run("PRAGMA data_version")[0][0]

    def _hint_others(self) -> None:
        with os.scandir(self._directory) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".sock")]
        others = [name for name in names if name != self._name]
        if not others or not hasattr(socket, "AF_UNIX"):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for name in others:
                with _short_path(self._directory, name) as path:
                    _hint(sender, path, self._directory / name)


def _hint(sender: socket.socket, path: str | None, file: Path) -> None:
    if path is None:
        return
    try:
        sender.sendto(_HINT, path)
    except ConnectionRefusedError:
        file.unlink(missing_ok=True)  # its process is dead: a bound socket never refuses
    except OSError:
        pass  # a full inbox has hints enough; anything else is caught by the poll


def _bind(directory: Path, name: str) -> socket.socket | None:
    """Return the inbox for hints, or None where the system has no such sockets (the poll remains)."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.setblocking(False)
    try:
        with _short_path(directory, name) as path:
            if path is None:
                raise OSError("no path is short enough for a socket")
            inbox.bind(path)
    except OSError:
        inbox.close()
        return None
    return inbox


@contextlib.contextmanager
def _short_path(directory: Path, name: str) -> Generator[str | None]:
    """Yield a path to `name` that fits a socket address, through /proc where the plain one is too long."""
    plain = str(directory / name)
    if len(os.fsencode(plain)) <= _SOCKET_PATH_BYTES:
        yield plain
        return
    if not os.path.isdir("/proc/self/fd"):
        yield None
        return
    fd = os.open(directory, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
