"""JSON-RPC with one client: every request is a task of its own, and whatever arrives, the connection goes on.

Answers leave whole and in one line each; a cancelled request is not answered. What the methods mean, and
how bytes come and go, is not known here.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from pml.core.errors import Unavailable
from pml.core.text import quote
from pml.core.values import Json, JsonObject
from pml.downstream.lines import Lines, TooLong
from pml.downstream.messages import (
    INVALID_REQUEST,
    Batch,
    Id,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    read,
)

INTERNAL_ERROR: Final = -32603
SERVER_ERROR: Final = -32000
MAX_IN_FLIGHT: Final = 4096  # each is a task and its arguments; no client has so many calls of its own
FINISH_S: Final = 1.5  # after the end of input: what was piped in is answered, a person is not waited for
UNWIND_S: Final = 1.0  # cancelled calls tell their servers; with the others this stays below the 5 s for all
FLUSH_S: Final = 0.5  # what is written fits in the pipe, or nobody reads it
COUNTABLE: Final = 2**53  # adding one to a double beyond this changes nothing
DROPPABLE: Final = frozenset({"notifications/progress", "notifications/message"})


class Sink(Protocol):
    """Where lines for the client go."""

    @property
    def congested(self) -> bool: ...

    @property
    def gone(self) -> bool: ...

    def write(self, line: bytes, *, alone: bool = False) -> None:
        """Take a line without its newline; never blocks, keeps the order. `alone`: none will follow soon."""
        ...

    async def flush(self, timeout_s: float) -> None: ...


class ConnectionGone(Unavailable):
    """The client went away before it answered."""


class RpcError(Exception):
    """A JSON-RPC error, to be sent or received. `raw` is the error object as a server wrote it."""

    def __init__(self, code: int, message: str, *, data: Json = None, raw: bytes | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.raw = raw

    def encoded(self) -> bytes:
        """Return the error object."""
        if self.raw is not None:
            return self.raw
        error: dict[str, Json] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return msgspec.json.encode(error)


class Exchange:
    """One request while it is being answered, and the way to tell the client how it goes."""

    def __init__(self, request: Request, connection: "Connection", together: "_Together | None") -> None:
        self.request = request
        self.together = together
        self.closed = False  # answered or cancelled: nothing more is said about it
        self._connection = connection
        self._last: float | None = None
        self._shift: float = 0

    @property
    def listener(self) -> Callable[[JsonObject], None] | None:
        """Where a server's progress goes; None if the client does not want to know."""
        return None if _progress_token(self.request.params) is None else self.forward_progress

    def progress(self, message: str, *, total: float | None = None) -> None:
        """Tell the client that the request is alive, if it wants to know."""
        self._send((self._last or 0) + 1, total, {"message": message})

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
        self._last = progress
        counted: dict[str, Json] = {"progressToken": token, "progress": progress}
        if total is not None:
            counted["total"] = total
        self._connection.notify("notifications/progress", {**counted, **rest})


