"""Words around a question that do not depend on its subject: how long, by whom, what an answer covers."""

import re
from collections.abc import Mapping
from typing import Final

from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, State
from pml.core.rules.ruleset import runs_code
from pml.core.text import visible
from pml.core.values import Json, JsonObject

_PLAIN_NAME: Final = re.compile(r"(?!you$)[\w.@+-]+", re.IGNORECASE)  # it reads as nothing but a name
_UNITS: Final = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def gone_note(record: Approval, *, has_ended: bool) -> str | None:
    """Return what to say of a question whose asker may not wait for it; `has_ended`: its session has."""
    if record.status is not State.PENDING:
        return None
    if record.abandoned_at is not None:
        return "the agent disconnected; withdrawn unless it reconnects"
    return (
        "its session has ended: an answer applies only if it comes back and asks again" if has_ended else None
    )


def span(seconds: float) -> str:
    """Return a length of time in the two largest units that matter."""
    whole = max(0, int(seconds))
    for size, big, small_size, small in _UNITS:
        if whole >= size:
            return f"{whole // size} {big} {whole % size // small_size} {small}"
    return f"{whole} s"


def who_decided(by: Decider) -> str:
    """Return who it was, visible. Only a person stands there by name alone: a client chooses its own."""
    name = visible(by.id)
    if by.kind is DeciderKind.RULE:
        return "a rule"
    if by.kind is DeciderKind.PERSON and _PLAIN_NAME.fullmatch(name):
        return name
    what = "session" if by.kind is DeciderKind.PARENT else f"the {by.kind}"
    return f"{what} `{name}`" + (" (its model)" if by.channel is Channel.MODEL else "")


def always_note(entry: Json) -> str | None:
    """Return what else an entry that "always" would write allows, None if it is nothing."""
    is_exact = isinstance(entry, Mapping)
    tool = str(entry.get("tool")) if is_exact else str(entry)
    if ":" in tool:
        return None
    with_what = " with these arguments" if is_exact else ""
    return f"also allows a tool called {visible(tool)} of any server{with_what}"


def session_memory(tool: str, arguments: JsonObject) -> str:
    """Return what an allow that is remembered for the session covers."""
    if not runs_code(tool, arguments):
        return f"every {visible(tool)} until the session ends"
    if ":" not in tool and "command" in arguments:
        return "this exact command, in any folder, until the session ends"
    folder = "" if ":" in tool else ", in any folder"  # where a server works does not depend on the call
    return f"exactly this {visible(tool)}{folder}, until the session ends"
