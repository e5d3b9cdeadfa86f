"""Replacing a file as a whole: a reader sees the old content or the new, never a part, also after a crash.

Knows nothing of what is in the file, and does not lock: the caller does.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, content: bytes, *, mode: int, last_check: Callable[[], None]) -> None:
    """Give `path` the `content` and `mode`, durably, unless `last_check` raises just before it happens.

    Raises: OSError; `path` is whole then too, and no other file is left behind.
    """
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name.lstrip('.')}.", suffix=".tmp"
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.chmod(temporary, mode)
            os.fsync(file.fileno())
        last_check()
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the new name durable: without it a power loss may bring the old file back."""
    if sys.platform == "win32":  # directories cannot be opened there
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
