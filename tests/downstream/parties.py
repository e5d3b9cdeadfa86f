"""A client before a gateway, in process: real door, connection and pipeline; a store in memory, fake servers.

Every message, result and form that a test receives here is checked against the SDK's own types.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from mcp_types.jsonrpc import jsonrpc_message_adapter
from mcp_types.methods import parse_server_notification, parse_server_request, validate_server_result

from pml.core.approvals.record import Approval, Decider, Scope, State
from pml.core.config.file import FileKind
from pml.core.errors import Changed
from pml.core.ports.queries import ApprovalQuery
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.core.values import Json, JsonObject
from pml.downstream.forms.relay import Relay
from pml.downstream.gateway import Gateway
from pml.downstream.protocol.door import Door
from pml.downstream.protocol.eras import MODERN, Era
from pml.downstream.stdio.stdio import PipeConnection
from pml.service.call import Gate
from pml.testing.store import MemoryStore
from tests.builders import PERSON
from tests.service.offices import Office

SOON_S: Final = 60.0  # only ever reached by what hangs
LATEST: Final = "2025-11-25"
FORMS: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}}
PREFIX: Final = "io.modelcontextprotocol/"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION: Final = PREFIX + "subscriptionId"
_TURNS: Final = 50  # of the event loop: more than anything on a store in memory needs

Message: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[str, JsonObject, Callable[[JsonObject], None] | None], Awaitable[bytes]]


def tool(name: str, *, required: Sequence[str] = (), **more: Json) -> JsonObject:
    """Return a tool as a server describes it, with an argument for every one that it requires."""
    properties: JsonObject = {argument: {"type": "string"} for argument in required}
    schema: JsonObject = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema, **more}


def text_result(text: str) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}]}).encode()


async def echo(method: str, params: JsonObject, on_progress: Callable[[JsonObject], None] | None) -> bytes:
    if method == "resources/read":
        return json.dumps({"contents": [{"uri": params["uri"], "text": "read"}]}).encode()
    if method == "prompts/get":
        return json.dumps({"messages": [], "description": json.dumps(params)}).encode()
    if method == "completion/complete":
        return json.dumps({"completion": {"values": [json.dumps(params)]}}).encode()
    return text_result(json.dumps(params["arguments"]))


@dataclass(kw_only=True)
class FakeServer:
    """What a server offers and how it answers; both can be changed while it runs."""

    tools: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()
    answer: Answer = echo
    ready: asyncio.Event | None = None  # the start waits for it


@dataclass
class FakeServers:
    """Serves the port `Servers`; tells what was started and what was sent to whom."""

    named: dict[str, FakeServer] = field(default_factory=dict[str, FakeServer])
    started: list[str] = field(default_factory=list[str])
    sent: list[tuple[str, str, JsonObject]] = field(default_factory=list[tuple[str, str, JsonObject]])
    on_sent: Callable[[], None] = lambda: None
    on_changed: Callable[[str, str], None] = lambda server, kind: None
    _live: dict[str, Manifest] = field(default_factory=dict[str, Manifest])

    def live(self, spec: ServerSpec) -> Manifest | None:
        return self._live.get(spec.name)

    async def manifest(self, spec: ServerSpec) -> Manifest:
        server = self.named[spec.name]
        if spec.name not in self._live:
            self.started.append(spec.name)
        if server.ready is not None:
            await server.ready.wait()
        manifest = Manifest(
            server=spec.name,
            target_digest=spec.target_digest,
            capabilities={},
            tools=server.tools,
            prompts=server.prompts,
            resources=server.resources,
            templates=server.templates,
        )
        if self._live.get(spec.name) != manifest:
            self._live[spec.name] = manifest
            self.on_changed(spec.name, "tools")
        return self._live[spec.name]

    async def request(
        self,
        spec: ServerSpec,
        method: str,
        params: JsonObject,
        *,
        seen: Manifest | None = None,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> bytes:
        if seen is not None and seen is not self._live.get(spec.name):
            raise Changed(f"server `{spec.name}` is not the one that was seen")
        self.sent.append((spec.name, method, params))
        self.on_sent()
        return await self.named[spec.name].answer(method, params, on_progress)

    async def close(self) -> None: ...

    def change(self, name: str, **offers: Any) -> None:
        """Let the server offer something else from now on."""
        for what, offered in offers.items():
            setattr(self.named[name], what, offered)
        self._live.pop(name, None)

    @property
    def calls(self) -> list[JsonObject]:
        """What was called, as the servers got it."""
        return [params for _, method, params in self.sent if method == "tools/call"]


class Behind:
    """What stands behind the gateway: servers, rules, a store, and a person who decides elsewhere."""

    def __init__(self, root: Path) -> None:
        self.office = Office(MemoryStore(), root)
        self.servers = FakeServers()

    def serve(self, name: str, *tools: JsonObject, **offers: Any) -> FakeServer:
        """Define the server in the user's file, which needs no trust."""
        server = self.servers.named[name] = FakeServer(tools=tools, **offers)
        self.configure()
        return server

    def configure(self, **config: Any) -> None:
        """Write the user's file: the servers so far, and `config`; tools that are listed are the client's."""
        servers = {name: {"command": name} for name in self.servers.named}
        left: JsonObject = {"approval": {"unlisted": "if_client_cannot"}}
        self.office.write(FileKind.USER, {"mcpServers": servers, **left, **config})

    def as_new(self, **rules: list[Json]) -> None:
        """Write the user's file without a word on asking, as a new user has it."""
        self.configure(approval={}, permissions=rules)

    def rules(self, **rules: list[Json]) -> None:
        self.configure(permissions=rules)

    async def pending(self) -> list[Approval]:
        """Return the questions that are open, oldest first."""
        query = ApprovalQuery(states=frozenset({State.PENDING}))
        return await self.office.context.store.approvals.page(query)

    async def question(self) -> Approval:
        """Return the one question that is open, as soon as it is stored."""
        with self.office.context.store.changes.watch() as changes:
            while not (records := await self.pending()):
                assert await changes.wait(SOON_S)
        (record,) = records
        return record

    async def decide(
        self, *, allow: bool, by: Decider = PERSON, scope: Scope = Scope.ONCE, message: str | None = None
    ) -> Approval:
        """Decide the one open question elsewhere, as a person in a terminal does."""
        record = await self.question()
        if allow:
            return (await self.office.allow(record, by=by, scope=scope)).record
        return await self.office.deny(record, by=by, message=message)


