"""Clients before the endpoint, in process: each request is an ASGI call that a test can watch, stall or cut.

Behind it stand the real door, gateway and pipeline, with a store in memory and fake servers.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from mcp_types.jsonrpc import jsonrpc_message_adapter
from starlette.types import Message, Scope

from pml.core.approvals.record import SessionId
from pml.core.sessions.token import Identity, TokenId, TokenRole
from pml.core.values import Json, JsonObject
from pml.downstream.forms.relay import Relay
from pml.downstream.gateway import Gateway
from pml.downstream.http.endpoint import McpEndpoint
from pml.downstream.protocol.connection import Connection
from pml.downstream.protocol.door import Answering
from pml.downstream.protocol.eras import MODERN, Era
from pml.service.call import Gate
from pml.web.visitors import set_identity
from tests.downstream.parties import LATEST, PREFIX, SOON_S, Behind

ME: Final = SessionId("session-1")
TOKEN: Final = TokenId("0123456789ab")
OTHER: Final = SessionId("session-2")
BOTH: Final = "application/json, text/event-stream"


def identity(
    session_id: SessionId | None = ME,
    role: TokenRole = TokenRole.SESSION,
    *,
    forms: bool = True,
    token_id: TokenId = TOKEN,
) -> Identity:
    """Whoever holds a token, of a client that shows forms to a person unless told otherwise."""
    return Identity(token_id=token_id, role=role, name="t", session_id=session_id, forms=forms)


def request(method: str, params: JsonObject | None = None, id: int | str = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})}


def call(name: str, arguments: JsonObject | None = None, id: int | str = 1, **more: Json) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments or {}, **more}, id)


def notification(method: str, params: JsonObject | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}


def modern(message: Mapping[str, Any], capabilities: JsonObject | None = None) -> dict[str, Any]:
    """Return the message as a modern client sends it."""
    params: dict[str, Any] = message["params"]
    envelope = {
        PREFIX + "protocolVersion": MODERN,
        PREFIX + "clientInfo": {"name": "web", "version": "1"},
        PREFIX + "clientCapabilities": capabilities or {},
    }
    return {**message, "params": {**params, "_meta": {**envelope, **params.get("_meta", {})}}}


class Knock:
    """One HTTP request and what came of it."""

    def __init__(self, scope: Scope, body: bytes, endpoint: McpEndpoint) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        self.takes = True  # a client that does not read has this off
        self.more_body = False  # whether the client means to send more than it does
        self._pieces = [body]
        self._gone = asyncio.Event()
        self._stirred = asyncio.Event()
        self._drained = asyncio.Event()
        self.task = asyncio.ensure_future(endpoint(scope, self._receive, self._send))

    @property
    def messages(self) -> list[Any]:
        """The messages of the stream until now, or the one that the body is."""
        if self.headers.get("content-type") != "text/event-stream":
            return [json.loads(self.body)] if self.body else []
        found = [json.loads(data) for _, data in self.events if data]
        for message in found:
            jsonrpc_message_adapter.validate_python(message)
        return found

    @property
    def events(self) -> list[tuple[str, bytes]]:
        """The id and the data of every event until now."""
        found: list[tuple[str, bytes]] = []
        text = self.body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # each of them ends a line
        for block in text.split(b"\n\n")[:-1]:
            fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":"))
            if b"data" in fields:
                found.append((fields.get(b"id", b"").decode(), fields[b"data"]))
        return found

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON_S):
            while not holds():
                self._stirred.clear()
                await self._stirred.wait()

    async def has(self, count: int) -> list[Any]:
        """Return the messages, as soon as there are so many."""
        await self.until(lambda: len(self.messages) >= count)
        return self.messages

    async def done(self) -> "Knock":
        """Return when the response is complete and the application has returned."""
        async with asyncio.timeout(SOON_S):
            await self.task
        assert self.is_complete
        return self

    async def result(self) -> Any:
        await self.done()
        assert "result" in self.messages[-1], self.messages
        return self.messages[-1]["result"]

    async def error(self) -> Any:
        await self.done()
        return self.messages[-1]["error"]

    async def vanish(self) -> None:
        """Close the connection from the client's side, and let the application end."""
        self._gone.set()
        async with asyncio.timeout(SOON_S):
            await self.task

    def read_on(self) -> None:
        self.takes = True
        self._drained.set()

    async def _receive(self) -> Message:
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(), "more_body": self.more_body}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self.takes:
            await self._drained.wait()
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]
            if not message.get("more_body", False):
                self.is_complete = True
                self._gone.set()
        self._stirred.set()


