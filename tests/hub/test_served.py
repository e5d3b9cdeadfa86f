"""The hub on a real socket: bodies that are too large or too slow, readers that do not read, its end."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from pml.core.sessions.token import TokenRole
from pml.hub.body_limits import BodyLimits
from pml.web.connections import Limits
from pml.web.http_server import listen, serve
from tests.hub.hubs import PORT, HubRig, open_rig
from tests.promises import promise

BOUND_S = 60.0  # only ever reached by what hangs
MANY = Limits(answers_last=True)


class Line:
    """A connection to the hub, on which a test writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, method: str, path: str, *headers: str, body: bytes = b"") -> None:
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{PORT}", *headers]
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and JSON of one answer."""
        async with asyncio.timeout(BOUND_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split(" ")[1]), headers, json.loads(body) if body else None

    async def is_closed(self) -> bool:
        """Return once the hub has ended the connection."""
        async with asyncio.timeout(BOUND_S):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass
        return True


class Served:
    def __init__(self, rig: HubRig, port: int) -> None:
        self.rig = rig
        self.port = port
        self.token = f"Authorization: Bearer {rig.tokens[TokenRole.PERSON]}"

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncGenerator[Line]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Line(reader, writer)
        finally:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def served(
    root: Path, *, bodies: BodyLimits | None = None, limits: Limits = MANY, rig: HubRig | None = None
) -> AsyncGenerator[Served]:
    """Serve a hub on a free port; its own names go with the port that the rig knows."""
    rig = rig or await open_rig(root, limits=bodies)
    with listen("127.0.0.1", 0) as listening:
        task = asyncio.ensure_future(serve(rig.app, listening, limits=limits))
        try:
            yield Served(rig, listening.getsockname()[1])
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_body_that_is_told_to_be_too_large_is_refused_before_it_comes(tmp_path: Path) -> None:
    async with served(tmp_path) as hub, hub.line() as line:
        line.send("POST", "/api/rules", hub.token, f"Content-Length: {1024 * 1024 + 1}")
        status, headers, told = await line.answer()
    assert (status, told["error"]["code"], headers["connection"]) == (413, "too_large", "close")


async def test_a_body_that_grows_too_large_is_refused_when_it_does(tmp_path: Path) -> None:
    async with served(tmp_path, bodies=BodyLimits(api=1000)) as hub, hub.line() as line:
        line.send("POST", "/api/rules", hub.token, "Transfer-Encoding: chunked")
        for _ in range(3):
            line.writer.write(b"1f4\r\n" + b" " * 500 + b"\r\n")
        status, _, told = await line.answer()
    assert (status, told["error"]["code"]) == (413, "too_large")


async def test_a_body_of_the_largest_size_is_read(tmp_path: Path) -> None:
    async with served(tmp_path, bodies=BodyLimits(api=1000)) as hub, hub.line() as line:
        line.send("POST", "/api/rules", hub.token, "Content-Length: 1000", body=b" " * 1000)
        status, _, _ = await line.answer()
    assert status == 400


async def test_a_message_to_an_agents_tools_may_be_larger_than_one_to_the_api(tmp_path: Path) -> None:
    async with served(tmp_path, bodies=BodyLimits(api=10, mcp=1000)) as hub:
        for size, expected in ((1000, 200), (1001, 413)):
            async with hub.line() as line:
                line.send("POST", "/mcp", hub.token, f"Content-Length: {size}", body=b" " * size)
                assert (await line.answer())[0] == expected


async def test_a_body_that_does_not_come_in_time_is_not_waited_for(tmp_path: Path) -> None:
    async with served(tmp_path, bodies=BodyLimits(within_s=0.1)) as hub, hub.line() as line:
        line.send("POST", "/api/rules", hub.token, "Content-Length: 100", body=b"{")
        status, headers, told = await line.answer()
        assert (status, told["error"]["code"], headers["connection"]) == (408, "too_slow", "close")
        assert await line.is_closed()


@promise("message:bounded-bodies")
async def test_a_large_body_beside_too_many_is_refused_and_told_when_to_come_again(tmp_path: Path) -> None:
    bodies = BodyLimits(small=100, each=1500, room_s=0.0)
    async with served(tmp_path, bodies=bodies) as hub, hub.line() as first, hub.line() as second:
        first.send("POST", "/api/rules", hub.token, "Content-Length: 1000", "Expect: 100-continue")
        assert b"100" in await first.reader.readuntil(b"\r\n\r\n")  # its body is being read
        second.send("POST", "/api/rules", hub.token, "Content-Length: 1000")
        status, headers, told = await second.answer()
        async with hub.line() as third:
            third.send("POST", "/api/rules", hub.token, "Content-Length: 100", body=b" " * 100)
            assert (await third.answer())[0] == 400  # small, so it was read
        first.writer.write(b" " * 1000)
        assert (await first.answer())[0] == 400
    assert (status, told["error"]["code"], headers["retry-after"]) == (503, "busy", "5")


async def test_whoever_has_no_token_is_answered_before_a_body_is_read(tmp_path: Path) -> None:
    async with served(tmp_path) as hub, hub.line() as line:
        line.send("POST", "/api/rules", "Content-Length: 100")
        assert (await line.answer())[0] == 401


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", b"\xff\xfe\r\n\r\n"])
async def test_whoever_sends_no_whole_request_is_not_waited_for(tmp_path: Path, sent: bytes) -> None:
    limits = Limits(request_s=0.1, answers_last=True)
    async with served(tmp_path, limits=limits) as hub, hub.line() as line:
        line.writer.write(sent)
        assert await line.is_closed()


async def test_an_answer_may_take_longer_than_a_request(tmp_path: Path) -> None:
    released = asyncio.Event()
    rig = await _with_app(tmp_path, released)
    async with served(tmp_path, limits=Limits(request_s=0.1, answers_last=True), rig=rig) as hub:
        async with hub.line() as patient, hub.line() as silent:
            patient.send("GET", "/health")
            assert await silent.is_closed()  # it had as long, and sent nothing
            released.set()
            assert (await patient.answer())[0] == 200


async def test_a_reader_that_does_not_read_is_not_held(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await _sent(send)) and not (await _is_gone(receive)):
            pass
        gone.set()

    rig = await open_rig(tmp_path)
    rig.app = flood
    limits = Limits(reader_s=0.2, answers_last=True)
    async with served(tmp_path, limits=limits, rig=rig) as hub, hub.line() as line:
        line.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        line.send("GET", "/events")
        async with asyncio.timeout(BOUND_S):
            await gone.wait()


@pytest.mark.parametrize(
    "headers",
    [
        ["Host: 127.0.0.1:4445"],
        ["Authorization: Bearer \xff\xff"],
        ["Authorization: Bearer a", "Authorization: Bearer b"],
        ["Origin: http://127.0.0.1:4445", "Origin: http://evil.example"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: x"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
    ],
)
async def test_odd_headers_are_refused_and_are_no_mistake_of_ours(tmp_path: Path, headers: list[str]) -> None:
    async with served(tmp_path) as hub, hub.line() as line:
        line.send("POST", "/api/rules", *headers)
        async with asyncio.timeout(BOUND_S):
            first = await line.reader.readline()
    assert first.split(b" ")[1] in (b"400", b"401", b"403", b"421")
    assert hub.rig.complaints == []


async def test_a_request_that_names_another_machine_in_its_first_line_gets_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as hub, hub.line() as line:
        line.send("GET", "http://evil.example/health")
        assert (await line.answer())[0] in (401, 404)


async def test_an_upgrade_to_something_else_is_not_made(tmp_path: Path) -> None:
    async with served(tmp_path) as hub, hub.line() as line:
        line.send("GET", "/events", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
        assert (await line.answer())[0] == 401


async def test_the_end_of_the_hub_ends_what_waits(tmp_path: Path) -> None:
    rig = await _with_app(tmp_path, asyncio.Event())
    async with asyncio.timeout(BOUND_S):
        async with served(tmp_path, rig=rig) as hub:
            _, writer = await asyncio.open_connection("127.0.0.1", hub.port)
            writer.write(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n\r\n".encode())
            await writer.drain()
        writer.transport.abort()


async def _with_app(root: Path, released: asyncio.Event) -> HubRig:
    """Return a rig whose application answers once it is let."""

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await released.wait()
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    rig = await open_rig(root)
    rig.app = slow
    return rig


async def _sent(send: Send) -> bool:
    try:
        await send({"type": "http.response.body", "body": b" " * 65536, "more_body": True})
    except OSError:
        return False
    return True


async def _is_gone(receive: Receive) -> bool:
    """Tell whether the reader has gone, without waiting for it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            while (await receive())["type"] != "http.disconnect":
                pass
            return True
    return False
