"""Files as a whole: written so that a reader sees all or nothing, read only where they are plain files."""

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from pml.core.errors import Invalid, Unavailable

_STALE_S: Final = 60.0  # a write takes milliseconds
_TEMPORARY: Final = ".pml-registry-"
_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
)


def write_whole(path: Path, content: bytes, *, mode: int, replace: bool = True) -> None:
    """Give `path` the `content`. Raises: OSError; without `replace`, FileExistsError if there is one."""
    import tempfile

    _remove_stale(path.parent)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.chmod(temporary, mode)
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def read_plain(path: Path, *, limit: int) -> bytes | None:
    """Return the content of a plain file, None if there is none.

    Raises: Invalid for a link, a device or more than `limit` bytes; Unavailable if it cannot be read.
    """
    try:
        if path.is_symlink():  # where the system has no O_NOFOLLOW
            raise _no_plain_file(path)
        descriptor = os.open(path, _FLAGS)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return None
        if exc.errno in (errno.ELOOP, errno.ENXIO):  # a link put there just now; a pipe or socket
            raise _no_plain_file(path) from exc
        raise Unavailable(f"cannot read `{path}`: {exc.strerror}") from exc
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_plain_file(path)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    except OSError as exc:
        raise Unavailable(f"cannot read `{path}`: {exc.strerror}") from exc
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise Invalid(f"`{path}` has more than {limit:,} bytes")
    return content


def _no_plain_file(path: Path) -> Invalid:
    return Invalid(f"`{path}` is no plain file", hint="a registry holds files, no links")


def _remove_stale(directory: Path) -> None:
    """Remove what writers that were killed left behind."""
    with os.scandir(directory) as entries:
        left = [entry for entry in entries if entry.name.startswith(_TEMPORARY)]
    for entry in left:
        with suppress(OSError):  # a file that cannot be removed is in nobody's way
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_S:
                os.unlink(entry)
