"""The gate that Deno downloads through: few connections at once, for nobody else, gone with the install."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from pml.install.npm.few_connections import CONNECTIONS, few_connections
from tests.promises import promise

BOUND_S = 60.0


class Far:
    """A host that says hello and keeps each connection until it is told to let go."""

    def __init__(self) -> None:
        self.port = 0
        self.open = 0
        self.most = 0
        self.changed = asyncio.Event()
        self.may_end = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        self.changed.set()
        writer.write(b"hello\n")
        await self.may_end.wait()
        self.open -= 1
        writer.close()


@asynccontextmanager
async def far() -> AsyncGenerator[Far]:
    it = Far()
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        it.may_end.set()
        server.close()


async def through(gate: str, port: int, *, word: str | None = None) -> bytes:
    """Return what comes of a connection to `port` through the gate, to its end."""
    parts = urlsplit(gate)
    known = base64.b64encode(f"pml:{word or parts.password}".encode()).decode()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nProxy-Authorization: Basic {known}\r\n\r\n".encode())
    try:
        return await reader.read()
    finally:
        writer.close()


@promise("install:few-connections")
async def test_a_host_sees_only_a_few_connections_at_once_and_all_get_through() -> None:
    async with asyncio.timeout(BOUND_S), far() as host, few_connections({}) as given:
        gate = given["HTTPS_PROXY"]
        asking = [asyncio.ensure_future(through(gate, host.port)) for _ in range(4 * CONNECTIONS)]
        while host.open < CONNECTIONS:
            host.changed.clear()
            await host.changed.wait()
        async with far() as other:  # not in the way of another host
            other.may_end.set()
            assert (await through(gate, other.port)).endswith(b"hello\n")
        host.may_end.set()
        answers = await asyncio.gather(*asking)
    assert all(answer == b"HTTP/1.1 200 OK\r\n\r\nhello\n" for answer in answers)
    assert host.most == CONNECTIONS


@promise("install:few-connections")
async def test_nobody_else_gets_through_and_it_ends_with_the_install() -> None:
    async with asyncio.timeout(BOUND_S), far() as host:
        async with few_connections({}) as given:
            gate = given["HTTPS_PROXY"]
            assert b"403" in await through(gate, host.port, word="guessed")
            waiting = asyncio.ensure_future(through(gate, host.port))
            await host.changed.wait()
        assert (await waiting).endswith((b"hello\n", b"\r\n\r\n"))
        assert host.most == 1
        with pytest.raises(OSError, match=r"refused|Connect"):
            await through(gate, host.port)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
async def test_a_proxy_of_the_users_own_is_used_as_it_is(name: str) -> None:
    async with few_connections({name: "http://proxy.example:3128"}) as given:
        assert given == {}
