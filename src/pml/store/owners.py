"""Which processes on a store are alive: each holds a lock file that ends with it, however it ends."""

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from pml.core.approvals import OwnerId
from pml.host.locks import is_same_file, open_lock_file, try_lock
from pml.host.private import private_directory


class OwnerLocks:
    """The lock files of one `PML_HOME`; `me` is held from here until `close` or the end of the process."""

    def __init__(self, home: Path, me: OwnerId) -> None:
        self._directory = private_directory(home / "run")
        self.me = me
        self._fd = _hold(self._path(me))

    def alive(self, owner: OwnerId) -> bool:
        """Tell whether `owner` still runs. Its lock is taken before its first row is written."""
        if owner == self.me:
            return True
        path = self._path(owner)
        try:
            fd = open_lock_file(path, create=False)
        except FileNotFoundError:
            return False
        try:
            if not try_lock(fd):
                return True
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # we hold it, so its owner is dead and nobody else will ever take this name
            return False
        finally:
            os.close(fd)

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
        return str(self._directory / f"{owner}.lock")


def _hold(path: str) -> int:
    while True:
        fd = open_lock_file(path, create=True)
        if try_lock(fd) and is_same_file(fd, path):
            return fd
        os.close(fd)  # a sibling tidied the file up between open and lock
