"""MCP over HTTP in process: what is taken, what is refused with which status, and what comes back."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import ServerRefused
from pml.core.sessions.token import TokenId, TokenRole
from pml.core.values import MAX_BYTES, JsonObject
from pml.downstream.http import endpoint as http
from pml.downstream.http import headers as http_rules
from pml.downstream.http import http_session, streams
from pml.downstream.protocol.connection import ConnectionGone
from pml.downstream.protocol.eras import LEGACY, MODERN
from tests.downstream.parties import FORMS, LATEST, PREFIX, SOON_S, Answer, text_of, text_result, tool
from tests.downstream.webs import (
    BOTH,
    ME,
    OTHER,
    Web,
    call,
    identity,
    modern,
    notification,
    request,
)
from tests.promises import promise

READ = "files__read"


@pytest.fixture
async def web(tmp_path: Path) -> AsyncGenerator[Web]:
    web = Web(tmp_path)
    web.serve("files", tool("read", required=["path"]))
    web.rules(allow=["files:read"])
    yield web
    await web.close()


def waiting(web: Web, answer: bytes = b"") -> asyncio.Event:
    """Let the server wait for the event that is returned; tells nothing before."""
    release = asyncio.Event()

    async def wait(method: str, params: JsonObject, on_progress: Any) -> bytes:
        await release.wait()
        return answer or text_result("done")

    web.servers.named["files"].answer = wait
    return release


def answering(web: Web, answer: Answer) -> None:
    web.servers.named["files"].answer = answer


@pytest.fixture
def no_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every answer that is not there at once become a stream."""
    monkeypatch.setattr(streams, "MOMENT_S", 0.0)


READING = call(READ, {"path": "a"}, 7)


# Who may come, and how


@promise("login:link-token-does-nothing-else")
@pytest.mark.parametrize("role", [TokenRole.PERSON, TokenRole.LOGIN])
async def test_a_persons_token_calls_nothing(web: Web, role: TokenRole) -> None:
    person = identity(None, role)
    refused = await web.post(modern(READING), by=person).done()
    assert (refused.status, web.opened) == (403, [])


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD", "TRACE"])
async def test_other_methods_are_refused_with_those_there_are(web: Web, method: str) -> None:
    refused = await web.knock(method).done()
    assert (refused.status, refused.headers["allow"]) == (405, "GET, POST, DELETE")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"accept": "application/json"}, 406),
        ({"accept": "text/event-stream"}, 406),
        ({"accept": ""}, 406),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": ""}, 415),
        ({"accept": "*/*"}, 200),
        ({"accept": "application/*;q=0.5, text/*"}, 200),
        ({"content_type": "application/json; charset=utf-8"}, 200),
    ],
)
async def test_a_post_brings_json_and_takes_json_and_events(
    web: Web, headers: dict[str, str], status: int
) -> None:
    assert (await web.ask(request("tools/list"), None, by=None, **headers).done()).status == status


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","method":"ping","id":1.5}', -32600),
        (b"[]", -32600),
        (b"3", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    ],
)
async def test_a_body_that_is_no_message_is_refused(web: Web, body: bytes, code: int) -> None:
    refused = await web.post(body).done()
    assert (refused.status, (await refused.error())["code"]) == (400, code)


async def test_a_body_that_is_too_large_is_refused_without_reading_it(web: Web) -> None:
    refused = await web.post(b"{}", content_length=str(MAX_BYTES + 1)).done()
    assert (refused.status, refused.headers["connection"]) == (413, "close")
    refused = await web.post(b" " * (MAX_BYTES + 1)).done()
    assert (refused.status, refused.headers["connection"]) == (413, "close")


async def test_a_body_that_does_not_arrive_is_not_waited_for(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_rules, "BODY_S", 0.01)
    headers = {"accept": BOTH, "content-type": "application/json"}
    slow = web.knock("POST", b"{", headers)
    slow.more_body = True
    refused = await slow.done()
    assert (refused.status, refused.headers["connection"]) == (408, "close")


# Modern


async def test_a_modern_request_stands_on_its_own_and_a_quick_answer_is_plain_json(web: Web) -> None:
    answered = await web.ask(READING).done()
    assert (answered.status, answered.headers["content-type"]) == (200, "application/json")
    assert "mcp-session-id" not in answered.headers
    assert text_of(await answered.result()) == '{"path": "a"}'


