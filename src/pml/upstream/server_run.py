"""One life of a server: from its opening to its end, whatever ends it.

When to start, and what follows from an end, is decided in `server`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Set
from dataclasses import dataclass
from math import inf
from typing import Final

from pml.core.errors import ServerFailed
from pml.core.ports.servers import Client
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.process import Process
from pml.core.values import JsonObject
from pml.upstream.limits import Limits
from pml.upstream.log import ServerLog
from pml.upstream.modern import announced, ask_in_rounds, listen
from pml.upstream.offers import KINDS, Reader, greet
from pml.upstream.transport.asked import ClientRelay
from pml.upstream.transport.peer import Peer
from pml.upstream.transport.port import Prepared, ServerListener, Transport

# A server that announces a change after every list, or all the time, could never be called if each of these
# counted. After some in a row that changed nothing, a list that was just read holds for this long: so late,
# at most, is a real change of such a server seen. Every other announcement counts at once.
CALM_S: Final = 1.0
_FALSE_ALARMS: Final = 2  # one may be a change that is announced before it is made
_RAREST: Final = 12  # doublings of the time between unasked reads: beyond it, the server idles and is stopped


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Why a run is over; `is_crash`: nobody wanted it; `needs_login`: a person must log in first."""

    reason: str
    is_crash: bool
    needs_login: bool = False


class Run:
    """The way to a server, the connection on it and its log."""

    def __init__(self, spec: ServerSpec, target_digest: str, log: ServerLog, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.target_digest = target_digest
        self.log = log
        self.started_at = loop.time()
        self.over: asyncio.Future[Ending] = loop.create_future()
        self.stale: set[str] = set()  # kinds that the server said have changed since they were read
        self.process: Process | None
        self.peer: Peer
        self._limits = limits
        self._read_again_at = -inf
        self._false_alarms = 0  # announcements in a row that changed nothing
        self._transport: Transport
        self._offered: Manifest
        self._desk: ClientRelay
        self._listening: asyncio.Task[None] | None = None

    async def open(self, prepared: Prepared, client: Client, on_changed: Callable[[str], None]) -> None:
        """Open the server. Raises: ServerFailed."""
        listener = ServerListener(
            output=self._hear,
            errors=self.log.feed,
            lost=self._lost,
            waits=lambda call_id: self.peer.waits(call_id),
            failed=lambda call_id, why: self.peer.fail_call(call_id, why),
        )
        self._transport = prepared.open(listener)
        try:
            self._desk = ClientRelay(self.spec.name, client, self.log, self._limits, on_changed)
            self.peer = Peer(self.spec.name, self._transport, self._desk, self.log, self._limits)
            await self._transport.connect()
            self.process = self._transport.process
        except BaseException:
            await self._transport.kill()
            raise

    async def greet(self, client: Client) -> Manifest:
        """Open the session and return all that the server offers. Raises: ServerFailed."""
        greeting = greet(self.spec.name, self.target_digest, self.peer, client, self.log)
        self._offered = await self._masked(greeting)
        if self.peer.is_modern and (kinds := announced(self._offered.capabilities)):
            self._listening = asyncio.get_running_loop().create_task(listen(self.peer, kinds))
        return await self.read(KINDS)

    async def request(
        self, method: str, params: JsonObject, *, on_progress: Callable[[JsonObject], None] | None
    ) -> bytes:
        """Send a request and return its result as it was written. Raises: ServerFailed, ServerRefused."""
        if not self.peer.is_modern:
            return await self.peer.request(method, params, on_progress=on_progress)
        return await ask_in_rounds(self.spec.name, self.peer, self._desk, method, params, on_progress)

    async def read(self, kinds: Set[str]) -> Manifest:
        """Return what the server offers now, where only `kinds` have changed. Raises: ServerFailed."""
        reader = Reader(self.spec.name, self.peer, self.log, self._limits)
        self._offered = await self._masked(reader.read(self._offered, kinds))
        return self._offered

    def note_read(self, *, was_needed: bool, now: float) -> None:
        """Learn that an announced change was read, and whether there was one."""
        self._read_again_at = now
        self._false_alarms = 0 if was_needed else self._false_alarms + 1

    def is_crying_wolf(self, now: float) -> bool:
        """Tell whether an announcement may be left unread for now: see `CALM_S`."""
        return self._false_alarms >= _FALSE_ALARMS and now < self._read_again_at + CALM_S

    def rest_s(self, now: float) -> float:
        """Return how long to wait before reading unasked: longer after each announcement of nothing."""
        return self._read_again_at + CALM_S * 2 ** min(self._false_alarms, _RAREST) - now

    def end(self, reason: str, *, is_crash: bool, needs_login: bool = False) -> None:
        """Have the run end; the first reason counts."""
        if not self.over.done():
            self.over.set_result(Ending(reason=reason, is_crash=is_crash, needs_login=needs_login))

    async def stop(self, reason: str) -> None:
        """Fail what waits, at once, then end the server and all that belongs to it."""
        self.log.note(reason)
        self.peer.fail(reason)
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._transport.stop()
        await self.peer.closed()
        self.log.close()

    def with_last_words(self, what: str) -> str:
        """Return that the server did `what`, with the last it said on stderr."""
        said = " | ".join(self.log.tail)
        return f"server `{self.spec.name}` {what}" + (f"; its last words: {said}" if said else "")

    async def _masked(self, reading: Coroutine[None, None, Manifest]) -> Manifest:
        """Return what is read; where that fails, keep what the server said of its secrets to ourselves."""
        try:
            return await reading
        except ServerFailed as exc:
            raise ServerFailed(self.log.mask(exc.message), hint=exc.hint) from None

    def _hear(self, data: bytes) -> None:
        if self.over.done():
            return
        try:
            self.peer.feed(data)
        except ServerFailed as exc:
            self.end(exc.message, is_crash=True)

    def _lost(self) -> None:
        is_crash = not self._transport.is_gone_in_order
        self.end(self.with_last_words(self._transport.how_it_ended()), is_crash=is_crash)
