"""A cloud that answers what the test wants, byte by byte, and a client that tells no key and never sleeps."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pytest

from pml.core.errors import PmlError
from pml.upstream.cloud.client import CloudClient, Patience
from tests.registry.places import GREET

TIMEOUT_S: Final = 30.0  # only ever reached by what hangs
KEY: Final = "pml_000000000001_secret"
ARGUMENTS: Final = {"who": "Ann"}
PATIENCE: Final = Patience(connect_s=20, answer_s=20, body_s=20)  # only ever reached by what hangs
RESULT: Final = b'{ "content" : [ ] }'  # not spelled as we would


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request."""

    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> bytes:
        return json.dumps(self.json["id"]).encode()


Reply: TypeAlias = "Callable[[asyncio.StreamWriter, Sent], Awaitable[None]]"


@dataclass
class LyingCloud:
    """Gives its `replies` one after the other, the last one for ever."""

    replies: list[Reply] = field(default_factory=list[Reply])
    sent: list[Sent] = field(default_factory=list[Sent])
    port: int = 0
    scheme: str = "http"
    host: str = "127.0.0.1"
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            sent = await _read(reader)
            self.sent.append(sent)
            self.heard.set()
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            await reply(writer, sent)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has heard enough
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Sent:
    line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {key.lower(): value for key, value in (each.split(": ", 1) for each in fields)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Sent(line=line, headers=headers, body=body)


@asynccontextmanager
async def lying_cloud(*replies: Reply, tls: ssl.SSLContext | None = None) -> AsyncGenerator[LyingCloud]:
    """Run one on a free port of this machine."""
    cloud = LyingCloud(replies=list(replies), scheme="http" if tls is None else "https")
    server = await asyncio.start_server(cloud.serve, "127.0.0.1", 0, ssl=tls)
    cloud.port = server.sockets[0].getsockname()[1]
    try:
        yield cloud
    finally:
        server.close()
        await server.wait_closed()


def answer(content: bytes, *, status: str = "200 OK", **headers: str) -> Reply:
    """Answer with a body in which `ID` stands for the id of the request; `_` in a header is a hyphen."""

    async def reply(writer: asyncio.StreamWriter, sent: Sent) -> None:
        body = content.replace(b"ID", sent.id)
        fields = {"content-type": "application/json", "content-length": str(len(body)), **headers}
        writer.write(_head(status, {key.replace("_", "-"): value for key, value in fields.items()}) + body)

    return reply


def result(content: bytes = RESULT, **headers: str) -> Reply:
    return answer(b'{"jsonrpc":"2.0","id":ID,"result":%b}' % content, **headers)


def refusal(status: str, code: str = "", message: str = "", **headers: str) -> Reply:
    """Refuse in the one shape of errors."""
    error = {"error": {"code": code, "message": message, "hint": None}}
    return answer(json.dumps(error).encode(), status=status, **headers)


def hang_up(content: bytes = b"") -> Reply:
    """Say this and close."""

    async def reply(writer: asyncio.StreamWriter, sent: Sent) -> None:
        writer.write(content)

    return reply


def fall_silent(content: bytes, held: asyncio.Event) -> Reply:
    """Say this, and nothing more while `held` is not set."""

    async def reply(writer: asyncio.StreamWriter, sent: Sent) -> None:
        writer.write(content)
        await writer.drain()
        await held.wait()

    return reply


def drip(begin: bytes) -> Reply:
    """Say this, then a byte now and then, for as long as somebody listens."""

    async def reply(writer: asyncio.StreamWriter, sent: Sent) -> None:
        writer.write(begin)
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    return reply


def endless() -> Reply:
    """Send for as long as somebody listens."""

    async def reply(writer: asyncio.StreamWriter, sent: Sent) -> None:
        writer.write(_head("200 OK", {"content-type": "application/json"}))
        while True:
            writer.write(b" " * 65536)
            await writer.drain()

    return reply


def _head(status: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}connection: close\r\n\r\n".encode()


class Caller:
    """A client of a cloud. `pauses` are those it made; `meanwhile` is what happens then."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.client = self.of(PATIENCE)

    def of(self, patience: Patience) -> CloudClient:
        self.client = CloudClient(patience=patience, sleep=self._pause)
        return self.client

    async def call(self, url: str, *, key: str | None = KEY) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.client.call(url, GREET, ARGUMENTS, key=key)

    async def fail(self, url: str, *, key: str | None = KEY) -> PmlError:
        """Return why the call fails; the key is in no word of it."""
        with pytest.raises(PmlError) as caught:
            await self.call(url, key=key)
        assert KEY not in f"{caught.value.message} {caught.value.hint}"
        return caught.value

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self.meanwhile is not None:
            await self.meanwhile()
