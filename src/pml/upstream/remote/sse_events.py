"""Events of an SSE stream, cut from bytes as they arrive; bounded. Knows nothing of JSON."""

from dataclasses import dataclass, field
from typing import Final

_BOM: Final = b"\xef\xbb\xbf"


class TooLarge(Exception):
    """One event is larger than the bound."""


@dataclass(kw_only=True, slots=True)
class Event:
    """What one event has; `retry_ms` is how long to wait before coming back."""

    kind: str = "message"
    data: bytes = b""
    id: str | None = None
    retry_ms: int | None = None


@dataclass(slots=True)
class EventReader:
    """Feed it bytes, get whole events."""

    max_bytes: int
    _rest: bytearray = field(default_factory=bytearray)
    _lines: list[bytes] = field(default_factory=list[bytes])
    _size: int = 0
    _is_first: bool = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes. Raises: TooLarge."""
        self._rest += chunk
        found: list[Event] = []
        if b"\n" not in chunk and b"\r" not in chunk:
            self._check()
            return found
        text = bytes(self._rest).replace(b"\r\n", b"\n")
        held = b"\r" if text.endswith(b"\r") else b""  # its newline may come with the next bytes
        *lines, rest = (
            text.removesuffix(held).replace(b"\r", b"\n").split(b"\n")
            if held or b"\r" in text
            else text.split(b"\n")
        )
        self._rest = bytearray(rest + held)
        for line in lines:
            if self._is_first:
                self._is_first, line = False, line.removeprefix(_BOM)
            if line:
                self._lines.append(line)
                self._size += len(line)
            elif self._lines:
                found.append(_event(self._lines))
                self._lines, self._size = [], 0
        self._check()
        return found

    def _check(self) -> None:
        if self._size + len(self._rest) > self.max_bytes:
            raise TooLarge


def _event(lines: list[bytes]) -> Event:
    event, data = Event(), list[bytes]()
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event.kind = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value and len(value) <= 1024 and value.isascii():
            event.id = value.decode()
        elif name == b"retry" and value.isdigit() and len(value) < 8:
            event.retry_ms = int(value)
    event.data = b"\n".join(data)
    return event
