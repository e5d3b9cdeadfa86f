"""Replacing a file as a whole: a reader sees the old content or the new, never a part, also after a crash.

Knows nothing of what is in the file, and does not lock: the caller does.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_STALE_S: Final = 60.0  # a replacement takes milliseconds; one from another `PML_HOME` holds another lock


def replace_file(
    path: Path, content: bytes, *, mode: int, last_check: Callable[[], None] = lambda: None
) -> None:
    """Give `path` the `content` and `mode`, durably, unless `last_check` raises just before it happens.

    Raises: OSError; `path` is whole then too, and no other file is left behind.
    """
    with _written_beside(path, content, mode=mode) as temporary:
        last_check()
        os.replace(temporary, path)
    sync_directory(path.parent)


def create_file(path: Path, content: bytes, *, mode: int) -> None:
    """As `replace_file`, for a file that must not be there yet. Raises: FileExistsError, OSError."""
    with _written_beside(path, content, mode=mode) as temporary:
        os.link(temporary, path)
    sync_directory(path.parent)


@contextmanager
def _written_beside(path: Path, content: bytes, *, mode: int) -> Generator[str]:
    prefix = f".{path.name.lstrip('.')}."
    _remove_stale(path.parent, re.compile(rf"{re.escape(prefix)}[a-z0-9_]{{8}}\.tmp"))
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.chmod(temporary, mode)
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _remove_stale(directory: Path, name: re.Pattern[str]) -> None:
    """Remove what replacements that were killed left behind."""
    with os.scandir(directory) as entries:
        left = [entry for entry in entries if name.fullmatch(entry.name)]
    for entry in left:
        with suppress(OSError):  # a file that cannot be removed does no harm
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_S:
                os.unlink(entry)


def sync_directory(directory: Path) -> None:
    """Make new names in `directory` durable: without it a power loss may bring the old ones back."""
    if sys.platform == "win32":  # directories cannot be opened there
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
