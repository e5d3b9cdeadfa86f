"""Search for approvals, the same in every store: literal text, in upper or lower case.

It looks at the tool, both inputs as their JSON is spelt, the session's id and name, who decided, and what was
said. A text that JSON spells in another way (a quote, a line break) is found in an input all the same. SQLite
folds ASCII letters by itself; only a text that has others needs `is_within`, which takes its time.
"""

import string
from collections.abc import Callable
from typing import Final

from pml.core.approvals.record import Approval
from pml.core.ports.records import Session
from pml.store.rows.mapper import spell

_TEXTS: Final = ("tool_name", "session_id", "response_message", "reason", "decided_by ->> '$.id'")
_INPUTS: Final = ("tool_input", "updated_input")
_NAMED: Final = "session_id IN (SELECT id FROM sessions WHERE {})"
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)  # as SQLite's lower()


def search_clause(search: str) -> tuple[str, list[str]]:
    """Return a condition of SQL, and its values. It may use `is_within`."""
    within = "instr(lower({}), ?)" if search.isascii() else "is_within({}, ?)"  # not LIKE: not a pattern
    plain, spellings = _needles(search)
    looks = [(within.format(column), plain) for column in _TEXTS]
    looks.append((_NAMED.format(within.format("name")), plain))
    looks += [(within.format(column), spelling) for column in _INPUTS for spelling in spellings]
    return f"({' OR '.join(each for each, _ in looks)})", [value for _, value in looks]


def is_within(text: str | None, folded: str) -> bool:
    """Tell whether a text that is folded stands in another."""
    return text is not None and folded in text.casefold()


def is_found(search: str, record: Approval, session: Session | None) -> bool:
    """Tell what the condition tells."""
    fold = _folding(search)
    plain, spellings = _needles(search)
    decider = None if record.decided_by is None else record.decided_by.id
    name = None if session is None else session.name
    texts = [record.tool_name, record.session_id, record.response_message, record.reason, decider, name]
    inputs = [spell(each) for each in (record.tool_input, record.updated_input) if each is not None]
    return any(plain in fold(text) for text in texts if text is not None) or any(
        spelling in fold(text) for text in inputs for spelling in spellings
    )


def _needles(search: str) -> tuple[str, list[str]]:
    """Return the text, folded, as it stands in texts, and all ways in which it may stand in JSON."""
    fold = _folding(search)
    plain = fold(search)
    return plain, sorted({plain, fold(spell(search)[1:-1])})


def _folding(search: str) -> Callable[[str], str]:
    return _lower if search.isascii() else str.casefold


def _lower(text: str) -> str:
    return text.translate(_LOWER)
