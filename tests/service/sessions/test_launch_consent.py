"""Consent to a launch: each launch has an answer of its own."""

import pytest

from pml.core.approvals.record import Approval
from pml.core.names import parse_tool
from pml.core.own_tools import LAUNCH_TOOL
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.sessions.launch_consent import admit_launch
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import Gatehouse


def launch(house: Gatehouse, settled: Approval | None = None) -> PendingCall:
    attempt = Attempt(tool=parse_tool(LAUNCH_TOOL), arguments={"prompt": "tidy up"}, offered=True)
    return PendingCall(house.gate, attempt, FakeAsking(), settled=settled)


@promise("launch:a-persons-to-allow")
async def test_a_launch_whose_answer_the_same_launch_has_used_asks_for_its_own(house: Gatehouse) -> None:
    with pytest.raises(Paused) as first:
        await admit_launch(launch(house))
    settled = (await house.office.allow(first.value.record)).record
    _, consent = await admit_launch(launch(house, settled))
    assert consent.approval_id == settled.id

    with pytest.raises(Paused) as second:
        await admit_launch(launch(house, settled))

    assert second.value.record.id != settled.id
