"""`pml approvals allow` with the id that the agent was told, and of a key that is missing."""

import asyncio
from pathlib import Path

import pytest

from pml.app import find_place, open_context
from pml.core.approvals.record import SessionId, Subject
from pml.core.ports.records import Workflow
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import Question, ask
from pml.service.session_tree import start_session
from tests.commands import Pml

OK, FAILED, GONE = 0, 1, 5
WORKFLOW = "0f9d3c1e-7a55-4c0e-9b1e-2d4f6a8c0e12"


def _asked(subject: Subject, arguments: JsonObject | None = None) -> str:
    """Ask as a gateway does, with a workflow, and return the id of the approval."""

    async def put() -> str:
        place = find_place()
        async with open_context(place) as context:
            session = await start_session(
                context,
                session_id=SessionId("robot"),
                name="robot",
                principal="robot",
                workspace=str(place.workspace),
                process=None,
                is_agent=False,
            )
            question = Question(session=session, tool="x:y", arguments=arguments or {}, subject=subject)
            record = await ask(context, question)
            now = context.clock.now()
            await context.store.workflows.issue(
                Workflow(id=WORKFLOW, approval_id=record.id, principal="robot", created_at=now)
            )
            return record.id

    return asyncio.run(put())


@pytest.mark.parametrize("verb", ["allow", "deny", "show"])
def test_the_id_of_a_workflow_names_its_approval(pml: Pml, verb: str) -> None:
    approval = _asked(Subject.TOOL_CALL)
    assert pml("approvals", verb, WORKFLOW).code == OK
    assert pml.status(approval) == {"allow": "allowed", "deny": "denied", "show": "pending"}[verb]
    assert pml("approvals", verb, WORKFLOW[:8]).code == GONE  # of a workflow's id the beginning is not enough


CALL: JsonObject = {"tool": "x:y", "arguments": {}}
MISSING: JsonObject = {"server": "search", "missing": ["SEARCH_KEY"], "call": CALL}


def test_a_missing_key_is_not_said_to_be_allowed_before_it_is_set(
    pml: Pml, pml_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = _asked(Subject.API_KEY_REQUIRED, MISSING)
    monkeypatch.setenv("SEARCH_KEY", "of this terminal only")
    ran = pml("approvals", "allow", approval)
    assert (ran.code, "allowed" in ran.out) == (FAILED, False)
    assert "search requires SEARCH_KEY, which is not set" in ran.err
    assert "pml secrets set SEARCH_KEY" in ran.err
    assert pml.status(approval) == "pending"
    (pml_home / ".env").write_text("SEARCH_KEY=value\n")
    ran = pml("approvals", "allow", approval)
    assert (ran.code, "SEARCH_KEY is set" in ran.out) == (OK, True)
