"""Owners: the live processes on a store. Each holds a lock file that is released however the process ends.

The first process to notice removes what a dead owner left in `PML_HOME/run`. A lock file is removed only
under its own lock, and a lock applies only while its file still has its name.
"""

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pml.core.approvals.record import OwnerId
from pml.host.locks import is_same_file, open_lock_file, try_lock
from pml.host.private import private_directory

_LOCK: Final = ".lock"
_STALE_S: Final = 60.0  # a file this old is not one that its owner has created but not locked yet


def socket_name(owner: OwnerId) -> str:
    """Return the name in `PML_HOME/run` of the socket on which `owner` is woken."""
    return f"{owner}.sock"


class OwnerLocks:
    """The lock files of one `PML_HOME`; `me` is held from here until `close` or the end of the process."""

    def __init__(self, home: Path, me: OwnerId) -> None:
        self._directory = private_directory(home / "run")
        self.me = me
        self._fd = _hold(self._path(me))
        with contextlib.suppress(OSError):
            self._remove_leftovers()

    def alive(self, owner: OwnerId) -> bool:
        """Tell whether `owner` still runs. Its lock is taken before its first row is written."""
        return owner == self.me or not self._is_dead(owner)

    def alive_others(self) -> list[str]:
        """Return the other processes on the store that run, by the names of their locks."""
        names = [name for name in os.listdir(self._directory) if name.endswith(_LOCK)]
        owners = [OwnerId(name.removesuffix(_LOCK)) for name in names]
        return [owner for owner in owners if owner != self.me and not self._is_dead(owner)]

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path(self.me))
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _path(self, owner: OwnerId) -> str:
        return str(self._directory / f"{owner}{_LOCK}")

    def _is_dead(self, owner: OwnerId) -> bool:
        """Tell whether nobody holds the lock of `owner`, and remove what such an owner left."""
        path = self._path(owner)
        try:
            fd = open_lock_file(path, create=False)
        except FileNotFoundError:
            return True
        try:
            if not try_lock(fd):
                return False
            if is_same_file(fd, path):
                for left in (self._directory / socket_name(owner), path):
                    with contextlib.suppress(OSError):
                        os.unlink(left)
            return True
        finally:
            os.close(fd)

    def _remove_leftovers(self) -> None:
        """Remove what killed owners left: one that owns no row is asked for by nobody."""
        for name in os.listdir(self._directory):
            owner = OwnerId(name.removesuffix(_LOCK))
            if not name.endswith(_LOCK) or owner == self.me:
                continue
            with contextlib.suppress(OSError):  # one that cannot be removed is in nobody's way
                if time.time() - os.lstat(self._path(owner)).st_mtime > _STALE_S:
                    self._is_dead(owner)


def _hold(path: str) -> int:
    while True:
        fd = open_lock_file(path, create=True)
        if try_lock(fd) and is_same_file(fd, path):
            return fd
        os.close(fd)  # a sibling tidied the file up between open and lock
