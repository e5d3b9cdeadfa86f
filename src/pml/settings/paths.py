"""The real file system as the rules see it: where a path leads once its links are followed."""

import errno
import os
import stat
from typing import Final

from pml.core.lookups import Look

_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class RealPaths:
    """Follows links on disk; keeps the part of a path that does not exist."""

    def __init__(self, home: str) -> None:
        self._home = home

    @property
    def home(self) -> str:
        return self._home

    def real(self, path: str) -> str:
        """Return where the absolute `path` leads. Raises: ValueError for what no system can open, OSError."""
        _check(path)
        real = os.path.realpath(path, strict=False)
        # POSIX lets `//etc` mean something else than `/etc`; on the systems PML runs on it does not.
        return "/" + real.lstrip("/") if real.startswith("//") else real

    def link(self, path: str) -> str | None:
        """Return the target of the link at `path`, None if something else is there, or nobody may look.

        Raises: FileNotFoundError; ValueError for what no system can open.
        """
        _check(path)
        try:
            return os.readlink(path)
        except OSError as exc:
            if exc.errno in _NOTHING_THERE:
                raise FileNotFoundError(exc.errno, exc.strerror, path) from exc
            return None

    def look(self, path: str) -> Look:
        """Return what the link at `path` says, which file it is, or None if there is none to be seen."""
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                return os.readlink(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino

    def is_writable(self, folder: str) -> bool:
        """Tell whether this user can put other things into the folder."""
        return os.access(folder, os.W_OK)

    def is_folder(self, path: str) -> bool:
        return "\0" not in path and os.path.isdir(path)


def _check(path: str) -> None:
    if "\0" in path or not os.path.isabs(path):
        raise ValueError("expected an absolute path without NUL")
