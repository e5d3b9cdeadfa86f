"""Disk failures, told with the place and the next step, whichever program met them."""

import errno
import os
import re
from pathlib import Path
from typing import Final

from pml.core.errors import Unavailable
from pml.core.text import quote
from pml.host import disk

_CLOSED: Final = (errno.EACCES, errno.EPERM)
_FULL: Final = (
    (re.compile(r"[Nn]o space left on device|not enough space on the disk"), errno.ENOSPC),
    (re.compile(r"[Dd]isk quota exceeded"), errno.EDQUOT),
)


def unavailable(what: str, exc: OSError, *, at: str) -> Unavailable:
    """Return what to tell people when the disk does not let us do `what`, beneath `at` if it is not said."""
    place = exc.filename if isinstance(exc.filename, str) else at
    hint = "make it accessible to you" if exc.errno in _CLOSED else None
    return disk.unavailable(f"cannot {what}: {quote(place, limit=200)}", exc, hint=hint)


def full_disk(said: str, what: str, *, at: Path) -> Unavailable | None:
    """Return the error if a program that filled `at` said that the disk is full, whatever else it said."""
    for pattern, number in _FULL:
        if pattern.search(said):
            return unavailable(what, OSError(number, os.strerror(number)), at=str(at))
    return None
