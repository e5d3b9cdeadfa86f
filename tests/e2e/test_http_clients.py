"""Real clients of both eras over HTTP, on a real socket: calls, forms, progress, cancelling, a cut wire."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as SdkClient
from starlette.types import Receive, Scope, Send

from pml.core.values import JsonObject
from pml.downstream.http import streams
from pml.downstream.http.http_session import read_event_id
from pml.web.connections import Limits
from pml.web.http_server import listen, serve, url_of
from pml.web.visitors import set_identity
from tests.downstream.parties import SOON_S, text_result, tool
from tests.downstream.webs import Web, identity
from tests.e2e.clients import (
    ACCEPT,
    DECLINE,
    PYTHON,
    PYTHON_LEGACY,
    READS_S,
    TYPESCRIPT,
    TYPESCRIPT_1,
    Client,
    Kind,
    call,
    connected,
    tools_of,
)
from tests.e2e.installed import Server, need_clients
from tests.promises import promise

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = {PYTHON: MODERN, PYTHON_LEGACY: LEGACY, TYPESCRIPT: MODERN, TYPESCRIPT_1: LEGACY}
READ = "files__read"

every_client = pytest.mark.parametrize("kind", [*ERAS], ids=lambda kind: kind.name)
legacy_clients = pytest.mark.parametrize("kind", [PYTHON_LEGACY, TYPESCRIPT_1], ids=lambda kind: kind.name)
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


@dataclass(frozen=True, kw_only=True)
class Address(Server):
    """Where a server is that runs already, in place of the command of one to start."""

    command: str = ""
    url: str

    def as_config(self) -> dict[str, object]:
        return {"url": self.url}


@pytest.fixture
async def web(tmp_path: Path) -> AsyncGenerator[Web]:
    web = Web(tmp_path)
    web.serve("files", tool("read", required=["path"]))
    web.rules(allow=["files:read"])
    yield web
    await web.close()


@pytest.fixture
async def address(web: Web) -> AsyncGenerator[Address]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        set_identity(scope, identity())
        await web.endpoint(scope, receive, send)

    listening = listen("127.0.0.1", 0)
    serving = asyncio.ensure_future(serve(app, listening, limits=Limits(answers_last=True)))
    try:
        yield Address(url=url_of(listening) + "/mcp")
    finally:
        await web.endpoint.close()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


@asynccontextmanager
async def at(kind: Kind, address: Address, home: Path, *, forms: bool = False) -> AsyncGenerator[Client]:
    """A client that is connected there."""
    need_clients()
    async with connected(kind, address, home=home, forms=forms) as client:
        yield client


def hold(web: Web, began: Callable[[], None]) -> tuple[asyncio.Event, asyncio.Event]:
    """Let the server wait; returns what lets it go on, and what is set when its call was cancelled."""
    release, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(method: str, params: JsonObject, on_progress: Any) -> bytes:
        began()
        try:
            await release.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return text_result("done")

    web.servers.named["files"].answer = wait
    return release, cancelled


@every_client
async def test_a_client_lists_and_calls(kind: Kind, web: Web, address: Address, home: Path) -> None:
    async with at(kind, address, home) as client:
        assert client.protocol == ERAS[kind]
        assert {"discover", "call", READ} <= (await tools_of(client)).keys()
        assert (await call(client, READ, {"path": "é"})).text == '{"path": "\\u00e9"}'
    assert len(web.opened) == 1


@promise("agent:nothing-unapproved")
@every_client
async def test_a_form_is_shown_and_decides(kind: Kind, web: Web, address: Address, home: Path) -> None:
    web.rules(ask=["files:read"])
    async with at(kind, address, home, forms=True) as client:
        await tools_of(client)
        declined = await call(client, READ, {"path": "a"}, answer=DECLINE, reads_s=READS_S)
        assert declined.text.startswith("Tool execution denied by user\n")
        assert web.servers.calls == []
        accepted = await call(client, READ, {"path": "a"}, answer=ACCEPT)
        assert accepted.text == '{"path": "a"}'
        assert [len(outcome.forms) for outcome in (declined, accepted)] == [1, 1]


@every_client
async def test_a_servers_own_form_reaches_the_client_and_comes_back(
    kind: Kind, web: Web, address: Address, home: Path
) -> None:
    schema: JsonObject = {"type": "object", "properties": {"remember": {"type": "string"}}}

    async def ask(method: str, params: JsonObject, on_progress: Any) -> bytes:
        answer = await web.relays[0].elicit("files", {"message": "Which?", "requestedSchema": schema})
        return text_result(str(answer["action"]))

    web.servers.named["files"].answer = ask
    async with at(kind, address, home, forms=True) as client:
        await tools_of(client)
        asked = await call(client, READ, {"path": "a"}, answer=ACCEPT)
    assert asked.text == "accept"
    assert [form["message"] for form in asked.forms] == ["Server files asks:\n  Which?"]


@legacy_clients
async def test_a_changed_list_is_told_on_the_open_stream(
    kind: Kind, web: Web, address: Address, home: Path
) -> None:
    async with at(kind, address, home) as client:
        await tools_of(client)
        web.relays[0].announce("tools")
        async with asyncio.timeout(SOON_S):
            told: list[Any] = []
            while not told:
                told = list((await client.ask({"do": "tools"})).notifications)
        assert told[0]["method"] == "notifications/tools/list_changed"


@both_eras
async def test_progress_reaches_the_client_while_it_waits(mode: Any, web: Web, address: Address) -> None:
    async def count(method: str, params: JsonObject, on_progress: Any) -> bytes:
        for step in (1, 2, 3):
            on_progress({"progressToken": 0, "progress": step, "total": 3, "message": f"step {step}"})
            await asyncio.sleep(0)
        return text_result("done")

    web.servers.named["files"].answer = count
    told: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with SdkClient(address.url, mode=mode) as client:
        await client.call_tool(READ, {"path": "a"}, progress_callback=note)
    assert told == [(step, 3, f"step {step}") for step in (1, 2, 3)]


@promise("http:vanished-is-cancelled")
@both_eras
async def test_a_client_that_gives_a_call_up_cancels_it_at_the_server(
    mode: Any, web: Web, address: Address
) -> None:
    began = asyncio.Event()
    _, cancelled = hold(web, began.set)
    async with SdkClient(address.url, mode=mode) as client:
        calling = asyncio.ensure_future(client.call_tool(READ, {"path": "a"}))
        async with asyncio.timeout(SOON_S):
            await began.wait()
            calling.cancel()
            await cancelled.wait()
        with suppress(asyncio.CancelledError):
            await calling
        await client.list_tools()  # the connection is as good as before


@promise("http:answers-survive-a-cut")
@legacy_clients
async def test_a_call_survives_the_loss_of_its_connection(
    kind: Kind, web: Web, address: Address, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RETRY_MS", 100)
    monkeypatch.setattr(streams, "MOMENT_S", 0.0)
    began = asyncio.Event()
    release, _ = hold(web, began.set)
    async with Wire.to(address) as wire:
        async with at(kind, wire.address, home) as client:
            await tools_of(client)
            wire.said = b""
            calling = asyncio.ensure_future(call(client, READ, {"path": "a"}))
            async with asyncio.timeout(SOON_S):
                await began.wait()
                await wire.until(streams_of_requests)
            wire.cut()
            release.set()
            assert (await calling).text == "done"
    assert len(web.servers.calls) == 1


def streams_of_requests(said: bytes) -> bool:
    """Tell whether the client knows by now where to take up the answer to a request."""
    events = (read_event_id(id.decode()) for id in re.findall(rb"^id: (\S+)$", said, re.MULTILINE))
    return any(event is not None and event.stream for event in events)


class Wire:
    """A stretch of the way to a server that can be cut, and is whole again for those who come back."""

    def __init__(self, target: Address) -> None:
        self.address = target
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.said = b""
        self._spoke = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def to(cls, target: Address) -> AsyncGenerator["Wire"]:
        wire = cls(target)
        server = await asyncio.start_server(wire._join, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        wire.address = Address(url=f"http://127.0.0.1:{port}/mcp")
        try:
            yield wire
        finally:
            server.close()
            wire.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def until(self, holds: Callable[[bytes], bool]) -> None:
        while not holds(self.said):
            self._spoke.clear()
            await self._spoke.wait()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(self._target.url.split(":")[2].partition("/")[0])
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        self._writers |= {writer, to_there}
        with suppress(ConnectionError):
            await asyncio.gather(self._pass(reader, to_there), self._pass(there, writer, heard=True))
        to_there.close()
        writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, heard: bool = False
    ) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
            if heard:
                self.said += data
                self._spoke.set()
        writer.close()
