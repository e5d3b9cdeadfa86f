"""Messages as lines: putting together what arrives in pieces, and sending what belongs together in one write.

Both ways are bounded: a line that never ends, and a server that never reads. Knows nothing of JSON.
"""

import asyncio
from typing import Protocol


class TooMuch(Exception):
    """A line is longer, or more is left unread, than the bound allows."""


class Wire(Protocol):
    """The way to the server."""

    @property
    def unread_bytes(self) -> int: ...

    def write(self, data: bytes) -> bool:
        """Write without waiting; False when the server no longer listens."""
        ...


class Lines:
    """What has arrived of a line that is not complete yet."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes. Raises: TooMuch."""
        if b"\n" not in data:
            self._keep(data)
            return []
        if self._pieces:
            data = b"".join((*self._pieces, data))
            self._pieces.clear()
            self._bytes = 0
        *lines, rest = data.split(b"\n")
        if rest:
            self._keep(rest)
        return lines

    def _keep(self, data: bytes) -> None:
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes > self._max_bytes:
            self._pieces.clear()
            raise TooMuch


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
