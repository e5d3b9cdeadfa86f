"""Consent at the doors: what a new user's settings ask about, and whose answer applies there."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.approvals.record import Role
from pml.core.config.file import FileKind
from pml.core.sessions.token import Identity, TokenId
from pml.core.values import Json, JsonObject
from pml.downstream.protocol.eras import LEGACY, MODERN
from tests.downstream.parties import FORMS, LATEST, Message, Party, text_of, tool
from tests.downstream.webs import Web, call, identity
from tests.promises import promise

ARGUMENTS: JsonObject = {"path": "a", "text": "b"}
ACCEPT: JsonObject = {"action": "accept", "content": {"remember": "once"}}
ALWAYS: JsonObject = {"action": "accept", "content": {"remember": "always"}}
LONG: JsonObject = {"path": "a", "text": "\n".join(f"line {n}" for n in range(200)) * 20}
COMMAND: JsonObject = {"command": "ls"}
EVERY_ERA = pytest.mark.parametrize("version", [*LEGACY, MODERN])
BOTH = pytest.mark.parametrize("version", [LATEST, MODERN])


@promise("consent:unlisted-asks")
@EVERY_ERA
@pytest.mark.parametrize("ask", [[], ["*"]])
async def test_a_tool_that_no_rule_names_asks_though_it_is_called_by_its_own_name(
    party: Party, version: str, ask: list[Json]
) -> None:
    party.as_new(ask=ask)
    await party.connect(version)
    result = await party.call("files__write", ARGUMENTS)

    assert result["approval_required"] is True
    assert party.servers.calls == []
    (record,) = await party.pending()
    assert Role.MODEL in record.deciders  # for who may decide, a bare `*` leaves it unlisted


@promise("consent:unlisted-asks")
async def test_outside_the_folder_that_a_rule_allows_a_call_asks(party: Party) -> None:
    party.as_new(allow=[{"tool": "files:read", "args": {"path": {"under": str(party.office.workspace)}}}])
    await party.connect()
    inside = await party.call("files__read", {"path": "notes.txt"})
    outside = await party.call("files__read", {"path": "/etc/hostname"})

    assert "approval_required" not in inside
    assert outside["approval_required"] is True
    assert [each["arguments"] for each in party.servers.calls] == [{"path": "notes.txt"}]


@promise("consent:model-plain-only")
@BOTH
@pytest.mark.parametrize(
    ("rules", "arguments"),
    [
        ({"ask": ["files:write"]}, ARGUMENTS),
        ({"ask": ["files:*", "*"]}, ARGUMENTS),
        ({"ask": [{"tool": "*", "args": {"path": "a"}}]}, ARGUMENTS),
        ({}, {**ARGUMENTS, **COMMAND}),
    ],
    ids=["named", "named by a glob", "named by an argument", "a command"],
)
@pytest.mark.parametrize("setting", ["if_no_form", "always"])
async def test_a_model_confirms_no_command_and_nothing_that_a_rule_asks_about(
    party: Party, version: str, rules: dict[str, list[Json]], arguments: JsonObject, setting: str
) -> None:
    party.configure(approval={"model_may_approve": setting}, permissions=rules)
    await party.connect(version)
    asked = await party.call("files__write", arguments)
    again = await party.continue_("files__write", asked["approval_context"]["workflow_id"], always=True)

    assert again["result"]["approval_required"] is True
    assert "You cannot approve it." in text_of(again["result"])
    assert party.servers.calls == []
    await party.decide(allow=True)
    done = await party.continue_("files__write", asked["approval_context"]["workflow_id"])
    assert "approval_required" not in done["result"]
    assert len(party.servers.calls) == 1


@promise("consent:model-plain-only")
@BOTH
@pytest.mark.parametrize(
    ("query", "is_plain"),
    [("who is Ana?", True), ("select secret from users", False), ("a; rm -rf /", False), ("f(1)", False)],
)
async def test_a_model_confirms_a_search_for_words_and_no_statement(
    party: Party, version: str, query: str, is_plain: bool
) -> None:
    party.serve("notes", tool("search_nodes"))
    party.as_new()
    await party.connect(version)
    asked = await party.call("notes__search_nodes", {"query": query})
    await party.continue_("notes__search_nodes", asked["approval_context"]["workflow_id"])

    assert len(party.servers.calls) == (1 if is_plain else 0)


@promise("consent:model-plain-only")
@BOTH
@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("run", {"source": "rm -rf x", "destination": "y"}),
        ("copy", {"source": "rm -rf x", "destination": "y"}),
        ("search", {"query": 'TRUNCATE"users"'}),
        ("execute_search", {"query": "news"}),
        ("terminal", {"text": "x"}),
        ("interact_with_process", {"text": "rm -rf x"}),
        ("send-keys", {"keys": "rm -rf x"}),
        ("start", {"file": "/bin/sh", "args": ["-c", "rm -rf x"]}),
    ],
)
async def test_a_command_in_the_clothes_of_a_plain_call_is_no_models_to_confirm(
    party: Party, version: str, action: str, arguments: JsonObject
) -> None:
    party.serve("dev", tool(action, required=[*arguments]))
    party.as_new()
    await party.connect(version)
    asked = await party.call(f"dev__{action}", arguments)
    await party.continue_(f"dev__{action}", asked["approval_context"]["workflow_id"])

    (record,) = await party.pending()
    assert (record.deciders, party.servers.calls) == ({Role.PERSON}, [])


@promise("consent:model-plain-only")
async def test_a_model_says_always_only_where_no_rule_asks_about_any_call_of_the_tool(party: Party) -> None:
    party.as_new(ask=[{"tool": "files:write", "args": {"path": "secret"}}])
    await party.connect()
    asked = await party.call("files__write", ARGUMENTS)
    workflow_id = asked["approval_context"]["workflow_id"]
    refused = await party.continue_("files__write", workflow_id, always=True)

    assert "`always` is a person's to say" in text_of(refused["result"])
    assert (party.servers.calls, party.office.path(FileKind.WORKSPACE).exists()) == ([], False)
    assert "result" in await party.continue_("files__write", workflow_id)
    assert len(party.servers.calls) == 1


@promise("form:cut-decides-nothing")
@BOTH
async def test_what_a_form_cannot_show_whole_is_not_asked_by_form(party: Party, version: str) -> None:
    party.as_new()
    await party.connect(version, {"elicitation": {}})
    result = await party.call("files__write", LONG)

    assert result["approval_required"] is True
    assert "too long for one; the inbox shows all of it" in text_of(result)
    assert "You cannot approve it." in text_of(result)
    assert party.servers.calls == []


@promise("form:read-before-answered")
@BOTH
@pytest.mark.usefixtures("hurried")
async def test_a_form_accepted_before_it_can_be_read_is_shown_once_more_and_then_left(
    party: Party, version: str
) -> None:
    party.as_new()
    await party.connect(version, {"elicitation": {}})
    shown, result = await _accepted_twice(party, version, ALWAYS)

    first, second = (message.split("\n") for message in shown)
    assert second == [first[0], "asked once more: the answer came faster than a person can read", *first[1:]]
    assert result["approval_required"] is True
    assert (party.servers.calls, party.office.path(FileKind.WORKSPACE).exists()) == ([], False)


async def _accepted_twice(party: Party, version: str, answer: JsonObject) -> tuple[list[str], Message]:
    """Return what two forms said that were accepted at once, and what became of the call."""
    shown: list[str] = []
    if version != MODERN:
        id = party.start_call("files__write", ARGUMENTS)
        for _ in range(2):
            form = await party.asked()
            shown.append(form["params"]["message"])
            party.reply(form, answer)
        return shown, await party.result_of(id)
    result = await party.call("files__write", ARGUMENTS)
    for _ in range(2):
        shown.append(result["inputRequests"]["approval"]["params"]["message"])
        state = result["requestState"]
        result = await party.call(
            "files__write", ARGUMENTS, inputResponses={"approval": answer}, requestState=state
        )
    return shown, result


# Over HTTP


@pytest.fixture
async def web(tmp_path: Path) -> AsyncGenerator[Web]:
    web = Web(tmp_path)
    web.serve("files", tool("read", required=["path"]), tool("run", required=["command"]))
    web.as_new()
    yield web
    await web.close()


async def over_http(web: Web, version: str, by: Identity, name: str, arguments: JsonObject) -> Message:
    """Return what the call comes to for a client that shows forms: its result, or the form."""
    if version == MODERN:
        return await web.ask(call(name, arguments, 1), FORMS, by=by).result()
    client = await web.shake_hands(version, FORMS, by=by)
    return (await client.post(call(name, arguments, 1)).has(1))[-1]


def is_form(answer: Message) -> bool:
    return answer.get("resultType") == "input_required" or answer.get("method") == "elicitation/create"


@promise("consent:http-forms")
@BOTH
async def test_without_a_token_for_forms_no_form_is_sent_and_no_model_decides(web: Web, version: str) -> None:
    answer = await over_http(web, version, identity(forms=False), "files__read", {"path": "a"})

    assert not is_form(answer)
    (record,) = await web.pending()
    assert record.deciders == {Role.PERSON}
    said: Json = {"workflow_id": record.id, "approved": True}
    again = await web.ask(call("call", {"continue_workflow": said}, 2), by=identity(forms=False)).result()
    assert again["approval_required"] is True
    assert web.servers.calls == []


@promise("consent:http-forms")
@BOTH
async def test_with_a_token_for_forms_they_decide_plain_calls_only(web: Web, version: str) -> None:
    assert is_form(await over_http(web, version, identity(), "files__read", {"path": "a"}))
    assert not is_form(await over_http(web, version, identity(), "files__run", COMMAND))

    command, plain = sorted(await web.pending(), key=lambda record: len(record.deciders))
    assert (command.deciders, plain.deciders) == ({Role.PERSON}, {Role.PERSON, Role.FORM})


@promise("consent:http-forms")
@BOTH
@pytest.mark.parametrize("is_revoked", [True, False])
async def test_a_token_that_was_not_made_for_forms_has_nothing_of_one_that_was(
    web: Web, version: str, is_revoked: bool
) -> None:
    first, second = identity(), identity(forms=False, token_id=TokenId("ba9876543210"))
    assert is_form(await over_http(web, version, first, "files__read", {"path": "a"}))
    web.dead |= {first.token_id} if is_revoked else set()
    answer = await over_http(web, version, second, "files__read", {"path": "b"})

    assert not is_form(answer)
    assert [who.forms for who, _ in web.opened] == [True, False]
    (record,) = [each for each in await web.pending() if each.tool_input == {"path": "b"}]
    assert record.deciders == {Role.PERSON}


@promise("consent:http-forms")
@BOTH
async def test_nobody_trusts_a_file_over_http(web: Web, version: str) -> None:
    web.servers.named["local"] = web.servers.named["files"]
    web.office.write(FileKind.USER, {})
    web.office.write(FileKind.WORKSPACE, {"mcpServers": {"local": {"command": "local"}}})
    reading: JsonObject = {"tool": "local:read", "arguments": {"path": "a"}}
    answer = await over_http(web, version, identity(), "call", reading)

    assert not is_form(answer)
    (record,) = await web.pending()
    assert (record.tool_name, record.deciders) == ("pml:trust", {Role.PERSON})
    assert web.servers.started == []


# Forms that were switched off


@promise("forms:off-means-people")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("by", ["the command line", "the user's file"])
async def test_where_forms_are_switched_off_people_decide_and_not_the_model(
    party: Party, version: str, by: str
) -> None:
    party.as_new()
    party.shows_forms = by != "the command line"
    if party.shows_forms:
        party.configure(approval={"forms": False})
    await party.connect(version, FORMS)
    asked = await party.call("files__read", {"path": "a"})

    (record,) = await party.pending()
    assert record.deciders == frozenset({Role.PERSON})
    assert "You cannot approve it." in text_of(asked)
    assert "Your client's own form does not decide this: forms are switched off" in text_of(asked)
    workflow_id = asked["approval_context"]["workflow_id"]
    again = (await party.continue_("call", workflow_id))["result"]
    assert (again["approval_required"], party.servers.calls) == (True, [])
    assert party.unasked

    await party.decide(allow=True)
    assert text_of((await party.continue_("call", workflow_id))["result"]) == '{"path": "a"}'


async def test_a_client_that_declares_no_form_is_as_it_was_where_forms_are_switched_off(party: Party) -> None:
    party.configure(approval={"forms": False})
    await party.connect()
    await party.call("files__read", {"path": "a"})

    (record,) = await party.pending()
    assert record.deciders == frozenset({Role.PERSON, Role.MODEL})


async def test_a_switch_in_the_users_file_applies_from_the_next_call(party: Party) -> None:
    party.as_new()
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__read", {"path": "a"})
    party.reply(await party.asked(), {"action": "cancel"})
    await party.result_of(id)
    party.configure(approval={"forms": False})

    asked = await party.call("files__write", {"path": "a", "text": "b"})
    assert asked["approval_required"] is True
    assert party.unasked
