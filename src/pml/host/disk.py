"""A disk that does not let us write: in words for people, with the next step, wherever it is met."""

import errno
import shutil
from collections.abc import Mapping
from typing import Final, NamedTuple

from pml.core.errors import Unavailable

LEAST_FREE: Final = 256 * 1024  # a decision is a few KiB, and SQLite's index of its log begins with 32


class _Meaning(NamedTuple):
    reason: str
    hint: str


_MEANINGS: Final[Mapping[int, _Meaning]] = {
    errno.ENOSPC: _Meaning("the disk is full", "free some space on that disk, then try again"),
    errno.EDQUOT: _Meaning(
        "your disk quota is used up", "free some of your quota on that disk, then try again"
    ),
    errno.EROFS: _Meaning("the disk is read-only", "set `PML_HOME` to a folder that can be written"),
}


def reason_of(exc: OSError) -> str:
    """Return why the system refused; a full disk is called full."""
    meaning = _MEANINGS.get(exc.errno or 0)
    return (exc.strerror or str(exc) or type(exc).__name__) if meaning is None else meaning.reason


def hint_of(exc: OSError, otherwise: str | None = None) -> str | None:
    """Return what to do about it; `otherwise` where the disk is not to blame."""
    meaning = _MEANINGS.get(exc.errno or 0)
    return otherwise if meaning is None else meaning.hint


def is_full(folder: str) -> bool:
    """Tell whether the disk that holds `folder` has no room for what a decision takes."""
    try:
        return shutil.disk_usage(folder).free < LEAST_FREE
    except OSError:
        return False


def unavailable(what: str, exc: OSError, *, hint: str | None = None) -> Unavailable:
    """Return the error to raise: `what` was to be done, or to be written, and the reason it was not."""
    return Unavailable(f"{what}: {reason_of(exc)}", hint=hint_of(exc, hint))
