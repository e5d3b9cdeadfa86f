"""JSON-RPC with one client: every request is a task of its own, and whatever arrives, the connection goes on.

Requests come from origins (a pipe, an HTTP session, a single POST), and ids mean something only within one.
Answers leave whole, in one line each, where their request came from; a cancelled request is not answered.
What the methods mean, and how bytes come and go, is not known here.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from pml.core.errors import Unavailable
from pml.core.text import quote
from pml.core.values import Json, JsonObject
from pml.jsonrpc.codes import INTERNAL_ERROR, INVALID_REQUEST, SERVER_ERROR
from pml.jsonrpc.lines import error_line, notification_line, request_line, result_line
from pml.jsonrpc.messages import (
    Batch,
    Id,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    RpcError,
    as_id,
)

if TYPE_CHECKING:
    from pml.downstream.protocol.eras import Era

MAX_IN_FLIGHT: Final = 4096  # each is a task and its arguments; no client has so many calls of its own
UNWIND_S: Final = 1.0  # cancelled calls tell their servers; with the others this stays below the 5 s for all
COUNTABLE: Final = 2**53  # adding one to a double beyond this changes nothing
DROPPABLE: Final = frozenset({"notifications/progress", "notifications/message"})


class Sink(Protocol):
    """Where lines for the client go."""

    @property
    def congested(self) -> bool: ...

    @property
    def gone(self) -> bool: ...

    def write(self, line: bytes, *, alone: bool = False, lasting: bool = True) -> None:
        """Take a line without its newline; never blocks, keeps the order.

        `alone`: none will follow soon. Not `lasting`: nobody misses it later.
        """
        ...


class Gathering(Protocol):
    """What came in one piece, and is answered in one: a batch, or the body of a POST."""

    def expect(self, exchange: "Exchange") -> None:
        """Learn that the request belongs to it. `close` is called once for each, and for the piece itself."""
        ...

    def answer(self, line: bytes, *, code: int | None) -> None:
        """Take an answer; `code` is that of an error."""
        ...

    def close(self) -> None: ...


class Origin:
    """Whose ids these are. What belongs to no request goes to its `outlet`, if it has one now."""

    __slots__ = ("__weakref__", "era", "outlet", "running")

    def __init__(self, outlet: Sink | None = None) -> None:
        self.outlet = outlet
        self.era: Era | None = None  # what its handshake said, for whoever answers
        self.running: dict[Id, Exchange] = {}


class ConnectionGone(Unavailable):
    """The client went away before it answered."""


class Exchange:
    """One request while it is being answered, and the way to tell the client how it goes."""

    __slots__ = (
        *("_last", "_shift", "_total", "again", "closed", "gathering"),
        *("origin", "request", "sink", "stage", "task"),
    )

    def __init__(self, request: Request, origin: Origin, sink: Sink, gathering: Gathering | None) -> None:
        self.request = request
        self.origin = origin
        self.sink = sink
        self.gathering = gathering
        self.closed = False  # answered or cancelled: nothing more is said about it
        self.task: asyncio.Task[None] | None = None
        self.again: str | None = None  # what a call that goes on from here after a restart needs: an id
        self.stage = "working"  # what the client is told that it does, while there is no news
        self._last: float | None = None
        self._total: float | None = None
        self._shift: float = 0

    @property
    def listener(self) -> Callable[[JsonObject], None] | None:
        """Where a server's progress goes; None if the client does not want to know."""
        return None if _progress_token(self.request.params) is None else self.forward_progress

    def progress(self, message: str) -> None:
        """Tell the client that the request is alive, if it wants to know; a server's count stays true."""
        last, total = self._last or 0, self._total
        step = 1 if total is None or total <= last else (total - last) / 1000
        self._send(last + step, total, {"message": message})

    def forward_progress(self, params: JsonObject) -> None:
        """Pass a server's progress on under the client's token, and never let it fall back."""
        now, total = _number(params.get("progress")), _number(params.get("total"))
        rest = {key: params[key] for key in params if key not in ("progressToken", "progress", "total")}
        if self._last is not None and (now is None or now + self._shift <= self._last):
            self._shift = self._last + 1 - (now or 0)
        self._send((now or 0) + self._shift, None if total is None else total + self._shift, rest)

    def _send(self, progress: float, total: float | None, rest: JsonObject) -> None:
        token = _progress_token(self.request.params)
        if token is None or self.closed or (self._last is not None and progress <= self._last):
            return
        self._last, self._total = progress, total
        counted: dict[str, Json] = {"progressToken": token, "progress": progress}
        if total is not None:
            counted["total"] = total
        self.notify("notifications/progress", {**counted, **rest})

    def notify(self, method: str, params: JsonObject) -> None:
        """Tell the client something that belongs to this request."""
        _tell(self.sink, method, params)

    def cancel(self) -> None:
        """Stop answering: nobody waits for it any more."""
        self.closed = True
        if self.task is not None:
            self.task.cancel()


