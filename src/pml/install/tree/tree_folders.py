"""Folders of installed trees: `servers/<name>/<version>-<12 hex of its hash>/`, the list of files beside it.

A tree that has its place is never touched again until it is removed: one that was damaged is left as it is,
and its replacement stands beside it. Which of them is in use is not known here.

An install under way has a private folder: its owner's while the lock file beside it is held, never trusted
afterwards, and removed when its owner was killed.
"""

import asyncio
import itertools
import os
import re
import shutil
import stat
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from pml.core.ports.loader import Installed
from pml.core.text import visible
from pml.host.locks import is_same_file, open_lock_file, try_lock
from pml.host.private import private_directory
from pml.host.replace import sync_directory
from pml.install.folder_names import is_name
from pml.install.tree.hashes import CACHE, LIST, Difference, TreeHash, keep_list, verify

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.+-]")
_BESIDE: Final = (LIST, CACHE)
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


class InstalledTrees:
    def __init__(self, servers: Path) -> None:
        self._servers = servers

    def place(self, name: str, version: str, tree: Path, hashed: TreeHash) -> Path:
        """Move `tree` to its place, or use the equal one that is there. Raises: OSError.

        The list of files is durable before the tree bears its name, and the name before this returns. The
        files themselves are not synced: after a loss of power all of them are read before they are used.
        """
        home = self._servers / name
        if home.is_symlink():  # none of ours, and what lies behind it would never be proven
            home.unlink()
        private_directory(home)
        title = f"{_UNSAFE.sub('_', version)[:64]}-{hashed.digest.removeprefix('sha256:')[:12]}"
        for n in itertools.count():
            place = home / (f"{title}.{n}" if n else title)
            if not os.path.lexists(place):
                self._move(tree, place, hashed)
                return place
            if verify(place, hashed.digest, read_all=True) is None:
                return place
        raise AssertionError

    def discard(self, place: Path) -> None:
        """Remove one tree and what is kept beside it."""
        for path in (place, *(place.with_name(place.name + ending) for ending in _BESIDE)):
            remove_tree(path)
        with suppress(OSError):  # others stand there
            place.parent.rmdir()

    def verify(self, installed: Installed, *, read_all: bool = False) -> Difference | None:
        """Return what is not as it was installed or accepted, or None."""
        place = Path(installed.path)
        real = os.path.join(os.path.realpath(self._servers), installed.dependency.name, place.name)
        if os.path.realpath(place) != real:
            link = next((path for path in (place.parent, place) if path.is_symlink()), place)
            return Difference(files=(f"its folder {visible(str(link))} is a link",), tree="")
        return verify(place, installed.tree, read_all=read_all)

    def names(self) -> list[str]:
        """Return the names under which something stands here; folders of others have none."""
        return sorted(entry.name for entry in _entries(self._servers) if is_name(entry.name))

    def paths(self, name: str) -> list[str]:
        """Return the trees that stand under `name`."""
        return [entry.path for entry in _entries(self._servers / name) if _tree_of(entry.path) == entry.path]

    def clear(self, name: str, *, keep: Collection[str]) -> int:
        """Remove all that stands under `name` but the trees in `keep`; return how many bytes that frees."""
        home, freed = self._servers / name, 0
        if home.is_symlink():  # what lies behind it is not ours to remove
            home.unlink()
            return 0
        for entry in _entries(home):
            if _tree_of(entry.path) not in keep:
                freed += _size(entry)
                remove_tree(Path(entry.path))
        with suppress(OSError):  # what is kept stands there
            home.rmdir()
        return freed

    def _move(self, tree: Path, place: Path, hashed: TreeHash) -> None:
        try:
            keep_list(place, hashed)
            os.rename(tree, place)
            sync_directory(place.parent)
            sync_directory(self._servers)
        except BaseException:
            self.discard(place)
            raise


def _tree_of(path: str) -> str:
    """Return the tree that `path` is, or is kept beside."""
    return path.removesuffix(LIST).removesuffix(CACHE)


def _entries(folder: Path | str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(entry: "os.DirEntry[str]") -> int:
    if entry.is_dir(follow_symlinks=False):
        return sum(_size(below) for below in _entries(entry.path))
    return entry.stat(follow_symlinks=False).st_size


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
