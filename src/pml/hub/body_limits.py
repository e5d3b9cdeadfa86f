"""Bodies of requests: read whole, within bounds of size and time, and of how much is under way at once.

A large body waits until there is room for it, and is told to come again if there is none for long. A small
one never waits. Whose request it is, and what its body says, is not known here.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope

from pml.core.approvals.bounds import MAX_INPUT_BYTES
from pml.core.values import MAX_BYTES
from pml.web.error_responses import refusal

MCP_PATH: Final = "/mcp"
_MAX_API: Final = 1024 * 1024
_CLOSE: Final = {"connection": "close"}


@dataclass(frozen=True, kw_only=True)
class BodyLimits:
    """How much requests may bring, each and together, and how long it may take."""

    api: int = _MAX_API
    mcp: int = MAX_BYTES
    within_s: float = 30.0  # a body is small: slower than that is somebody who holds the connection
    small: int = 64 * 1024  # up to here no request waits for room: connections are few enough
    asked: int = MAX_INPUT_BYTES + 64 * 1024  # what can be a question, which may wait for a person for hours
    each: int = 2 * MAX_BYTES  # under way for one token
    all: int = 4 * MAX_BYTES  # under way for all; PML holds each several times: read, built, spelled
    room_s: float = 15.0  # until a body without room is refused: clients give up after 60 s
    retry_s: int = 5

    def of(self, path: str) -> int:
        return self.mcp if path == MCP_PATH else self.api


class Bodies:
    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._under_way: Counter[str] = Counter()  # bytes by token
        self._left = asyncio.Event()  # of the next body that leaves room

    @asynccontextmanager
    async def read(
        self, scope: Scope, receive: Receive, token: str
    ) -> AsyncGenerator[bytes | Response | None]:
        """Give the whole body; None if its sender has gone; or what refuses it.

        What can be a question has its room only while it is read. What is larger keeps it for the block.
        """
        limit = self._limits.of(scope["path"])
        size = _told_size(scope, limit)
        if size > limit:
            yield _too_large(limit)
        elif size <= self._limits.small:
            yield await self._read(receive, limit)
        elif not await self._enter(token, size):
            yield self._no_room()
        else:
            try:
                body = await self._read(receive, limit)
                if not isinstance(body, bytes) or len(body) <= self._limits.asked:
                    self._leave(token, size)
                    size = 0
                yield body
            finally:
                self._leave(token, size)

    async def _enter(self, token: str, size: int) -> bool:
        try:
            async with asyncio.timeout(self._limits.room_s):
                while not self._has_room(token, size):
                    await self._left.wait()
        except TimeoutError:
            return False
        self._under_way[token] += size
        return True

    def _has_room(self, token: str, size: int) -> bool:
        is_own = self._under_way[token] + size <= self._limits.each
        return is_own and self._under_way.total() + size <= self._limits.all

    def _leave(self, token: str, size: int) -> None:
        self._under_way[token] -= size
        if not self._under_way[token]:
            del self._under_way[token]
        self._left.set()
        self._left = asyncio.Event()

    def _no_room(self) -> Response:
        return refusal(
            503,
            "too many large requests are under way: this one was not read, and nothing was done",
            hint=f"send it again in {self._limits.retry_s} s, or less at once",
            headers={**_CLOSE, "retry-after": str(self._limits.retry_s)},
        )

    async def _read(self, receive: Receive, limit: int) -> bytes | Response | None:
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.within_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > limit:
                        return _too_large(limit)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            within = f"the body did not come within {self._limits.within_s:g} s"
            return refusal(408, within, headers=_CLOSE)


def _told_size(scope: Scope, limit: int) -> int:
    """Return how large the body will be; the limit where it does not say."""
    headers = dict(scope["headers"])
    if b"content-length" in headers:
        return int(headers[b"content-length"])  # the server has checked that it is a number
    return limit if b"transfer-encoding" in headers else 0


def _too_large(limit: int) -> Response:
    return refusal(413, f"the body is larger than {limit:,} bytes", headers=_CLOSE)
