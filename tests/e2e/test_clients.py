"""Every client that people use, in both eras: the allowed runs, the asked asks, the denied is refused."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.e2e.clients import (
    ACCEPT,
    ACCEPT_NOTHING,
    ALWAYS,
    CANCEL,
    DECLINE,
    INSPECTOR,
    LEAVE_OPEN,
    PYTHON,
    PYTHON_LEGACY,
    READS_S,
    TYPESCRIPT,
    TYPESCRIPT_1,
    Client,
    Kind,
    Outcome,
    call,
    connected,
    tools_of,
)
from tests.e2e.workspaces import ASKED, Workspace
from tests.promises import promise

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = {PYTHON: MODERN, PYTHON_LEGACY: LEGACY, TYPESCRIPT: MODERN, TYPESCRIPT_1: LEGACY}
ASKS = "memory__create_entities"


def name_of(kind: Kind) -> str:
    return kind.name


every_client = pytest.mark.parametrize("kind", [*ERAS, INSPECTOR], ids=name_of)
clients_with_forms = pytest.mark.parametrize("kind", [*ERAS], ids=name_of)


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    """A workspace whose servers are known from an earlier run: lists have all of them at once."""
    for words in (("memory:read_graph",), ("everything:echo", '{"message": "known"}')):
        ran = workspace.pml("call", *words)
        assert ran.code == 0, ran.err
    return workspace


@asynccontextmanager
async def working(kind: Kind, workspace: Workspace, *, forms: bool = False) -> AsyncGenerator[Client]:
    """A client that has listed the tools, as they do before they call: from now on they check results."""
    async with connected(kind, workspace.gateway, home=workspace.home, forms=forms) as client:
        await tools_of(client)
        yield client


def waiting(outcome: Outcome) -> str:
    """Return the workflow that an approval result names; fails for any other outcome."""
    assert outcome.text.startswith("Approval required to call memory:create_entities\n")
    [workflow_id] = set(re.findall(r'"workflow_id": "([0-9a-f-]{36})"', outcome.text))
    return workflow_id


def go_on(workflow_id: str, *, approved: bool = True) -> dict[str, object]:
    return {"continue_workflow": {"workflow_id": workflow_id, "approved": approved}}


@promise("deny:beats-grants")
@every_client
async def test_what_a_rule_allows_runs_unasked_and_what_a_rule_denies_never_runs(
    kind: Kind, workspace: Workspace
) -> None:
    async with connected(kind, workspace.gateway, home=workspace.home, forms=True) as client:
        assert client.protocol == ERAS.get(kind, kind.mode)
        tools = await tools_of(client)
        assert {"discover", "call", "everything__echo", ASKS} <= tools.keys()

        allowed = await call(client, "everything__echo", {"message": "hello"})
        assert (allowed.text, list(allowed.forms)) == ("Echo: hello", [])

        denied = await call(client, "everything__get-env", {})
        assert denied.result is not None, denied.error
        assert denied.result["isError"] is True
        assert denied.result["structuredContent"]["error"]["code"] == "TOOL_DENIED"
        assert denied.text.startswith("Tool everything:get-env is denied by user config\n")


@every_client
async def test_a_client_without_forms_is_told_what_waits_and_goes_on_once_a_person_has_allowed_it(
    kind: Kind, workspace: Workspace
) -> None:
    workspace.configure({"approval": {"model_may_approve": "never"}})
    async with working(kind, workspace) as client:
        workflow_id = waiting(await call(client, ASKS, ASKED))
        assert waiting(await call(client, ASKS, go_on(workflow_id))) == workflow_id
        assert workspace.remembered == []

        workspace.allow()
        ran = await call(client, ASKS, go_on(workflow_id))
        assert "Ada" in ran.text
        again = await call(client, ASKS, go_on(workflow_id))
    assert again.error is not None
    assert "Workflow expired or not found" in again.error["message"]
    assert workspace.remembered == ["Ada"]


@clients_with_forms
async def test_where_no_form_can_be_shown_the_model_may_say_that_the_user_agreed(
    kind: Kind, workspace: Workspace
) -> None:
    workspace.permit(ask=["*"])  # what a rule names is a person's
    async with working(kind, workspace) as client:
        gives_up = waiting(await call(client, ASKS, ASKED))
        refused = await call(client, ASKS, go_on(gives_up, approved=False))
        assert refused.error is not None
        assert (refused.error["code"], workspace.remembered) == (-32000, [])
        assert "Workflow aborted by user" in refused.error["message"]

        ran = await call(client, "call", go_on(waiting(await call(client, ASKS, ASKED))))
    assert "Ada" in ran.text
    assert workspace.remembered == ["Ada"]


@clients_with_forms
async def test_an_asked_call_runs_when_its_form_is_accepted_and_always_is_not_asked_again(
    kind: Kind, workspace: Workspace
) -> None:
    async with working(kind, workspace, forms=True) as client:
        once = await call(client, ASKS, ASKED, answer=ACCEPT)
        [form] = once.forms
        assert form["message"].startswith("Call memory:create_entities?\n")
        assert "Ada" in form["message"]
        assert workspace.remembered == ["Ada"]

        always = await call(client, ASKS, ASKED, answer=ALWAYS)
        assert len(always.forms) == 1
        assert workspace.settings["permissions"]["allow"][-1] == "memory:create_entities"
        later = await call(client, ASKS, ASKED, answer=DECLINE)
        assert (later.text, list(later.forms)) == (always.text, [])


@promise("agent:nothing-unapproved")
@clients_with_forms
async def test_an_asked_call_does_not_run_when_its_form_is_declined(kind: Kind, workspace: Workspace) -> None:
    async with working(kind, workspace, forms=True) as client:
        declined = await call(client, ASKS, ASKED, answer=DECLINE, reads_s=READS_S)
    assert declined.text.startswith("Tool execution denied by user\n")
    assert (len(declined.forms), workspace.remembered, workspace.pending()) == (1, [], [])


@promise("agent:nothing-unapproved")
@clients_with_forms
async def test_a_form_that_nobody_filled_in_decides_nothing_and_the_model_cannot_either(
    kind: Kind, workspace: Workspace
) -> None:
    async with working(kind, workspace, forms=True) as client:
        for answer in (CANCEL, DECLINE, ACCEPT_NOTHING):
            asked = await call(client, ASKS, ASKED, answer=answer)
            assert len(asked.forms) == 1, answer
            by_model = await call(client, ASKS, go_on(waiting(asked)), answer=answer)
            assert waiting(by_model) == waiting(asked), answer
    assert workspace.remembered == []
    assert {approval["status"] for approval in workspace.pending()} == {"pending"}


@promise("approval:first-decision-wins")
async def test_a_person_in_another_terminal_may_answer_while_the_form_is_open(workspace: Workspace) -> None:
    async with working(TYPESCRIPT_1, workspace, forms=True) as client:
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(call(client, ASKS, ASKED, answer=LEAVE_OPEN))
            await asyncio.to_thread(workspace.wait_for_question)
            workspace.allow()
        assert "Ada" in asked.result().text
        assert len(asked.result().forms) == 1
    assert workspace.remembered == ["Ada"]
