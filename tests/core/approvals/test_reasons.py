"""Reasons: each reads the rows that were written before there were kinds of them, and shows the same JSON."""

import msgspec
import pytest

from pml.core.approvals.reasons import CapabilityNeeds, Reason, matched
from pml.core.digest import canonical
from pml.core.values import Json

PLACED = ("ask", "allow", "deny", "unlisted", "broken")
WORDED = ("reserved", "launch", "link", "unknown", "foreign")


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("verdict", [*PLACED, *WORDED])
def test_a_row_of_before_is_read_and_shown_as_it_was(verdict: str, foreign: bool) -> None:
    is_placed = verdict in PLACED
    row: dict[str, Json] = {
        "verdict": verdict,
        "entry": '"github:*"',
        "file": "/repo/.pml.json" if is_placed else None,
        "line": 4 if is_placed else None,
        "foreign": foreign,
    }

    reason = msgspec.json.decode(msgspec.json.encode(row), type=Reason)

    assert msgspec.to_builtins(matched(reason)) == row
    assert msgspec.json.decode(msgspec.json.encode(reason), type=Reason) == reason


def test_what_a_capability_needs_is_shown_as_canonical_json() -> None:
    facts: dict[str, Json] = {
        "capability": "a.b.c",
        "description": None,
        "source": "registry",
        "calls": ["x:y"],
        "covers": [],
        "named": [],
    }
    reason = CapabilityNeeds(capability="a.b.c", source="registry", calls=("x:y",))

    assert matched(reason).entry == canonical(facts).decode()
