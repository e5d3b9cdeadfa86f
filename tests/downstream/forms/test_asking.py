"""Asking through the client's own form, in both eras: how it looks, what an answer does, who was first."""

import asyncio
import json
from typing import Any

import pytest

from pml.core.approvals.record import Channel, DeciderKind, Scope, State
from pml.core.config.file import FileKind
from pml.core.ports.queries import ApprovalQuery
from pml.core.values import Json, JsonObject
from pml.downstream import keepalive
from pml.downstream.forms import elicitation
from pml.downstream.protocol.eras import MODERN
from pml.service.approvals.lifecycle import cancel, expire
from tests.downstream.parties import FORMS, SOON_S, Message, Party, code_of, text_of
from tests.promises import promise
from tests.service.offices import rules_of

ARGUMENTS: JsonObject = {"path": "a", "text": "b"}
OTHER: JsonObject = {"path": "a", "text": "c"}
NOBODY: list[Json] = [
    {"action": "cancel"},
    {"action": "accept"},
    {"action": "accept", "content": {}},
    {"action": "accept", "content": {"remember": "forever"}},
    {"action": "accept", "content": {"remember": ""}},
    {"action": "accept", "content": {"remember": True}},
    {"action": "accept", "content": {"remember": ["once"]}},
    {"action": "accept", "content": {"remember": {"once": 1}}},
    {"action": "accept", "content": {"Remember": "once"}},
]
ODD: list[JsonObject] = [
    {"action": "accept", "content": None},
    {"action": "accept", "content": [{"remember": "once"}]},
    {"action": "ACCEPT", "content": {"remember": "once"}},
    {"action": True, "content": {"remember": "once"}},
    {"content": {"remember": "once"}},
    {},
]


def accept(remember: str = "once") -> JsonObject:
    return {"action": "accept", "content": {"remember": remember}}


async def answered(party: Party, answer: Json, *, version: str) -> Message:
    """Call `files__write`, answer the form that comes up, and return the result."""
    await party.connect(version, FORMS)
    if version == MODERN:
        form = await party.call("files__write", ARGUMENTS)
        return await retry(party, form, answer)
    id = party.start_call("files__write", ARGUMENTS)
    party.send({"jsonrpc": "2.0", "id": (await party.asked())["id"], "result": answer})
    return await party.result_of(id)


async def retry(party: Party, form: Message, answer: Json, arguments: JsonObject = ARGUMENTS) -> Message:
    assert form["resultType"] == "input_required"
    return await party.call(
        "files__write", arguments, inputResponses={"approval": answer}, requestState=form["requestState"]
    )


async def states(party: Party) -> list[State]:
    return [record.status for record in await party.office.context.store.approvals.page(ApprovalQuery())]


BOTH = pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])


# Answers, in both eras


@BOTH
@pytest.mark.parametrize("scope", ["once", "session", "always"])
async def test_an_accepted_form_runs_the_call_and_remembers_as_long_as_it_says(
    party: Party, version: str, scope: str
) -> None:
    party.configure(approval={"unlisted": "every_call"})
    result = await answered(party, accept(scope), version=version)

    assert json.loads(text_of(result)) == ARGUMENTS
    (record,) = await party.office.context.store.approvals.page(ApprovalQuery())
    assert record.decided_by is not None
    assert (record.decided_by.kind, record.decided_by.channel) == (DeciderKind.CLIENT, Channel.FORM)
    assert (record.scope, record.status) == (Scope(scope), State.COMPLETED)
    if scope == "once":
        return
    again = await party.call("files__write", OTHER)
    assert json.loads(text_of(again)) == OTHER
    if scope == "always":
        assert rules_of(party.office.read(), "allow") == ["files:write"]


@BOTH
async def test_a_declined_form_denies_and_is_asked_anew_only_by_a_new_call(
    party: Party, version: str
) -> None:
    party.rules(ask=["files:write"])
    result = await answered(party, {"action": "decline"}, version=version)

    assert code_of(result) == "user_denied"
    assert text_of(result).startswith("Tool execution denied by user\n")
    assert (party.servers.calls, await states(party)) == ([], [State.DENIED])


@promise("form:nobody-decides-nothing")
@BOTH
@pytest.mark.usefixtures("hurried")
async def test_a_form_declined_before_it_can_be_read_decides_nothing(party: Party, version: str) -> None:
    party.rules(ask=["files:write"])
    result = await answered(party, {"action": "decline"}, version=version)

    assert result["approval_required"] is True
    assert (party.servers.calls, await states(party)) == ([], [State.PENDING])


