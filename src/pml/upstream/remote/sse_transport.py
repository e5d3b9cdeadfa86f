"""The older HTTP transport: one stream of events for all that the server says, and an address to post to.

The address comes first on the stream, and is taken within the origin only.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urljoin

from pml.core.errors import ServerFailed
from pml.core.servers.remote_target import origin_of, url_problem
from pml.upstream.limits import Limits
from pml.upstream.remote.message import Outgoing
from pml.upstream.remote.requests import BROKEN, RemoteRequests, chunks, header, read_end, reason
from pml.upstream.remote.sse_events import Event, EventReader, TooLarge
from pml.upstream.transport.port import ServerListener

_JSON: Final = [(b"content-type", b"application/json")]
_EVENTS: Final = [(b"accept", b"text/event-stream")]


class LegacyStream:
    """One connection in the older transport."""

    def __init__(self, requests: RemoteRequests, listener: ServerListener, limits: Limits) -> None:
        self._requests = requests
        self._ears = listener
        self._limits = limits
        self._stack = AsyncExitStack()
        self._events: AsyncIterator[Event] | None = None
        self._endpoint = ""
        self._heard = asyncio.Event()

    async def open(self) -> None:
        """Hear the server up to the address to post to. Raises: ServerFailed; Lost; LoginRequired."""
        try:
            response = await self._stack.enter_async_context(
                self._requests.answered("GET", self._requests.target.url, _EVENTS, is_endless=True)
            )
            kind = (header(response, b"content-type") or "").lower()
            if response.status != 200 or not kind.startswith("text/event-stream"):
                raise self._failed(f"does not speak MCP over HTTP: HTTP status {response.status}")
            self._events = self._read(chunks(response))
            async with asyncio.timeout(self._limits.start_s):
                event = await anext(self._events, None)
            if event is None or event.kind != "endpoint":
                raise self._failed("did not say where to post to")
            self._endpoint = self._checked(event.data.decode(errors="replace"))
        except TimeoutError:
            await self.close()
            raise self._failed("did not say where to post to in time") from None
        except TooLarge:
            await self.close()
            raise self._failed("sent an event that is too large") from None
        except (ServerFailed, *BROKEN) as exc:
            await self.close()
            if isinstance(exc, ServerFailed):
                raise
            raise self._failed(f"lost the connection: {reason(exc)}") from exc

    async def post(self, message: Outgoing) -> None:
        """Send a message, whose answer comes on the stream. Raises: Lost; LoginRequired; ServerFailed."""
        async with self._requests.answered("POST", self._endpoint, _JSON, message.body) as response:
            if response.status >= 300:
                raise self._failed(f"answered with HTTP status {response.status}")
            await read_end(chunks(response))

    async def hear(self) -> str:
        """Pass on what the server says; return how it ended."""
        try:
            async for event in self._events or _none():
                if event.data and event.kind == "message":
                    self._ears.output(event.data.replace(b"\n", b" ") + b"\n")
                    self._heard.set()
        except TooLarge:
            return "sent an event that is too large"
        except BROKEN as exc:
            return f"lost the connection: {reason(exc)}"
        finally:
            self._heard.set()
        return "closed its stream"

    async def heard(self) -> None:
        """Wait for the next message."""
        self._heard.clear()
        await self._heard.wait()

    async def close(self) -> None:
        await self._stack.aclose()

    async def _read(self, body: AsyncIterator[bytes]) -> AsyncIterator[Event]:
        reader = EventReader(self._limits.line_bytes)
        async for chunk in body:
            for event in reader.feed(chunk):
                yield event

    def _checked(self, endpoint: str) -> str:
        target = self._requests.target
        url = urljoin(target.url, endpoint)
        if url_problem(url, is_insecure=target.is_insecure) or origin_of(url) != target.origin:
            raise self._failed("names an address of another origin to post to, which is not used")
        return url

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"server `{self._requests.server}` {what}")


async def _none() -> AsyncIterator[Event]:
    return
    yield