async def test_discover_opens_nothing(web: Web) -> None:
    result = await web.ask(request("server/discover")).result()
    assert result["supportedVersions"] == [MODERN]
    assert web.opened == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp_protocol_version": "2025-11-25"}, -32020),
        ({"mcp_protocol_version": "2027-01-01"}, -32020),
        ({"mcp_method": "tools/list"}, -32020),
        ({"mcp_method": ""}, -32020),
        ({"mcp_name": "other"}, -32020),
        ({"mcp_name": ""}, -32020),
        ({"mcp_name": "=?base64?!!?="}, -32020),
        ({"mcp_name": "=?base64?ZmlsZXNfX3JlYWR=?="}, -32020),
    ],
)
async def test_headers_that_say_other_than_the_body_are_refused(
    web: Web, headers: dict[str, str], code: int
) -> None:
    refused = await web.ask(READING, None, by=None, **headers).done()
    assert (refused.status, (await refused.error())["code"], refused.messages[0]["id"]) == (400, code, 7)
    assert web.servers.calls == []


async def test_a_name_may_come_encoded(web: Web) -> None:
    answered = await web.ask(READING, None, mcp_name="=?base64?ZmlsZXNfX3JlYWQ=?=").done()
    assert answered.status == 200


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"])
async def test_a_header_that_is_there_twice_is_refused(web: Web, name: str) -> None:
    headers = {"accept": BOTH, "content-type": "application/json", name: "x", name.upper(): "x"}
    refused = await web.knock("POST", json.dumps(modern(READING)).encode(), headers).done()
    assert (refused.status, (await refused.error())["code"]) == (400, -32020)
    assert refused.messages[0]["error"]["message"] == f"the header {name} is there more than once"


@pytest.mark.parametrize(
    ("message", "headers", "status", "code"),
    [
        (request("tools/list"), {"mcp_protocol_version": MODERN, "mcp_method": "tools/list"}, 400, -32602),
        (request("tools/list"), {"mcp_protocol_version": "1999-01-01"}, 400, -32602),
        ([request("tools/list")], {"mcp_protocol_version": MODERN}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, {"mcp_protocol_version": MODERN}, 400, -32600),
        (notification("notifications/initialized"), {"mcp_protocol_version": "1999-01-01"}, 400, -32022),
    ],
)
async def test_what_is_no_modern_message_is_refused(
    web: Web, message: Any, headers: dict[str, str], status: int, code: int
) -> None:
    refused = await web.post(message, by=None, **headers).done()
    assert (refused.status, (await refused.error())["code"]) == (status, code)


async def test_a_version_that_nobody_speaks_is_told_what_is_spoken(web: Web) -> None:
    message = request("server/discover")
    message["params"]["_meta"] = {
        PREFIX + "protocolVersion": "2099-01-01",
        PREFIX + "clientCapabilities": {},
    }
    refused = web.post(message, mcp_protocol_version="2099-01-01", mcp_method="server/discover")
    assert (await refused.error())["data"] == {"supported": [MODERN], "requested": "2099-01-01"}
    assert refused.status == 400


async def test_errors_have_the_status_that_belongs_to_them(web: Web) -> None:
    unknown = await web.ask(request("no/such")).done()
    assert (unknown.status, (await unknown.error())["code"]) == (404, -32601)
    wrong = await web.ask(request("tools/call", {"name": READ, "arguments": 3})).done()
    assert (wrong.status, (await wrong.error())["code"]) == (400, -32602)

    async def lacking(method: str, params: JsonObject, on_progress: Any) -> bytes:
        raise ServerRefused("refused", error=b'{"code":-32021,"message":"needs sampling"}')

    answering(web, lacking)
    refused = await web.ask(call(READ, {"path": "a"}, 7)).done()
    assert (refused.status, (await refused.error())["code"]) == (400, -32021)


async def test_a_modern_notification_is_taken_and_a_get_is_not(web: Web) -> None:
    taken = await web.post(notification("notifications/x"), mcp_protocol_version=MODERN).done()
    assert (taken.status, taken.body) == (202, b"")
    got = await web.knock("GET", b"", {"accept": BOTH, "mcp-protocol-version": MODERN}).done()
    assert (got.status, got.headers["allow"]) == (405, "POST")


