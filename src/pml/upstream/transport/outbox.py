"""Lines on their way to a server: what one turn of the event loop sends leaves in one write.

Bounded for a server that never reads. Knows nothing of JSON.
"""

import asyncio
from typing import Protocol


class TooMuch(Exception):
    """More is left unread than the bound allows."""


class Wire(Protocol):
    """The way to the server."""

    @property
    def unread_bytes(self) -> int: ...

    def write(self, data: bytes) -> bool:
        """Write without waiting; False when the server no longer listens."""
        ...


class Outbox:
    """What is sent in one turn of the event loop, beside what the server has not read yet."""

    def __init__(self, wire: Wire, max_bytes: int) -> None:
        self._wire = wire
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self._bytes = 0

    def send(self, line: bytes, *, at_once: bool) -> None:
        """Send the line, or put it to what this turn sends. Raises: TooMuch; then nothing of it is sent."""
        waiting = self._bytes + self._wire.unread_bytes
        # A line that waits for none may be of any size: how long it may be is for others to say.
        if waiting and waiting + len(line) > self._max_bytes:
            raise TooMuch
        is_first = not self._unsent
        self._unsent += (line, b"\n")
        self._bytes += len(line)
        if at_once:
            self.flush()
        elif is_first:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is there; lost if the server no longer listens, which its end will tell."""
        data = b"".join(self._unsent)
        self.clear()
        if data:
            self._wire.write(data)

    def clear(self) -> None:
        self._unsent.clear()
        self._bytes = 0
