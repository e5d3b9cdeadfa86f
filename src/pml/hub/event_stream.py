"""`GET /events`: what happens, as server-sent events, to each reader as far as it may see it.

A reader that comes back with `Last-Event-ID` gets all that it missed. One that does not read is dropped,
and meanwhile holds one piece and one batch of events. Who asks was settled before; what they may see, and
what happened, the feed knows.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pml.core.audit.feed_events import EventType, types_matching
from pml.core.errors import Forbidden, Invalid, PmlError, Unavailable
from pml.core.sessions.token import AGENT_ROLES, Identity, TokenId
from pml.core.text import quote, visible
from pml.service.sessions.feed import ALL_TYPES, Encoded, Feed, Reader
from pml.web.error_responses import error_answer, refusal
from pml.web.visitors import identity_of

_PIECE: Final = 64 * 1024  # sent at once; the connection holds as much again before it says stop
_RETRY_MS: Final = 1000  # when a browser comes back after its stream has ended
_PLACE: Final = re.compile(r"[0-9]{1,19}")  # whatever a log can reach
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, kw_only=True)
class StreamLimits:
    """`heartbeat_s`: a proxy ends what is silent for a minute. `patience_s`: with a reader that is stuck.

    `for_agents`: of all streams, so that agents cannot keep people from seeing what they ask.
    """

    streams: int = 256
    for_agents: int = 128
    per_token: int = 128
    heartbeat_s: float = 15.0
    patience_s: float = 60.0


@dataclass(kw_only=True)
class StreamCounts:
    """What `/metrics` tells of the streams."""

    open_now: int = 0
    sent: int = 0
    dropped: int = 0


class EventStreams:
    """The application at `/events`. `counts` are kept for as long as it lives."""

    def __init__(self, feed: Feed, *, limits: StreamLimits | None = None) -> None:
        self.counts = StreamCounts()
        self._feed = feed
        self._limits = limits or StreamLimits()
        self._of_token: Counter[TokenId] = Counter()
        self._of_agents = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            answer = refusal(405, "events can only be read", headers={"allow": "GET"})
            return await answer(scope, receive, send)
        viewer = identity_of(scope)
        try:
            after, types = _wish(Request(scope))
            with self._place_for(viewer):
                async with self._feed.follow(viewer, after=after, types=types) as reader:
                    await self._serve(reader, receive, send)
        except PmlError as exc:
            await error_answer(exc)(scope, receive, send)

    @contextmanager
    def _place_for(self, viewer: Identity) -> Generator[None]:
        """Raises: Unavailable when there is no more room."""
        limits, counts = self._limits, self.counts
        is_agent = viewer.role in AGENT_ROLES
        is_full = counts.open_now >= limits.streams or (is_agent and self._of_agents >= limits.for_agents)
        if is_full or self._of_token[viewer.token_id] >= limits.per_token:
            raise Unavailable(
                f"too many event streams are open: {counts.open_now} in all, "
                f"{self._of_token[viewer.token_id]} by this token",
                hint=f"there can be {limits.streams}, {limits.for_agents} of them by agents, and "
                f"{limits.per_token} by one token; close some",
            )
        counts.open_now += 1
        self._of_agents += is_agent
        self._of_token[viewer.token_id] += 1
        try:
            yield
        finally:
            counts.open_now -= 1
            self._of_agents -= is_agent
            self._of_token[viewer.token_id] -= 1
            if not self._of_token[viewer.token_id]:
                del self._of_token[viewer.token_id]

    async def _serve(self, reader: Reader, receive: Receive, send: Send) -> None:
        """Pour events until the reader leaves, is dropped, or there will be no more."""
        outlet = _Outlet(send, patience_s=self._limits.patience_s)
        async with asyncio.TaskGroup() as group:
            pouring = group.create_task(self._pour(reader, outlet))
            leaving = group.create_task(outlet.left(receive))
            await asyncio.wait((pouring, leaving), return_when=asyncio.FIRST_COMPLETED)
            pouring.cancel()
            leaving.cancel()
        self.counts.dropped += outlet.is_dropped

    async def _pour(self, reader: Reader, outlet: "_Outlet") -> None:
        with suppress(_Stuck):  # an answer that stays incomplete ends its connection
            await outlet.open()
            await outlet.write(b"retry: %d\nid: %d\n\n" % (_RETRY_MS, reader.place))
            try:
                while True:
                    batch = await reader.read(self._limits.heartbeat_s)
                    for piece in _pieces(batch) if batch else [b":\nid: %d\n\n" % reader.place]:
                        await outlet.write(piece)
                    self.counts.sent += len(batch)
            except (Forbidden, Unavailable) as exc:
                await outlet.write(f": {visible(exc.message)}\n\n".encode(), is_last=True)


class _Stuck(Exception):
    """The reader does not read."""


class _Outlet:
    """The answer's body. `is_dropped`: its reader went, or was sent away, and had left something unread."""

    def __init__(self, send: Send, *, patience_s: float) -> None:
        self.is_dropped = False
        self._send = send
        self._patience_s = patience_s
        self._is_sending = False

    async def open(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

    async def write(self, body: bytes, *, is_last: bool = False) -> None:
        """Raises: _Stuck."""
        self._is_sending = True
        try:
            async with asyncio.timeout(self._patience_s):
                await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
        except TimeoutError:
            self.is_dropped = True
            raise _Stuck from None
        self._is_sending = False

    async def left(self, receive: Receive) -> None:
        """Return when the connection is over."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_dropped = self._is_sending


def _pieces(batch: Sequence[Encoded]) -> Generator[bytes]:
    """Yield the events as they are sent, small ones together, large ones in parts."""
    piece = bytearray()
    for event in batch:
        place = b"" if event.id is None else b"id: %d\n" % event.id
        piece += b"%sevent: %s\ndata: " % (place, event.type.encode())
        for start in range(0, len(event.text), _PIECE):
            piece += event.text[start : start + _PIECE]
            if len(piece) >= _PIECE:
                yield bytes(piece)
                piece.clear()
        piece += b"\n\n"
    if piece:
        yield bytes(piece)


def _wish(request: Request) -> tuple[int | None, frozenset[EventType]]:
    """Return from where on, and what, is wanted. Raises: Invalid."""
    given = request.headers.get("last-event-id", request.query_params.get("after"))
    if given is not None and _PLACE.fullmatch(given) is None:
        raise Invalid(
            f"{quote(given)} is not an id of an event",
            hint="leave it out to be told what happens from now on",
        )
    globs = [glob for each in request.query_params.getlist("types") for glob in each.split(",")]
    return None if given is None else int(given), types_matching(globs) if globs else ALL_TYPES
