"""Connections of the registry server that do not wait for ever: for a request, for its reader, for one peer.

What is asked and how it is answered is not known here.
"""

import asyncio
from collections import Counter
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S: Final = 30.0  # for a request and its answer: as long as PML's own client waits for both


def impatient(*, request_s: float, max_per_peer: int) -> type[H11Protocol]:
    """Return the protocol of one server: it ends what takes longer, and what one peer opens beyond the most.

    Whoever sends a byte now and then, or never reads, would else hold a connection for as long as it likes.
    """
    open_now: Counter[str] = Counter()

    class Impatient(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            open_now[self._peer] += 1
            if open_now[self._peer] > max_per_peer:
                transport.abort()
            else:
                self._wait_anew()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop_waiting()
            open_now[self._peer] -= 1
            if not open_now[self._peer]:
                del open_now[self._peer]

        def on_response_complete(self) -> None:
            self._wait_anew()
            super().on_response_complete()

        @property
        def _peer(self) -> str:
            return self.client[0] if self.client else ""

        def _wait_anew(self) -> None:
            self._stop_waiting()
            self._deadline = self.loop.call_later(request_s, self.transport.abort)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Impatient
