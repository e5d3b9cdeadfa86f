"""Nothing runs whose allower is not among the deciders of the question as the call asks it now.

The same question may have been put before: under other rules, through another door, by another session.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest

from pml.core.approvals.record import Channel, Decider, DeciderKind, Role, SessionId, State, Subject
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.sessions.token import ParentMay, TokenRole
from pml.core.values import Json, JsonObject
from pml.downstream.protocol.eras import MODERN
from pml.service.session_tree import start_session
from tests.downstream.parties import LATEST, Message, Party, text_of, tool
from tests.downstream.seats import BASH, Hub, opened_hub, permit_of
from tests.promises import promise

ARGUMENTS: Final[JsonObject] = {"path": "a", "text": "b"}
ACCEPT: Final[JsonObject] = {"action": "accept", "content": {"remember": "once"}}
MODEL: Final = Decider(kind=DeciderKind.CLIENT, id="party", channel=Channel.MODEL)
PERSON_ONLY: Final = frozenset({Role.PERSON})
WISH: Final[JsonObject] = {"prompt": "mend it"}
BOTH = pytest.mark.parametrize("version", [LATEST, MODERN])
TIGHTER = pytest.mark.parametrize(
    "tighter",
    [{"approval": {"model_may_approve": "never"}}, {"approval": {}, "permissions": {"ask": ["files:write"]}}],
    ids=["a setting", "a rule"],
)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[Hub]:
    async with opened_hub(tmp_path) as hub:
        yield hub


def workflow_of(result: Message) -> str:
    assert result["approval_required"] is True, result
    return result["approval_context"]["workflow_id"]


@promise("consent:allower-is-a-decider")
@BOTH
@TIGHTER
async def test_a_model_does_not_confirm_by_an_older_question_what_it_may_not_confirm_now(
    party: Party, version: str, tighter: dict[str, Json]
) -> None:
    party.as_new()
    await party.connect(version)
    older = workflow_of(await party.call("files__write", ARGUMENTS))
    party.configure(**tighter)
    newer = workflow_of(await party.call("files__write", ARGUMENTS))

    assert (await party.question()).deciders == PERSON_ONLY
    for workflow_id in (older, newer):
        said = (await party.continue_("files__write", workflow_id))["result"]
        assert said["approval_required"] is True
    assert party.servers.calls == []
    await party.decide(allow=True)
    await party.call("files__write", ARGUMENTS)
    assert len(party.servers.calls) == 1


@promise("consent:allower-is-a-decider")
@BOTH
@TIGHTER
async def test_a_model_confirms_nothing_any_more_that_became_a_persons_while_it_waited(
    party: Party, version: str, tighter: dict[str, Json]
) -> None:
    party.as_new()
    await party.connect(version)
    workflow_id = workflow_of(await party.call("files__write", ARGUMENTS))
    party.configure(**tighter)
    await party.continue_("files__write", workflow_id)

    assert party.servers.calls == []


@promise("consent:allower-is-a-decider")
@BOTH
@TIGHTER
async def test_an_answer_that_was_left_is_not_used_if_its_giver_may_not_decide_now(
    party: Party, version: str, tighter: dict[str, Json]
) -> None:
    party.as_new()
    await party.connect(version)
    await party.call("files__write", ARGUMENTS)
    left = await party.decide(allow=True, by=MODEL)
    party.configure(**tighter)
    workflow_of(await party.call("files__write", ARGUMENTS))

    assert party.servers.calls == []
    assert await party.office.status(left) is State.CANCELLED
    assert (await party.question()).deciders == PERSON_ONLY


@promise("consent:allower-is-a-decider")
async def test_a_form_that_is_open_on_stdio_does_not_answer_for_a_token(hub: Hub) -> None:
    """The form is taken away; the call that showed it waits with the other, and both have one answer."""
    stdio = await hub.sit(hub.family.stranger, forms=True, stdio=True)
    http = await hub.sit(hub.family.stranger)
    http.configure(approval={"model_may_approve": "never"})
    shown = stdio.start_call("files__write", ARGUMENTS)
    form = await stdio.asked()
    asked = workflow_of(await http.call("files__write", ARGUMENTS))
    stdio.reply(form, ACCEPT)
    waits = workflow_of(await stdio.result_of(shown))
    await http.continue_("files__write", asked)

    assert (stdio.servers.calls, http.servers.calls) == ([], [])
    assert asked == waits
    assert (await http.question()).deciders == PERSON_ONLY
    await http.decide(allow=True)
    await http.continue_("files__write", asked)
    assert len(http.servers.calls) == 1


@promise("consent:allower-is-a-decider")
async def test_a_form_of_a_modern_client_that_comes_back_too_late_decides_nothing(hub: Hub) -> None:
    stdio = await hub.sit(hub.family.stranger, MODERN, forms=True, stdio=True)
    http = await hub.sit(hub.family.stranger)
    http.configure(approval={"model_may_approve": "never"})
    shown = await stdio.call("files__write", ARGUMENTS)
    asked = workflow_of(await http.call("files__write", ARGUMENTS))
    answered: JsonObject = {"approval": ACCEPT}
    back = await stdio.call(
        "files__write", ARGUMENTS, inputResponses=answered, requestState=shown["requestState"]
    )

    assert workflow_of(back) == asked
    assert (stdio.servers.calls, http.servers.calls) == ([], [])
    assert (await http.question()).deciders == PERSON_ONLY


@promise("consent:allower-is-a-decider")
async def test_deciders_that_two_clients_of_a_session_do_not_share_are_a_persons_alone(hub: Hub) -> None:
    forms = await hub.sit(hub.family.stranger, forms=True, stdio=True)
    plain = await hub.sit(hub.family.stranger, stdio=True)
    plain.configure(approval={})
    shown = forms.start_call("files__write", ARGUMENTS)
    await forms.asked()
    asked = workflow_of(await plain.call("files__write", ARGUMENTS))
    workflow_of(await forms.result_of(shown))
    await plain.continue_("files__write", asked)

    assert (forms.servers.calls, plain.servers.calls) == ([], [])
    assert (await plain.question()).deciders == PERSON_ONLY


@promise("consent:allower-is-a-decider")
async def test_a_parents_answer_is_not_collected_once_it_may_not_decide(hub: Hub) -> None:
    parent, child = await hub.sit(hub.family.parent), await hub.sit(await hub.launched())
    child.configure(approval={})
    lost = child.start_call("loopback_permit", BASH)
    record = await child.question()
    child.cancel(lost)
    await child.settle()
    await parent.call("loopback_respond", {"approval_id": record.id, "allow": True})
    assert await hub.office.status(record) is State.ALLOWED
    child.configure(approval={"parent_may_decide": False})
    again = child.start_call("loopback_permit", BASH)

    asked = await child.question()
    assert (asked.deciders, asked.id == record.id) == (PERSON_ONLY, False)
    await hub.office.deny(asked)
    assert permit_of(await child.result_of(again))["behavior"] == "deny"


@promise("consent:parent-unlisted-only")
async def test_a_changed_tool_is_not_a_parents_to_accept(hub: Hub) -> None:
    """Trust in what a server says of itself is a person's, whatever the user lets parents do."""
    parent, child = await hub.sit(hub.family.parent), await hub.sit(hub.family.child)
    child.configure(approval={"parent_may_decide": True}, permissions={"allow": ["files:*"]})
    await child.call("files__write", ARGUMENTS)
    changed = tool("write", required=["path", "text"], description="Another.")
    child.servers.change("files", tools=(changed,))
    await child.call("files__write", ARGUMENTS)
    record = await child.question()

    assert (record.subject, record.deciders) == (Subject.TOOL_CHANGED, PERSON_ONLY)
    refused = await parent.call("loopback_respond", {"approval_id": record.id, "allow": True})
    assert refused["structuredContent"]["error"]["code"] == "forbidden"
    assert len(child.servers.calls) == 1


