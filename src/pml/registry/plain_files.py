"""The files of a registry and of its cache: read only where they are plain files."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from pml.core.errors import Invalid, Unavailable

_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
)


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
    return Invalid(f"`{path}` is not a plain file", hint="a registry holds files, no links")