@promise("form:nobody-decides-nothing")
@BOTH
@pytest.mark.parametrize("answer", NOBODY)
async def test_an_answer_that_nobody_gave_decides_nothing(party: Party, version: str, answer: Json) -> None:
    party.rules(ask=["files:write"])
    result = await answered(party, answer, version=version)

    assert text_of(result).startswith("Approval required to call files:write\n")
    assert "You cannot approve it." in text_of(result)
    assert (party.servers.calls, await states(party)) == ([], [State.PENDING])


@promise("form:nobody-decides-nothing")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("answer", ODD)
async def test_an_answer_without_the_shape_of_one_decides_nothing(
    party: Party, version: str, answer: Json
) -> None:
    party.rules(ask=["files:write"])
    result = await answered(party, answer, version=version)

    assert result["approval_required"] is True
    assert (party.servers.calls, await states(party)) == ([], [State.PENDING])


@promise("form:nobody-decides-nothing")
@BOTH
async def test_a_question_that_nobody_answered_can_still_be_decided_and_collected(
    party: Party, version: str
) -> None:
    party.rules(ask=["files:write"])
    result = await answered(party, {"action": "cancel"}, version=version)
    await party.decide(allow=True)
    collected = await party.continue_("files__write", result["structuredContent"]["workflow_id"])

    assert json.loads(text_of(collected["result"])) == ARGUMENTS
    assert len(party.servers.calls) == 1


@BOTH
async def test_a_form_for_what_is_not_remembered_offers_no_more_than_once(party: Party, version: str) -> None:
    party.rules(ask=["pml:discover"])
    await party.connect(version, FORMS)
    id = party.start_call("discover")
    if version == MODERN:
        form = (await party.result_of(id))["inputRequests"]["approval"]["params"]
    else:
        form = (await party.asked())["params"]
    field = form["requestedSchema"]["properties"]["remember"]

    assert [*field.get("enum", ()), *(one["const"] for one in field.get("oneOf", ()))] == ["once"]


# The modern form


