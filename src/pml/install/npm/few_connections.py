"""A gate on loopback that lets Deno have only a few connections at once: it opens one for each package.

Registries, proxies and home routers make hundreds of connections wait; a few that are used again are faster.
What passes is TLS between Deno and the registry: it cannot be read or changed here. Whoever does not know the
gate's word is turned away, and it is gone with the install.
"""

import asyncio
import base64
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

CONNECTIONS: Final = 6  # as many as browsers open to one host

_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_HEAD_BYTES: Final = 16 * 1024
_PIECE: Final = 64 * 1024
_CONNECT_S: Final = 30.0


@asynccontextmanager
async def few_connections(environ: Mapping[str, str]) -> AsyncGenerator[Mapping[str, str]]:
    """Yield the variables that lead Deno through the gate; none where the user has a proxy of their own."""
    if any(environ.get(name) for name in _PROXIES):
        yield {}
        return
    gate = _Gate()
    server = await asyncio.start_server(gate.serve, "127.0.0.1", 0, limit=_HEAD_BYTES)
    port = server.sockets[0].getsockname()[1]
    try:
        yield {"HTTPS_PROXY": f"http://pml:{gate.word}@127.0.0.1:{port}"}
    finally:
        server.close()
        await gate.close()


class _Gate:
    def __init__(self) -> None:
        self.word = secrets.token_urlsafe(24)
        # for each host: connections that one of them keeps open are not in the way of another
        self._free: dict[str, asyncio.Semaphore] = {}
        self._wanted = "Basic " + base64.b64encode(f"pml:{self.word}".encode()).decode()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with suppress(OSError, ValueError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the install is over
        finally:
            self._serving.discard(task)
            writer.close()

    async def close(self) -> None:
        """End every connection."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        lines = (line.partition(":") for line in head[1:])
        said = {key.strip().lower(): value.strip() for key, _, value in lines}
        word = said.get("proxy-authorization", "")
        if method != "CONNECT" or not secrets.compare_digest(word.encode(), self._wanted.encode()):
            writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        host, _, port = target.rpartition(":")
        async with self._free.setdefault(target, asyncio.Semaphore(CONNECTIONS)):
            async with asyncio.timeout(_CONNECT_S):
                there = await asyncio.open_connection(host.strip("[]"), int(port), limit=_PIECE)
            try:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await _both_ways(reader, writer, *there)
            finally:
                there[1].close()


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Pass on what comes, until one of the two ends it."""
    ways = [
        asyncio.ensure_future(_pass_on(reader, far_writer)),
        asyncio.ensure_future(_pass_on(far_reader, writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
