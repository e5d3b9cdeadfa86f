"""Both eras and both transports: what goes over the wire, and what comes back whole."""

import asyncio
import json
import sys
from typing import Any

import pytest

from pml.core.rules.ruleset import Source
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.remote_target import RemoteKind
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from pml.upstream.board import list_servers
from tests.promises import promise
from tests.upstream.fleets import Harbour, until, use
from tests.upstream.remote.rough_server import (
    ECHO,
    MODERN,
    Request,
    RoughServer,
    error,
    events,
    http,
    result,
)

PREFIX = "io.modelcontextprotocol/"


def modern(rough: RoughServer, **capabilities: Any) -> None:
    """Let it be a server of the modern era alone."""

    async def unsupported(request: Request) -> bytes:
        return error(request, -32022, "no initialize", status=400)

    async def described(request: Request) -> bytes:
        said: dict[str, Any] = {
            "supportedVersions": [MODERN],
            "capabilities": {"tools": capabilities},
            "resultType": "complete",
        }
        return result(request, said)

    rough.session = None
    rough.answers |= {"initialize": unsupported, "server/discover": described}


async def test_the_legacy_era_has_a_session_from_beginning_to_end(
    harbour: Harbour, rough: RoughServer
) -> None:
    fleet, spec = harbour.fleet(), rough.spec(headers={"X-Own": "1"})
    raw = await fleet.request(spec, "tools/call", {"name": "echo", "arguments": {"a": 1}})
    assert json.loads(raw)["unknown"] == {"kept": 1.0}
    assert b'{"kept": 1.0}' in raw
    await until(lambda: "GET" in rough.methods())
    await fleet.close()
    first, *rest = rough.seen
    assert (first.rpc, "mcp-session-id" in first.headers) == ("initialize", False)
    assert {request.headers["mcp-session-id"] for request in rest} == {"s-1"}
    assert {request.headers["mcp-protocol-version"] for request in rest} == {"2025-11-25"}
    assert {request.headers["x-own"] for request in rough.seen} == {"1"}
    assert rough.methods()[-1] == "DELETE"


async def test_the_modern_era_says_who_asks_with_every_request(harbour: Harbour, rough: RoughServer) -> None:
    modern(rough)
    fleet, spec = harbour.fleet(), rough.spec()
    assert await use(fleet, spec, "echo", a=1) == {"a": 1}
    await fleet.close()
    *_, call = [request for request in rough.seen if request.rpc == "tools/call"]
    meta = call.message["params"]["_meta"]
    assert meta[f"{PREFIX}protocolVersion"] == MODERN
    assert meta[f"{PREFIX}clientCapabilities"] == {"roots": {}, "elicitation": {"form": {}}}
    assert call.headers["mcp-protocol-version"] == MODERN
    assert (call.headers["mcp-method"], call.headers["mcp-name"]) == ("tools/call", "echo")
    assert {"DELETE", "GET", "notifications/initialized"}.isdisjoint(rough.methods())


async def test_a_name_that_no_header_can_have_is_wrapped(harbour: Harbour, rough: RoughServer) -> None:
    modern(rough)
    fleet, spec = harbour.fleet(), rough.spec()
    rough.answers["prompts/get"] = _empty
    await fleet.request(spec, "prompts/get", {"name": "größe"})
    assert rough.seen[-1].headers["mcp-name"] == "=?base64?Z3LDtsOfZQ==?="


async def _empty(request: Request) -> bytes:
    return result(request, {"messages": []})


