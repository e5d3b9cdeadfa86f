"""How long, and what became of a question, in few words that are safe to draw."""

from datetime import datetime
from typing import Final

from pml.core.approvals import Approval, DeciderKind, State
from pml.core.errors import PmlError
from pml.core.text import visible

TOLD: Final = (PmlError, OSError)  # what is said at the screen; the inbox goes on
_UNITS: Final = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def span(seconds: float) -> str:
    """Return a length of time in the two largest units that matter."""
    whole = max(0, int(seconds))
    for size, big, small_size, small in _UNITS:
        if whole >= size:
            return f"{whole // size} {big} {whole % size // small_size} {small}"
    return f"{whole} s"


def what_became(record: Approval, now: datetime) -> str:
    """Return who decided and how long ago, or why nobody did."""
    ago = "" if record.resolved_at is None else f" {span((now - record.resolved_at).total_seconds())} ago"
    by = record.decided_by
    if by is not None:
        who = "a rule" if by.kind is DeciderKind.RULE else visible(by.id)
        return f"{who} {'denied' if record.status is State.DENIED else 'allowed'} it{ago}"
    reason = "" if record.reason is None else f": {visible(record.reason)}"
    return f"{record.status}{ago}{reason}"


def problem(error: PmlError | OSError) -> str:
    """Return what went wrong and the next step in one line."""
    if isinstance(error, OSError):
        return visible(error.strerror or str(error))
    hint = "" if error.hint is None else f" → {visible(error.hint)}"
    return f"{visible(error.message)}{hint}"
