"""The answer to one HTTP request: plain JSON if it is there at once, else a stream of server-sent events.

A stream never waits for its reader: what can be missed is dropped while the reader is slow, and a reader
that stalls is left. One that can be resumed keeps what must not be lost until its reader is back. What the
lines say, and whose they are, is not known here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pml.core.approvals.record import RECONNECT_S
from pml.downstream.protocol.connection import Exchange
from pml.jsonrpc.codes import REQUEST_CANCELLED
from pml.jsonrpc.lines import error_line
from pml.jsonrpc.messages import RpcError

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send

MOMENT_S: Final = (
    0.25  # until here an answer is worth waiting for; then the client sees that something happens
)
STALL_S: Final = 60.0  # a reader that takes nothing for so long is not coming back
RETRY_MS: Final = 10_000  # clients try twice to get a lost stream back: a restart may take twice as long
CONGESTED_BYTES: Final = 64 * 1024  # what is unsent beyond this: the reader is slow
KEPT_EVENTS: Final = 64  # the last event of a request is its answer, so that one is always among them

Header = tuple[bytes, bytes]
JSON: Final[Header] = (b"content-type", b"application/json")
NO_STORE: Final[Header] = (b"cache-control", b"no-store")
_EVENTS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_BEAT: Final = b":\n\n"


class Place:
    """Where a stream can be taken up again: `event` makes the id of an event from its number.

    `forget` is called when it can no longer be. One that `is_primed` begins with an event of its own.
    """

    __slots__ = ("event", "forget", "is_primed", "name")

    def __init__(
        self, name: str, event: Callable[[int], bytes], forget: Callable[[], None], *, is_primed: bool
    ) -> None:
        self.name = name
        self.event = event
        self.forget = forget
        self.is_primed = is_primed


class Stream:
    """A sink for what belongs to one request, or to none, and the gathering of its answers."""

    __slots__ = (
        "_answers",
        "_exchanges",
        "_from",
        "_host",
        "_is_left",
        "_kept",
        "_number",
        "_open",
        "_over",
        "_plain",
        "_pumping",
        "_queue",
        "_send",
        "_size",
        "_statuses",
        "_timer",
        "headers",
        "is_delivered",
        "is_streaming",
        "place",
    )

    def __init__(
        self,
        *,
        headers: Sequence[Header] = (),
        statuses: Mapping[int, int] | None = None,
        place: Place | None = None,
        batch: bool = False,
    ) -> None:
        """`statuses` are those of plain answers by the code of their error; without a place none resumes."""
        self.headers = headers
        self.is_delivered = False
        self.is_streaming = False
        self._statuses = statuses or {}
        self.place = place
        self._answers: list[bytes] | None = [] if batch else None
        self._exchanges: list[Exchange] = []
        # How many have still to be answered, and 1 for the reading of the body itself: a batch whose first
        # requests are answered before the rest is read must not end early.
        self._open = 1
        self._over = False
        self._plain: tuple[int, bytes] | None = None
        self._queue: list[bytes] = []
        self._size = 0
        self._kept: list[tuple[int, bytes]] = []
        self._number = 0
        self._from = 0  # what the reader has seen before
        self._send: Send | None = None
        self._host: asyncio.Task[None] | None = None
        self._is_left = False
        self._pumping: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # For a connection: a sink

    @property
    def congested(self) -> bool:
        return self._send is None or self._size > CONGESTED_BYTES

    @property
    def gone(self) -> bool:
        """Whether no reader is connected now."""
        return self._send is None

    @property
    def number(self) -> int:
        """The number of the last event."""
        return self._number

    @property
    def size(self) -> int:
        """How many bytes are kept for a reader that comes back."""
        return sum(len(line) for _, line in self._kept)

    def write(self, line: bytes, *, alone: bool = False, lasting: bool = True) -> None:
        if self._over:
            return
        self._number += 1
        # Kept before it is sent: the reader may be lost between the two, and asks for it by its number then.
        if lasting and self.place is not None:
            self._kept.append((self._number, line))
            del self._kept[:-KEPT_EVENTS]
        self._put(self._framed(self._number, line))

    # For a connection: a gathering

    def expect(self, exchange: Exchange) -> None:
        self._open += 1
        self._exchanges.append(exchange)

    def answer(self, line: bytes, *, code: int | None) -> None:
        if self._answers is None:
            self._conclude(line, 200 if code is None else self._statuses.get(code, 200))
        else:
            self._answers.append(line)

    def close(self) -> None:
        self._open -= 1
        if self._open:
            return
        if not self._over:
            self._close_unanswered()
        self._exchanges.clear()  # with what was asked, which may be large

    def _close_unanswered(self) -> None:
        if self._answers:
            self._conclude(b"[" + b",".join(self._answers) + b"]", 200)
        elif self._answers is None and self._exchanges:
            # Legacy clients leave a stream only at an answer, also of a cancelled request.
            unanswered = RpcError(REQUEST_CANCELLED, "request cancelled")
            self._conclude(error_line(self._exchanges[0].request.id, unanswered), 200)
        else:
            self.finish()

    # For the endpoint

    async def run(self, receive: "Receive", send: "Send", *, at_once: bool = False) -> None:
        """Serve the reader until all is sent or it is gone. `at_once`: it is a stream from the beginning."""
        self._attach(send)
        if self._over or at_once:
            self._pump()
        else:
            self._timer = asyncio.get_running_loop().call_later(MOMENT_S, self._pump)
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            # `_leave` cancels this task to take the stream from its reader; any other cancellation is the
            # server's own and must continue.
            if self._send is send and not self._is_left:
                raise
        finally:
            if self._send is send:  # else a new reader has resumed the stream, and its state is not ours
                await self._detach()

    def resume(self, after: int) -> None:
        """Begin anew for a reader that has seen events up to that number; the present reader is left."""
        self._stop_timer()
        self._leave()
        if self._pumping is not None:
            self._pumping.cancel()
        self._send = self._host = self._pumping = None
        self.is_streaming = False
        self._from = after
        self._queue = [self._framed(number, line) for number, line in self._kept if number > after]
        self._size = sum(map(len, self._queue))

    def beat(self) -> None:
        """Send something that says nothing, so that no proxy on the way takes the stream for dead."""
        if self.is_streaming and not self._over and self._pumping is None and self._send is not None:
            self._put(_BEAT)

    def finish(self) -> None:
        """End the stream after what is in it."""
        if not self._over:
            self._over = True
            self._pump()

    def end(self) -> None:
        """Stop answering a reader that may not read on; what it asked for is answered as cancelled."""
        self.abandon()
        if not self._exchanges:
            self.finish()

    def abandon(self) -> None:
        """Stop answering: no reader comes back."""
        self._stop_timer()
        for exchange in self._exchanges:
            exchange.cancel()
        if self.place is not None:
            self.place.forget()

    def _attach(self, send: "Send") -> None:
        self._send = send
        self._host = asyncio.current_task()
        self._is_left = False

    async def _detach(self) -> None:
        """Learn that the reader has gone; a stream that has not ended waits for its reader to come back."""
        self._stop_timer()
        self._send = self._host = None
        self._queue.clear()
        self._size = 0
        pumping = self._pumping
        if pumping is not None:
            pumping.cancel()
            await asyncio.wait({pumping})
        if self.is_delivered:
            return
        if self.place is None:  # a reader without event ids cannot come back: nothing waits for the answer
            self.abandon()
        else:
            self._timer = asyncio.get_running_loop().call_later(RECONNECT_S, self.abandon)

    def _leave(self) -> None:
        """Let go of the connection: its reader does not read, or another takes its place."""
        if self._host is not None:
            self._is_left = True
            self._host.cancel()

    def _conclude(self, line: bytes, status: int) -> None:
        if self._over:
            return
        # Plain JSON only while no byte of a stream has been sent: the content type cannot change after that.
        if self.is_streaming or self._queue:
            self.write(line)
        else:
            self._plain = status, line
        self._over = True
        self._pump()

    def _put(self, frame: bytes) -> None:
        if self._send is not None:
            self._queue.append(frame)
            self._size += len(frame)
            self._pump()

    def _pump(self) -> None:
        if self._send is not None and self._pumping is None:
            self._pumping = asyncio.get_running_loop().create_task(self._sent(self._send))

    async def _sent(self, send: "Send") -> None:
        """Send what there is; what comes meanwhile goes with it."""
        try:
            if not self.is_streaming:
                self._stop_timer()
                if self._plain is not None:
                    await self._send_plain(send, *self._plain)
                    return
                await self._begin(send)
            while self._queue or self._over:
                # Both are read before the wait: what is queued during it goes with the next round.
                body, is_last = b"".join(self._queue), self._over
                self._queue.clear()
                self._size = 0
                await _within(send({"type": "http.response.body", "body": body, "more_body": not is_last}))
                if is_last:
                    self.is_delivered = True
                    return
        except TimeoutError:
            if self._send is send:
                self._leave()
        finally:
            if self._pumping is asyncio.current_task():
                self._pumping = None

    async def _send_plain(self, send: "Send", status: int, line: bytes) -> None:
        length = (b"content-length", b"%d" % len(line))
        await _within(send(start(status, JSON, NO_STORE, length, *self.headers)))
        await _within(send({"type": "http.response.body", "body": line}))
        self.is_delivered = True

    async def _begin(self, send: "Send") -> None:
        self.is_streaming = True
        if self.place is not None and self.place.is_primed:
            event = self.place.event(self._from)
            self._queue.insert(0, b"id: %b\nretry: %d\ndata: \n\n" % (event, RETRY_MS))
        elif not self._queue:
            self._queue.append(_BEAT)
        await _within(send(start(200, *_EVENTS, *self.headers)))

    def _framed(self, number: int, line: bytes) -> bytes:
        text = line.replace(b"\r", b" ") if b"\r" in line else line  # layout, which here would end the event
        if self.place is None:
            return b"event: message\ndata: %b\n\n" % text
        return b"event: message\nid: %b\ndata: %b\n\n" % (self.place.event(number), text)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def start(status: int, *headers: Header) -> "Message":
    """Return the beginning of a response."""
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


async def reply_event(send: "Send", line: bytes) -> None:
    """Answer with a stream of one event."""
    await send(start(200, *_EVENTS))
    await send({"type": "http.response.body", "body": b"event: message\ndata: %b\n\n" % line})


async def _within(sending: Awaitable[None]) -> None:
    """Wait for the reader, within bounds. Raises: TimeoutError."""
    async with asyncio.timeout(STALL_S):
        await sending
