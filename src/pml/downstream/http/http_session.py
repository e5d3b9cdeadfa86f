"""One token's session while it speaks to us over HTTP: one gateway for all its connections.

Its legacy clients shake hands, each with a session id of its own and streams that can be taken up again; its
modern ones need neither. How requests are read and refused is not known here.
"""

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

import msgspec

from pml.core.sessions.token import TokenId
from pml.downstream.http.streams import Place, Stream
from pml.downstream.protocol.connection import Connection, Origin
from pml.downstream.protocol.door import Answering, Door
from pml.downstream.protocol.eras import RESUMABLE, Era
from pml.jsonrpc.messages import Id

IDLE_S: Final = 600.0  # a client that is gone leaves no trace but silence; one that is back opens anew
MAX_IN_FLIGHT: Final = 16_384  # every one may wait for a person, and waiting costs little
MAX_SESSIONS: Final = 256  # handshakes of one token; the oldest unused one makes room
KEPT_BYTES: Final = 4 * 1024 * 1024  # of answers that were sent, should they not have arrived

OpenGateway = Callable[[Connection, Era, AsyncExitStack], Awaitable[Answering]]


class Event(msgspec.Struct, frozen=True, array_like=True):
    """What the id of an event says: which stream, which of its events, and what is answered there."""

    stream: str
    number: int
    request: Id | None = None
    again: str | None = None


class Session:
    """What one handshake began."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.origin = Origin()
        self._streams: dict[str, Stream] = {}
        self._kept: dict[str, int] = {}
        self._count = 0
        self._tag = f"{secrets.token_hex(4)}-"  # after a restart the same session counts anew

    @property
    def is_used(self) -> bool:
        return bool(self.origin.running) or any(not stream.gone for stream in self._streams.values())

    @property
    def standalone(self) -> Stream | None:
        """The stream of what belongs to no request."""
        return self._streams.get("")

    def open_standalone(self) -> Stream:
        stream = self._streams[""] = Stream(place=self._place("", None))
        self.origin.outlet = stream
        return stream

    def open_stream(self, request: Id | None) -> Stream:
        """Return the stream for what is answered to one POST; `request` is the one in it, if not a batch."""
        self._count += 1
        name = f"{self._tag}{self._count}"
        stream = Stream(place=self._place(name, request), batch=request is None)
        self._streams[name] = stream
        return stream

    def find(self, event: Event) -> Stream | None:
        return self._streams.get(event.stream)

    def settle(self, stream: Stream) -> None:
        """Learn that the stream has no reader now: what was sent is kept for a while, within bounds."""
        name = "" if stream.place is None else stream.place.name
        if self._streams.get(name) is not stream or not stream.is_delivered:
            return
        if not stream.is_streaming:
            self._forget(name)
            return
        self._kept[name] = stream.size
        while sum(self._kept.values()) > KEPT_BYTES or len(self._kept) > MAX_SESSIONS:
            self._forget(next(iter(self._kept)))

    def close(self) -> None:
        """End every stream; those of requests end with the answer that they were cancelled."""
        if self.standalone is not None:
            self.standalone.finish()
        for stream in list(self._streams.values()):
            stream.abandon()

    def _place(self, name: str, request: Id | None) -> Place:
        def event(number: int) -> bytes:
            running = None if request is None else self.origin.running.get(request)
            return event_id(Event(name, number, request, None if running is None else running.again))

        is_primed = self.origin.era is not None and self.origin.era.version in RESUMABLE
        return Place(name, event, lambda: self._forget(name), is_primed=is_primed)

    def _forget(self, name: str) -> None:
        self._kept.pop(name, None)
        stream = self._streams.pop(name, None)
        if stream is not None and self.origin.outlet is stream:
            self.origin.outlet = None


class SessionGateway:
    """What is open for a session: its gateway, for the tokens that came, all made for `forms` or none."""

    def __init__(self, open_gateway: OpenGateway, *, forms: bool, debug: bool) -> None:
        self._stack = AsyncExitStack()
        self._door = Door(lambda era: open_gateway(self.connection, era, self._stack))
        self.connection = Connection(
            answer=self._door.answer, notice=self._door.notice, debug=debug, limit=MAX_IN_FLIGHT
        )
        self.forms = forms
        self.tokens: set[TokenId] = set()
        self.sessions: dict[str, Session] = {}
        self._guests = 0
        self._left_at = asyncio.get_running_loop().time()

    @property
    def is_idle(self) -> bool:
        """Whether there was no request or stream here for long."""
        quiet_s = asyncio.get_running_loop().time() - self._left_at
        return not self._guests and not self.connection.in_flight and quiet_s >= IDLE_S

    @contextmanager
    def attended(self) -> Generator[None]:
        """Tell for the block that somebody is here."""
        self._guests += 1
        try:
            yield
        finally:
            self._guests -= 1
            self._left_at = asyncio.get_running_loop().time()

    def has_batches(self, session: Session) -> bool:
        return self._door.batches(session.origin)

    def shake_hands(self, era: Era, *, id: str | None = None) -> Session | None:
        """Begin a session, under an id that cannot be guessed; None if there are too many in use."""
        if len(self.sessions) >= MAX_SESSIONS:
            unused = next((each for each in self.sessions.values() if not each.is_used), None)
            if unused is None:
                return None
            self.end(unused)
        session = Session(id or secrets.token_urlsafe(24))
        session.origin.era = era
        self.sessions[session.id] = session
        self.connection.join(session.origin)
        return session

    def end(self, session: Session) -> None:
        """End a session, and cancel what it asked for."""
        self.sessions.pop(session.id, None)
        self.connection.leave(session.origin)
        session.close()

    async def close(self) -> None:
        """Cancel what is being answered, end every stream, and close the gateway."""
        for session in self.sessions.values():
            self.connection.leave(session.origin)
        await self.connection.close()
        for session in list(self.sessions.values()):
            self.end(session)
        await self._door.close()
        await self._stack.aclose()


def event_id(event: Event) -> bytes:
    """Return the event's id: text without blanks, as it travels in a header."""
    return base64.urlsafe_b64encode(msgspec.json.encode(event)).rstrip(b"=")


def read_event_id(text: str) -> Event | None:
    """Return what the id of an event says, None if it is none of ours."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=Event)
    except (ValueError, msgspec.MsgspecError):
        return None
