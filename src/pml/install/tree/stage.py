"""Private folders for installs under way: what one that was killed left is told by its lock, and removed.

A folder is its owner's while the lock file beside it is held, and never trusted afterwards.
"""

import asyncio
import os
import shutil
import stat
import threading
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from pml.host.locks import is_same_file, open_lock_file, try_lock
from pml.host.private import private_directory

_LOCK: Final = ".lock"

T = TypeVar("T")


class Staging:
    """The folder `PML_HOME/servers/.staging`, on one file system with where trees go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def room(self) -> AsyncGenerator[Path]:
        """Give an empty folder to one owner; it is removed at the end. Raises: OSError."""
        name = str(uuid.uuid4())
        private_directory(self._folder)
        lock = self._hold(name)
        try:
            path = self._folder / name
            path.mkdir(mode=0o700)
            yield path
        finally:
            await to_the_end(lambda _: self._remove(name))
            os.close(lock)

    def sweep(self) -> None:
        """Remove the folders of owners that are gone."""
        with suppress(FileNotFoundError):
            for name in {entry.removesuffix(_LOCK) for entry in os.listdir(self._folder)}:
                with suppress(OSError):  # one that cannot be looked at does no harm
                    self._remove_if_dead(name)

    def _hold(self, name: str) -> int:
        path = self._lock_of(name)
        while True:
            lock = open_lock_file(path, create=True)
            if try_lock(lock) and is_same_file(lock, path):
                return lock
            os.close(lock)  # a sibling swept the file up between open and lock

    def _remove_if_dead(self, name: str) -> None:
        path = self._lock_of(name)
        lock = open_lock_file(path, create=True)
        try:
            if try_lock(lock) and is_same_file(lock, path):
                self._remove(name)
        finally:
            os.close(lock)

    def _remove(self, name: str) -> None:
        """Remove the folder, and then its lock file, which is held: what is left stays to be found dead."""
        remove_tree(self._folder / name)
        if not os.path.lexists(self._folder / name):
            with suppress(OSError):
                os.unlink(self._lock_of(name))

    def _lock_of(self, name: str) -> str:
        return str(self._folder / f"{name}{_LOCK}")


def remove_tree(path: Path) -> None:
    """Remove all that lies at `path`, as far as can be; folders of packages may have come read-only.

    Nothing behind a link is touched, also if `path` itself is one.
    """
    for folder, names, _ in () if os.path.islink(path) else os.walk(path):
        for name in names:
            below = os.path.join(folder, name)
            with suppress(OSError):
                if stat.S_IMODE(os.lstat(below).st_mode) & 0o700 != 0o700 and not os.path.islink(below):
                    os.chmod(below, 0o700)
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):  # not a folder at all
        os.unlink(path)


async def to_the_end(work: Callable[[threading.Event], T]) -> T:
    """Run `work` in a thread and wait until it has ended, even if cancelled: then the event is set for it."""
    given_up = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(None, work, given_up)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        given_up.set()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        running.exception()  # looked at, since the cancellation is what is told
        raise
