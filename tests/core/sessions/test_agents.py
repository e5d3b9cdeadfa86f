"""The states of a launched agent: every move is in the table, and what is not changes nothing."""

import itertools

import msgspec
import pytest

from pml.core.errors import IllegalEvent
from pml.core.sessions.agent import ENDED_RUN, NEXT, RunState
from tests.builders import make_run

LEGAL = {
    ("starting", "running"),
    ("starting", "done"),
    ("starting", "failed"),
    ("starting", "stopped"),
    ("running", "done"),
    ("running", "failed"),
    ("running", "stopped"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(RunState, RunState)))
def test_a_run_moves_only_as_the_table_says(before: RunState, after: RunState) -> None:
    run = msgspec.structs.replace(make_run(), state=before)

    if (before, after) in LEGAL:
        assert run.moved_to(after) == msgspec.structs.replace(run, state=after)
        return
    with pytest.raises(IllegalEvent, match=f"is {before}; it cannot become {after}"):
        run.moved_to(after)
    assert run.state is before


def test_what_has_ended_stays_ended_and_every_state_is_in_the_table() -> None:
    assert set(NEXT) == set(RunState)
    assert {state for state, after in NEXT.items() if not after} == ENDED_RUN
