"""Keys of this home: random bytes in private files, made when they are first needed."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from pml.host.private import private_directory
from pml.host.replace import create_file

KEY_BYTES: Final = 32


def key_at(path: Path) -> bytes:
    """Return the key. Raises: OSError, ValueError if there is none to be had that only its user can read."""
    private_directory(path.parent)
    with suppress(FileExistsError):
        if not path.exists():
            create_file(path, secrets.token_bytes(KEY_BYTES), mode=0o600)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe in its place would wait
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) or (os.name == "posix" and mode & 0o077):
            raise ValueError(f"{path.name} is not a private file")
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path.name} has a wrong length")
    return key