async def test_an_answer_that_takes_longer_is_streamed(web: Web, no_moment: None) -> None:
    release = waiting(web)
    knock = web.ask(READING)
    await knock.until(lambda: knock.status == 200)
    assert knock.headers["content-type"] == "text/event-stream"
    release.set()
    assert text_of(await knock.result()) == "done"


async def test_progress_makes_a_stream_of_the_answer(web: Web) -> None:
    async def tell(method: str, params: JsonObject, on_progress: Any) -> bytes:
        on_progress({"progressToken": 1, "progress": 1, "message": "half"})
        return text_result("done")

    answering(web, tell)
    knock = web.ask(call(READ, {"path": "a"}, 7, _meta={"progressToken": "mine"}))
    await knock.done()
    told, answer = knock.messages
    assert told["params"] == {"progressToken": "mine", "progress": 1, "message": "half"}
    assert answer["id"] == 7


@promise("http:vanished-is-cancelled")
async def test_a_modern_request_ends_with_its_connection(web: Web, no_moment: None) -> None:
    waiting(web)
    knocks = [web.ask(call(READ, {"path": "a"}, 1)) for _ in range(300)]
    for knock in knocks:
        await knock.until(lambda knock=knock: knock.status == 200)
    connection = http_visit(web).connection
    assert connection.in_flight == 300
    for knock in knocks:
        await knock.vanish()
    await web.settle()
    assert connection.in_flight == 0
    assert open_streams(web) == 0


async def test_a_modern_form_is_shown_and_its_answer_repeats_the_call(web: Web) -> None:
    web.rules(ask=["files:read"])
    asked = await web.ask(READING, FORMS).result()
    assert asked["resultType"] == "input_required"
    again = call(
        READ,
        {"path": "a"},
        8,
        requestState=asked["requestState"],
        inputResponses={"approval": {"action": "accept", "content": {"remember": "once"}}},
    )
    assert text_of(await web.ask(again, FORMS).result()) == '{"path": "a"}'


async def test_a_subscription_hears_of_changes_under_its_own_id(web: Web) -> None:
    listens = [
        web.ask(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "listen:0"))
        for _ in range(2)
    ]
    for listen in listens:
        acknowledged = (await listen.has(1))[0]
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    web.relays[0].announce("tools")
    for listen in listens:
        changed = (await listen.has(2))[1]
        assert changed["method"] == "notifications/tools/list_changed"
        assert changed["params"]["_meta"][PREFIX + "subscriptionId"] == "listen:0"


# Legacy


@pytest.mark.parametrize("version", LEGACY)
async def test_a_handshake_begins_a_session_of_its_version(web: Web, version: str) -> None:
    client = await web.shake_hands(version)
    assert (await client.post(notification("notifications/initialized")).done()).status == 202
    assert text_of(await client.post(READING).result()) == '{"path": "a"}'
    assert (await client.delete().done()).status == 200
    assert (await client.post(READING).done()).status == 404


async def test_a_handshake_that_is_none_begins_nothing(web: Web) -> None:
    refused = await web.post(request("initialize", {"protocolVersion": 3})).done()
    assert (refused.status, "mcp-session-id" in refused.headers) == (400, False)


async def test_without_a_session_only_a_handshake_is_answered(web: Web) -> None:
    missing = await web.post(READING).done()
    assert (missing.status, (await missing.error())["code"]) == (400, -32600)
    unknown = await web.post(READING, mcp_session_id="made-up").done()
    assert (unknown.status, (await unknown.error())["code"]) == (404, -32001)
    assert web.opened == []


@promise("http:sessions-are-their-tokens")
async def test_a_session_is_not_there_for_the_token_of_another(web: Web, no_moment: None) -> None:
    client = await web.shake_hands()
    release = waiting(web)
    knock = client.post(READING)
    await knock.until(lambda: knock.status == 200)
    stranger = identity(OTHER)
    headers = {"mcp_session_id": client.id, "mcp_protocol_version": LATEST}
    assert (await web.post(READING, by=stranger, **headers).done()).status == 404
    cancel = notification("notifications/cancelled", {"requestId": 7})
    assert (await web.post(cancel, by=stranger, **headers).done()).status == 404
    named = {"accept": "text/event-stream", **{k.replace("_", "-"): v for k, v in headers.items()}}
    assert (await web.knock("GET", b"", named, by=stranger).done()).status == 404
    assert (await web.knock("DELETE", b"", named, by=stranger).done()).status == 404
    resumed = await web.knock("GET", b"", {**named, "last-event-id": knock.events[0][0]}, by=stranger).done()
    assert resumed.messages[0]["error"]["code"] == -32000
    release.set()
    assert text_of(await knock.result()) == "done"


