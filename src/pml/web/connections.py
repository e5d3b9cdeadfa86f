"""Connections that do not wait for ever: for a request, for its reader, for one peer.

What is asked and how it is answered is not known here.
"""

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S: Final = 30.0  # for a request and its answer: as long as PML's own client waits for both
_CONNECTIONS: Final = 512


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one server takes. `answers_last`: an answer may take any time, if it is read within `reader_s`."""

    request_s: float = REQUEST_S
    connections: int = _CONNECTIONS
    per_peer: int = _CONNECTIONS // 2
    answers_last: bool = False
    reader_s: float = 90.0  # a net: an application that streams has less patience of its own


class _Impatient(H11Protocol):
    """Ends what takes longer than its limits, and what one peer opens beyond the most.

    A client that sends a byte now and then, or never reads, would else hold a connection for ever.
    """

    limits: ClassVar[Limits]
    open_now: ClassVar[Counter[str]]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _send_at_once(transport)
        self.open_now[self._peer] += 1
        if self.open_now[self._peer] > self.limits.per_peer:
            transport.abort()
        else:
            self._wait_anew(self.limits.request_s)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        self.open_now[self._peer] -= 1
        if not self.open_now[self._peer]:
            del self.open_now[self._peer]

    def handle_events(self) -> None:
        super().handle_events()
        if self.limits.answers_last and self._is_answering:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._wait_anew(self.limits.request_s)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.limits.answers_last:
            self._wait_anew(self.limits.reader_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.limits.answers_last and self._is_answering:
            self._stop_waiting()

    @property
    def _is_answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _wait_anew(self, seconds: float) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def impatient(limits: Limits) -> type[H11Protocol]:
    """Return the protocol of one server, which counts its own connections."""
    return type("Impatient", (_Impatient,), {"limits": limits, "open_now": Counter[str]()})


def _send_at_once(transport: asyncio.Transport) -> None:
    """Let no small write wait for the reader to confirm the one before, which takes it 40 ms.

    The loop does so only for sockets made with the number of a protocol; `socket.create_server` gives none.
    """
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
