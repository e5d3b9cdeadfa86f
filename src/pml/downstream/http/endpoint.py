"""MCP over Streamable HTTP, in both eras, on one path: which request is what, and what is refused.

Every caller has been identified before. Legacy requests belong to the session of a handshake; modern ones
stand on their own, and end when their connection does. What the methods mean is not known here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pml.core.approvals.record import SessionId
from pml.core.errors import PmlError
from pml.core.sessions.token import AGENT_ROLES, Identity, TokenId
from pml.core.values import JsonObject
from pml.downstream.http.headers import (
    LAST_EVENT,
    SESSION,
    STATUS_OF_ERROR,
    VERSION,
    Refused,
    Vanished,
    check_accept,
    check_media,
    check_message,
    check_modern,
    check_version,
    is_modern,
    read_body,
    read_headers,
    refuse,
    reply,
)
from pml.downstream.http.http_session import Event, Session, SessionGateway, read_event_id
from pml.downstream.http.streams import Stream, reply_event
from pml.downstream.protocol.connection import Connection, Origin
from pml.downstream.protocol.door import Answering
from pml.downstream.protocol.eras import ASSUMED, MODERN, Era, legacy_era
from pml.jsonrpc.codes import METHOD_NOT_FOUND, SERVER_ERROR, UNKNOWN_SESSION
from pml.jsonrpc.lines import error_line
from pml.jsonrpc.messages import Batch, Message, Notification, Request, Response, RpcError, read
from pml.web.visitors import identity_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

BEAT_S: Final = 15.0  # proxies close what is silent for half a minute
_LONG: Final = 64 * 1024  # bytes of a message, beyond which reading it would let other callers wait
_LOST: Final = "the connection was lost, and with it the answer; the call may have run"

OpenGateway = Callable[[Identity, Connection, Era, AsyncExitStack], Awaitable[Answering]]
Headers = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Caller:
    """The maker of one HTTP request, and the way back to it."""

    identity: Identity
    receive: "Receive"
    send: "Send"


class McpEndpoint:
    """An ASGI application for one path."""

    def __init__(
        self,
        open_gateway: OpenGateway,
        *,
        must_resume: Callable[[SessionId], Awaitable[bool]] | None = None,
        again: Callable[[str], JsonObject] | None = None,
        is_live: Callable[[TokenId], Awaitable[bool]] | None = None,
        debug: bool,
    ) -> None:
        """`open_gateway` is called at the first request of a token's session that needs it.

        Sessions that `must_resume` are spoken to in the legacy era only: in the modern one a call that is
        cut off, as by a restart, is lost. `again` makes the call that goes on with what was being answered
        from what its exchange was told to leave (`Exchange.again`). `is_live` tells whether a token still
        counts: a gateway does not outlive those that it was opened for.
        """
        self._open_gateway = open_gateway
        self._must_resume = must_resume
        self._again = again
        self._is_live = is_live
        self._debug = debug
        self._visits: dict[SessionId, SessionGateway] = {}
        self._readers: dict[Caller, Stream] = {}  # who reads which stream now
        self._beating: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            identity = identity_of(scope)
            visit = await self._visit(identity)
            headers = read_headers(scope["headers"])
            caller = Caller(identity=identity, receive=receive, send=send)
            with visit.attended():
                match scope["method"]:
                    case "POST":
                        await self._post(visit, headers, caller)
                    case "GET":
                        await self._get(visit, headers, caller)
                    case "DELETE":
                        await self._delete(visit, headers, caller)
                    case _:
                        raise refuse(405, "only POST, GET and DELETE", (b"allow", b"GET, POST, DELETE"))
        except Refused as exc:
            await exc.tell(send)
        except Vanished:
            return

    @property
    def in_flight(self) -> int:
        """How many requests of all sessions are being answered."""
        return sum(visit.connection.in_flight for visit in self._visits.values())

    async def end_dead(self, counts: Callable[[TokenId], Awaitable[bool]]) -> None:
        """End what is open for tokens that have ended: what they read, and what none else came to."""
        for token_id in {caller.identity.token_id for caller in self._readers}:
            if await counts(token_id):
                continue
            for stream in self._read_by(token_id):
                stream.end()
        for session_id, visit in list(self._visits.items()):
            is_over = not visit.connection.in_flight and not await _any_counts(visit, counts)
            if is_over and self._visits.get(session_id) is visit:  # what still waits ends with its stream
                with suppress(PmlError, OSError):  # what cannot be closed well is gone all the same
                    await self.end(session_id)

    def _read_by(self, token_id: TokenId) -> set[Stream]:
        return {stream for who, stream in self._readers.items() if who.identity.token_id == token_id}

    async def end(self, session_id: SessionId) -> None:
        """End what the session is doing here: its requests are cancelled, its gateway closed."""
        visit = self._visits.pop(session_id, None)
        if visit is not None:
            await visit.close()

    async def close(self) -> None:
        """End every session, and take no more."""
        self._is_closed = True
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
        visits = list(self._visits.values())
        self._visits.clear()
        await asyncio.gather(*(visit.close() for visit in visits))

    async def _visit(self, identity: Identity) -> SessionGateway:
        if identity.role not in AGENT_ROLES or identity.session_id is None:
            raise refuse(403, "a person's token decides; it calls no tools")
        known = self._visits.get(identity.session_id)
        is_other = known is not None and not await self._is_for(known, identity)
        if is_other and self._visits.get(identity.session_id) is known:
            await self.end(identity.session_id)
        if self._is_closed:
            raise refuse(503, "the server is stopping", code=SERVER_ERROR)
        visit = self._visits.get(identity.session_id)
        if visit is None:
            visit = self._visits[identity.session_id] = SessionGateway(
                lambda connection, era, stack: self._open_gateway(identity, connection, era, stack),
                forms=identity.forms,
                debug=self._debug,
            )
        visit.tokens.add(identity.token_id)
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat())
        return visit

    async def _is_for(self, visit: SessionGateway, identity: Identity) -> bool:
        """Tell whether what was opened for other tokens is for this one too.

        With the last of them a session ends, and one that begins anew has nothing of it. Nor has a token
        that was not made for forms the power of one that was.
        """
        if visit.forms is not identity.forms:
            return False
        if identity.token_id in visit.tokens or self._is_live is None:
            return True
        return await _any_counts(visit, self._is_live)

    async def _beat(self) -> None:
        """Keep streams alive on their way, and close what was not used for long."""
        while True:
            await asyncio.sleep(BEAT_S)
            for stream in set(self._readers.values()):
                stream.beat()
            for session_id in [id for id, visit in self._visits.items() if visit.is_idle]:
                with suppress(PmlError, OSError):  # what cannot be closed well is gone all the same
                    await self.end(session_id)

    async def _post(self, visit: SessionGateway, headers: Headers, caller: Caller) -> None:
        check_media(headers)
        body = await read_body(caller.receive, headers)
        message = read(body) if len(body) <= _LONG else await asyncio.to_thread(read, body)
        check_message(message)
        if is_modern(message, headers):
            check_modern(message, headers)
            await self._check_era(caller.identity, message)
            await self._answer_modern(visit, message, caller)
            return
        check_version(headers)
        if isinstance(message, Request) and message.method == "initialize" and SESSION not in headers:
            await self._shake_hands(visit, message, caller)
            return
        session = _session(visit, headers)
        if isinstance(message, Batch) and not visit.has_batches(session):
            raise refuse(400, "this protocol version has no batches")
        await self._answer_legacy(visit, session, message, caller)

    async def _check_era(self, identity: Identity, message: Message | Batch) -> None:
        """Raises: Refused, as by a server that knows no modern era."""
        must_resume, session_id = self._must_resume, identity.session_id
        if must_resume is None or session_id is None or not isinstance(message, Request):
            return
        if await must_resume(session_id):
            unknown = RpcError(METHOD_NOT_FOUND, "this session is spoken to after `initialize` only")
            raise Refused(400, unknown, id=message.id)

    async def _answer_modern(self, visit: SessionGateway, message: Message | Batch, caller: Caller) -> None:
        if not isinstance(message, Request):  # nothing here hears it: a client cancels by closing its stream
            await reply(caller.send, 202, b"")
            return
        stream, origin = Stream(statuses=STATUS_OF_ERROR), Origin()
        visit.connection.take(message, origin, stream, stream)
        stream.close()
        await self._run(stream, caller)

    async def _shake_hands(self, visit: SessionGateway, request: Request, caller: Caller) -> None:
        try:
            era = legacy_era(request.params)
        except RpcError as exc:
            raise Refused(400, exc, id=request.id) from exc
        session = visit.shake_hands(era)
        if session is None:
            raise refuse(503, "too many sessions", code=SERVER_ERROR)
        stream = Stream(headers=[(SESSION.encode(), session.id.encode())])
        visit.connection.take(request, session.origin, stream, stream)
        stream.close()
        await self._run(stream, caller)

    async def _answer_legacy(
        self,
        visit: SessionGateway,
        session: Session,
        message: Message | Batch,
        caller: Caller,
        *,
        at_once: bool = False,
    ) -> None:
        if not _is_answered(message):
            for each in message.messages if isinstance(message, Batch) else (message,):
                visit.connection.take(each, session.origin, Stream())
            await reply(caller.send, 202, b"")
            return
        if isinstance(message, Batch):
            stream = session.open_stream(None)
            visit.connection.take_batch(message, session.origin, stream, stream)
        else:
            stream = session.open_stream(message.id if isinstance(message, Request) else None)
            visit.connection.take(message, session.origin, stream, stream)
        stream.close()
        await self._run(stream, caller, at_once=at_once)
        session.settle(stream)

    async def _get(self, visit: SessionGateway, headers: Headers, caller: Caller) -> None:
        if headers.get(VERSION) == MODERN:
            raise refuse(405, "modern clients POST `subscriptions/listen`", (b"allow", b"POST"))
        check_accept(headers, "text/event-stream")
        check_version(headers)
        event = read_event_id(headers.get(LAST_EVENT, ""))
        if event is not None and event.stream:
            await self._resume(visit, event, headers, caller)
            return
        session = _session(visit, headers)
        stream = session.standalone
        if stream is None:
            stream = session.open_standalone()
        elif event is not None:
            stream.resume(event.number)
        elif not stream.gone:
            raise refuse(409, "the session has its stream already")
        else:
            stream.resume(stream.number)
        await self._run(stream, caller, at_once=True)

    async def _resume(self, visit: SessionGateway, event: Event, headers: Headers, caller: Caller) -> None:
        """Take up the stream of a request whose connection was lost.

        A client waits for ever if it is refused here, so what is lost is answered with an error.
        """
        session = visit.sessions.get(headers.get(SESSION, ""))
        stream = None if session is None else session.find(event)
        if session is not None and stream is not None:
            stream.resume(event.number)
            await self._run(stream, caller, at_once=True)
            session.settle(stream)
            return
        goes_on = self._again is not None and event.again is not None and event.request is not None
        if session is None and goes_on and SESSION in headers:
            era = Era(version=headers.get(VERSION, ASSUMED), client="resumed", capabilities={})
            session = visit.shake_hands(era, id=headers[SESSION])
        if session is not None and self._again and event.again is not None and event.request is not None:
            again = Request(event.request, "tools/call", self._again(event.again))
            await self._answer_legacy(visit, session, again, caller, at_once=True)
            return
        if event.request is None:
            raise refuse(404, "no such stream", code=UNKNOWN_SESSION)
        await reply_event(caller.send, error_line(event.request, RpcError(SERVER_ERROR, _LOST)))

    async def _delete(self, visit: SessionGateway, headers: Headers, caller: Caller) -> None:
        check_version(headers)
        visit.end(_session(visit, headers))
        await reply(caller.send, 200, b"")

    async def _run(self, stream: Stream, caller: Caller, *, at_once: bool = False) -> None:
        self._readers[caller] = stream
        try:
            await stream.run(caller.receive, caller.send, at_once=at_once)
        finally:
            del self._readers[caller]


async def _any_counts(visit: SessionGateway, counts: Callable[[TokenId], Awaitable[bool]]) -> bool:
    """Tell whether one of the tokens that came to the visit is still valid."""
    for token_id in [*visit.tokens]:
        if await counts(token_id):
            return True
    return False


def _is_answered(message: Message | Batch) -> bool:
    messages = message.messages if isinstance(message, Batch) else (message,)
    return not all(isinstance(each, Notification | Response) for each in messages)


def _session(visit: SessionGateway, headers: Headers) -> Session:
    """Return the session that the request belongs to. Raises: Refused."""
    id = headers.get(SESSION)
    if id is None:
        raise refuse(400, "the header Mcp-Session-Id is missing: `initialize` gives one")
    session = visit.sessions.get(id)
    if session is None:
        raise refuse(404, "no such session: `initialize` begins a new one", code=UNKNOWN_SESSION)
    return session
