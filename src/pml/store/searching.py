"""What a search for approvals looks at, alike in every store: literal text, its ASCII letters in any case.

It looks at the tool, both inputs as their JSON is spelt, the session's id and name, who decided, and what was
said. A text that JSON spells in another way (a quote, a line break) is found in an input all the same.
"""

import string
from typing import Final

from pml.core.approvals import Approval
from pml.core.ports import Session
from pml.store.rows import spell

_TEXTS: Final = ("tool_name", "session_id", "response_message", "reason", "decided_by ->> '$.id'")
_INPUTS: Final = ("tool_input", "updated_input")
_NAMED: Final = "session_id IN (SELECT id FROM sessions WHERE instr(lower(name), ?))"
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)  # as SQLite's lower()


def search_clause(search: str) -> tuple[str, list[str]]:
    """Return a condition of SQL, and its values."""
    plain, spellings = _needles(search)
    looks = [(_within(column), plain) for column in _TEXTS] + [(_NAMED, plain)]
    looks += [(_within(column), spelling) for column in _INPUTS for spelling in spellings]
    return f"({' OR '.join(each for each, _ in looks)})", [value for _, value in looks]


def is_found(search: str, record: Approval, session: Session | None) -> bool:
    """Tell what the condition tells."""
    plain, spellings = _needles(search)
    decider = None if record.decided_by is None else record.decided_by.id
    name = None if session is None else session.name
    texts = [record.tool_name, record.session_id, record.response_message, record.reason, decider, name]
    inputs = [spell(each) for each in (record.tool_input, record.updated_input) if each is not None]
    return any(plain in text.translate(_LOWER) for text in texts if text is not None) or any(
        spelling in text.translate(_LOWER) for text in inputs for spelling in spellings
    )


def _needles(search: str) -> tuple[str, list[str]]:
    """Return the text as it stands in texts, and all ways in which it may stand in JSON."""
    plain = search.translate(_LOWER)
    return plain, sorted({plain, spell(search)[1:-1].translate(_LOWER)})


def _within(column: str) -> str:
    return f"instr(lower({column}), ?)"  # not LIKE: whatever is searched for is no pattern