# Workflows that another session of the same user and workspace continues


async def beneath(hub: Hub, session: Session, *, parent: Session | None) -> Session:
    """Return a session of the same principal: another gateway of the user's, or one in an agent's shell."""
    return await start_session(
        hub.office.context,
        session_id=SessionId("another"),
        name="another",
        principal=session.principal,
        workspace=session.workspace,
        process=None,
        is_agent=True,
        parent_id=None if parent is None else parent.id,
        role=TokenRole.SESSION,
        parent_may=ParentMay.NOTHING,
    )


@promise("consent:allower-is-a-decider")
async def test_a_gateway_in_an_agents_shell_confirms_nothing_for_the_agent(hub: Hub) -> None:
    agent = await hub.sit(hub.family.stranger, stdio=True)
    shell = await hub.sit(await beneath(hub, agent.session, parent=agent.session), stdio=True)
    agent.configure(approval={})
    workflow_id = workflow_of(await agent.call("files__write", ARGUMENTS))
    said = (await shell.continue_("files__write", workflow_id))["result"]

    assert "You cannot approve it." in text_of(said)
    assert await agent.pending() != []
    assert (agent.servers.calls, shell.servers.calls) == ([], [])


@promise("launch:asker-continues")
@pytest.mark.parametrize("is_beneath", [False, True], ids=["beside it", "in its shell"])
async def test_a_launch_is_continued_by_the_session_that_asked_and_by_no_other(
    hub: Hub, is_beneath: bool
) -> None:
    """The card said which agent answers for the new one; another gateway of the same user is another."""
    asker = await hub.sit(hub.family.stranger, stdio=True)
    other = await hub.sit(
        await beneath(hub, asker.session, parent=asker.session if is_beneath else None), stdio=True
    )
    asker.configure(approval={"model_may_approve": "always"})
    workflow_id = workflow_of(await asker.call("session_launch", WISH))
    assert "error" in await other.continue_("session_launch", workflow_id)
    await asker.decide(allow=True)
    assert "error" in await other.continue_("session_launch", workflow_id)
    assert (await other.continue_("call", workflow_id))["result"]["isError"] is True
    assert hub.agents.ran == {}

    said = (await asker.continue_("session_launch", workflow_id))["result"]
    assert said["structuredContent"]["state"] == "starting"
    query = ApprovalQuery(states=frozenset(State) - {State.PENDING})
    decided = await hub.office.context.store.approvals.page(query)
    assert {it.decided_by.kind for it in decided if it.decided_by is not None} == {DeciderKind.PERSON}
