"""Lists in the terminal: what became of each, in few words."""

from pml.cli.terminal.cards import left
from pml.core.approvals.record import Channel, Decider, DeciderKind
from pml.core.approvals.states import advance
from tests.builders import ANYONE, allow, later, make_approval


def test_a_client_that_names_itself_after_a_person_is_told_as_a_client() -> None:
    by = Decider(kind=DeciderKind.CLIENT, id="ana", channel=Channel.MODEL)
    record = make_approval(deciders=ANYONE)
    decided = advance(record, allow(record, by=by))
    assert left(decided, later(5)).startswith("allowed by the client `ana` (its model) ")
