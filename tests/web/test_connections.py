"""Connections: what is sent on them, and when."""

import asyncio
import os
import socket
import stat
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from pml.web.http_server import listen, serve


async def test_a_small_answer_does_not_wait_for_its_reader_to_confirm_the_head_before_it() -> None:
    seen: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(_sends_at_once(scope["client"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    serving = asyncio.create_task(serve(app, listening))
    try:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            await reader.read()
            writer.close()
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
    assert seen == [True]


def _sends_at_once(client: tuple[str, int]) -> bool:
    """Look at the server's socket of that client, among all that this process has open."""
    for fd in range(1024):
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as found:
                if found.getpeername() == tuple(client):
                    return bool(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    raise AssertionError("no such connection")
