"""A registry that says what the test wants, byte by byte, and remembers what it was asked."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Reply: TypeAlias = "Callable[[asyncio.StreamWriter], Awaitable[None]]"
JSON: Final = "application/json"
TYPESCRIPT: Final = "application/typescript"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]

    @property
    def form(self) -> str:
        return self.headers["accept"]


@dataclass
class Liar:
    """`replies` by path, or by path and form; what is in none is not there."""

    port: int = 0
    replies: dict[str | tuple[str, str], Reply] = field(default_factory=dict[str | tuple[str, str], Reply])
    asked: list[Asked] = field(default_factory=list[Asked])
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def say(self, path: str, reply: Reply, *, form: str | None = None) -> None:
        self.replies[path if form is None else (path, form)] = reply

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = _parse(await reader.readuntil(b"\r\n\r\n"))
            self.asked.append(asked)
            self.heard.set()
            reply = self.replies.get((asked.path, asked.form)) or self.replies.get(asked.path)
            await (reply or body(b"{}", status="404 Not Found"))(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has heard enough
        finally:
            writer.close()


def _parse(head: bytes) -> Asked:
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    return Asked(path=first.split(" ")[1], headers={key.lower(): value for key, value in headers.items()})


@asynccontextmanager
async def lying() -> AsyncGenerator[Liar]:
    """Run a liar on a free port of this machine."""
    liar = Liar()
    server = await asyncio.start_server(liar.serve, "127.0.0.1", 0)
    liar.port = server.sockets[0].getsockname()[1]
    try:
        yield liar
    finally:
        server.close()
        await server.wait_closed()


def raw(content: bytes) -> Reply:
    """Say exactly this and close."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(content)

    return reply


def body(
    content: bytes, *, kind: str = JSON, status: str = "200 OK", headers: Mapping[str, str] | None = None
) -> Reply:
    """Answer with a body and its length."""
    fields = {"content-type": kind, "content-length": str(len(content)), **(headers or {})}
    return raw(_head(status, fields) + content)


def redirect(target: str, *, status: str = "302 Found", headers: Mapping[str, str] | None = None) -> Reply:
    fields = {"location": target, "content-length": "0", **(headers or {})}
    return raw(_head(status, fields))


def packed(content: bytes) -> Reply:
    """Answer in gzip."""
    return body(gzip.compress(content), headers={"content-encoding": "gzip"})


def endless() -> Reply:
    """Send for as long as somebody listens."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(_head("200 OK", {"content-type": JSON}))
        while True:
            writer.write(b" " * 65536)
            await writer.drain()

    return reply


def stalled(content: bytes, held: asyncio.Event) -> Reply:
    """Send a beginning, and nothing more while `held` is not set."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(_head("200 OK", {"content-type": JSON, "content-length": "10000"}) + content)
        await writer.drain()
        await held.wait()

    return reply


def _head(status: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}connection: close\r\n\r\n".encode()