@promise("remote:rounds-ask-the-client")
async def test_a_modern_server_that_needs_an_answer_gets_it_from_the_client(
    harbour: Harbour, rough: RoughServer
) -> None:
    modern(rough)
    form: JsonObject = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object"}}

    async def ask(request: Request) -> bytes:
        given = request.message["params"]
        if "inputResponses" not in given:
            asked = {
                "who": {"method": "elicitation/create", "params": form},
                "where": {"method": "roots/list"},
            }
            return result(
                request, {"resultType": "input_required", "inputRequests": asked, "requestState": "sealed"}
            )
        text = json.dumps([given["inputResponses"], given["requestState"], given["arguments"]])
        return result(request, {"content": [{"type": "text", "text": text}], "resultType": "complete"})

    rough.answers["tools/call"] = ask
    assert await use(harbour.fleet(), rough.spec(), "echo", a=1) == [
        {
            "who": {"action": "accept", "content": {"name": "Ana"}},
            "where": {"roots": [{"uri": "file:///repo"}]},
        },
        "sealed",
        {"a": 1},
    ]
    assert [(server, params["message"]) for server, params in harbour.client.forms] == [("far", "Who?")]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"x": {"method": "sampling/createMessage", "params": {}}}, "asks for `sampling/createMessage`"),
        ({"x": {"method": "elicitation/create", "params": {"mode": "url"}}}, "asks for `elicitation/create`"),
    ],
)
async def test_what_the_client_cannot_answer_ends_the_call(
    harbour: Harbour, rough: RoughServer, asked: JsonObject, message: str
) -> None:
    modern(rough)

    async def ask(request: Request) -> bytes:
        return result(request, {"resultType": "input_required", "inputRequests": asked})

    rough.answers["tools/call"] = ask
    with pytest.raises(Exception, match=message):
        await use(harbour.fleet(), rough.spec(), "echo")


async def test_a_server_that_asks_for_ever_is_given_up(harbour: Harbour, rough: RoughServer) -> None:
    modern(rough)

    async def ask(request: Request) -> bytes:
        asked = {"where": {"method": "roots/list"}}
        return result(request, {"resultType": "input_required", "inputRequests": asked})

    rough.answers["tools/call"] = ask
    with pytest.raises(Exception, match="asks more than 16 times"):
        await use(harbour.fleet(), rough.spec(), "echo")


async def test_a_change_that_a_modern_server_announces_is_read(harbour: Harbour, rough: RoughServer) -> None:
    modern(rough, listChanged=True)
    change = asyncio.Event()

    async def stream(request: Request) -> bytes | None:
        assert request.message["params"]["notifications"] == {"toolsListChanged": True}
        request.writer.write(events())
        await change.wait()
        note: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}
        request.writer.write(f"data: {json.dumps(note)}\n\n".encode())
        await request.writer.drain()
        await asyncio.Event().wait()
        return None

    rough.answers["subscriptions/listen"] = stream
    fleet, spec = harbour.fleet(), rough.spec()
    assert [tool["name"] for tool in (await fleet.manifest(spec)).tools] == ["echo"]
    await until(lambda: "subscriptions/listen" in rough.methods())
    rough.tools.append({**ECHO, "name": "second"})
    harbour.client.changes.clear()
    change.set()
    await until(lambda: ("far", "tools") in harbour.client.changes)
    assert [tool["name"] for tool in (await fleet.manifest(spec)).tools] == ["echo", "second"]


async def test_a_change_that_a_legacy_server_announces_is_read(harbour: Harbour, rough: RoughServer) -> None:
    change = asyncio.Event()

    async def stream(request: Request) -> bytes | None:
        request.writer.write(events("retry: 10"))
        await change.wait()
        note: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        request.writer.write(f"data: {json.dumps(note)}\n\n".encode())
        await request.writer.drain()
        await asyncio.Event().wait()
        return None

    rough.answers["GET"] = stream
    fleet, spec = harbour.fleet(), rough.spec()
    await fleet.manifest(spec)
    await until(lambda: "GET" in rough.methods())
    rough.tools[0] = {**ECHO, "description": "Now it deletes."}
    harbour.client.changes.clear()
    change.set()
    await until(lambda: ("far", "tools") in harbour.client.changes)
    assert (await fleet.manifest(spec)).tools[0]["description"] == "Now it deletes."