class Connection:
    def __init__(
        self,
        *,
        outlet: Sink,
        answer: Callable[[Exchange], Awaitable[bytes]],
        notice: Callable[[Notification], None],
        batches: Callable[[], bool],
        debug: bool = False,
    ) -> None:
        """`answer` returns the result of a request, encoded; `batches` tells whether batches are allowed."""
        self._outlet = outlet
        self._answer = answer
        self._notice = notice
        self._batches = batches
        self._debug = debug
        self._lines = Lines()
        self._tasks: dict[Id, tuple[asyncio.Task[None], Exchange]] = {}
        self._asked: dict[str, asyncio.Future[Response | Malformed | None]] = {}
        self._count = 0
        self._ended = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Take bytes from the client."""
        if not self._ended.is_set():
            self._take_all(self._lines.feed(data))

    def ended(self) -> None:
        """Learn that the client will send nothing more, or reads nothing more."""
        if self._ended.is_set():
            return
        if not self._outlet.gone:
            self._take_all(self._lines.end())
        self._ended.set()
        for waiting in self._asked.values():
            _settle(waiting, None)
        self._asked.clear()

    async def run(self) -> None:
        """Return after the end of input, when every answer is out or its request cancelled."""
        try:
            await self._ended.wait()
            if self._tasks and not self._outlet.gone and not self._outlet.congested:
                await asyncio.wait(self._running(), timeout=FINISH_S)
        finally:
            self.ended()
            await self._cancel_all()
            await self._outlet.flush(FLUSH_S)

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the client and return its result. Raises: RpcError, ConnectionGone.

        Cancelling the caller tells the client that the answer is no longer wanted.
        """
        if self._ended.is_set():
            raise ConnectionGone(f"the client went away before {method}")
        self._count += 1
        id = f"pml-{self._count}"
        waiting: asyncio.Future[Response | Malformed | None] = asyncio.get_running_loop().create_future()
        self._asked[id] = waiting
        self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        try:
            found = await waiting
        finally:
            if self._asked.pop(id, None) is not None:
                self.notify("notifications/cancelled", {"requestId": id})
        if found is None:
            raise ConnectionGone(f"the client went away before it answered {method}")
        return _result_of(found, method)

    def notify(self, method: str, params: JsonObject) -> None:
        """Tell the client something. Progress and log messages are dropped while it does not read."""
        if not (self._outlet.congested and method in DROPPABLE):
            self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: JsonObject) -> None:
        self._outlet.write(msgspec.json.encode(message))

    def _take_all(self, lines: list[bytes | TooLong]) -> None:
        for line in lines:
            if isinstance(line, TooLong):
                reason = f"a line has more than {line.cap:,} bytes"
                self._outlet.write(_error_line(None, RpcError(INVALID_REQUEST, reason)))
            elif isinstance(message := read(line), Batch):
                self._take_batch(message)
            else:
                self._take(message, None)

    def _take_batch(self, batch: Batch) -> None:
        if not self._batches():
            reason = "this protocol version has no batches"
            self._outlet.write(_error_line(None, RpcError(INVALID_REQUEST, reason)))
            return
        together = _Together(self._outlet)
        for message in batch.messages:
            self._take(message, together)
        together.close()

    def _take(self, message: Message, together: "_Together | None") -> None:
        match message:
            case Request():
                self._start(message, together)
            case Notification(method="notifications/cancelled", params=params):
                self._cancel(params.get("requestId"))
            case Notification():
                self._note(message)
            case Response(id=id):
                self._settle(id, message)
            case Malformed(id=id, code=code, message=reason, response_to=response_to):
                self._settle(response_to, message)
                self._reply(_error_line(id, RpcError(code, reason)), together)

    def _start(self, request: Request, together: "_Together | None") -> None:
        refusal = self._refusal(request, together)
        if refusal is not None:
            self._reply(_error_line(request.id, refusal), together)
            return
        exchange = Exchange(request, self, together)
        if together is not None:
            together.expect()
        task = asyncio.get_running_loop().create_task(self._serve(exchange))
        self._tasks[request.id] = task, exchange
        task.add_done_callback(lambda _: self._finished(exchange))  # also of a task that never began

    def _refusal(self, request: Request, together: "_Together | None") -> RpcError | None:
        if request.id in self._tasks:
            shown = quote(request.id) if isinstance(request.id, str) else request.id
            return RpcError(INVALID_REQUEST, f"a request with the id {shown} is already being answered")
        if len(self._tasks) >= MAX_IN_FLIGHT:
            return RpcError(SERVER_ERROR, "too many requests in flight")
        if together is not None and request.method == "initialize":
            return RpcError(INVALID_REQUEST, "`initialize` must not be part of a batch")
        return None

    async def _serve(self, exchange: Exchange) -> None:
        id = exchange.request.id
        try:
            line = _result_line(id, await self._answer(exchange))
        except RpcError as exc:
            line = _error_line(id, exc)
        except (Exception, asyncio.CancelledError) as exc:
            if exchange.closed and isinstance(exc, asyncio.CancelledError):
                return
            self._report(exc)  # also a cancellation that nobody here asked for: the client still waits
            line = _error_line(id, RpcError(INTERNAL_ERROR, "internal error"))
        if not exchange.closed:
            exchange.closed = True
            self._reply(line, exchange.together)

    def _finished(self, exchange: Exchange) -> None:
        exchange.closed = True
        del self._tasks[exchange.request.id]
        if exchange.together is not None:
            exchange.together.close()

    def _reply(self, line: bytes, together: "_Together | None") -> None:
        if together is None:
            self._outlet.write(line, alone=len(self._tasks) == 1)
        else:
            together.answers.append(line)

    def _cancel(self, id: Json) -> None:
        if isinstance(id, bool) or not isinstance(id, int | str) or id not in self._tasks:
            return
        task, exchange = self._tasks[id]
        if exchange.request.method != "initialize":
            exchange.closed = True
            task.cancel()

    async def _cancel_all(self) -> None:
        for task, exchange in self._tasks.values():
            exchange.closed = True
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._running(), timeout=UNWIND_S)

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for task, _ in self._tasks.values()]

    def _settle(self, id: Id | None, answer: Response | Malformed) -> None:
        waiting = self._asked.pop(id, None) if isinstance(id, str) else None
        if waiting is not None:
            _settle(waiting, answer)

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


class _Together:
    """The answers of one batch, written as one array when the last of them is there."""

    def __init__(self, outlet: Sink) -> None:
        self.answers: list[bytes] = []
        self._outlet = outlet
        self._open = 1  # the reading of the batch itself

    def expect(self) -> None:
        self._open += 1

    def close(self) -> None:
        self._open -= 1
        if not self._open and self.answers:
            self._outlet.write(b"[" + b",".join(self.answers) + b"]")


def _result_line(id: Id, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (msgspec.json.encode(id), _one_line(result))


def _error_line(id: Id | None, error: RpcError) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (msgspec.json.encode(id), _one_line(error.encoded()))


def _one_line(text: bytes) -> bytes:
    """Return JSON without line breaks: within strings they are escaped, so these are mere layout."""
    return text.replace(b"\n", b" ") if b"\n" in text else text


def _result_of(found: Response | Malformed, method: str) -> JsonObject:
    if isinstance(found, Malformed):
        raise RpcError(found.code, f"the client's answer to {method} is no response: {found.message}")
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
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, int | str) and not isinstance(token, bool) else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -COUNTABLE < value < COUNTABLE else None
