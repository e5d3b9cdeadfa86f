"""docs/states.md says what the table says."""

from pathlib import Path
from typing import Final

import pytest

from pml.core.approvals.events import Event
from pml.core.approvals.record import State
from tests.docs.states_diagram import diagram

PAGE: Final = (Path(__file__).parents[2] / "docs" / "states.md").read_text(encoding="utf-8")


def test_the_diagram_is_the_one_drawn_from_the_table() -> None:
    assert PAGE.count("```mermaid") == 1
    assert diagram() in PAGE, "run `python -m tests.docs.states_diagram` and put its output in docs/states.md"


@pytest.mark.parametrize("state", State)
def test_every_state_is_explained(state: State) -> None:
    assert f"| `{state}` |" in PAGE


@pytest.mark.parametrize("event", Event.__subclasses__(), ids=lambda event: event.__name__)
def test_every_event_is_explained(event: type[Event]) -> None:
    assert f"| `{event.__name__}` |" in PAGE
