"""The text of a file that somebody else named, for showing it: never waits, never raises, never reads much.

Only regular files are opened: opening a pipe or a device can wait for ever or do something. What lies in a
forbidden folder is not read, by whatever links the name leads there; nor is what the system makes up for
whoever reads it: it would tell of PML itself, not of what whoever named it would find.
"""

import os
import stat
from typing import Final

from pml.core.cards.files import Present, is_within
from pml.core.packages.install_facts import bytes_text

MAX_BYTES: Final = 1 << 20
_MADE_UP: Final = ("/proc", "/sys", "/dev")
_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
)


def read_text(path: str, *, forbidden: str) -> Present:
    """Return the file at the absolute `path` as it is now, unless it lies in the folder `forbidden`."""
    try:
        real, closed = os.path.realpath(path), os.path.realpath(forbidden)
    except (OSError, ValueError):
        return Present(path=path, problem="the file cannot be read (its name cannot be used)")
    if is_within(real, closed):
        return Present(path=real, problem="PML's own files are not shown")
    named = os.path.normpath(path)  # `/proc/self/cwd` leads away, by where PML stands
    if any(is_within(each, folder) for each in (named, real) for folder in _MADE_UP):
        return Present(path=real, problem="what the system itself shows as a file is not read")
    try:
        return _read(real)
    except FileNotFoundError:
        return Present(path=real, is_missing=True)
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "its name cannot be used"
        return Present(path=real, problem=f"the file cannot be read ({why.lower()})")


def real_path(path: str) -> str:
    """Return where the path leads, or the path itself if that cannot be told."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _read(real: str) -> Present:
    """Raises: OSError, ValueError."""
    if not stat.S_ISREG(os.lstat(real).st_mode):
        return Present(path=real, problem="it is not a regular file")
    descriptor = os.open(real, _FLAGS)
    try:
        # another may stand there by now, or a folder above it may have become a link
        is_same = stat.S_ISREG(os.fstat(descriptor).st_mode) and os.path.realpath(real) == real
        body = _read_all(descriptor) if is_same else b""
    finally:
        os.close(descriptor)
    if not is_same:
        return Present(path=real, problem="it is not a regular file")
    if len(body) > MAX_BYTES:
        return Present(path=real, problem=f"the file has more than {bytes_text(MAX_BYTES)}")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return Present(path=real, problem="the file is not text")
    if "\0" in text:
        return Present(path=real, problem="the file is not text")
    return Present(path=real, text=text)


def _read_all(descriptor: int) -> bytes:
    """Return all of the file, or a byte more than is shown of any."""
    body = bytearray()
    while len(body) <= MAX_BYTES and (part := os.read(descriptor, MAX_BYTES + 1 - len(body))):
        body += part
    return bytes(body)
