"""Lists in the terminal: what became of each, in few words."""

import pytest

from pml.cli.terminal.cards import left, print_card
from pml.core.approvals.record import Channel, Decider, DeciderKind, Subject
from pml.core.approvals.states import advance
from tests.builders import ANYONE, allow, later, make_approval


def test_a_client_that_names_itself_after_a_person_is_told_as_a_client() -> None:
    by = Decider(kind=DeciderKind.CLIENT, id="ana", channel=Channel.MODEL)
    record = make_approval(deciders=ANYONE)
    decided = advance(record, allow(record, by=by))
    assert left(decided, later(5)).startswith("allowed by the client `ana` (its model) ")


def test_a_long_name_of_a_fact_does_not_run_into_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"path": "/w/.pml.json", "digest": "sha256:1", "unusable": ["server `web`: it has a `url`"]}
    record = make_approval(subject=Subject.WORKSPACE_TRUST, tool_name="pml:trust", tool_input=asked)
    print_card(record, workspace="/w", now=later(5))
    lines = capsys.readouterr().out.split("\n")
    assert "  not started server `web`: it has a `url`" in lines
    assert "  file        /w/.pml.json" in lines
