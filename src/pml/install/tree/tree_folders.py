"""Folders of installed trees: `servers/<name>/<version>-<12 hex of its hash>/`, the list of files beside it.

A tree that has its place is never touched again until it is removed: one that was damaged is left as it is,
and its replacement stands beside it. Which of them is in use is not known here.
"""

import itertools
import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from pml.core.ports.loader import Installed
from pml.core.text import visible
from pml.host.private import private_directory
from pml.host.replace import sync_directory
from pml.install.folder_names import is_name
from pml.install.tree.hashes import CACHE, LIST, Difference, TreeHash, keep_list, verify
from pml.install.tree.stage import remove_tree

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.+-]")
_BESIDE: Final = (LIST, CACHE)


class Shelf:
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
