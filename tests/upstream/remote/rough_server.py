"""A real HTTP server on loopback whose answers a test writes byte by byte; else it speaks plain MCP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pml.core.rules.ruleset import Source
from pml.core.servers.remote_target import RemoteKind, RemoteTarget
from pml.core.servers.spec import ServerSpec

ECHO = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}
MODERN = "2026-07-28"


@dataclass
class Request:
    """What came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}")

    @property
    def rpc(self) -> str:
        """The method of JSON-RPC, or the HTTP one where there is none."""
        return self.message.get("method", self.method)


Answer = Callable[[Request], Awaitable[bytes | None]]


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    given = {"content-length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body


def result(request: Request, value: Any, **headers: str) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": value}).encode()
    return http(200, body, content_type="application/json", **headers)


def error(request: Request, code: int, message: str, *, status: int = 200) -> bytes:
    told = {"jsonrpc": "2.0", "id": request.message.get("id"), "error": {"code": code, "message": message}}
    return http(status, json.dumps(told).encode(), content_type="application/json")


def events(*parts: str) -> bytes:
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return (head + "".join(f"{part}\n\n" for part in parts)).encode()


@dataclass
class RoughServer:
    """Answers as `answers` say, by the method of JSON-RPC or HTTP; else as a plain legacy server."""

    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    seen: list[Request] = field(default_factory=list[Request])
    tools: list[dict[str, Any]] = field(default_factory=lambda: [ECHO])
    session: str | None = "s-1"
    listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        return [request.rpc for request in self.seen]

    def spec(self, *, kind: RemoteKind = RemoteKind.HTTP, url: str | None = None, **more: Any) -> ServerSpec:
        target = RemoteTarget(url=url or self.url, kind=kind, **more)
        return ServerSpec(name="far", target=target, source=Source(file="/repo/.pml.json", line=1))

    async def answer(self, request: Request) -> bytes | None:
        if (own := self.answers.get(request.rpc)) is not None:
            return await own(request)
        match request.rpc:
            case "initialize":
                said: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "rough"},
                }
                more = {} if self.session is None else {"mcp_session_id": self.session}
                return result(request, said, **more)
            case "tools/list":
                return result(request, {"tools": self.tools})
            case "tools/call":
                text = json.dumps(request.message["params"]["arguments"])
                return result(
                    request, {"content": [{"type": "text", "text": text}], "unknown": {"kept": 1.0}}
                )
            case "GET":
                return http(405)
            case _:
                return http(202)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader, writer)) is not None:
                self.seen.append(request)
                answer = await self.answer(request)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"connection: close" in answer:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    first = (await reader.readline()).decode().split()
    if not first:
        return None
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first[0], first[1], headers, body, writer)


@asynccontextmanager
async def rough_server() -> AsyncGenerator[RoughServer]:
    server = RoughServer()
    tasks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = server.listening = await asyncio.start_server(begin, "127.0.0.1", 0, limit=1 << 24)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
