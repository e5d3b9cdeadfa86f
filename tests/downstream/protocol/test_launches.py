"""A launch is a person's to allow: what waits, who may answer, and what allows it beforehand."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.approvals.record import Role, Scope, State
from pml.core.config.file import FileKind
from pml.core.errors import Invalid
from pml.core.ports.queries import AuditQuery
from pml.core.ports.records import Session
from pml.core.sessions.token import ParentMay, TokenRole
from pml.core.values import Json, JsonObject
from pml.downstream.protocol.eras import MODERN
from tests.downstream.parties import LATEST, Message, text_of
from tests.downstream.seats import BASH, Hub, Seat, found, opened_hub, permit_of
from tests.promises import promise
from tests.service.families import join

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
    parent = await hub.sit(hub.family.parent)
    middle = await hub.sit(await hub.launched(role=TokenRole.SESSION))
    middle.configure(approval={"parent_may_decide": True})
    middle.start_call("session_launch", WISH)
    record = await middle.question()

    refused = await parent.call("loopback_respond", {"approval_id": record.id, "allow": True})

    assert refused["structuredContent"]["error"]["code"] == "forbidden"
    assert (await middle.question()).status is State.PENDING
    assert hub.agents.ran == {}


@promise("launch:a-persons-to-allow")
async def test_permission_for_the_same_words_asked_another_way_starts_nothing(hub: Hub) -> None:
    """An answer that a parent may give to a permit must not be found by the launch itself."""
    parent = await hub.sit(hub.family.parent)
    middle = await hub.sit(await hub.launched(role=TokenRole.SESSION))
    middle.configure(approval={"parent_may_decide": True})
    words: JsonObject = {**WISH, "parent_may_decide": "all"}
    permit: JsonObject = {"tool_name": LAUNCH, "input": words, "tool_use_id": ""}
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


# What a launch gives


async def launched(hub: Hub, seat: Seat, wish: JsonObject, **edited: Json) -> Session:
    """Return the session that a person let be launched, after they edited what it is given."""
    asked = await seat.call("session_launch", wish)
    record = await seat.question()
    await hub.office.allow(record, updated_input={**record.tool_input, **edited} if edited else None)
    answer = await seat.continue_("session_launch", asked["approval_context"]["workflow_id"])
    session_id = found(answer["result"])["session_id"]
    session = await hub.office.context.store.sessions.get(session_id)
    assert session is not None
    return session


@promise("supervise:power-from-a-person")
@pytest.mark.parametrize(
    ("setting", "wished", "shown"),
    [
        (None, None, "unlisted"),
        (True, None, "all"),
        (False, None, "nothing"),
        (["notes:*"], None, "listed"),
        (None, "nothing", "nothing"),
        (False, "all", "nothing"),
        (["notes:*"], "unlisted", "listed"),
    ],
)
async def test_the_question_says_who_may_answer_and_that_holds(
    hub: Hub, setting: Json, wished: str | None, shown: str
) -> None:
    seat = await hub.sit(hub.family.stranger)
    seat.configure(approval={} if setting is None else {"parent_may_decide": setting})
    wish = WISH if wished is None else {**WISH, "parent_may_decide": wished}
    await seat.call("session_launch", wish)
    record = await seat.question()
    assert record.tool_input == {**WISH, "parent_may_decide": shown}
    await hub.office.deny(record)
    seat.configure(approval={} if setting is None else {"parent_may_decide": setting})

    session = await launched(hub, seat, {**wish, "name": "again"})

    assert session.parent_may == shown


@promise("supervise:power-from-a-person")
@pytest.mark.parametrize("setting", [True, ["Bash"], "unlisted"])
async def test_a_person_narrows_a_launch_and_that_holds(hub: Hub, setting: Json) -> None:
    seat = await hub.sit(hub.family.stranger)
    seat.configure(approval={"parent_may_decide": setting})
    narrow: JsonObject = {"allowed_tools": ["Bash", "Read"], "parent_may_decide": "nothing"}
    session = await launched(hub, seat, WISH, **narrow)
    assert (session.tools, session.parent_may) == (("Bash", "Read"), "nothing")

    child = await hub.sit(session)
    child.configure(approval={"parent_may_decide": setting})
    permitted = child.start_call("loopback_permit", BASH)
    record = await child.question()
    refused = await seat.call("loopback_respond", {"approval_id": record.id, "allow": True})

    assert refused["structuredContent"]["error"]["code"] == "forbidden"
    assert record.deciders == PERSON_ONLY
    (listed,) = found(await seat.call("loopback_pending"))["approvals"]
    assert listed["may_decide"] is False
    await hub.office.deny(record)
    assert permit_of(await child.result_of(permitted))["behavior"] == "deny"


@promise("supervise:power-from-a-person")
@pytest.mark.parametrize("may", [ParentMay.NOTHING, ParentMay.LISTED, ParentMay.UNLISTED])
async def test_a_launched_session_passes_on_no_more_than_its_own_launch_gave(
    hub: Hub, may: ParentMay
) -> None:
    middle = await hub.sit(await hub.launched(role=TokenRole.SESSION, parent_may=may))
    middle.configure(approval={"parent_may_decide": True})
    middle.start_call("session_launch", {**WISH, "parent_may_decide": "all"})

    assert (await middle.question()).tool_input["parent_may_decide"] == may


@promise("supervise:power-from-a-person")
async def test_the_parent_of_an_approved_launch_answers_for_it(hub: Hub) -> None:
    seat = await hub.sit(hub.family.stranger)
    child = await hub.sit(await launched(hub, seat, WISH))
    permitted = child.start_call("loopback_permit", BASH)
    record = await child.question()

    await seat.call("loopback_respond", {"approval_id": record.id, "allow": True})

    assert permit_of(await child.result_of(permitted))["behavior"] == "allow"


@promise("supervise:power-from-a-person")
async def test_a_question_of_before_launches_were_approved_is_a_persons(hub: Hub) -> None:
    """It may list the parent, but no person ever gave that parent its power."""
    parent = await hub.sit(hub.family.parent)
    parent.configure(approval={"parent_may_decide": True})
    old = await hub.launched(parent_may=ParentMay.NOTHING)
    record = await hub.office.ask("Bash", session=old, deciders=frozenset({Role.PERSON, Role.PARENT}))

    refused = await parent.call("loopback_respond", {"approval_id": record.id, "allow": True})

    assert refused["structuredContent"]["error"]["code"] == "forbidden"
    assert await hub.office.status(record) is State.PENDING


# Leave to launch, typed by a person


@promise("launch:a-persons-to-allow")
async def test_one_that_a_person_let_launch_is_not_asked_nor_are_those_beneath_it(hub: Hub) -> None:
    lead = await hub.sit(await join(hub.office, "lead", waits=True, launches_unasked=True))
    first = found(await lead.call("session_launch", {**WISH, "may_launch": True}))
    middle_session = await hub.office.context.store.sessions.get(first["session_id"])
    assert middle_session is not None
    middle = await hub.sit(middle_session)
    second = found(await middle.call("session_launch", WISH))
    last = await hub.office.context.store.sessions.get(second["session_id"])

    assert await lead.all_questions() == []
    assert last is not None
    assert (middle_session.launches_unasked, last.launches_unasked) == (True, False)
    assert (first["parent_may_decide"], second["parent_may_decide"]) == ("unlisted", "unlisted")
    launches = await hub.office.context.store.audit.list(AuditQuery(limit=1000))
    whys = [each.entry.detail["why"] for each in launches if each.entry.kind == "session.launched"]
    assert whys == ["a person launched it, or one above it, with leave to launch agents"] * 2


@promise("launch:never-wider-than-parent")
async def test_leave_to_launch_does_not_widen_what_is_given(hub: Hub) -> None:
    lead = await hub.sit(await join(hub.office, "lead", tools=("Read",), launches_unasked=True))

    refused = await lead.call("session_launch", {**WISH, "allowed_tools": ["Bash"]})

    assert refused["structuredContent"]["error"]["code"] == "forbidden"
    assert hub.agents.ran == {}


@promise("launch:a-persons-to-allow")
async def test_an_ask_rule_is_asked_although_a_person_let_it_launch(hub: Hub) -> None:
    lead = await hub.sit(await join(hub.office, "lead", launches_unasked=True))
    lead.rules(ask=[LAUNCH])

    await assert_waits(hub, lead)


@promise("launch:a-persons-to-allow")
async def test_a_child_whose_launch_was_approved_is_asked_about_its_own_launches(hub: Hub) -> None:
    seat = await hub.sit(hub.family.stranger)
    middle = await hub.sit(await launched(hub, seat, {**WISH, "may_launch": True}))

    middle.start_call("session_launch", WISH)

    assert (await middle.question()).deciders == PERSON_ONLY


@promise("launch:a-persons-to-allow")
async def test_an_answer_of_a_model_to_a_question_of_before_starts_nothing(hub: Hub) -> None:
    """Before launches were a person's, the same question may have been left for the model to confirm."""
    seat = await hub.sit(hub.family.stranger)
    shown: JsonObject = {**WISH, "parent_may_decide": "unlisted"}
    deciders = frozenset({Role.PERSON, Role.MODEL})
    await hub.office.ask(LAUNCH, shown, session=hub.family.stranger, deciders=deciders)
    asked = await seat.call("session_launch", WISH)

    said = await seat.continue_("session_launch", asked["approval_context"]["workflow_id"])

    assert said["result"]["approval_required"] is True
    assert (await seat.question()).deciders == PERSON_ONLY
    assert hub.agents.ran == {}


# Forms


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_the_form_of_a_client_on_stdio_allows_a_launch(hub: Hub, version: str) -> None:
    seat = await hub.sit(hub.family.stranger, version, forms=True, stdio=True)

    found(await _answer_form(seat, ACCEPT))

    await hub.agents.until_running()
    assert len(hub.agents.ran) == 1


@pytest.mark.parametrize("version", [LATEST, MODERN])
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


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_a_form_over_http_does_not_answer_what_was_asked_on_stdio(hub: Hub, version: str) -> None:
    stdio = await hub.sit(hub.family.stranger, LATEST, forms=True, stdio=True)
    http = await hub.sit(hub.family.stranger, version, forms=True)
    stdio.start_call("session_launch", WISH)
    assert Role.FORM in (await stdio.question()).deciders

    asked = await http.call("session_launch", WISH)

    assert asked["structuredContent"]["status"] == "approval_required"
    assert http.unasked
    assert hub.agents.ran == {}