async def test_a_version_that_has_no_sessions_is_refused_everywhere(web: Web) -> None:
    client = await web.shake_hands()
    odd = {"mcp_protocol_version": "1999-01-01"}
    assert (await client.get(**odd).done()).status == 400
    refused = await client.post(notification("notifications/initialized"), **odd).done()
    assert (refused.status, (await refused.error())["code"]) == (400, -32022)


async def test_a_client_that_names_no_version_is_taken_for_an_older_one(web: Web) -> None:
    client = await web.shake_hands("2025-03-26")
    answered = await web.post(READING, mcp_session_id=client.id).done()
    assert answered.status == 200


@pytest.mark.parametrize(
    ("version", "status"), [("2024-11-05", 200), ("2025-03-26", 200), ("2025-06-18", 400)]
)
async def test_batches_are_taken_where_the_version_has_them(web: Web, version: str, status: int) -> None:
    client = await web.shake_hands(version)
    batch = [call(READ, {"path": "a"}, 1), notification("x"), request("initialize", {}, 2)]
    answered = await client.post(batch).done()
    assert answered.status == status
    if status == 200:
        by_id = {answer["id"]: answer for answer in answered.messages[0]}
        assert by_id[2]["error"]["code"] == -32600
        assert text_of(by_id[1]["result"]) == '{"path": "a"}'
        assert (await client.post([notification("x")]).done()).status == 202


async def test_ids_collide_only_within_one_session(web: Web, no_moment: None) -> None:
    release = waiting(web)
    one, two = await web.shake_hands(), await web.shake_hands()
    first, second = one.post(READING), two.post(READING)
    await second.until(lambda: second.status == 200)
    await first.until(lambda: first.status == 200)
    again = await one.post(READING).done()
    assert (await again.error())["message"] == "a request with the id 7 is already being answered"
    release.set()
    assert text_of(await first.result()) == text_of(await second.result()) == "done"


async def test_a_request_is_cancelled_only_by_its_own_session(web: Web, no_moment: None) -> None:
    release = waiting(web)
    one, two = await web.shake_hands(), await web.shake_hands()
    first, second = one.post(READING), two.post(READING)
    await first.until(lambda: first.status == 200)
    await second.until(lambda: second.status == 200)
    await one.post(notification("notifications/cancelled", {"requestId": 7})).done()
    assert (await first.error())["code"] == -32800
    release.set()
    assert text_of(await second.result()) == "done"


async def test_a_form_reaches_the_client_on_the_stream_of_its_call(web: Web) -> None:
    web.rules(ask=["files:read"])
    client, other = await web.shake_hands(LATEST, FORMS), await web.shake_hands(LATEST, FORMS)
    got = client.get()
    await got.until(lambda: got.status == 200)
    knock = client.post(READING)
    form = (await knock.has(1))[0]
    assert form["method"] == "elicitation/create"
    accept: JsonObject = {"action": "accept", "content": {"remember": "once"}}
    reply = {"jsonrpc": "2.0", "id": form["id"], "result": accept}
    assert (await other.post(reply).done()).status == 202
    await web.settle()
    assert web.servers.calls == []
    assert (await client.post(reply).done()).status == 202
    assert text_of(await knock.result()) == '{"path": "a"}'
    assert got.messages == []


async def test_a_servers_form_reaches_the_client_whose_call_it_works_on(web: Web) -> None:
    async def ask(method: str, params: JsonObject, on_progress: Any) -> bytes:
        answer = await web.relays[0].elicit("files", {"message": "Which?", "requestedSchema": {}})
        return text_result(json.dumps(answer))

    answering(web, ask)
    client, _ = await web.shake_hands(LATEST, FORMS), await web.shake_hands(LATEST, FORMS)
    knock = client.post(READING)
    form = (await knock.has(1))[0]
    assert form["params"]["message"].startswith("Server files asks:")
    answer: JsonObject = {"action": "accept", "content": {"a": 1}}
    await client.post({"jsonrpc": "2.0", "id": form["id"], "result": answer}).done()
    assert json.loads(text_of(await knock.result())) == answer