class Party(Behind):
    """One client. It speaks the era that `shake_hands` or `be_modern` chose, and keeps all it is sent."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.version = LATEST
        self.capabilities: JsonObject = {}
        self.shows_forms = True
        self.opened: list[Era] = []
        self._stirred = asyncio.Event()
        self.servers.on_sent = self._stirred.set
        self.lines: list[bytes] = []
        self.notifications: list[Message] = []
        self.congested = False
        self.gone = False
        self.relay: Relay
        self._gateway: Gateway | None = None
        self._ids = 0
        self._answers: dict[int, Message] = {}
        self._asked: list[Message] = []
        door = Door(self._open)
        self.connection = PipeConnection(
            outlet=self, answer=door.answer, notice=door.notice, batches=door.batches
        )

    # What the client says

    async def connect(self, version: str = LATEST, capabilities: JsonObject | None = None) -> list[Message]:
        """Begin as clients do, and return the tools that they list first of all."""
        if version == MODERN:
            self.be_modern(capabilities)
        else:
            await self.shake_hands(version, capabilities)
        return (await self.result("tools/list"))["tools"]

    async def shake_hands(self, version: str = LATEST, capabilities: JsonObject | None = None) -> Message:
        self.version = version
        self.capabilities = capabilities or {}
        params: JsonObject = {
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "party", "version": "1"},
        }
        result = await self.result("initialize", params)
        self.version = result["protocolVersion"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def be_modern(self, capabilities: JsonObject | None = None) -> None:
        self.version = MODERN
        self.capabilities = capabilities or {}

    def send(self, message: Json) -> None:
        self.connection.feed(json.dumps(message).encode() + b"\n")

    def start(self, method: str, params: JsonObject | None = None) -> int:
        """Send a request and return its id."""
        self._ids += 1
        said: dict[str, Any] = dict(params or {})
        if self.version == MODERN:
            said["_meta"] = {**self._envelope(), **said.get("_meta", {})}
        self.send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": said})
        return self._ids

    def start_call(self, name: str, arguments: JsonObject | None = None, **more: Json) -> int:
        return self.start("tools/call", {"name": name, "arguments": arguments or {}, **more})

    def notify(self, method: str, params: JsonObject) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def cancel(self, id: int) -> None:
        self.notify("notifications/cancelled", {"requestId": id})

    def reply(self, asked: Message, result: JsonObject) -> None:
        """Answer what the gateway asked."""
        self.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    # What the client hears

    async def answer(self, id: int) -> Message:
        """Return the answer to the request, whole."""
        await self.until(lambda: id in self._answers)
        return self._answers.pop(id)

    async def result(self, method: str, params: JsonObject | None = None) -> Message:
        return await self.result_of(self.start(method, params), method)

    async def result_of(self, id: int, method: str = "tools/call") -> Message:
        """Return the result, after checking that it is one of this method and version."""
        message = await self.answer(id)
        assert "result" in message, message
        result: Message = message["result"]
        validate_server_result(method, self.version, result)
        if self.version == MODERN:
            assert result["resultType"] in ("complete", "input_required")
            assert result["_meta"][SERVER_INFO]["name"] == "pml"
        return result

    async def error(self, method: str, params: JsonObject | None = None) -> Message:
        return await self.error_of(self.start(method, params))

    async def error_of(self, id: int) -> Message:
        message = await self.answer(id)
        assert "error" in message, message
        return message["error"]

    async def call(self, name: str, arguments: JsonObject | None = None, **more: Json) -> Message:
        return await self.result_of(self.start_call(name, arguments, **more))

    async def call_error(self, name: str, arguments: JsonObject | None = None, **more: Json) -> Message:
        return await self.error_of(self.start_call(name, arguments, **more))

    async def continue_(self, name: str, workflow_id: str, *, approved: bool = True, **more: Json) -> Message:
        said = {"workflow_id": workflow_id, "approved": approved, **more}
        return await self.answer(self.start_call(name, {"continue_workflow": said}))

    async def asked(self, method: str = "elicitation/create") -> Message:
        """Return the next request of the gateway's, after checking that this version knows it."""
        await self.until(lambda: bool(self._asked))
        message = self._asked.pop(0)
        assert message["method"] == method
        parse_server_request(method, self.version, message["params"])
        return message

    @property
    def unasked(self) -> bool:
        """Tell that no request of the gateway's waits for an answer unseen."""
        return not self._asked

    async def told(self, method: str, count: int = 1) -> list[Message]:
        """Return the params of all such notifications, as soon as there are so many."""
        await self.until(lambda: len(self._told(method)) >= count)
        for params in self._told(method):
            parse_server_notification(method, self.version, params)
        return self._told(method)

    def told_now(self, method: str) -> list[Message]:
        return self._told(method)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when it holds, which is looked at whenever somebody has sent something."""
        async with asyncio.timeout(SOON_S):
            while not holds():
                self._stirred.clear()
                await self._stirred.wait()

    async def settle(self) -> None:
        """Let everything go as far as it gets by itself."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.connection.ended()
        async with asyncio.timeout(SOON_S):
            await self.connection.run()
            if self._gateway is not None:
                await self._gateway.close()

    # What the connection and the door see of it

    def write(self, line: bytes, *, alone: bool = False, lasting: bool = True) -> None:
        self.lines.append(line)
        message: Message | list[Message] = json.loads(line)
        for one in message if isinstance(message, list) else [message]:
            jsonrpc_message_adapter.validate_python(one)
            self._take(one)
        self._stirred.set()

    async def flush(self, timeout_s: float) -> None: ...

    async def _open(self, era: Era) -> Gateway:
        self.opened.append(era)
        session = await self.office.session()
        self.relay = Relay(self.connection, session.workspace)
        self.servers.on_changed = self.relay.changed
        gate = Gate(
            context=self.office.context,
            session=session,
            servers=self.servers,
            is_stdio=True,
            shows_forms=self.shows_forms,
        )
        self._gateway = Gateway(gate, self.connection, self.relay)
        return self._gateway

    def _take(self, message: Message) -> None:
        if "method" not in message:
            self._answers[message["id"]] = message
        elif "id" in message:
            self._asked.append(message)
        else:
            self.notifications.append(message)

    def _told(self, method: str) -> list[Message]:
        return [told["params"] for told in self.notifications if told["method"] == method]

    def _envelope(self) -> JsonObject:
        return {
            PREFIX + "protocolVersion": MODERN,
            PREFIX + "clientInfo": {"name": "party", "version": "1"},
            PREFIX + "clientCapabilities": self.capabilities,
        }


def text_of(result: Message) -> str:
    """Return the only text of a result."""
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"]


def code_of(result: Message) -> str:
    """Return the code of a refusal."""
    assert result["isError"] is True
    return result["structuredContent"]["error"]["code"]
