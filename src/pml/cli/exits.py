"""Exit codes: what a script can rely on."""

from enum import IntEnum
from typing import Final

from pml.core.approvals.record import State
from pml.core.errors import (
    AlreadyClaimed,
    AlreadyDecided,
    CodeFailed,
    ConfigInvalid,
    ErrorCode,
    NotApproved,
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
_EXIT_OF_OUTCOME: Final[dict[str, Exit]] = {
    State.DENIED: Exit.DENIED,
    State.EXPIRED: Exit.GONE,
    State.CANCELLED: Exit.GONE,
    State.UNKNOWN: Exit.FAILED,
    "dependency_refused": Exit.DENIED,
}


def exit_of(error: PmlError) -> Exit:
    """Return the exit code that tells of `error`."""
    if isinstance(error, CodeFailed):
        return Exit.DENIED if error.refusal in ("TOOL_DENIED", "user_denied") else Exit.FAILED
    if isinstance(error, NotApproved):
        return _EXIT_OF_OUTCOME.get(error.outcome, Exit.DECIDED)  # all other outcomes: somebody used it
    return next((code for kind, code in _EXIT_OF_ERROR if isinstance(error, kind)), EXIT_OF_CODE[error.code])
