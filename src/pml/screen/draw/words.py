"""Outcomes and errors in few words that are safe to draw."""

from datetime import datetime
from typing import Final

from pml.core.approvals.record import Approval, State, state_word
from pml.core.cards.facts import span, who_decided
from pml.core.errors import PmlError
from pml.core.text import visible
from pml.host.disk import reason_of

TOLD: Final = (PmlError, OSError)  # what is said at the screen; the inbox stays open


def what_became(record: Approval, now: datetime) -> str:
    """Return who decided and how long ago, or why there is no decision."""
    ago = "" if record.resolved_at is None else f" {span((now - record.resolved_at).total_seconds())} ago"
    by = record.decided_by
    if by is not None:
        return f"{who_decided(by)} {'denied' if record.status is State.DENIED else 'allowed'} it{ago}"
    reason = "" if record.reason is None else f": {visible(record.reason)}"
    return f"{state_word(record.status)}{ago}{reason}"


def problem(error: Exception) -> str:
    """Return what went wrong and the next step in one line; of an unforeseen error, only its kind."""
    if isinstance(error, OSError):
        return visible(reason_of(error))
    if not isinstance(error, PmlError):
        return f"internal error ({type(error).__name__})"
    hint = "" if error.hint is None else f" → {visible(error.hint)}"
    return f"{visible(error.message)}{hint}"
