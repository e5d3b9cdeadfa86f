"""Files and directories that only their user can read."""

import os
import stat
from pathlib import Path
from typing import Final

from pml.core.errors import Unavailable
from pml.core.text import quote

_MAX_BYTES: Final = 4096
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def private_directory(path: Path) -> Path:
    """Create `path` and what is missing above it (0700) and return it. An existing one is left as it is."""
    if not path.parent.exists():
        private_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def private_file(path: Path) -> Path:
    """Create the file empty (0600) where it is missing and return its path."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return path


def too_open(path: Path) -> bool:
    """Tell whether others than its user can reach `path`."""
    return os.name == "posix" and bool(path.stat().st_mode & 0o077)


def read_private(path: str) -> str:
    """Return the text of a small file that only this user can read.

    Raises: Unavailable if it cannot be read, belongs to somebody else, or is open to others.
    """
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Unavailable(f"{quote(path)} is not a regular file")
            if os.name == "posix" and found.st_uid != os.getuid():
                raise Unavailable(f"{quote(path)} belongs to another user")
            if os.name == "posix" and found.st_mode & 0o077:
                raise Unavailable(f"{quote(path)} is open to other users", hint="`chmod 600` closes it")
            return file.read(_MAX_BYTES).decode(errors="replace")
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "its name cannot be used"
        raise Unavailable(f"{quote(path)}: {why.lower()}") from exc