class Connection:
    """All that one client says and hears."""

    def __init__(
        self,
        *,
        answer: Callable[[Exchange], Awaitable[bytes]],
        notice: Callable[[Notification], None],
        debug: bool = False,
        limit: int = MAX_IN_FLIGHT,
    ) -> None:
        """`answer` returns the result of a request, encoded; `limit` requests are answered at a time."""
        self._answer = answer
        self._notice = notice
        self._debug = debug
        self._limit = limit
        self._standing: dict[Origin, None] = {}  # in the order of their arrival
        self._running: dict[Exchange, None] = {}
        self._asked: dict[str, tuple[asyncio.Future[Response | Malformed | None], Origin]] = {}
        self._count = 0
        self._is_over = False

    @property
    def in_flight(self) -> int:
        """How many requests are being answered."""
        return len(self._running)

    def join(self, origin: Origin) -> None:
        """Learn of an origin that can be asked and told something at any time, until it leaves."""
        self._standing[origin] = None

    def leave(self, origin: Origin) -> None:
        """Forget the origin: nobody waits for its answers, and it answers nothing more."""
        self._standing.pop(origin, None)
        for exchange in origin.running.values():
            exchange.cancel()
        for id in [id for id, (_, asked) in self._asked.items() if asked is origin]:
            _settle(self._asked.pop(id)[0], None)

    def take(self, message: Message, origin: Origin, sink: Sink, gathering: Gathering | None = None) -> None:
        """Take a message. What it brings about goes to `sink`, its answer to what it was gathered in."""
        match message:
            case Request():
                self._start(message, origin, sink, gathering)
            case Notification(method="notifications/cancelled", params=params):
                self._cancel(params.get("requestId"), origin)
            case Notification():
                self._note(message)
            case Response(id=id):
                self._settle(id, message, origin)
            case Malformed(id=id, code=code, message=reason, response_to=response_to):
                self._settle(response_to, message, origin)
                self._refuse(id, RpcError(code, reason), sink, gathering)

    def take_batch(self, batch: Batch, origin: Origin, sink: Sink, gathering: Gathering) -> None:
        """Take the messages of a batch, of which a handshake cannot be part."""
        for message in batch.messages:
            if isinstance(message, Request) and message.method == "initialize":
                refusal = RpcError(INVALID_REQUEST, "`initialize` must not be part of a batch")
                self._refuse(message.id, refusal, sink, gathering)
            else:
                self.take(message, origin, sink, gathering)

    async def request(self, method: str, params: JsonObject, exchange: Exchange | None = None) -> JsonObject:
        """Ask the client and return its result. Raises: RpcError, ConnectionGone.

        The question goes where `exchange` came from, else to whoever can be asked now. Cancelling the
        caller tells the client that the answer is no longer wanted.
        """
        way = None if self._is_over else self._way(exchange)
        if way is None:
            raise ConnectionGone(f"the client went away before {method}")
        origin, sink = way
        self._count += 1
        id = f"pml-{self._count}"
        waiting: asyncio.Future[Response | Malformed | None] = asyncio.get_running_loop().create_future()
        self._asked[id] = waiting, origin
        sink.write(request_line(id, method, params))
        try:
            found = await waiting
        finally:
            if self._asked.pop(id, None) is not None:
                _tell(sink, "notifications/cancelled", {"requestId": id})
        if found is None:
            raise ConnectionGone(f"the client went away before it answered {method}")
        return _result_of(found, method)

    def notify(self, method: str, params: JsonObject) -> None:
        """Tell the client something, wherever it listens.

        Progress and log messages are dropped while it does not read.
        """
        for origin in self._standing:
            if origin.outlet is not None:
                _tell(origin.outlet, method, params)

    def end(self) -> None:
        """Learn that the client says nothing more: what it was asked stays unanswered."""
        self._is_over = True
        for waiting, _ in self._asked.values():
            _settle(waiting, None)
        self._asked.clear()

    async def close(self) -> None:
        """Cancel what is being answered, and wait until it has ended, within bounds."""
        self.end()
        for exchange in self._running:
            exchange.cancel()
        if self._running:
            await asyncio.wait(self.tasks(), timeout=UNWIND_S)

    def tasks(self) -> "list[asyncio.Task[None]]":
        """Return the tasks of all that is being answered."""
        return [exchange.task for exchange in self._running if exchange.task is not None]

    def _way(self, exchange: Exchange | None) -> tuple[Origin, Sink] | None:
        """Return whom to ask, and where: on the stream of the request, the origin's own, or the newest."""
        if exchange is not None:
            origin, outlet = exchange.origin, exchange.origin.outlet
            is_better = exchange.sink.gone and outlet is not None and not outlet.gone
            sink = outlet if is_better and outlet is not None else exchange.sink
            return (origin, sink) if origin in self._standing else None
        for origin in reversed(self._standing):
            if origin.outlet is not None and not origin.outlet.gone:
                return origin, origin.outlet
        for running in reversed(self._running):
            if running.origin in self._standing and not running.sink.gone:
                return running.origin, running.sink
        return None

    def _start(self, request: Request, origin: Origin, sink: Sink, gathering: Gathering | None) -> None:
        refusal = self._refusal(request, origin)
        if refusal is not None:
            self._refuse(request.id, refusal, sink, gathering)
            return
        exchange = Exchange(request, origin, sink, gathering)
        if gathering is not None:
            gathering.expect(exchange)
        exchange.task = task = asyncio.get_running_loop().create_task(self._serve(exchange))
        origin.running[request.id] = exchange
        self._running[exchange] = None
        task.add_done_callback(lambda _: self._finished(exchange))  # also of a task that never began

    def _refusal(self, request: Request, origin: Origin) -> RpcError | None:
        if request.id in origin.running:
            shown = quote(request.id) if isinstance(request.id, str) else request.id
            return RpcError(INVALID_REQUEST, f"a request with the id {shown} is already being answered")
        if len(self._running) >= self._limit:
            return RpcError(SERVER_ERROR, "too many requests in flight")
        return None

    def _refuse(self, id: Id | None, refusal: RpcError, sink: Sink, gathering: Gathering | None) -> None:
        self._reply(error_line(id, refusal), refusal.code, sink, gathering)

    async def _serve(self, exchange: Exchange) -> None:
        id = exchange.request.id
        code = None
        try:
            line = result_line(id, await self._answer(exchange))
        except RpcError as exc:
            line, code = error_line(id, exc), exc.code
        except (Exception, asyncio.CancelledError) as exc:
            if exchange.closed and isinstance(exc, asyncio.CancelledError):
                return
            self._report(exc)  # also a cancellation that nobody here asked for: the client still waits
            line, code = error_line(id, RpcError(INTERNAL_ERROR, "internal error")), INTERNAL_ERROR
        if not exchange.closed:
            exchange.closed = True
            self._reply(line, code, exchange.sink, exchange.gathering)

    def _finished(self, exchange: Exchange) -> None:
        exchange.closed = True
        exchange.task = None
        del self._running[exchange]
        del exchange.origin.running[exchange.request.id]
        if exchange.gathering is not None:
            exchange.gathering.close()

    def _reply(self, line: bytes, code: int | None, sink: Sink, gathering: Gathering | None) -> None:
        if gathering is None:
            sink.write(line, alone=len(self._running) == 1)
        else:
            gathering.answer(line, code=code)

    def _cancel(self, given: Json, origin: Origin) -> None:
        id = as_id(given)
        exchange = None if id is None else origin.running.get(id)
        # The protocol does not let a handshake be cancelled: without its answer nothing could follow.
        if exchange is not None and exchange.request.method != "initialize":
            exchange.cancel()

    def _settle(self, id: Id | None, answer: Response | Malformed, origin: Origin) -> None:
        if isinstance(id, str) and id in self._asked and self._asked[id][1] is origin:
            _settle(self._asked.pop(id)[0], answer)

    def _note(self, notification: Notification) -> None:
        try:
            self._notice(notification)
        except Exception as exc:
            self._report(exc)

    def _report(self, exc: BaseException) -> None:
        with suppress(OSError, ValueError):  # nobody may be reading there
            if self._debug:
                import traceback  # late: not needed on the way to the first answer

                traceback.print_exception(exc, file=sys.stderr)
            else:
                name = type(exc).__name__
                print(f"pml: internal error: {name}; `PML_LOG=debug` shows all of it", file=sys.stderr)


def _tell(sink: Sink, method: str, params: JsonObject) -> None:
    may_drop = method in DROPPABLE
    if not (may_drop and sink.congested):
        sink.write(notification_line(method, params), lasting=not may_drop)


def _result_of(found: Response | Malformed, method: str) -> JsonObject:
    if isinstance(found, Malformed):
        raise RpcError(found.code, f"the client's answer to {method} is not a response: {found.message}")
    if found.error is not None:
        code, message = found.error.get("code"), found.error.get("message")
        raise RpcError(
            code if isinstance(code, int) else INTERNAL_ERROR,
            message if isinstance(message, str) else "no reason given",
            data=found.error.get("data"),
        )
    if not isinstance(found.result, dict):
        raise RpcError(INTERNAL_ERROR, f"the client's result of {method} is not an object")
    return found.result


def _settle(
    waiting: "asyncio.Future[Response | Malformed | None]", answer: Response | Malformed | None
) -> None:
    if not waiting.done():
        waiting.set_result(answer)


def _progress_token(params: JsonObject) -> Id | None:
    meta = params.get("_meta")
    return as_id(meta.get("progressToken")) if isinstance(meta, dict) else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -COUNTABLE < value < COUNTABLE else None