def _read_again(path: str) -> JsonObject:
    return {"name": "files__read", "arguments": {"path": path}}


class Web(Behind):
    """The endpoint, and whoever knocks."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[tuple[Identity, Era]] = []
        self.closed: list[Identity] = []
        self.relays: list[Relay] = []
        self.left = asyncio.Event()  # a gateway was closed
        self.dead: set[TokenId] = set()  # tokens that count no longer
        self.endpoint = McpEndpoint(self._open, again=_read_again, is_live=self._is_live, debug=True)
        self._killed: list[McpEndpoint] = []
        self._knocks: list[Knock] = []

    def knock(
        self,
        method: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        by: Identity | None = None,
    ) -> Knock:
        raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        scope: Scope = {"type": "http", "method": method, "path": "/mcp", "headers": raw}
        set_identity(scope, by or identity())
        knock = Knock(scope, body, self.endpoint)
        self._knocks.append(knock)
        return knock

    def post(self, message: Any, *, by: Identity | None = None, **headers: str) -> Knock:
        """POST the message; headers are those every client sends, with `_` for `-` in `headers`."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        given = {"accept": BOTH, "content-type": "application/json"}
        return self.knock("POST", body, {**given, **_named(headers)}, by=by)

    def ask(
        self,
        message: Mapping[str, Any],
        capabilities: JsonObject | None = None,
        *,
        by: Identity | None = None,
        **headers: str,
    ) -> Knock:
        """POST a modern request with the headers that belong to it."""
        method, params = message["method"], message["params"]
        given: dict[str, str] = {"mcp_protocol_version": MODERN, "mcp_method": method}
        name = params.get("name", params.get("uri"))
        if isinstance(name, str):
            given["mcp_name"] = name
        return self.post(modern(message, capabilities), by=by, **(given | headers))

    async def shake_hands(
        self, version: str = LATEST, capabilities: JsonObject | None = None, *, by: Identity | None = None
    ) -> "Legacy":
        params: JsonObject = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "web", "version": "1"},
        }
        answered = await self.post(request("initialize", params, 0), by=by).done()
        assert (answered.status, answered.messages[0]["result"]["protocolVersion"]) == (200, version)
        return Legacy(self, answered.headers["mcp-session-id"], version, by)

    async def settle(self) -> None:
        """Let everything go as far as it gets by itself."""
        for _ in range(50):
            await asyncio.sleep(0)

    def restart(self) -> None:
        """Let another process serve from now on, so to speak, which knows nothing of this one."""
        self._killed.append(self.endpoint)
        self.endpoint = McpEndpoint(self._open, again=_read_again, debug=True)

    async def close(self) -> None:
        for endpoint in (*self._killed, self.endpoint):
            await endpoint.close()
        for knock in self._knocks:
            if not knock.task.done():
                await knock.vanish()

    async def _is_live(self, token_id: TokenId) -> bool:
        return token_id not in self.dead

    async def _open(
        self, who: Identity, connection: Connection, era: Era, stack: AsyncExitStack
    ) -> Answering:
        assert who.session_id is not None
        self.opened.append((who, era))
        session = await self.office.session(who.session_id)
        relay = Relay(connection, session.workspace, is_shared=True)
        self.relays.append(relay)
        self.servers.on_changed = relay.changed
        gate = Gate(
            context=self.office.context, session=session, servers=self.servers, client_answers=who.forms
        )
        gateway = Gateway(gate, connection, relay)
        stack.callback(self.left.set)
        stack.callback(self.closed.append, who)
        stack.push_async_callback(gateway.close)
        return gateway


class Legacy:
    """A client that has shaken hands."""

    def __init__(self, web: Web, id: str, version: str, by: Identity | None) -> None:
        self.id = id
        self._web = web
        self._version = version
        self._by = by

    def headers(self) -> dict[str, str]:
        return {"mcp_session_id": self.id, "mcp_protocol_version": self._version}

    def post(self, message: Any, **headers: str) -> Knock:
        return self._web.post(message, by=self._by, **(self.headers() | headers))

    def get(self, **headers: str) -> Knock:
        given = {"accept": "text/event-stream", **self.headers(), **headers}
        return self._web.knock("GET", b"", _named(given), by=self._by)

    def delete(self) -> Knock:
        return self._web.knock("DELETE", b"", _named(self.headers()), by=self._by)


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
