"""Exit codes: what a script can rely on."""

from enum import IntEnum
from typing import Final

from pml.core.errors import (
    AlreadyClaimed,
    AlreadyDecided,
    ConfigInvalid,
    ErrorCode,
    NotFound,
    PmlError,
    ToolDenied,
)


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    DENIED = 3
    PENDING = 4
    GONE = 5
    DECIDED = 6
    INTERRUPTED = 130


EXIT_OF_CODE: Final[dict[ErrorCode, Exit]] = {
    ErrorCode.INVALID: Exit.USAGE,
    ErrorCode.FORBIDDEN: Exit.FAILED,
    ErrorCode.NOT_FOUND: Exit.GONE,
    ErrorCode.CONFLICT: Exit.FAILED,
    ErrorCode.UNAVAILABLE: Exit.FAILED,
    ErrorCode.INTERNAL: Exit.FAILED,
}
_EXIT_OF_ERROR: Final[tuple[tuple[type[PmlError], Exit], ...]] = (
    (ConfigInvalid, Exit.FAILED),  # the command line was right, the file is not
    (ToolDenied, Exit.DENIED),
    (NotFound, Exit.GONE),
    (AlreadyDecided, Exit.DECIDED),
    (AlreadyClaimed, Exit.DECIDED),
)


def exit_of(error: PmlError) -> Exit:
    """Return the exit code that tells of `error`."""
    return next((code for kind, code in _EXIT_OF_ERROR if isinstance(error, kind)), EXIT_OF_CODE[error.code])
