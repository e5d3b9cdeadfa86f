"""A launch is a person's to allow: what waits, who may answer, and what allows it beforehand."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.approvals import Role, Scope, State
from pml.core.config import FileKind
from pml.core.errors import Invalid
from pml.core.identity import TokenRole
from pml.core.values import Json, JsonObject
from pml.downstream import forms
from pml.downstream.eras import MODERN
from tests.downstream.parties import LATEST, Message, text_of
from tests.downstream.seats import Hub, Seat, found, opened_hub, permit_of
from tests.promises import promise

LAUNCH = "pml:session_launch"
WISH: JsonObject = {"prompt": "mend it"}
STRICT: JsonObject = {"unlisted": "every_call", "model_may_approve": "never"}
ACCEPT: JsonObject = {"action": "accept", "content": {"remember": "once"}}
DECLINE: JsonObject = {"action": "decline"}
PERSON_ONLY = frozenset({Role.PERSON})


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[Hub]:
    async with opened_hub(tmp_path) as hub:
        yield hub


async def assert_waits(hub: Hub, seat: Seat) -> str:
    """Check that a launch is asked about, that the model's yes changes nothing; return its workflow."""
    asked = await seat.call("session_launch", WISH)
    assert text_of(asked).startswith("Approval required to launch an agent\n")
    workflow_id = asked["approval_context"]["workflow_id"]
    said = (await seat.continue_("session_launch", workflow_id))["result"]
    assert said["structuredContent"]["status"] == "approval_required"
    assert (await seat.question()).deciders == PERSON_ONLY
    assert hub.agents.ran == {}
    return workflow_id


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("approval", [{}, STRICT, {"model_may_approve": "always"}, {"enabled": False}])
@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_an_unlisted_launch_waits_for_a_person_and_then_starts(
    hub: Hub, version: str, approval: JsonObject
) -> None:
    seat = await hub.sit(hub.family.stranger, version)
    seat.configure(approval=approval)

    workflow_id = await assert_waits(hub, seat)
    await seat.decide(allow=True)

    launched = found((await seat.continue_("session_launch", workflow_id))["result"])
    await hub.agents.until_running()
    assert list(hub.agents.ran) == [launched["session_id"]]


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("entry", ["*", "pml:*", "*:session_launch", "session_launch", "pml:session_?aunch"])
async def test_no_glob_allows_a_launch(hub: Hub, entry: str) -> None:
    seat = await hub.sit(hub.family.stranger)
    seat.rules(allow=[entry])

    await assert_waits(hub, seat)


@promise("launch:a-persons-to-allow")
async def test_the_file_of_a_workspace_allows_no_launch_though_it_is_trusted(hub: Hub) -> None:
    hub.office.write_rules(FileKind.WORKSPACE, allow=[LAUNCH])
    await hub.office.trust()

    await assert_waits(hub, await hub.sit(hub.family.stranger))


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("entry", [LAUNCH, {"tool": LAUNCH, "args": {"prompt": "mend it"}}])
async def test_the_users_file_allows_launches_by_their_very_name(hub: Hub, entry: Json) -> None:
    seat = await hub.sit(hub.family.stranger)
    seat.rules(allow=["*", entry])

    found(await seat.call("session_launch", WISH))

    assert await seat.all_questions() == []
    assert "call.allowed" in await hub.office.kinds()


@promise("launch:a-persons-to-allow")
async def test_what_the_users_file_allows_with_other_arguments_is_asked_about(hub: Hub) -> None:
    seat = await hub.sit(hub.family.stranger)
    seat.rules(allow=[{"tool": LAUNCH, "args": {"prompt": "something else"}}])

    await assert_waits(hub, seat)


async def test_a_launch_is_never_remembered(hub: Hub) -> None:
    seat = await hub.sit(hub.family.stranger)
    await seat.call("session_launch", WISH)

    for scope in (Scope.SESSION, Scope.ALWAYS):
        with pytest.raises(Invalid):
            await seat.decide(allow=True, scope=scope)

    assert (await seat.question()).status is State.PENDING


