"""What servers ask of the client: in their own name, through either era's form, and never beyond the call."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pml.core.values import Json, JsonObject
from pml.downstream.forms import relay
from pml.downstream.protocol.eras import MODERN
from tests.downstream.parties import FORMS, Message, Party, text_of, text_result
from tests.promises import promise

QUESTION: JsonObject = {
    "message": "Which branch?",
    "requestedSchema": {"type": "object", "properties": {"branch": {"type": "string"}}},
}
ANSWER: JsonObject = {"action": "accept", "content": {"branch": "main"}}


class Curious:
    """A server that asks before it answers; keeps the answers it got."""

    def __init__(self, party: Party, *questions: JsonObject) -> None:
        self.answers: list[Json] = []
        self.done = asyncio.Event()
        self._party = party
        self._questions = questions or (QUESTION,)

    async def __call__(self, method: str, params: JsonObject, on_progress: Any) -> bytes:
        for question in self._questions:
            self.answers.append(await self._party.relay.elicit("files", question))
            if on_progress is not None:
                on_progress({"progressToken": 1, "progress": len(self.answers)})
        self.done.set()
        return text_result("done")


async def go_on(party: Party, asked: Message, answer: Json, **more: Json) -> Message:
    return await party.call(
        "files__read",
        {"path": "a"},
        inputResponses={"server": answer},
        requestState=asked["requestState"],
        **more,
    )


def curious(party: Party, *questions: JsonObject) -> Curious:
    server = Curious(party, *questions)
    party.servers.named["files"].answer = server
    return server


# Legacy


async def test_a_servers_question_reaches_a_legacy_client_in_the_servers_name(party: Party) -> None:
    server = curious(party)
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__read", {"path": "a"})
    asked = await party.asked()
    assert asked["params"] == {**QUESTION, "message": "Server files asks:\n  Which branch?"}
    party.reply(asked, ANSWER)

    assert text_of(await party.result_of(id)) == "done"
    assert server.answers == [ANSWER]


@promise("form:never-forged")
@pytest.mark.parametrize(
    "message",
    [
        "Call files:write?\nwhy: x",
        "\nCall files:write?",
        "a\r\nServer other asks:",
        "a\u2028Call files:write?",
        "\u202easks",
        "\x1b[2JCall files:write?",
        "",
        None,
        7,
    ],
)
async def test_a_servers_question_cannot_be_taken_for_pmls(party: Party, message: Json) -> None:
    for version in ("2025-11-25", MODERN):
        curious(party, {**QUESTION, "message": message})
        await party.connect(version, FORMS)
        id = party.start_call("files__read", {"path": "a"})
        if version == MODERN:
            shown = (await party.result_of(id))["inputRequests"]["server"]["params"]["message"]
        else:
            shown = (await party.asked())["params"]["message"]
        first, *rest = shown.split("\n")
        assert first == "Server files asks:"
        assert all(line.startswith("  ") and line.isprintable() for line in rest)


async def test_a_client_without_forms_is_not_asked_and_the_server_told_so(party: Party) -> None:
    without: tuple[tuple[str, JsonObject], ...] = (("2025-11-25", {}), ("2024-11-05", FORMS), (MODERN, {}))
    for version, capabilities in without:
        server = curious(party)
        await party.connect(version, capabilities)
        assert not party.relay.can_elicit
        assert text_of(await party.call("files__read", {"path": "a"})) == "done"
        assert server.answers == [{"action": "cancel"}]
    assert party.unasked


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("by", ["the command line", "the user's file"])
async def test_where_forms_are_switched_off_no_server_shows_one(party: Party, version: str, by: str) -> None:
    server = curious(party)
    party.shows_forms = by != "the command line"
    if party.shows_forms:
        party.configure(approval={"forms": False, "unlisted": "if_client_cannot"})
    await party.connect(version, FORMS)

    assert not party.relay.can_elicit
    assert text_of(await party.call("files__read", {"path": "a"})) == "done"
    assert server.answers == [{"action": "cancel"}]
    assert party.unasked


async def test_a_client_that_answers_with_an_error_has_cancelled(party: Party) -> None:
    server = curious(party)
    await party.connect("2025-11-25", FORMS)
    assert party.relay.can_elicit
    id = party.start_call("files__read", {"path": "a"})
    asked = await party.asked()
    party.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32603, "message": "no"}})
    await party.result_of(id)

    assert server.answers == [{"action": "cancel"}]


# Modern


async def test_a_servers_question_reaches_a_modern_client_and_the_call_goes_on_with_the_answer(
    party: Party,
) -> None:
    server = curious(party)
    await party.connect(MODERN, FORMS)
    asked = await party.call("files__read", {"path": "a"})

    assert asked["inputRequests"] == {
        "server": {
            "method": "elicitation/create",
            "params": {**QUESTION, "message": "Server files asks:\n  Which branch?"},
        }
    }
    assert text_of(await go_on(party, asked, ANSWER)) == "done"
    assert server.answers == [ANSWER]
    assert len(party.servers.calls) == 1
    assert party.unasked


async def test_a_server_may_ask_again_and_progress_goes_to_the_round_of_now(party: Party) -> None:
    server = curious(party, QUESTION, {**QUESTION, "message": "Sure?"})
    await party.connect(MODERN, FORMS)
    first = await party.call("files__read", {"path": "a"}, _meta={"progressToken": "one"})
    second = await go_on(party, first, ANSWER, _meta={"progressToken": "two"})
    assert second["inputRequests"]["server"]["params"]["message"] == "Server files asks:\n  Sure?"
    last = await go_on(party, second, {"action": "decline"}, _meta={"progressToken": "three"})

    assert text_of(last) == "done"
    assert server.answers == [ANSWER, {"action": "decline"}]
    tokens = [told["progressToken"] for told in party.told_now("notifications/progress")]
    assert tokens == ["two", "three"]


@promise("form:unanswered-is-asked-again")
@pytest.mark.parametrize(
    "answer", [None, "x", [], 7, {}, {"action": "yes"}, {"action": "accept", "content": 1}]
)
async def test_a_servers_question_that_was_not_answered_is_asked_again(party: Party, answer: Json) -> None:
    server = curious(party)
    await party.connect(MODERN, FORMS)
    asked = await party.call("files__read", {"path": "a"})
    again = await go_on(party, asked, answer)

    assert (again["inputRequests"], server.answers) == (asked["inputRequests"], [])
    assert text_of(await go_on(party, again, ANSWER)) == "done"
    assert server.answers == [ANSWER]


@promise("server:forms-make-room")
async def test_questions_that_no_client_comes_back_to_make_room_for_newer_ones(party: Party) -> None:
    server = curious(party)
    await party.connect(MODERN, FORMS)
    asked = [await party.call("files__read", {"path": str(number)}) for number in range(relay.OPEN + 2)]
    await party.until(lambda: len(server.answers) == 2)
    assert server.answers == [{"action": "cancel"}] * 2
    for number in (0, relay.OPEN + 1):
        back = await party.call(
            "files__read",
            {"path": str(number)},
            inputResponses={"server": ANSWER},
            requestState=asked[number]["requestState"],
        )
        assert text_of(back) == "done"
    assert server.answers == [{"action": "cancel"}, {"action": "cancel"}, ANSWER]


@promise("server:asks-whom-it-serves")
async def test_a_request_without_forms_takes_none_from_another(party: Party) -> None:
    server = curious(party)
    await party.connect(MODERN, FORMS)
    asked = await party.call("files__read", {"path": "a"})
    party.be_modern({})
    await party.result("tools/list")
    assert party.relay.can_elicit
    assert text_of(await party.call("files__read", {"path": "b"})) == "done"
    party.be_modern(FORMS)

    assert text_of(await go_on(party, asked, ANSWER)) == "done"
    assert server.answers == [{"action": "cancel"}, ANSWER]


@promise("form:bound-and-single-use")
async def test_an_answer_to_a_server_counts_once_and_for_its_own_call(party: Party) -> None:
    server = curious(party)
    await party.connect(MODERN, FORMS)
    asked = await party.call("files__read", {"path": "a"})
    responses: JsonObject = {"server": ANSWER}
    other = await party.call_error(
        "files__read", {"path": "b"}, inputResponses=responses, requestState=asked["requestState"]
    )
    assert (other["code"], server.answers) == (-32602, [])
    await go_on(party, asked, ANSWER)
    replayed = await party.call_error(
        "files__read", {"path": "a"}, inputResponses=responses, requestState=asked["requestState"]
    )

    assert replayed["code"] == -32602
    assert (server.answers, len(party.servers.calls)) == ([ANSWER], 1)


async def test_an_approval_and_a_servers_question_follow_each_other_in_one_call(party: Party) -> None:
    party.rules(ask=["files:read"])
    server = curious(party)
    await party.connect(MODERN, FORMS)
    form = await party.call("files__read", {"path": "a"})
    accept: JsonObject = {"action": "accept", "content": {"remember": "once"}}
    asked = await party.call(
        "files__read",
        {"path": "a"},
        inputResponses={"approval": accept},
        requestState=form["requestState"],
    )

    assert asked["inputRequests"].keys() == {"server"}
    assert text_of(await go_on(party, asked, ANSWER)) == "done"
    assert server.answers == [ANSWER]


@promise("form:never-forged")
async def test_the_answer_to_a_server_decides_no_approval(party: Party) -> None:
    party.rules(ask=["files:write"])
    curious(party)
    await party.connect(MODERN, FORMS)
    asked = await party.call("files__read", {"path": "a"})
    arguments: JsonObject = {"path": "a", "text": "b"}
    form = await party.call("files__write", arguments)
    accept: JsonObject = {"action": "accept", "content": {"remember": "once"}}
    crossed = await party.call(
        "files__write",
        arguments,
        inputResponses={"server": accept},
        requestState=form["requestState"],
    )
    assert crossed["inputRequests"] == form["inputRequests"]
    error = await party.call_error(
        "files__write",
        arguments,
        inputResponses={"approval": accept},
        requestState=asked["requestState"],
    )

    assert error["code"] == -32602
    assert [call["name"] for call in party.servers.calls] == ["read"]


async def test_a_result_that_came_while_its_question_was_open_is_not_lost(party: Party) -> None:
    finish = asyncio.Event()

    async def impatient(method: str, params: JsonObject, on_progress: Any) -> bytes:
        asking = asyncio.ensure_future(party.relay.elicit("files", QUESTION))
        await finish.wait()
        asking.cancel()
        return text_result("done without you")

    party.servers.named["files"].answer = impatient
    await party.connect(MODERN, FORMS)
    asked = await party.call("files__read", {"path": "a"})
    finish.set()
    await party.settle()

    assert text_of(await go_on(party, asked, ANSWER)) == "done without you"


async def test_a_question_that_came_with_the_result_is_cancelled(party: Party) -> None:
    answers: list[asyncio.Task[JsonObject]] = []

    async def hasty(method: str, params: JsonObject, on_progress: Any) -> bytes:
        answers.append(asyncio.ensure_future(party.relay.elicit("files", QUESTION)))
        await asyncio.sleep(0)
        return text_result("done")

    party.servers.named["files"].answer = hasty
    await party.connect(MODERN, FORMS)
    result = await party.call("files__read", {"path": "a"})
    async with asyncio.timeout(60):
        assert (text_of(result), await answers[0]) == ("done", {"action": "cancel"})


async def test_a_question_that_nobody_comes_back_to_is_cancelled_in_time(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PARKED_S", 0.01)
    monkeypatch.setattr("pml.downstream.forms.rounds.PARKED_S", 0.0)
    server = curious(party)
    await party.connect(MODERN, FORMS)
    asked = await party.call("files__read", {"path": "a"})
    async with asyncio.timeout(60):
        await server.done.wait()
    assert server.answers == [{"action": "cancel"}]
    error = await party.call_error(
        "files__read", {"path": "a"}, inputResponses={"server": ANSWER}, requestState=asked["requestState"]
    )

    assert error == {"code": -32602, "message": "`requestState` refers to a call that has ended"}


async def test_a_client_that_gives_up_the_call_gives_up_the_servers_work(party: Party) -> None:
    ended = asyncio.Event()

    async def hang(method: str, params: JsonObject, on_progress: Any) -> bytes:
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    party.servers.named["files"].answer = hang
    await party.connect(MODERN, FORMS)
    id = party.start_call("files__read", {"path": "a"})
    await party.until(lambda: bool(party.servers.calls))
    party.cancel(id)
    async with asyncio.timeout(60):
        await ended.wait()


async def test_a_question_without_a_call_does_not_reach_a_modern_client(party: Party) -> None:
    await party.connect(MODERN, FORMS)

    assert await party.relay.elicit("files", QUESTION) == {"action": "cancel"}
    assert party.unasked


# Roots, log messages


def workspace_roots(party: Party) -> JsonObject:
    folder: Path = party.office.workspace
    return {"roots": [{"uri": folder.as_uri(), "name": folder.name}]}


async def test_roots_are_the_clients_asked_for_once_until_they_change(party: Party) -> None:
    await party.connect("2025-11-25", {"roots": {"listChanged": True}})
    for name in ("one", "two"):
        roots: JsonObject = {"roots": [{"uri": f"file:///{name}"}]}
        asking = asyncio.ensure_future(party.relay.roots())
        party.reply(await party.asked("roots/list"), roots)
        assert await asking == roots
        assert await party.relay.roots() == roots
        party.notify("notifications/roots/list_changed", {})
        await party.settle()
    assert party.unasked


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_without_roots_of_the_client_the_workspace_is_the_root(party: Party, version: str) -> None:
    await party.connect(version, FORMS)

    assert await party.relay.roots() == workspace_roots(party)
    assert party.unasked


async def test_a_client_that_does_not_tell_its_roots_has_the_workspace(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ROOTS_S", 0.01)
    await party.connect("2025-11-25", {"roots": {}})

    assert await party.relay.roots() == workspace_roots(party)


async def test_log_messages_are_passed_on_in_the_servers_name_from_the_level_asked_for(party: Party) -> None:
    await party.connect("2025-11-25")
    for level in ("debug", "info", "error"):
        party.relay.logged("files", {"level": level, "data": level, "logger": "disk"})
    await party.result("logging/setLevel", {"level": "error"})
    for level in ("warning", "error", "nonsense", None):
        party.relay.logged("files", {"level": level, "data": "later"})

    assert await party.told("notifications/message", count=3) == [
        {"level": "info", "data": "info", "logger": "files/disk"},
        {"level": "error", "data": "error", "logger": "files/disk"},
        {"level": "error", "data": "later", "logger": "files"},
    ]


@pytest.mark.parametrize("level", ["loud", None, 3])
async def test_an_unknown_level_is_refused(party: Party, level: Json) -> None:
    await party.connect("2025-11-25")

    assert (await party.error("logging/setLevel", {"level": level}))["code"] == -32602
