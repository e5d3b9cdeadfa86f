"""What is decided by itself is never allowed with others, whichever door the answer comes through."""

import pytest

from pml.core.approvals.record import State, Subject
from pml.core.errors import MayNotDecide
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import Decision, decide
from tests.builders import PERSON
from tests.promises import promise
from tests.service.offices import Office

ASKED: JsonObject = {"dependency": {"name": "memory", "version": "1.2.3"}, "diff": [], "server": "memory"}
ALONE = (
    Subject.WORKSPACE_TRUST,
    Subject.TOOL_CHANGED,
    Subject.DEPENDENCY_INSTALL,
    Subject.INTEGRITY_CHANGED,
)


@promise("approval:alone")
@pytest.mark.parametrize("subject", ALONE)
async def test_an_allow_that_comes_with_others_is_refused_and_the_question_waits(
    office: Office, subject: Subject
) -> None:
    record = await office.ask("memory:read_graph", ASKED, subject=subject)
    together = Decision(by=PERSON, digest=record.digest, allow=True, is_batch=True)
    with pytest.raises(MayNotDecide, match="by itself"):
        await decide(office.context, record.id, together)
    assert await office.status(record) is State.PENDING
    no = Decision(by=PERSON, digest=record.digest, allow=False, is_batch=True)
    assert (await decide(office.context, record.id, no)).record.status is State.DENIED


@promise("approval:alone")
async def test_plain_calls_are_allowed_together(office: Office) -> None:
    record = await office.ask()
    together = Decision(by=PERSON, digest=record.digest, allow=True, is_batch=True)
    assert (await decide(office.context, record.id, together)).record.status is State.ALLOWED
