"""A remote server as a transport: each line of ours is a POST, and what answers it brings lines back.

In the legacy era there is a session: its id goes with every request, a GET stream brings what the server says
unasked, a stream that broke is taken up where it was, and the end is told. In the modern era each request
stands alone. A request is sent once: where its answer is lost, that is said, and it is not made again.
"""

import asyncio
from collections.abc import Coroutine
from typing import Final

import msgspec
from httpcore2 import Response

from pml.core.errors import Changed, LoginRequired, PmlError, ServerFailed
from pml.core.servers.remote_target import RemoteKind, RemoteTarget
from pml.core.sessions.process import Process
from pml.core.text import quote
from pml.upstream.limits import Limits
from pml.upstream.remote.message import Outgoing, read_outgoing
from pml.upstream.remote.requests import (
    BROKEN,
    Headers,
    Lost,
    RemoteRequests,
    chunks,
    header,
    read_end,
    read_whole,
    reason,
)
from pml.upstream.remote.sse_events import Event, EventReader, TooLarge
from pml.upstream.remote.sse_transport import LegacyStream
from pml.upstream.transport.port import ServerListener, SessionEnded

_POSTED: Final[Headers] = [
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
]
_HEARD: Final[Headers] = [(b"accept", b"text/event-stream")]
_NOTICE_S: Final = 30.0  # for a notification or an answer of ours to be taken
_RETRY_S: Final = 1.0
_RETRY_MAX_S: Final = 60.0
_RESUMES: Final = 5  # of one broken stream
_SESSION_CHARS: Final = 1024
_NO_STREAM: Final = frozenset({400, 404, 405, 406, 501})
_NOT_STREAMABLE: Final = frozenset({400, 404, 405})
_ERROR_BYTES: Final = 1024 * 1024


class _Greeting(msgspec.Struct):
    version: str = msgspec.field(default="", name="protocolVersion")