@promise("launch:a-persons-to-allow")
async def test_a_launch_is_not_a_parents_to_allow(hub: Hub) -> None:
    hub.office.write(FileKind.USER, {"approval": {"parent_may_decide": True}})
    parent = await hub.sit(hub.family.parent)
    middle = await hub.sit(await hub.launched(role=TokenRole.SESSION))
    middle.start_call("session_launch", WISH)
    record = await middle.question()

    refused = await parent.call("loopback_respond", {"approval_id": record.id, "allow": True})

    assert refused["structuredContent"]["error"]["code"] == "forbidden"
    assert (await middle.question()).status is State.PENDING
    assert hub.agents.ran == {}


@promise("launch:a-persons-to-allow")
async def test_permission_for_the_same_words_asked_another_way_starts_nothing(hub: Hub) -> None:
    """An answer that a parent may give to a permit must not be found by the launch itself."""
    hub.office.write(FileKind.USER, {"approval": {"parent_may_decide": True}})
    parent = await hub.sit(hub.family.parent)
    middle = await hub.sit(await hub.launched(role=TokenRole.SESSION))
    permit: JsonObject = {"tool_name": LAUNCH, "input": WISH, "tool_use_id": ""}
    permitted = middle.start_call("loopback_permit", permit)
    record = await middle.question()
    assert record.deciders == PERSON_ONLY
    launched = middle.start_call("session_launch", WISH)
    await middle.settle()

    await parent.call("loopback_respond", {"approval_id": record.id, "allow": True})
    await hub.office.deny(record)

    assert permit_of(await middle.result_of(permitted))["behavior"] == "deny"
    assert (await middle.result_of(launched))["isError"] is True
    assert hub.agents.ran == {}


# Forms


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an answer that comes at once be somebody's."""
    monkeypatch.setattr(forms, "INSTANT_S", 0.0)


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("version", [LATEST, MODERN])
@pytest.mark.usefixtures("unhurried")
async def test_the_form_of_a_client_on_stdio_allows_a_launch(hub: Hub, version: str) -> None:
    seat = await hub.sit(hub.family.stranger, version, forms=True, stdio=True)

    found(await _answer_form(seat, ACCEPT))

    await hub.agents.until_running()
    assert len(hub.agents.ran) == 1


@pytest.mark.parametrize("version", [LATEST, MODERN])
@pytest.mark.usefixtures("unhurried")
async def test_a_form_that_is_declined_starts_nothing(hub: Hub, version: str) -> None:
    seat = await hub.sit(hub.family.stranger, version, forms=True, stdio=True)

    refused = await _answer_form(seat, DECLINE)

    assert refused["structuredContent"]["error"]["code"] == "user_denied"
    assert hub.agents.ran == {}


async def _answer_form(seat: Seat, answer: JsonObject) -> Message:
    """Return what a launch answers once its form was answered so."""
    id = seat.start_call("session_launch", WISH)
    if seat.version != MODERN:
        asked = await seat.asked()
        assert asked["params"]["message"].startswith("Launch an agent?\n")
        seat.reply(asked, answer)
        return await seat.result_of(id)
    shown = await seat.result_of(id)
    assert shown["inputRequests"]["approval"]["params"]["message"].startswith("Launch an agent?\n")
    return await seat.call(
        "session_launch", WISH, requestState=shown["requestState"], inputResponses={"approval": answer}
    )


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("version", [LATEST, MODERN])
@pytest.mark.parametrize("who", ["over HTTP", "beneath an agent", "launched"])
async def test_no_form_is_shown_whose_answer_may_not_be_a_persons(hub: Hub, version: str, who: str) -> None:
    sessions = {
        "over HTTP": hub.family.stranger,
        "beneath an agent": hub.family.parent,
        "launched": await hub.launched(role=TokenRole.SESSION),
    }
    seat = await hub.sit(sessions[who], version, forms=True, stdio=who != "over HTTP")

    seat.start_call("session_launch", WISH)
    record = await seat.question()
    await seat.settle()

    assert record.deciders == PERSON_ONLY
    assert seat.unasked
    assert hub.agents.ran == {}
