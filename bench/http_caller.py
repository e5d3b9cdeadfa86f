"""An MCP client over HTTP that only measures: one connection, one request at a time, no framework.

It speaks 2025-11-25 and reads answers as JSON or as server-sent events. What an answer says is for whoever
counts it to check.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.caller import INITIALIZE, Wrong

_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
_ACCEPT = "accept: application/json, text/event-stream"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back; `at` is when the last of it that says something arrived, by the monotonic clock."""

    status: int
    headers: dict[str, str]
    body: bytes
    at: float

    def json(self) -> Any:
        """Raises: Wrong if this is no success."""
        if self.status >= 300:
            raise Wrong(f"status {self.status}: {self.body[:500].decode(errors='replace')}")
        return json.loads(self.body)


class HttpCaller(asyncio.Protocol):
    """`heard` gets every server-sent event that belongs to an answer, as it comes: its data and when."""

    def __init__(self, head: bytes, heard: Callable[[bytes, float], None] | None = None) -> None:
        """`head` is what every request has, as `head_of` makes it."""
        self.head = head
        self.heard = heard
        self.begun = asyncio.Event()  # set when the first answer begins
        self._transport: asyncio.Transport | None = None
        self._replied: asyncio.Future[Reply] | None = None
        self._rest = b""
        self._reset()

    def _reset(self) -> None:
        self._status = 0
        self._headers: dict[str, str] = {}
        self._text = b""
        self._said = b""
        self._said_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._replied is not None and not self._replied.done():
            self._replied.set_exception(Wrong(f"the connection was lost: {exc}"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def send(self, body: bytes, *, line: bytes = b"POST /mcp") -> "asyncio.Future[Reply]":
        """Send one request; the answer comes later. Raises: Wrong if nothing was sent for too long."""
        assert self._transport is not None
        assert self._replied is None
        if self._transport.is_closing():
            raise Wrong("the server has closed the connection")
        self._replied = asyncio.get_running_loop().create_future()
        length = b"content-length: %d\r\n\r\n" % len(body)
        self._transport.write(b"%b HTTP/1.1\r\n%b%b%b" % (line, self.head, length, body))
        return self._replied

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        self._rest += data
        if not self._status and not self._read_head():
            return
        if "content-length" in self._headers:
            length = int(self._headers["content-length"])
            if len(self._rest) >= length:
                self._said, self._said_at = self._rest[:length], at
                self._rest = self._rest[length:]
                self._finish()
        elif self._headers.get("transfer-encoding") == "chunked":
            self._read_chunks(at)
        else:
            self._finish()

    def _read_head(self) -> bool:
        head, end, rest = self._rest.partition(b"\r\n\r\n")
        if not end:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        self._status = int(first.split(" ", 2)[1])
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.lower(): value.strip() for name, _, value in pairs}
        self._rest = rest
        self.begun.set()
        return True

    def _read_chunks(self, at: float) -> None:
        while True:
            size, end, rest = self._rest.partition(b"\r\n")
            if not end or len(rest) < (length := int(size, 16)) + 2:
                return
            self._rest = rest[length + 2 :]
            if not length:
                self._finish()
                return
            self._text += rest[:length].replace(b"\r\n", b"\n")
            *events, self._text = self._text.split(b"\n\n")
            for event in events:
                self._hear(event, at)

    def _hear(self, event: bytes, at: float) -> None:
        data = b"\n".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))
        if data:
            self._said, self._said_at = data, at
            if self.heard is not None:
                self.heard(data, at)

    def _finish(self) -> None:
        replied, self._replied = self._replied, None
        reply = Reply(status=self._status, headers=self._headers, body=self._said, at=self._said_at)
        self._reset()
        if replied is not None and not replied.done():
            replied.set_result(reply)


async def connect(url: str, head: bytes, heard: Callable[[bytes, float], None] | None = None) -> HttpCaller:
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    loop = asyncio.get_running_loop()
    _, caller = await loop.create_connection(lambda: HttpCaller(head, heard), where.hostname, where.port)
    return caller


def head_of(url: str, token: str | None, *more: str) -> bytes:
    """Return the header lines of every request of one client."""
    lines = [f"host: {urlsplit(url).netloc}", "content-type: application/json", _ACCEPT, *more]
    if token is not None:
        lines.append(f"authorization: Bearer {token}")
    return "".join(f"{line}\r\n" for line in lines).encode()


async def shake_hands(url: str, token: str | None) -> HttpCaller:
    """Return a connection whose client has a session; its `head` serves for others of the same session."""
    caller = await connect(url, head_of(url, token))
    reply = await caller.send(INITIALIZE)
    reply.json()
    session = reply.headers["mcp-session-id"]
    caller.head = head_of(url, token, f"mcp-session-id: {session}", "mcp-protocol-version: 2025-11-25")
    await caller.send(_INITIALIZED)
    return caller


def permit_body(number: int, tool: str) -> bytes:
    """Return a call of the permission tool, as Claude Code makes it."""
    command = {
        "command": f"git log --oneline -n {number}",
        "description": "Look at the log",
        "number": number,
    }
    arguments = {"tool_name": tool, "input": command, "tool_use_id": f"toolu_{number}"}
    params = {"name": "loopback_permit", "arguments": arguments, "_meta": {"progressToken": number}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def check_permit(reply: Reply, number: int, *, denial: str | None = None) -> None:
    """Raise Wrong unless this answers that very question: allowed, or denied with a message that has that."""
    try:
        (content,) = reply.json()["result"]["content"]
        said = json.loads(content["text"])
        if denial is None and said["behavior"] == "allow" and said["updatedInput"]["number"] == number:
            return
        if denial is not None and said["behavior"] == "deny" and denial in said["message"]:
            return
    except (KeyError, ValueError, TypeError):
        pass
    raise Wrong(f"not the answer to question {number}: {reply.body[:500].decode(errors='replace')}")