class _Reply(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class RemoteServer:
    """The open way to a server that is reached by URL."""

    def __init__(self, requests: RemoteRequests, listener: ServerListener, limits: Limits) -> None:
        self._requests = requests
        self._ears = listener
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._posts: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unread = 0
        self._session: str | None = None
        self._version: str | None = None
        self._settled: asyncio.Task[None] | None = None  # the notice before which nothing may overtake
        self._legacy: LegacyStream | None = None
        self._end: str | None = None
        self._is_gone_in_order = False
        self._is_stopped = False

    @property
    def _target(self) -> RemoteTarget:
        return self._requests.target

    @property
    def process(self) -> Process | None:
        """None: it runs elsewhere."""
        return None

    @property
    def unread_bytes(self) -> int:
        """How much was written that is not sent yet."""
        return self._unread

    @property
    def is_gone_in_order(self) -> bool:
        return self._is_gone_in_order

    def how_it_ended(self) -> str:
        return self._end or "was lost"

    async def connect(self) -> None:
        """Nothing yet: the first request shows whether the server can be reached."""

    def write(self, data: bytes) -> bool:
        """Send each line; False when the way is closed."""
        if self._is_stopped or self._end is not None:
            return False
        for line in data.split(b"\n"):
            if line:
                self._begin(read_outgoing(line))
        return True

    async def stop(self) -> None:
        """End the session, and close every connection."""
        self._is_stopped = True
        tasks = [*self._tasks, *self._posts.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            try:
                async with asyncio.timeout(self._limits.stop_s):
                    async with self._requests.answered("DELETE", self._target.url, self._about_session()):
                        pass
            except (PmlError, Lost, TimeoutError, *BROKEN):
                pass  # the server forgets it by itself
        if self._legacy is not None:
            await self._legacy.close()
        await self._requests.close()

    async def kill(self) -> None:
        await self.stop()

    def _begin(self, message: Outgoing) -> None:
        if message.method == "notifications/cancelled" and message.ends is not None:
            post = self._posts.get(message.ends)
            if message.is_modern or self._version is None:  # there, to leave the answer is to cancel
                if post is not None:
                    post.cancel()
                return
        self._unread += len(message.body)
        if message.id is None:
            task = self._keep(self._notify(message))
            if message.method == "notifications/initialized":
                self._settled = task
            return
        self._posts[message.id] = task = self._loop.create_task(self._ask(message, message.id))
        task.add_done_callback(lambda _: self._posts.pop(message.id or 0, None))

    def _keep(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _notify(self, message: Outgoing) -> None:
        """Send what has no answer; lost without a word if the server does not take it."""
        try:
            async with asyncio.timeout(_NOTICE_S):
                if self._legacy is not None:
                    await self._legacy.post(message)
                else:
                    async with self._requests.answered(
                        "POST", self._target.url, self._headers(message), message.body
                    ) as response:
                        await read_end(chunks(response))
        except (PmlError, Lost, TimeoutError, *BROKEN) as exc:
            self._note(f"not taken: {reason(exc)}")
        finally:
            self._unread -= len(message.body)
        if (
            message.method == "notifications/initialized"
            and self._session is not None
            and self._legacy is None
        ):
            self._keep(self._hear_unasked())
        if message.ends is not None and (post := self._posts.get(message.ends)) is not None:
            post.cancel()

    async def _ask(self, message: Outgoing, call_id: int) -> None:
        """Send a request and hear its answer; it is told how it went, whatever happens."""
        is_sent = False
        try:
            if self._settled is not None and not self._settled.done():
                await asyncio.shield(self._settled)
            try:
                if self._target.kind is RemoteKind.SSE and self._legacy is None:
                    await self._open_legacy()
                if self._legacy is not None:
                    await self._legacy.post(message)
                    return  # its answer comes on the stream
                async with self._requests.answered(
                    "POST", self._target.url, self._headers(message), message.body
                ) as response:
                    is_sent = True
                    broken_at = await self._take(message, call_id, response)
            finally:
                self._unread -= len(message.body)
            await self._resume(call_id, broken_at)
            self._fail(call_id, "ended its answer without a result: the outcome is not known")
        except Lost as exc:
            self._at_loss(call_id, exc)
        except BROKEN as exc:
            self._fail(call_id, f"lost the connection: {reason(exc)}; the outcome is not known")
        except TooLarge:
            self._fail(call_id, f"answered with more than {self._limits.line_bytes:,} bytes")
        except LoginRequired as exc:
            if is_sent and message.method != "initialize":  # it may have run
                self._fail(call_id, "wants a login to tell the rest of its answer: the outcome is not known")
            else:
                self._ears.failed(call_id, exc)
        except (ServerFailed, Changed) as exc:
            self._ears.failed(call_id, exc)
        except PmlError as exc:
            self._fail(call_id, f"cannot be reached: {exc.message}" if not is_sent else exc.message)
        except Exception as exc:  # a fault of ours: whoever waits must not wait for ever
            self._note(f"a fault in PML: {exc!r}")
            self._fail(call_id, "could not be heard, by a fault of PML: the outcome is not known")

    async def _take(self, message: Outgoing, call_id: int, response: Response) -> Event | None:
        """Hear an answer; return the last event of a stream that broke before its result."""
        if response.status == 404 and self._session is not None and message.method != "initialize":
            self._end_session()
            raise SessionEnded(
                f"server `{self._requests.server}` ended the session; nothing of the call has run"
            )
        kind = (header(response, b"content-type") or "").partition(";")[0].strip().lower()
        if response.status >= 300:
            await self._take_refusal(message, call_id, response, kind)
            return None
        if (header(response, b"content-encoding") or "identity").lower() != "identity":
            raise self._failed("answered in an encoding that was not asked for")
        if message.method == "initialize":
            self._session = self._session_of(response)
        if kind == "application/json":
            body = await read_whole(response, max_bytes=self._limits.line_bytes)
            if body is None:
                raise TooLarge
            self._hear(body, message)
            return None
        if kind == "text/event-stream":
            return await self._hear_events(response, message, call_id)
        shown = quote(kind or "nothing", limit=60)
        raise self._failed(f"answered with {shown} in place of JSON: is this the URL of an MCP server?")

    async def _take_refusal(self, message: Outgoing, call_id: int, response: Response, kind: str) -> None:
        """Pass on an error of JSON-RPC, or try the older transport. Raises: ServerFailed."""
        if kind == "application/json":
            body = await read_whole(response, max_bytes=_ERROR_BYTES) or b""
            try:
                error = bytes(msgspec.json.decode(body, type=_Reply).error)
            except msgspec.MsgspecError:
                error = b""
            if error and error != b"null":
                self._ears.output(b'{"jsonrpc":"2.0","id":%d,"error":%s}\n' % (call_id, _one_line(error)))
                return
        may_be_older = self._target.kind is RemoteKind.AUTO and message.method == "initialize"
        if may_be_older and response.status in _NOT_STREAMABLE:
            await self._open_legacy()
            if self._legacy is not None:
                await self._legacy.post(message)
                while self._ears.waits(call_id):
                    await self._legacy.heard()
            return
        raise self._failed(f"answered with HTTP status {response.status}")

    async def _hear_events(
        self, response: Response, message: Outgoing | None, call_id: int | None
    ) -> Event | None:
        """Hear a stream to its end, or to the answer; return the last event that can be gone back to."""
        reader = EventReader(self._limits.line_bytes)
        last: Event | None = None
        try:
            body = chunks(response)
            async for chunk in body:
                for event in reader.feed(chunk):
                    if event.id is not None or event.retry_ms is not None:
                        last = Event(
                            id=event.id or (last.id if last else None),
                            retry_ms=event.retry_ms or (last.retry_ms if last else None),
                        )
                    if event.data and event.kind == "message":
                        self._hear(event.data, message)
                if call_id is not None and not self._ears.waits(call_id):
                    await read_end(body)
                    return None
        except BROKEN:
            if last is None or last.id is None or message is None or message.is_modern:
                raise
        return last

    async def _resume(self, call_id: int, broken_at: Event | None) -> None:
        """Take up a broken stream of the legacy era where it was, until the answer is there."""
        for _ in range(_RESUMES):
            if broken_at is None or broken_at.id is None or not self._ears.waits(call_id):
                return
            await asyncio.sleep(_retry_s(broken_at))
            at = [(b"last-event-id", broken_at.id.encode())]
            try:
                async with self._requests.answered(
                    "GET", self._target.url, [*_HEARD, *self._about_session(), *at]
                ) as response:
                    if response.status != 200:
                        return
                    resumed = Outgoing(body=b"", method="resumed", id=call_id)
                    broken_at = await self._hear_events(response, resumed, call_id) or broken_at
            except LoginRequired:
                raise
            except (Lost, PmlError) as exc:  # it is about this look: the call itself was sent
                self._note(f"the rest of an answer was not heard: {reason(exc)}")

    async def _hear_unasked(self) -> None:
        """Hear what the server says unasked, for as long as the session lasts."""
        last: Event | None = None
        wait_s = _RETRY_S
        while True:
            at = [(b"last-event-id", last.id.encode())] if last is not None and last.id is not None else []
            try:
                async with self._requests.answered(
                    "GET", self._target.url, [*_HEARD, *self._about_session(), *at], is_endless=True
                ) as response:
                    kind = (header(response, b"content-type") or "").lower()
                    if response.status in _NO_STREAM or not kind.startswith("text/event-stream"):
                        return  # it has none, which it may
                    wait_s = _RETRY_S
                    last = await self._hear_events(response, None, None) or last
            except (PmlError, Lost, TooLarge, *BROKEN) as exc:
                self._note(f"what it says unasked was not heard: {reason(exc)}")
                wait_s = min(wait_s * 2, _RETRY_MAX_S)
            await asyncio.sleep(max(wait_s, _retry_s(last)))

    def _hear(self, data: bytes, message: Outgoing | None) -> None:
        line = _one_line(data)
        if message is not None and message.method == "initialize":
            self._learn_version(line)
        self._ears.output(line + b"\n")

    def _learn_version(self, line: bytes) -> None:
        try:
            reply = msgspec.json.decode(line, type=_Reply)
            version = msgspec.json.decode(reply.result, type=_Greeting).version if reply.result else ""
        except msgspec.MsgspecError:
            return
        if version and version.isascii() and len(version) <= 20 and version.replace("-", "").isalnum():
            self._version = version

    def _session_of(self, response: Response) -> str | None:
        session = header(response, b"mcp-session-id")
        if session is None or (
            len(session) <= _SESSION_CHARS and session.isascii() and session.isprintable()
        ):
            return session
        raise self._failed("named a session that cannot be named back")

    def _headers(self, message: Outgoing) -> Headers:
        return [*_POSTED, *message.headers] if message.is_modern else [*_POSTED, *self._about_session()]

    def _about_session(self) -> Headers:
        session = [] if self._session is None else [(b"mcp-session-id", self._session.encode())]
        return (
            session
            if self._version is None
            else [*session, (b"mcp-protocol-version", self._version.encode())]
        )

    async def _open_legacy(self) -> None:
        """Begin in the older transport. Raises: ServerFailed; LoginRequired."""
        legacy = LegacyStream(self._requests, self._ears, self._limits)
        try:
            await legacy.open()
        except Lost as exc:
            raise self._failed(exc.why) from exc
        self._legacy = legacy
        self._keep(self._follow(legacy))

    async def _follow(self, legacy: LegacyStream) -> None:
        why = await legacy.hear()
        if not self._is_stopped:
            self._lose(why)

    def _at_loss(self, call_id: int, exc: Lost) -> None:
        if exc.was_sent:
            self._fail(call_id, f"{exc.why}; the outcome is not known, and it is not sent again")
            return
        self._fail(call_id, f"{exc.why}; nothing was sent")
        if len(self._posts) <= 1:  # others may still be heard
            self._lose(exc.why)

    def _end_session(self) -> None:
        """The server forgot us: the next use begins anew."""
        self._session = None
        self._is_gone_in_order = True
        self._loop.call_soon(self._lose, "ended the session")

    def _lose(self, why: str) -> None:
        if self._end is None and not self._is_stopped:
            self._end = why
            self._ears.lost()

    def _fail(self, call_id: int, what: str) -> None:
        self._ears.failed(call_id, self._failed(what))

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"server `{self._requests.server}` {what}")

    def _note(self, text: str) -> None:
        self._ears.errors(text.encode() + b"\n")


def _one_line(data: bytes) -> bytes:
    """Return JSON without line breaks, which mean nothing between its parts and are never within."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ") if b"\n" in data or b"\r" in data else data


def _retry_s(event: Event | None) -> float:
    wait_ms = None if event is None else event.retry_ms
    return _RETRY_S if wait_ms is None else min(max(wait_ms / 1000, 0.0), _RETRY_MAX_S)
