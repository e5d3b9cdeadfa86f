"""Bytes as they arrive, cut into lines. Memory stays bounded and time linear, however the bytes are chunked.

A line beyond the cap is skipped up to its newline and reported once. What a line says is not known here.
"""

from typing import Final

import msgspec

from pml.core.values import MAX_BYTES

MAX_LINE: Final = MAX_BYTES


class TooLong(msgspec.Struct, frozen=True):
    """Stands for a line of more than `cap` bytes, which is not kept."""

    cap: int


class Lines:
    """Feed it bytes, get whole lines: without their newline or CRLF, blank ones left out."""

    def __init__(self, *, cap: int = MAX_LINE) -> None:
        self._cap = cap
        self._rest = bytearray()
        self._skipping = False

    @property
    def held(self) -> int:
        """How many bytes of an unfinished line are kept."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that `data` completes."""
        *ended, rest = data.split(b"\n")
        found: list[bytes | TooLong] = []
        for part in ended:
            self._end(part, found)
        self._keep(rest, found)
        return found

    def end(self) -> list[bytes | TooLong]:
        """Return what is left when no more bytes come: a last line needs no newline."""
        return self.feed(b"\n")

    def _end(self, part: bytes, found: list[bytes | TooLong]) -> None:
        if self._rest or self._skipping:
            self._keep(part, found)
            part = bytes(self._rest)
            self._rest = bytearray()  # a new one: clearing would keep what the longest line took
            self._skipping = False
        elif len(part) > self._cap:
            found.append(TooLong(self._cap))
            return
        line = part.rstrip(b"\r")
        if line and not line.isspace():
            found.append(line)

    def _keep(self, part: bytes, found: list[bytes | TooLong]) -> None:
        if self._skipping or not part:
            return
        if len(self._rest) + len(part) > self._cap:
            self._rest = bytearray()
            self._skipping = True
            found.append(TooLong(self._cap))
        else:
            self._rest += part
