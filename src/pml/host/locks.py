"""Advisory file locks that end with the process that holds them, also when it is killed.

The lock is on an open file, never on the file's existence, so a crash leaves nothing stuck.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from pml.core.errors import Unavailable

LOCK_TIMEOUT_S: Final = 10.0  # an edit takes milliseconds: longer means that its holder hangs
_RETRY_S: Final = (0.001, 0.01)  # jittered, so that waiting processes do not march in step

if sys.platform == "win32":
    import msvcrt

    def try_lock(fd: int) -> bool:
        """Take the exclusive lock on an open file; False when another process holds it."""
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def try_lock(fd: int) -> bool:
        """Take the exclusive lock on an open file; False when another process holds it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_lock_file(path: str, *, create: bool) -> int:
    """Return a descriptor of the lock file that no child process inherits. Raises: FileNotFoundError."""
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags | (os.O_CREAT if create else 0), 0o600)


def is_same_file(fd: int, path: str) -> bool:
    """Tell whether `path` still names the open file: another process may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def locked(path: Path, *, timeout_s: float = LOCK_TIMEOUT_S) -> Generator[None]:
    """Hold the lock `path` for the block. Raises: Unavailable if another process holds it for too long.

    The file stays: to delete it would let two processes hold two locks of one name.
    """
    descriptor = _opened(path)
    try:
        deadline = time.monotonic() + timeout_s
        while not try_lock(descriptor):
            _refuse_late(path, deadline, timeout_s)
            time.sleep(random.uniform(*_RETRY_S))
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def locked_async(path: Path, *, timeout_s: float) -> AsyncGenerator[None]:
    """As `locked`, for a block that waits for other things too. Raises: Unavailable."""
    descriptor = _opened(path)
    try:
        deadline = time.monotonic() + timeout_s
        while not try_lock(descriptor):
            _refuse_late(path, deadline, timeout_s)
            await asyncio.sleep(random.uniform(*_RETRY_S))
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return open_lock_file(str(path), create=True)
    except OSError as exc:
        raise Unavailable(f"cannot open the lock file `{path}`: {exc.strerror}") from exc


def _refuse_late(path: Path, deadline: float, timeout_s: float) -> None:
    if time.monotonic() >= deadline:
        raise Unavailable(
            f"another process has held the lock file `{path}` for {timeout_s:g} s",
            hint="end that process, then try again",
        )