@promise("server:asks-whom-it-serves")
async def test_one_clients_want_of_forms_takes_none_from_the_others_of_its_token(web: Web) -> None:
    answers: list[JsonObject] = []

    async def ask(method: str, params: JsonObject, on_progress: Any) -> bytes:
        answers.append(await web.relays[0].elicit("files", {"message": "Which?", "requestedSchema": {}}))
        return text_result("done")

    answering(web, ask)
    without = await web.shake_hands(LATEST)
    assert text_of(await without.post(READING).result()) == "done"
    assert (web.relays[0].can_elicit, answers) == (True, [{"action": "cancel"}])
    client = await web.shake_hands(LATEST, FORMS)
    knock = client.post(READING)
    form = (await knock.has(1))[0]
    await without.post(request("tools/list", id=9)).done()
    assert web.relays[0].can_elicit
    answer: JsonObject = {"action": "accept", "content": {}}
    await client.post({"jsonrpc": "2.0", "id": form["id"], "result": answer}).done()
    assert text_of(await knock.result()) == "done"
    assert answers[1:] == [answer]


async def test_what_belongs_to_no_request_goes_to_the_stream_that_was_opened_for_it(web: Web) -> None:
    client = await web.shake_hands()
    await client.post(request("tools/list")).done()
    got = client.get()
    await got.until(lambda: got.status == 200)
    assert (await client.get().done()).status == 409
    web.relays[0].announce("tools")
    assert (await got.has(1))[0]["method"] == "notifications/tools/list_changed"


async def test_roots_are_asked_for_on_the_opened_stream_or_else_on_that_of_a_call(
    web: Web, no_moment: None
) -> None:
    release = waiting(web)
    client = await web.shake_hands(LATEST, {"roots": {}})
    knock = client.post(READING)
    await knock.until(lambda: knock.status == 200)
    for opens in (client.get, client.delete):
        roots = asyncio.ensure_future(web.relays[0].roots())
        asked = (await knock.has(1))[0]
        assert asked["method"] == "roots/list"
        result = {"roots": [{"uri": "file:///a"}]}
        await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": result}).done()
        assert await roots == result
        await client.post(notification("notifications/roots/list_changed")).done()
        knock = opens()
        await knock.until(lambda knock=knock: knock.status == 200)
    release.set()


# Losing and finding streams


@promise("http:answers-survive-a-cut")
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_lost_stream_is_taken_up_where_it_was_lost(web: Web, no_moment: None, is_late: bool) -> None:
    release = waiting(web)
    client = await web.shake_hands()
    knock = client.post(READING)
    await knock.until(lambda: len(knock.events) == 1)
    await knock.vanish()
    if is_late:
        release.set()
        await web.settle()
    resumed = client.get(last_event_id=knock.events[-1][0])
    await resumed.until(lambda: resumed.status == 200)
    release.set()
    assert text_of(await resumed.result()) == "done"
    assert resumed.messages[-1]["id"] == 7
    assert len(web.servers.calls) == 1
    again = await client.get(last_event_id=knock.events[-1][0]).done()
    assert again.messages == resumed.messages
    nothing = await client.get(last_event_id=resumed.events[-1][0]).done()
    assert nothing.messages == []


async def test_a_stream_that_is_taken_up_elsewhere_leaves_its_old_connection(
    web: Web, no_moment: None
) -> None:
    release = waiting(web)
    client = await web.shake_hands()
    knock = client.post(READING)
    await knock.until(lambda: len(knock.events) == 1)
    resumed = client.get(last_event_id=knock.events[0][0])
    await resumed.until(lambda: resumed.status == 200)
    await asyncio.wait({knock.task}, timeout=SOON_S)
    assert knock.task.done()
    release.set()
    assert text_of(await resumed.result()) == "done"