async def test_a_modern_form_is_as_clients_were_seen_to_take_it(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    result = await party.call("files__write", ARGUMENTS)
    short = (await party.question()).id[:8]

    assert result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    assert result["inputRequests"].keys() == {"approval"}
    asked = result["inputRequests"]["approval"]
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["mode"] == "form"
    assert asked["params"]["message"].startswith("Call files:write?\n")
    assert asked["params"]["requestedSchema"] == {
        "type": "object",
        "properties": {
            "remember": {
                "type": "string",
                "title": "Remember",
                "description": (f"Rules go to .pml.json. All of it: pml approvals show {short}"),
                "oneOf": [
                    {"const": "once", "title": "Just this once"},
                    {"const": "session", "title": "Allow this tool for this session"},
                    {"const": "always", "title": "Always: adds files:write"},
                ],
                "default": "once",
            }
        },
        "required": ["remember"],
    }
    assert party.unasked


@promise("form:bound-and-single-use")
async def test_a_modern_answer_counts_once(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    await retry(party, form, accept())
    error = await party.call_error(
        "files__write",
        ARGUMENTS,
        inputResponses={"approval": accept()},
        requestState=form["requestState"],
    )

    assert error["code"] == -32602
    assert len(party.servers.calls) == 1


@promise("form:bound-and-single-use")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("files__write", OTHER),
        ("files__write", {**ARGUMENTS, "more": None}),
        ("files__read", ARGUMENTS),
        ("files:write", ARGUMENTS),
        ("files__write", {**ARGUMENTS, "continue_workflow": {"workflow_id": "x", "approved": True}}),
    ],
)
async def test_a_modern_answer_counts_for_the_very_call_it_was_asked_for(
    party: Party, name: str, arguments: JsonObject
) -> None:
    party.rules(ask=["files:write", "files:read"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    error = await party.call_error(
        name, arguments, inputResponses={"approval": accept()}, requestState=form["requestState"]
    )

    assert error == {"code": -32602, "message": "`requestState` does not belong to this call"}
    assert (party.servers.calls, await states(party)) == ([], [State.PENDING])


@promise("form:bound-and-single-use")
@pytest.mark.parametrize("state", ["", "x", "form.a.0.0.0", 5, {"form": 1}, ["x"], True])
async def test_an_invented_state_decides_nothing(party: Party, state: Json) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    await party.call("files__write", ARGUMENTS)
    error = await party.call_error(
        "files__write", ARGUMENTS, inputResponses={"approval": accept()}, requestState=state
    )

    assert error["code"] == -32602
    assert (party.servers.calls, await states(party)) == ([], [State.PENDING])


@promise("form:bound-and-single-use")
async def test_an_answer_without_its_state_is_no_answer(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    await party.call("files__write", ARGUMENTS)
    again = await party.call("files__write", ARGUMENTS, inputResponses={"approval": accept()})

    assert again["resultType"] == "input_required"
    assert party.servers.calls == []


@promise("form:unanswered-is-asked-again")
async def test_a_state_without_an_answer_brings_the_question_again(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    odd: list[JsonObject] = [{"approval": answer} for answer in (*ODD, None, "accept", 7, [accept()])]
    for responses in (None, {}, {"other": accept()}, *odd):
        again = await party.call(
            "files__write", ARGUMENTS, inputResponses=responses, requestState=form["requestState"]
        )
        assert again["inputRequests"] == form["inputRequests"]
        assert again["requestState"] != form["requestState"]
        form = again
    assert (party.servers.calls, await states(party)) == ([], [State.PENDING])
    await party.decide(allow=True)

    assert json.loads(text_of(await retry(party, form, {}))) == ARGUMENTS
    assert len(party.servers.calls) == 1


@pytest.mark.parametrize("responses", ["accept", [accept()], 7, True])
async def test_answers_that_are_no_object_are_refused_and_spend_no_state(
    party: Party, responses: Json
) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    error = await party.call_error(
        "files__write", ARGUMENTS, inputResponses=responses, requestState=form["requestState"]
    )

    assert error == {"code": -32602, "message": "`inputResponses` must be an object"}
    assert json.loads(text_of(await retry(party, form, accept()))) == ARGUMENTS


@pytest.mark.parametrize("answer", [accept(), {"action": "decline"}, {"action": "cancel"}])
async def test_what_was_allowed_elsewhere_runs_whatever_the_form_says_later(
    party: Party, answer: Json
) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    await party.decide(allow=True)

    assert json.loads(text_of(await retry(party, form, answer))) == ARGUMENTS
    assert len(party.servers.calls) == 1


@pytest.mark.parametrize("answer", [accept(), accept("always"), {"action": "cancel"}])
async def test_what_was_denied_elsewhere_is_told_whatever_the_form_says_later(
    party: Party, answer: Json
) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    await party.decide(allow=False, message="no")

    assert code_of(await retry(party, form, answer)) == "user_denied"
    assert party.servers.calls == []


ANEW = "asked again: the time to answer was over, and nothing has run"


async def test_a_yes_to_a_form_that_has_expired_runs_nothing_and_is_asked_for_anew(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    party.office.clock.advance(301)
    anew = await retry(party, form, accept())

    assert anew["inputRequests"]["approval"]["params"]["message"].split("\n")[1] == ANEW
    assert party.servers.calls == []
    await retry(party, anew, accept())
    assert len(party.servers.calls) == 1


async def test_a_no_to_a_form_that_has_expired_runs_nothing(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    party.office.clock.advance(301)
    result = await retry(party, form, {"action": "decline"})

    assert code_of(result) == "approval_expired"
    assert text_of(result).startswith("Approval timed out\n")
    assert party.servers.calls == []


@pytest.mark.usefixtures("short_form")
async def test_a_call_made_again_after_nobody_answered_in_time_says_that_it_is_asked_anew(
    party: Party,
) -> None:
    party.rules(ask=["files:write"])
    first, result = await outlast_the_form(party)
    assert "asked again" not in first["params"]["message"]
    paused = text_of(result)
    assert "Its form is still open in your client, and an answer there applies." in paused
    assert "is asked again" not in paused
    party.office.clock.advance(301)

    id = party.start_call("files__write", ARGUMENTS)
    second = await party.asked()
    assert second["params"]["message"].split("\n")[1] == ANEW
    party.office.clock.advance(1)
    paused = text_of(await party.result_of(id))
    assert "It was asked before, and the time to answer was over: it is asked again." in paused


async def test_a_deny_written_while_the_form_was_open_beats_its_answer(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    form = await party.call("files__write", ARGUMENTS)
    party.rules(deny=["files:write"])

    assert code_of(await retry(party, form, accept())) == "TOOL_DENIED"
    assert party.servers.calls == []


async def test_trust_and_call_are_asked_one_after_the_other_in_one_modern_call(party: Party) -> None:
    party.servers.named["local"] = party.servers.named.pop("files")
    party.configure(mcpServers={}, permissions={"ask": ["local:write"]})
    party.office.write(FileKind.WORKSPACE, {"mcpServers": {"local": {"command": "run-me"}}})
    await party.connect(MODERN, FORMS)
    result = await party.call("local__write", ARGUMENTS)
    titles: list[str] = []
    while result["resultType"] == "input_required":
        titles.append(result["inputRequests"]["approval"]["params"]["message"].split("\n")[0])
        result = await party.call(
            "local__write",
            ARGUMENTS,
            inputResponses={"approval": accept()},
            requestState=result["requestState"],
        )

    assert titles == [
        "Trust this workspace's .pml.json? It starts local; allows nothing",
        "Call local:write?",
    ]
    assert json.loads(text_of(result)) == ARGUMENTS


@promise("trust:comes-first")
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("tool", ["discover", "files__read"])
async def test_the_first_use_of_any_listed_tool_brings_the_question_of_trust_once(
    party: Party, version: str, tool: str
) -> None:
    party.rules(allow=["files:read"])
    party.office.write(FileKind.WORKSPACE, {"permissions": {"allow": ["other:*"]}})
    await party.connect(version, FORMS)
    decline: JsonObject = {"action": "decline"}
    shown = "Trust this workspace's .pml.json? It starts nothing; allows other:*"

    id = party.start_call(tool, {})
    if version == MODERN:
        form = await party.result_of(id)
        message = form["inputRequests"]["approval"]["params"]["message"]
        sealed = form["requestState"]
        result = await party.call(tool, {}, inputResponses={"approval": decline}, requestState=sealed)
    else:
        asked = await party.asked()
        message = asked["params"]["message"]
        party.reply(asked, decline)
        result = await party.result_of(id)
    assert message.split("\n")[0] == shown
    assert "content" in result  # it continues without the file
    assert "content" in await party.call(tool, {})
    assert await states(party) == [State.DENIED]


async def test_a_modern_client_without_forms_gets_the_approval_result(party: Party) -> None:
    party.rules(ask=["files:write"])
    without: tuple[JsonObject, ...] = ({}, {"elicitation": {"url": {}}})
    for capabilities in without:
        await party.connect(MODERN, capabilities)
        result = await party.call("files__write", ARGUMENTS)
        assert (result["resultType"], result["approval_required"]) == ("complete", True)


async def test_forms_that_nobody_came_back_from_are_forgotten(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pml.downstream.forms.rounds._SHOWN", 1)
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    first = await party.call("files__write", ARGUMENTS)
    second = await party.call("files__write", ARGUMENTS)
    error = await party.call_error(
        "files__write", ARGUMENTS, inputResponses={"approval": accept()}, requestState=first["requestState"]
    )

    assert error["message"] == "`requestState` refers to a call that has ended"
    assert json.loads(text_of(await retry(party, second, accept()))) == ARGUMENTS


# The legacy form


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_legacy_form_speaks_as_its_version_does(party: Party, version: str) -> None:
    party.rules(ask=["files:write"])
    await party.connect(version, {"elicitation": {}})
    party.start_call("files__write", ARGUMENTS)
    form = (await party.asked())["params"]
    field = form["requestedSchema"]["properties"]["remember"]

    assert form["requestedSchema"]["required"] == ["remember"]
    assert field["default"] == "once"
    if version == "2025-06-18":
        assert "mode" not in form
        assert field["enum"] == ["once", "session", "always"]
        assert field["enumNames"][2] == "Always: adds files:write"
        assert "oneOf" not in field
    else:
        assert form["mode"] == "form"
        assert [one["const"] for one in field["oneOf"]] == ["once", "session", "always"]
        assert "enum" not in field


@pytest.mark.parametrize(
    ("version", "capabilities"),
    [
        ("2024-11-05", FORMS),
        ("2025-03-26", FORMS),
        ("2025-06-18", {}),
        ("2025-11-25", {"roots": {}}),
        ("2025-11-25", {"elicitation": {"url": {}}}),
    ],
)
async def test_a_client_without_forms_is_never_sent_one(
    party: Party, version: str, capabilities: JsonObject
) -> None:
    party.rules(ask=["files:write"])
    await party.connect(version, capabilities)
    result = await party.call("files__write", ARGUMENTS)

    assert result["approval_required"] is True
    assert party.unasked


async def test_a_client_that_cannot_show_the_form_it_declared_gets_the_approval_result(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__write", ARGUMENTS)
    asked = await party.asked()
    party.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no such method"}})

    assert (await party.result_of(id))["approval_required"] is True
    assert await states(party) == [State.PENDING]


@promise("approval:first-decision-wins")
@pytest.mark.parametrize("allow", [True, False])
async def test_what_is_decided_elsewhere_closes_the_form_and_the_call_goes_on(
    party: Party, allow: bool
) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__write", ARGUMENTS)
    form = await party.asked()
    await party.decide(allow=allow)
    result = await party.result_of(id)

    assert (await party.told("notifications/cancelled"))[0]["requestId"] == form["id"]
    if allow:
        assert json.loads(text_of(result)) == ARGUMENTS
    else:
        assert code_of(result) == "user_denied"
    party.reply(form, {"action": "decline" if allow else "accept", "content": {"remember": "always"}})
    await party.settle()
    assert await states(party) == [State.COMPLETED if allow else State.DENIED]
    assert len(party.servers.calls) == (1 if allow else 0)


@pytest.fixture
def short_form(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(elicitation, "FORM_S", 0.02)
    return 0.02


async def outlast_the_form(party: Party) -> tuple[Message, Message]:
    """Call, wait until the gateway answers without the form's answer; return the form and the result."""
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__write", ARGUMENTS)
    form = await party.asked()
    party.office.clock.advance(1)
    return form, await party.result_of(id)


@pytest.mark.usefixtures("short_form")
async def test_a_form_that_takes_long_is_answered_by_the_approval_result_and_stays_open(party: Party) -> None:
    party.rules(ask=["files:write"])
    _, result = await outlast_the_form(party)

    assert result["approval_required"] is True
    assert await states(party) == [State.PENDING]
    assert party.told_now("notifications/cancelled") == []


@pytest.mark.usefixtures("short_form")
@pytest.mark.parametrize("late", [accept(), {"action": "decline"}])
async def test_a_late_answer_to_the_form_still_decides_and_is_collected(party: Party, late: Json) -> None:
    party.rules(ask=["files:write"])
    form, result = await outlast_the_form(party)
    with party.office.context.store.changes.watch() as changes:
        party.send({"jsonrpc": "2.0", "id": form["id"], "result": late})
        assert await changes.wait(5)
    collected = await party.continue_("files__write", result["structuredContent"]["workflow_id"])

    if late == accept():
        assert json.loads(text_of(collected["result"])) == ARGUMENTS
    else:
        assert code_of(collected["result"]) == "user_denied"
    assert len(party.servers.calls) == (1 if late == accept() else 0)


@pytest.mark.usefixtures("short_form")
async def test_a_call_made_again_waits_for_the_form_that_is_still_open(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    party.rules(ask=["files:write"])
    form, _ = await outlast_the_form(party)
    monkeypatch.setattr(elicitation, "FORM_S", 50.0)
    again = party.start_call("files__write", ARGUMENTS)
    await party.settle()
    assert party.unasked
    party.reply(form, accept())

    assert json.loads(text_of(await party.result_of(again))) == ARGUMENTS
    assert party.told_now("notifications/cancelled") == []


@pytest.mark.usefixtures("short_form")
@pytest.mark.parametrize("how", ["allowed", "denied", "expired", "cancelled"])
async def test_a_form_left_open_closes_when_its_question_does(party: Party, how: str) -> None:
    party.rules(ask=["files:write"])
    form, _ = await outlast_the_form(party)
    record = await party.question()
    match how:
        case "expired":
            party.office.clock.advance(301)
            await expire(party.office.context, record)
        case "cancelled":
            await cancel(party.office.context, record.id, reason="no longer wanted")
        case _:
            await party.decide(allow=how == "allowed")

    assert (await party.told("notifications/cancelled"))[0]["requestId"] == form["id"]
    party.reply(form, accept())
    await party.settle()
    assert (party.servers.calls, await states(party)) == ([], [State(how)])


async def test_a_shared_form_stays_for_the_call_that_still_waits(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    given_up, waiting = (party.start_call("files__write", ARGUMENTS) for _ in range(2))
    form = await party.asked()
    await party.settle()
    party.cancel(given_up)
    await party.settle()
    assert party.told_now("notifications/cancelled") == []
    party.reply(form, accept())

    assert json.loads(text_of(await party.result_of(waiting))) == ARGUMENTS


async def test_a_call_made_again_at_once_after_it_was_given_up_gets_a_form_of_its_own(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    given_up = party.start_call("files__write", ARGUMENTS)
    await party.asked()
    party.cancel(given_up)
    again = party.start_call("files__write", ARGUMENTS)
    party.reply(await party.asked(), accept())

    assert json.loads(text_of(await party.result_of(again))) == ARGUMENTS


async def test_a_client_that_goes_while_its_form_is_open_takes_the_question_along(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    party.start_call("files__write", ARGUMENTS)
    await party.asked()
    record = await party.question()
    written = len(party.lines)
    party.connection.ended()
    async with asyncio.timeout(SOON_S):
        await party.connection.run()

    assert await states(party) == [State.CANCELLED]
    assert await party.office.context.store.workflows.get(record.id) is None
    assert len(party.lines) == written


async def test_two_forms_of_one_call_share_its_time(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def waiting(context: Any, approval_id: Any, *, timeout_s: float | None = None) -> Any:
        if timeout_s is not None:  # the form's own wait has no end
            waits.append(timeout_s)
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(elicitation, "wait", waiting)
    party.servers.named["local"] = party.servers.named.pop("files")
    party.configure(mcpServers={}, permissions={"ask": ["local:write"]})
    party.office.write(FileKind.WORKSPACE, {"mcpServers": {"local": {"command": "run-me"}}})
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("local__write", ARGUMENTS)
    for _ in range(2):
        party.reply(await party.asked(), accept())
    await party.result_of(id)

    assert len(waits) == 2
    assert elicitation.FORM_S >= waits[0] > waits[1] > 0


async def test_a_client_that_gives_the_call_up_withdraws_the_question_and_its_form(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__write", ARGUMENTS)
    form = await party.asked()
    party.cancel(id)

    assert (await party.told("notifications/cancelled"))[0]["requestId"] == form["id"]
    await party.settle()
    assert (party.servers.calls, await states(party)) == ([], [State.CANCELLED])


async def test_progress_is_sent_on_the_clients_token_while_a_person_is_waited_for(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "TICK_S", 0.001)
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__write", ARGUMENTS, _meta={"progressToken": "tok"})
    form = await party.asked()
    before = len(party.told_now("notifications/progress"))
    told = await party.told("notifications/progress", count=before + 3)

    assert [tick["progress"] for tick in told] == [n + 1 for n in range(len(told))]
    after = told[before:]
    assert {(tick["progressToken"], tick["message"]) for tick in after} == {("tok", "waiting for approval")}
    party.reply(form, accept())
    await party.result_of(id)
    sent = len(party.notifications)
    await party.settle()
    assert len(party.notifications) == sent


async def test_everything_else_is_answered_while_a_form_is_open(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    waiting = party.start_call("files__write", ARGUMENTS)
    form = await party.asked()

    assert await party.result("ping") == {}
    assert text_of(await party.call("files__read", {"path": "x"})) == '{"path": "x"}'
    other = party.start_call("files__write", OTHER)
    party.reply(await party.asked(), accept())
    assert json.loads(text_of(await party.result_of(other))) == OTHER
    party.reply(form, accept())
    assert json.loads(text_of(await party.result_of(waiting))) == ARGUMENTS


@promise("run:at-most-once")
async def test_one_answer_to_the_same_call_made_twice_runs_it_once(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    ids = [party.start_call("files__write", ARGUMENTS) for _ in range(2)]
    form = await party.asked()
    await party.settle()
    assert party.unasked
    party.reply(form, accept())
    another = await party.asked()
    assert len(party.servers.calls) == 1

    party.reply(another, accept())
    for id in ids:
        assert json.loads(text_of(await party.result_of(id))) == ARGUMENTS
    assert len(party.servers.calls) == 2


@promise("form:bound-and-single-use")
async def test_two_equal_forms_that_are_answered_together_run_one_call_and_ask_for_the_other(
    party: Party,
) -> None:
    party.rules(ask=["files:write"])
    await party.connect(MODERN, FORMS)
    forms = [await party.call("files__write", ARGUMENTS) for _ in range(2)]
    ids = [
        party.start_call(
            "files__write",
            ARGUMENTS,
            inputResponses={"approval": accept()},
            requestState=form["requestState"],
        )
        for form in forms
    ]
    results = [await party.result_of(id) for id in ids]

    assert sorted(result["resultType"] for result in results) == ["complete", "input_required"]
    assert len(party.servers.calls) == 1
    again = next(result for result in results if result["resultType"] == "input_required")
    assert json.loads(text_of(await retry(party, again, accept()))) == ARGUMENTS
    assert len(party.servers.calls) == 2
