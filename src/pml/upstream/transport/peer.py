"""JSON-RPC with one server process: requests under own ids, many at a time, and what the server asks back.

Pure of processes: bytes come in by `feed` and go out by a function. A request is sent at most once. Noise,
answers that nobody waits for, and floods cost a line in the log and nothing else.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from pml.core.errors import Invalid, PmlError, ServerFailed, ServerRefused
from pml.core.text import quote
from pml.core.values import Json, JsonObject, loads_object
from pml.jsonrpc.codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from pml.jsonrpc.lines import (
    Lines,
    TooLong,
    error_line,
    notification_line,
    request_line,
    result_line,
)
from pml.jsonrpc.messages import Envelope, Id, RpcError, as_id, read_envelope, read_envelopes, read_error
from pml.upstream.limits import Limits
from pml.upstream.log import ServerLog
from pml.upstream.transport.outbox import Outbox, TooMuch, Wire

_NOISE_BYTES: Final = 4 * 1024  # looked at of a line that is not a message; fewer are noted


class Asked(Protocol):
    """Who answers what the server asks and hears what it announces."""

    def answer(self, method: str, params: JsonObject) -> Coroutine[Any, Any, JsonObject]:
        """Return the result. Raises: PmlError."""
        ...

    def notified(self, method: str, params: JsonObject) -> None: ...


class _Call:
    """A request that waits for its answer."""

    __slots__ = ("answer", "heard_at", "on_progress")

    def __init__(
        self, answer: asyncio.Future[bytes], heard_at: float, on_progress: Callable[[JsonObject], None] | None
    ) -> None:
        self.answer = answer
        self.heard_at = heard_at
        self.on_progress = on_progress


_encode = msgspec.json.Encoder().encode


class Peer:
    """One connection. Every waiting request ends with it."""

    def __init__(self, server: str, wire: Wire, asked: Asked, log: ServerLog, limits: Limits) -> None:
        self._server = server
        self._lines = Lines(cap=limits.line_bytes)
        self._outbox = Outbox(wire, limits.unread_bytes)
        self._asked = asked
        self._log = log
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._next_id = 0
        self._meta: Callable[[], JsonObject] | None = None  # what each request says, in the modern era
        self._streams: dict[int, _Call] = {}  # requests that are answered at their end, if ever
        # In the order in which they were last heard of, so that the first is always the next to run out.
        self._calls: dict[int, _Call] = {}
        self._clock: asyncio.TimerHandle | None = None
        self._answering: dict[Id, asyncio.Task[None]] = {}
        self._failure: str | None = None
        self.used_at = self._loop.time()

    @property
    def is_idle(self) -> bool:
        return not self._calls and not self._answering

    async def request(
        self, method: str, params: JsonObject, *, on_progress: Callable[[JsonObject], None] | None = None
    ) -> bytes:
        """Send a request and return its result as it was written. Raises: ServerFailed, ServerRefused."""
        if self._failure is not None:
            raise ServerFailed(self._failure)
        self._next_id = call_id = self._next_id + 1
        meta = params.get("_meta")
        if self._meta is not None:
            meta = {**(meta if isinstance(meta, dict) else {}), **self._meta()}
        if on_progress is not None or meta is not None:
            params = _with_token(params, meta, call_id if on_progress is not None else None)
        # Sent before it is registered: a lone call leaves at once, and must not count itself.
        self._send_or_fail(request_line(call_id, method, params))
        call = _Call(self._loop.create_future(), self._loop.time(), on_progress)
        self._calls[call_id] = call
        if self._clock is None:
            self._clock = self._loop.call_later(self._limits.call_s, self._end_silent)
        try:
            return await call.answer
        except asyncio.CancelledError:
            if self._calls.pop(call_id, None) is not None:
                self._cancel(call_id, "no longer wanted")
            elif not call.answer.cancelled():
                call.answer.exception()  # it came in the same turn, and nobody else will look at it
            raise
        finally:
            self.used_at = self._loop.time()

    async def listen(self, method: str, params: JsonObject) -> bytes:
        """Send a request that lasts: it may be silent, and a server with no other is idle. As `request`."""
        if self._failure is not None:
            raise ServerFailed(self._failure)
        self._next_id = call_id = self._next_id + 1
        own = {} if self._meta is None else {"_meta": self._meta()}
        self._send_or_fail(request_line(call_id, method, {**params, **own}))
        call = _Call(self._loop.create_future(), self._loop.time(), None)
        self._streams[call_id] = call
        try:
            return await call.answer
        except asyncio.CancelledError:
            if self._streams.pop(call_id, None) is not None:
                self._cancel(call_id, "no longer wanted")
            raise

    def begin_modern(self, meta: Callable[[], JsonObject]) -> None:
        """From now on, say `meta` with every request: there is no session that knows it."""
        self._meta = meta

    @property
    def is_modern(self) -> bool:
        return self._meta is not None

    def waits(self, call_id: int) -> bool:
        """Tell whether the request still waits for its answer."""
        return call_id in self._calls or call_id in self._streams

    def fail_call(self, call_id: int, why: PmlError) -> None:
        """End one request that will have no answer; nothing if it had one."""
        call = self._calls.pop(call_id, None) or self._streams.pop(call_id, None)
        if call is not None and not call.answer.done():
            call.answer.set_exception(why)

    def notify(self, method: str, params: JsonObject) -> None:
        """Tell the server something; lost without a word if it no longer listens."""
        self._send(notification_line(method, params))

    def feed(self, data: bytes) -> None:
        """Take in what the server wrote. Raises: ServerFailed for a line that is too long."""
        if self._failure is not None:
            return
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                raise self._failed(f"sent a line of more than {line.cap:,} bytes")
            self._hear(line)

    def fail(self, reason: str) -> None:
        """End the connection: what waits fails with `reason`, at once, and so does all that comes later."""
        if self._failure is not None:
            return
        self._failure = reason
        calls, self._calls = {**self._calls, **self._streams}, {}
        self._streams = {}
        for call in calls.values():
            if not call.answer.done():
                call.answer.set_exception(ServerFailed(reason))
        if self._clock is not None:
            self._clock.cancel()
        for task in self._answering.values():
            task.cancel()
        self._outbox.clear()

    async def closed(self) -> None:
        """Return when nothing that the server asked for is still under way."""
        await asyncio.gather(*self._answering.values(), return_exceptions=True)

    def _hear(self, line: bytes) -> None:
        try:
            if line.lstrip()[:1] == b"[":
                for message in read_envelopes(line):
                    self._take(message)
            else:
                self._take(read_envelope(line))
        except (msgspec.MsgspecError, UnicodeError, RecursionError, Invalid):
            text = self._log.mask(line[:_NOISE_BYTES].decode(errors="replace"))
            self._log.note(f"not a message on stdout, skipped: {text[:200]}")

    def _take(self, message: Envelope) -> None:
        if message.method is None:
            self._settle(message)
        elif message.id is msgspec.UNSET:
            self._notice(message.method, message.params)
        else:
            self._be_asked(message.id, message.method, message.params)

    def _settle(self, message: Envelope) -> None:
        call = self._calls.pop(message.id, None) if isinstance(message.id, int) else None
        if call is None and self._streams and isinstance(message.id, int):
            call = self._streams.pop(message.id, None)
        if call is None:
            self._log.note(f"an answer that nobody waits for, ignored: id {_shown(message.id)}")
            return
        # Its caller gave up in this very turn.
        if call.answer.done():
            return
        if message.error is not msgspec.UNSET:
            call.answer.set_exception(self._refusal(bytes(message.error)))
        elif message.result is msgspec.UNSET:
            call.answer.set_exception(self._failed("answered with neither a result nor an error"))
        elif not _is_text(result := bytes(message.result)):
            call.answer.set_exception(self._failed("answered with text that is not UTF-8"))
        else:
            call.answer.set_result(result)

    def _refusal(self, error: bytes) -> PmlError:
        try:
            found = read_error(error)
            error.decode()
        except (msgspec.MsgspecError, UnicodeError):
            return self._failed("answered with an error that JSON-RPC does not know")
        said = quote(self._log.mask(found.message), limit=500)
        return ServerRefused(f"server `{self._server}` refused: {said} ({found.code})", error=error)

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"server `{self._server}` {what}")

    def _notice(self, method: str, raw: msgspec.Raw | msgspec.UnsetType) -> None:
        params = _object(raw)
        if method == "notifications/progress":
            self._progress(params)
        elif method == "notifications/cancelled":
            asked = as_id(params.get("requestId"))
            task = None if asked is None else self._answering.get(asked)
            if task is not None:
                task.cancel()
        else:
            self._tell(lambda: self._asked.notified(method, params))

    def _progress(self, params: JsonObject) -> None:
        token = params.get("progressToken")
        call = self._calls.pop(token, None) if isinstance(token, int) else None
        if call is None or not isinstance(token, int):
            return
        call.heard_at = self._loop.time()
        # Back at the end: the clock looks only at the call that was silent for longest, the first.
        self._calls[token] = call
        if (on_progress := call.on_progress) is not None:
            self._tell(lambda: on_progress(params))

    def _tell(self, listener: Callable[[], None]) -> None:
        try:
            listener()
        except Exception as exc:  # a fault there must not cost the other callers their answers
            self._log.note(f"a listener failed: {exc!r}")

    def _be_asked(self, asked: Id | None, method: str, raw: msgspec.Raw | msgspec.UnsetType) -> None:
        if method == "ping":
            self._send(result_line(asked, b"{}"))
        elif asked is None or asked in self._answering:
            self._send_error(asked, INVALID_REQUEST, "the id of a request must be new, and not null")
        elif len(self._answering) >= self._limits.requests_by_server:
            self._send_error(asked, INTERNAL_ERROR, "too many requests at a time")
        else:
            task = self._loop.create_task(self._answer(asked, method, _object(raw)))
            self._answering[asked] = task
            task.add_done_callback(lambda _: self._answering.pop(asked, None))

    async def _answer(self, asked: Id, method: str, params: JsonObject) -> None:
        try:
            result = await self._asked.answer(method, params)
            self._send(result_line(asked, _encode(result)))
        except NotOffered as exc:
            self._send_error(asked, METHOD_NOT_FOUND, exc.message)
        except PmlError as exc:
            self._send_error(asked, INTERNAL_ERROR, exc.message)
        except Exception as exc:
            self._log.note(f"{method} could not be answered: {exc!r}")
            self._send_error(asked, INTERNAL_ERROR, "internal error")

    def _end_silent(self) -> None:
        """Fail what has been silent for too long; the rest is looked at when its time comes."""
        self._clock = None
        now = self._loop.time()
        while self._calls:
            call_id, call = next(iter(self._calls.items()))
            left = call.heard_at + self._limits.call_s - now
            if left > 0:
                self._clock = self._loop.call_later(left, self._end_silent)
                return
            del self._calls[call_id]
            self._cancel(call_id, "timed out")
            if not call.answer.done():
                silence = f"did not answer for {self._limits.call_s:g} s"
                call.answer.set_exception(self._failed(silence))

    def _cancel(self, call_id: int, reason: str) -> None:
        self.notify("notifications/cancelled", {"requestId": call_id, "reason": reason})

    def _send_error(self, asked: Id | None, code: int, message: str) -> None:
        self._send(error_line(asked, RpcError(code, message)))

    def _send(self, line: bytes) -> None:
        try:
            self._send_or_fail(line)
        except ServerFailed as exc:
            self._log.note(f"not sent: {exc.message}")

    def _send_or_fail(self, data: bytes) -> None:
        """Send `data`, beside other calls together with all that this turn sends. Raises: ServerFailed."""
        if self._failure is not None:
            raise ServerFailed(self._failure)
        try:
            self._outbox.send(data, at_once=not self._calls)
        except TooMuch:
            raise self._failed("does not read its input") from None


class NotOffered(PmlError):
    """The server asked for something that PML does not do."""


def _object(raw: msgspec.Raw | msgspec.UnsetType) -> JsonObject:
    return {} if raw is msgspec.UNSET else loads_object(bytes(raw))


def _with_token(params: JsonObject, meta: Json, token: int | None) -> JsonObject:
    """Return `params` with our own progress token: the client's would mean another request here."""
    rest = {k: v for k, v in meta.items() if k != "progressToken"} if isinstance(meta, dict) else {}
    return {**params, "_meta": rest if token is None else {**rest, "progressToken": token}}


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(message_id: object) -> str:
    return "none" if message_id is msgspec.UNSET else quote(str(message_id))
