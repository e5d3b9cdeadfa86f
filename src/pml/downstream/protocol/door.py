"""The door to the gateway: answers handshakes at once, and opens the rest at the first real request.

Clients start a server just to ask what it can do, some of them twice: until a request needs more, no file
is touched, no process started, and nothing heavy imported.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from pml.core.errors import PmlError
from pml.downstream.protocol.connection import Exchange, Origin
from pml.downstream.protocol.eras import (
    BATCHING,
    MODERN,
    Era,
    discovered,
    initialized,
    legacy_era,
    modern_era,
    stamp,
)
from pml.jsonrpc.codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from pml.jsonrpc.messages import Notification, RpcError

_LEGACY_ONLY: Final = frozenset({"initialize", "ping"})


class Answering(Protocol):
    """The gateway, as the door knows it."""

    async def answer(self, exchange: Exchange, era: Era) -> bytes: ...

    def noticed(self, notification: Notification) -> None: ...


class Door:
    """A client's way in. `open_gateway` is called once, with the era of the first request that needs it."""

    def __init__(self, open_gateway: Callable[[Era], Awaitable[Answering]]) -> None:
        self._open_gateway = open_gateway
        self._opening: asyncio.Task[Answering] | None = None
        self._gateway: Answering | None = None

    def batches(self, origin: Origin) -> bool:
        """Tell whether the origin's protocol has batches."""
        return origin.era is not None and origin.era.version in BATCHING

    async def answer(self, exchange: Exchange) -> bytes:
        """Return the result of the request. Raises: RpcError."""
        request = exchange.request
        declared = modern_era(request.params)
        if declared is not None and request.method in _LEGACY_ONLY:
            raise RpcError(METHOD_NOT_FOUND, f"`{request.method}` is not a method of {MODERN}")
        if request.method == "initialize":
            exchange.origin.era = legacy_era(request.params)
            return initialized(exchange.origin.era)
        if request.method == "ping":
            return b"{}"
        era = declared or exchange.origin.era
        if request.method == "server/discover":
            if era is None or not era.is_modern:
                raise RpcError(METHOD_NOT_FOUND, "`server/discover` needs the protocol version in `_meta`")
            return stamp(discovered(), era)
        if era is None:
            raise RpcError(INVALID_REQUEST, "`initialize` must come first")
        try:
            gateway = self._gateway or await self._opened(era)
            return await gateway.answer(exchange, era)
        except PmlError as exc:
            raise RpcError(
                INTERNAL_ERROR, exc.message, data={"hint": exc.hint} if exc.hint else None
            ) from exc

    def notice(self, notification: Notification) -> None:
        if self._gateway is not None:
            self._gateway.noticed(notification)

    async def close(self) -> None:
        """Give up an opening that is under way; what is open, whoever opened it closes."""
        opening = self._opening
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait({opening})

    async def _opened(self, era: Era) -> Answering:
        """Open the gateway, once for all requests that come meanwhile; after a failure the next one tries."""
        if self._opening is None or self._has_failed(self._opening):
            self._opening = asyncio.ensure_future(self._open_gateway(era))
        gateway = await asyncio.shield(self._opening)
        self._gateway = gateway
        return gateway

    def _has_failed(self, opening: "asyncio.Task[Answering]") -> bool:
        return opening.done() and (opening.cancelled() or opening.exception() is not None)