@promise("http:vanished-is-cancelled")
async def test_a_lost_stream_that_nobody_takes_up_is_cancelled_after_a_while(
    web: Web, no_moment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECONNECT_S", 0.05)
    waiting(web)
    client = await web.shake_hands()
    knocks = [client.post(call(READ, {"path": "a"}, id)) for id in range(300)]
    for knock in knocks:
        await knock.until(lambda knock=knock: knock.status == 200)
    visit = http_visit(web)
    for knock in knocks:
        await knock.vanish()
    async with asyncio.timeout(SOON_S):
        await asyncio.wait(visit.connection.tasks())
    await web.settle()
    assert visit.connection.in_flight == 0
    assert open_streams(web) == 0
    assert not visit.sessions[client.id].is_used


async def test_ending_a_session_cancels_what_it_asked_for(web: Web, no_moment: None) -> None:
    waiting(web)
    client = await web.shake_hands()
    knock = client.post(READING)
    await knock.until(lambda: knock.status == 200)
    await client.delete().done()
    assert (await knock.error())["code"] == -32800
    assert http_visit(web).connection.in_flight == 0


async def test_what_an_ended_session_was_asked_is_not_waited_for(web: Web) -> None:
    client = await web.shake_hands(LATEST, {"roots": {}})
    got = client.get()
    await got.until(lambda: got.status == 200)
    asking = asyncio.ensure_future(http_visit(web).connection.request("roots/list", {}))
    await got.has(1)
    await client.delete().done()
    with pytest.raises(ConnectionGone):
        await asyncio.wait_for(asking, SOON_S)
    await got.done()


async def test_a_stream_that_nobody_knows_any_more_is_answered_with_an_error(
    web: Web, no_moment: None
) -> None:
    waiting(web)
    client = await web.shake_hands()
    knock = client.post(READING)
    await knock.until(lambda: len(knock.events) == 1)
    await web.endpoint.end(ME)
    resumed = await client.get(last_event_id=knock.events[0][0]).done()
    assert (resumed.status, resumed.headers["content-type"]) == (200, "text/event-stream")
    assert resumed.messages[0]["id"] == 7
    assert resumed.messages[0]["error"]["message"].startswith("the connection was lost")


async def test_a_list_that_changed_while_nobody_listened_is_told_to_whoever_comes_back(web: Web) -> None:
    client = await web.shake_hands()
    await client.post(request("tools/list")).done()
    got = client.get()
    await got.until(lambda: len(got.events) == 1)
    await got.vanish()
    web.relays[0].announce("tools")
    await asyncio.sleep(0.15)
    back = client.get(last_event_id=got.events[0][0])
    assert (await back.has(1))[0]["method"] == "notifications/tools/list_changed"


@promise("http:answers-survive-a-cut")
async def test_a_call_that_can_be_made_again_goes_on_after_a_restart_under_its_old_id(
    web: Web, no_moment: None
) -> None:
    release = waiting(web)
    client = await web.shake_hands()
    knock = client.post(READING)
    await knock.until(lambda: len(knock.events) == 1)
    (exchange,) = http_visit(web).sessions[client.id].origin.running.values()
    exchange.again = "again"
    exchange.notify("notifications/x", {})
    await knock.until(lambda: len(knock.events) == 2)
    await knock.vanish()
    web.restart()
    resumed = client.get(last_event_id=knock.events[-1][0])
    await resumed.until(lambda: resumed.status == 200)
    assert resumed.headers["content-type"] == "text/event-stream"
    release.set()
    assert text_of(await resumed.result()) == "done"
    assert resumed.messages[-1]["id"] == 7
    assert [said["arguments"] for said in web.servers.calls] == [{"path": "a"}, {"path": "again"}]
    assert text_of(await client.post(READING).result()) == "done"


@pytest.mark.parametrize("event", ["x", "WyIx", "bm9uZQ", "W10", "é"])
async def test_the_id_of_no_event_resumes_nothing(web: Web, event: str) -> None:
    client = await web.shake_hands()
    got = client.get(last_event_id=event)
    await got.until(lambda: got.status == 200)
    assert (await web.knock("GET", b"", {"accept": BOTH, "last-event-id": event}).done()).status == 400


# A client that does not read


async def test_progress_is_dropped_for_a_client_that_does_not_read_and_the_answer_is_not(
    web: Web, no_moment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONGESTED_BYTES", 1000)
    release, told = asyncio.Event(), asyncio.Event()

    async def chatter(method: str, params: JsonObject, on_progress: Any) -> bytes:
        await release.wait()
        for count in range(1000):
            on_progress({"progressToken": 1, "progress": count + 1})
            await asyncio.sleep(0)
        told.set()
        return text_result("done")

    answering(web, chatter)
    knock = web.ask(call(READ, {"path": "a"}, 7, _meta={"progressToken": 1}))
    await knock.until(lambda: knock.status == 200)
    knock.takes = False
    release.set()
    await told.wait()
    knock.read_on()
    assert text_of(await knock.result()) == "done"
    assert 1 < len(knock.messages) < 100


async def test_a_client_that_never_reads_is_left(
    web: Web, no_moment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STALL_S", 0.01)
    release = waiting(web)
    knock = web.ask(READING)
    await knock.until(lambda: knock.status == 200)
    knock.takes = False
    release.set()
    async with asyncio.timeout(60):
        await knock.task
    assert not knock.is_complete
    assert http_visit(web).connection.in_flight == 0


async def test_a_silent_stream_is_kept_alive(
    web: Web, no_moment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BEAT_S", 0.01)
    waiting(web)
    knock = web.ask(READING)
    await knock.until(lambda: knock.body.count(b":\n\n") > 2)


# Visits


async def test_one_gateway_serves_all_connections_of_a_token_and_closes_when_told(web: Web) -> None:
    client = await web.shake_hands()
    await asyncio.gather(*(client.post(call(READ, {"path": "a"}, id)).result() for id in range(5)))
    await web.ask(READING).result()
    assert [who.session_id for who, _ in web.opened] == [ME]
    await web.endpoint.end(ME)
    assert [who.session_id for who in web.closed] == [ME]
    assert (await client.post(READING).done()).status == 404
    await web.ask(READING).result()
    assert len(web.opened) == 2


async def test_a_visit_ends_when_nobody_has_come_for_long_and_not_while_somebody_waits(
    web: Web, no_moment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BEAT_S", 0.01)
    monkeypatch.setattr(http_session, "IDLE_S", 0.05)
    release = waiting(web)
    knock = web.ask(READING)
    await asyncio.sleep(0.2)
    assert web.closed == []
    release.set()
    await knock.result()
    async with asyncio.timeout(SOON_S):
        await web.left.wait()
    assert [who.session_id for who in web.closed] == [ME]


async def test_at_the_end_every_call_is_told_and_none_is_taken(web: Web, no_moment: None) -> None:
    waiting(web)
    client = await web.shake_hands()
    old, new, got = client.post(READING), web.ask(READING), client.get()
    for knock in (old, new, got):
        await knock.until(lambda knock=knock: knock.status == 200)
    await web.endpoint.close()
    assert (await old.error())["code"] == (await new.error())["code"] == -32800
    await got.done()
    assert (await web.ask(READING).done()).status == 503
    assert len(web.closed) == 1


async def test_handshakes_that_nobody_uses_make_room(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "MAX_SESSIONS", 2)
    first, second = await web.shake_hands(), await web.shake_hands()
    got = first.get()
    await got.until(lambda: got.status == 200)
    third = await web.shake_hands()
    assert (await second.post(READING).done()).status == 404
    waits = third.get()
    await waits.until(lambda: waits.status == 200)
    params: JsonObject = {"protocolVersion": LATEST, "capabilities": {}}
    assert (await web.post(request("initialize", params)).done()).status == 503


# What servers wrote


RAW: list[bytes] = [
    b'{"content":[],"a":1.0,"b":1e2,"c":12345678901234567890123,"d":null}',
    b'{"content":[],"z":"\\u00e9\\ud83d\\ude00/\\/","a":[0.10,-0.0]}',
    '{"content":[{"type":"text","text":"é\u2028\u2029"}],"structuredContent":{"b":1,"a":2}}'.encode(),
]


@promise("results:pass-as-written")
@pytest.mark.parametrize("raw", RAW)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_results_arrive_as_the_server_wrote_them(
    web: Web, raw: bytes, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOMENT_S", 0.0 if is_streamed else 10.0)
    release = waiting(web, raw)
    client = await web.shake_hands()
    knock, fresh = client.post(READING), web.ask(READING)
    if is_streamed:
        await knock.until(lambda: knock.status == 200)
        await fresh.until(lambda: fresh.status == 200)
    release.set()
    await knock.done()
    await fresh.done()
    assert b'"result":' + raw + b"}" in knock.body
    assert raw[1:-1] in fresh.body


@pytest.mark.parametrize("breaks", [b"\n", b"\r\n", b"\r"])
async def test_line_breaks_of_a_server_do_not_break_the_stream(
    web: Web, no_moment: None, breaks: bytes
) -> None:
    release = waiting(web, b'{%b "content": [%b]%b}' % (breaks, breaks, breaks))
    client = await web.shake_hands()
    knock = client.post(READING)
    await knock.until(lambda: knock.status == 200)
    release.set()
    assert await knock.result() == {"content": []}


def http_visit(web: Web) -> Any:
    return vars(web.endpoint)["_visits"][ME]


def open_streams(web: Web) -> int:
    return len(vars(web.endpoint)["_readers"])


# Tokens that count no longer, and streams of another life


async def _dead(token_id: TokenId) -> bool:
    return False


async def _live(token_id: TokenId) -> bool:
    return True


@promise("token:revocable")
async def test_what_is_open_for_a_token_that_counts_no_longer_ends(web: Web, no_moment: None) -> None:
    waiting(web)
    client = await web.shake_hands()
    knock, standalone = client.post(READING), client.get()
    await knock.until(lambda: len(knock.events) == 1)
    await standalone.until(lambda: standalone.status == 200)
    await web.endpoint.end_dead(_live)
    await web.settle()
    assert not knock.is_complete
    await web.endpoint.end_dead(_dead)
    assert (await knock.done()).messages[-1]["error"]["message"] == "request cancelled"
    await standalone.done()


@promise("token:revocable")
async def test_a_stream_that_was_taken_up_again_ends_with_its_token_too(web: Web, no_moment: None) -> None:
    waiting(web)
    client = await web.shake_hands()
    knock = client.post(READING)
    await knock.until(lambda: len(knock.events) == 1)
    resumed = client.get(last_event_id=knock.events[0][0])  # while the first still reads
    await resumed.until(lambda: resumed.status == 200)
    await web.settle()
    await web.endpoint.end_dead(_dead)
    assert (await resumed.done()).messages[-1]["error"]["message"] == "request cancelled"


@promise("token:revocable")
async def test_a_session_that_begins_anew_has_nothing_of_what_was_open_before(web: Web) -> None:
    first, second = identity(), identity(token_id=TokenId("ba9876543210"))
    await web.ask(READING, by=first).result()
    await web.ask(READING, by=second).result()
    assert len(web.opened) == 1
    web.dead |= {first.token_id, second.token_id}
    await web.ask(READING, by=identity(token_id=TokenId("cba987654321"))).result()

    assert (len(web.opened), len(web.closed)) == (2, 1)


@promise("token:revocable")
async def test_what_was_opened_ends_with_the_last_of_its_tokens(web: Web) -> None:
    first, second = identity(), identity(token_id=TokenId("ba9876543210"))
    for who in (first, second):
        await web.ask(READING, by=who).result()

    async def second_counts(token_id: TokenId) -> bool:
        return token_id == second.token_id

    await web.endpoint.end_dead(second_counts)
    assert web.closed == []
    await web.endpoint.end_dead(_dead)
    assert len(web.closed) == 1


@promise("http:answers-survive-a-cut")
async def test_after_a_restart_each_stream_is_taken_up_for_its_own_request(web: Web, no_moment: None) -> None:
    async def echo(method: str, params: JsonObject, on_progress: Any) -> bytes:
        await release.wait()
        return text_result(str(params["arguments"]))

    release = asyncio.Event()
    web.servers.named["files"].answer = echo
    client = await web.shake_hands()
    knocks = {id: client.post(call(READ, {"path": "a"}, id)) for id in (11, 12)}
    for id, knock in knocks.items():
        await knock.until(lambda knock=knock: len(knock.events) == 1)
        exchange = http_visit(web).sessions[client.id].origin.running[id]
        exchange.again = f"again-{id}"
        exchange.notify("notifications/x", {})
        await knock.until(lambda knock=knock: len(knock.events) == 2)
        await knock.vanish()
    web.restart()
    resumed = {id: client.get(last_event_id=knocks[id].events[-1][0]) for id in (12, 11)}
    release.set()
    for id, got in resumed.items():
        assert f"again-{id}" in text_of(await got.result())
        assert got.messages[-1]["id"] == id


# What a client was sent


@promise("list:late-tool-reached")
async def test_clients_of_one_token_are_told_apart_by_what_they_listed(web: Web) -> None:
    once, twice = await web.shake_hands(), await web.shake_hands()
    for client in (once, twice):
        await client.post(request("tools/list")).result()
    web.serve("late", tool("add"))
    web.rules(allow=["*"])
    await twice.post(request("tools/list", id=2)).result()

    through_call = call("call", {"tool": "late:add"}, 3)
    refused = await twice.post(through_call).result()
    assert "is listed by its own name" in text_of(refused)
    assert not (await once.post(through_call).result()).get("isError")
    assert not (await web.ask(through_call).result()).get("isError")
