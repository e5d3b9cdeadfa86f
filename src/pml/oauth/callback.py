"""The address on this machine that a browser is sent back to: one path, on loopback only, for one login.

What does not belong to the login is refused, and the login waits on. The page that answers has no script and
repeats nothing of what came.
"""

import asyncio
import contextlib
import html
from collections.abc import AsyncGenerator
from typing import Final

from pml.core.errors import Invalid, Unavailable
from pml.oauth.flow import LoginFlow, Returned, returned

PATH: Final = "/callback"
_HOST: Final = "127.0.0.1"
_REQUEST_S: Final = 10.0
_MAX_REQUEST: Final = 32 * 1024
_HEADERS: Final = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "x-content-type-options: nosniff\r\nconnection: close\r\n"
)
_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>PML</title>'
    '<body style="font:1.1em/1.5 system-ui,sans-serif;margin:4em auto;max-width:32em">'
    "<h1>{title}</h1><p>{text}</p></body></html>"
)


class Callback:
    """The open address. `wait` returns what came for the login that `expect` named."""

    def __init__(self, server: asyncio.Server, port: int) -> None:
        self._server = server
        self._port = port
        self._flow: LoginFlow | None = None
        self._came: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()

    @property
    def redirect_uri(self) -> str:
        return f"http://{_HOST}:{self._port}{PATH}"

    def expect(self, flow: LoginFlow) -> None:
        self._flow = flow

    async def wait(self) -> Returned:
        return await asyncio.shield(self._came)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
                async with asyncio.timeout(_REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        path, _, query = target.partition("?")
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        if hosts != [f"{_HOST}:{self._port}"] or path != PATH:
            return _page(404, "Not found", "There is nothing here.")
        if method != "GET":
            return _page(405, "Not allowed", "A browser comes here by itself.")
        try:
            answer = returned(query)
        except Invalid as exc:
            return _page(400, "Not this login", exc.message)
        if self._flow is None or not self._flow.is_mine(answer):
            return _page(
                400, "Not this login", "This answer belongs to another login. The login that waits goes on."
            )
        if self._came.done():
            return _page(409, "Already answered", "This login has had its answer.")
        self._came.set_result(answer)
        if answer.error is not None:
            return _page(200, "Not logged in", "The server did not log you in. You can close this page.")
        return _page(200, "Back to PML", "PML has the answer and says how it ended. You can close this page.")


@contextlib.asynccontextmanager
async def open_callback(port: int | None) -> AsyncGenerator[Callback]:
    """Yield the open address, on `port` or a free one. Raises: Unavailable if the port is taken."""
    callbacks: list[Callback] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await callbacks[0].serve(reader, writer)

    try:
        server = await asyncio.start_server(serve, _HOST, port or 0, limit=_MAX_REQUEST)
    except OSError as exc:
        raise Unavailable(
            f"port {port} of this machine cannot be opened for the browser to come back to: {exc.strerror}",
            hint="end what uses it, or give another with --callback-port, or paste the address with --paste",
        ) from exc
    callback = Callback(server, server.sockets[0].getsockname()[1])
    callbacks.append(callback)
    try:
        yield callback
    finally:
        server.close()


def _page(status: int, title: str, text: str) -> bytes:
    words = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict"}
    body = _PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
    return (
        f"HTTP/1.1 {status} {words[status]}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n".encode() + body
    )
