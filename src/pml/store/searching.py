"""What a search for approvals looks at, alike in every store: literal text, in whatever case ASCII letters are.

It looks at the tool, both inputs as their JSON is spelt, the session's id and name, who decided, and what was
said. A text that JSON spells in another way (a quote, a line break) is found in an input all the same.
"""

import string
from typing import Final

from pml.core.approvals import Approval
from pml.core.ports import Session
from pml.store.rows import spell

# instr, not LIKE: whatever is searched for is no pattern.
SEARCH: Final = """(
    instr(lower(tool_name), ?) OR instr(lower(session_id), ?) OR instr(lower(response_message), ?)
    OR instr(lower(reason), ?) OR instr(lower(decided_by ->> '$.id'), ?)
    OR instr(lower(tool_input), ?) OR instr(lower(updated_input), ?)
    OR instr(lower(tool_input), ?) OR instr(lower(updated_input), ?)
    OR session_id IN (SELECT id FROM sessions WHERE instr(lower(name), ?))
)"""
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)  # as SQLite's lower()


def search_values(search: str) -> list[str]:
    """Return the values of `SEARCH`."""
    plain, spelt = _needles(search)
    return [*[plain] * 7, spelt, spelt, plain]


def is_found(search: str, record: Approval, session: Session | None) -> bool:
    """Tell what `SEARCH` tells."""
    plain, spelt = _needles(search)
    inputs = [spell(each) for each in (record.tool_input, record.updated_input) if each is not None]
    told = [record.response_message, record.reason, record.decided_by and record.decided_by.id]
    named = "" if session is None else session.name
    texts = [record.tool_name, record.session_id, named, *inputs, *(text for text in told if text)]
    return any(plain in text.translate(_LOWER) for text in texts) or any(
        spelt in text.translate(_LOWER) for text in inputs
    )


def _needles(search: str) -> tuple[str, str]:
    return search.translate(_LOWER), spell(search)[1:-1].translate(_LOWER)