@promise("remote:never-replayed")
async def test_a_stream_that_broke_is_taken_up_where_it_was(harbour: Harbour, rough: RoughServer) -> None:
    async def broken(request: Request) -> bytes:
        rough.answers["GET"] = rest
        rough.seen[-1].headers["call"] = str(request.message["id"])
        return events("id: 7\nretry: 1\ndata:")

    async def rest(request: Request) -> bytes:
        if request.headers.get("last-event-id") != "7":
            return http(405)
        call = next(each for each in rough.seen if each.rpc == "tools/call")
        told = {
            "jsonrpc": "2.0",
            "id": call.message["id"],
            "result": {"content": [{"type": "text", "text": "9"}]},
        }
        return events(f"id: 8\ndata: {json.dumps(told)}")

    rough.answers["tools/call"] = broken
    assert await use(harbour.fleet(), rough.spec(), "echo") == 9
    assert rough.methods().count("tools/call") == 1


async def test_progress_comes_on_the_stream_and_a_call_that_nobody_wants_is_cancelled(
    harbour: Harbour, rough: RoughServer
) -> None:
    async def steps(request: Request) -> bytes | None:
        token = request.message["params"]["_meta"]["progressToken"]
        note: dict[str, Any] = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1},
        }
        request.writer.write(events(f"data: {json.dumps(note)}"))
        await asyncio.Event().wait()
        return None

    rough.answers["tools/call"] = steps
    fleet, spec, heard = harbour.fleet(), rough.spec(), asyncio.Event()
    call = asyncio.create_task(use(fleet, spec, "echo", on_progress=lambda params: heard.set()))
    await asyncio.wait_for(heard.wait(), 60)
    call.cancel()
    await until(lambda: "notifications/cancelled" in rough.methods())


@pytest.mark.parametrize("kind", [RemoteKind.AUTO, RemoteKind.SSE])
async def test_a_server_of_the_older_transport_is_found_with_a_type_or_without(
    harbour: Harbour, rough: RoughServer, kind: RemoteKind
) -> None:
    replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream(request: Request) -> bytes | None:
        request.writer.write(events("event: endpoint\ndata: /post"))
        while True:
            body = (await replies.get()).partition(b"\r\n\r\n")[2]
            request.writer.write(b"event: message\ndata: " + body + b"\n\n")
            await request.writer.drain()

    async def posted(request: Request) -> bytes:
        if request.path != "/post":
            return http(405)
        own = rough.answers.copy()
        rough.answers.clear()
        if (answer := await rough.answer(request)) is not None and b"{" in answer:
            replies.put_nowait(answer)
        rough.answers.update(own)
        return http(202)

    rough.answers |= {"GET": stream, **dict.fromkeys(("initialize", "tools/list", "tools/call"), posted)}
    assert await use(harbour.fleet(), rough.spec(kind=kind), "echo", a=1) == {"a": 1}


async def test_an_idle_server_is_left_with_its_session_ended(harbour: Harbour, rough: RoughServer) -> None:
    harbour.idle_s = 0.05
    fleet, spec = harbour.fleet(), rough.spec()
    await fleet.manifest(spec)
    await until(lambda: rough.methods()[-1] == "DELETE")
    await until(lambda: list_servers(harbour.home) == [])


MODERN_ONLY = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    reply = {"jsonrpc": "2.0", "id": asked.get("id")}
    meta = asked.get("params", {}).get("_meta", {})
    if asked["method"] == "initialize":
        reply["error"] = {"code": -32022, "message": "no initialize"}
    elif meta.get("io.modelcontextprotocol/protocolVersion") != "2026-07-28":
        reply["error"] = {"code": -32602, "message": "who are you?"}
    elif asked["method"] == "server/discover":
        reply["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif asked["method"] == "tools/list":
        reply["result"] = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    else:
        reply["result"] = {"content": [{"type": "text", "text": "1"}], "resultType": "complete"}
    print(json.dumps(reply), flush=True)
"""


async def test_a_process_of_the_modern_era_alone_is_spoken_to(harbour: Harbour) -> None:
    target = ProcessLaunch(command=sys.executable, args=("-c", MODERN_ONLY))
    spec = ServerSpec(name="new", target=target, source=Source(file="/repo/.pml.json", line=1))
    assert await use(harbour.fleet(), spec, "echo") == 1
