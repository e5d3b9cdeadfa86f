"""Lines: one message each. Bytes as they arrive are cut into lines, and messages are written as lines.

Memory stays bounded and time linear, however the bytes are chunked. A line beyond the cap is skipped up to
its newline and reported once. What an incoming line says is not known here.
"""

from typing import Final

import msgspec

from pml.core.values import MAX_BYTES, JsonObject
from pml.jsonrpc.messages import Id, RpcError

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
        if self._rest or self._skipping or len(data) > self._cap:
            for part in ended:
                self._end(part, found)
        elif ended:  # nearly always: lines that came whole, none of which can be too long
            found += [line for part in ended if (line := part.rstrip(b"\r")) and not line.isspace()]
        if rest:
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


# The tag is written first: the keys come in the order that people expect in a log.
class _Request(msgspec.Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: Id
    method: str
    params: JsonObject


class _Notification(msgspec.Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: JsonObject


_encode = msgspec.json.Encoder().encode


def request_line(id: Id, method: str, params: JsonObject) -> bytes:
    return _encode(_Request(id, method, params))


def notification_line(method: str, params: JsonObject) -> bytes:
    return _encode(_Notification(method, params))


def result_line(id: Id | None, result: bytes) -> bytes:
    """Return the answer with a result that is encoded already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_encode(id), _one_line(result))


def error_line(id: Id | None, error: RpcError) -> bytes:
    """Return the answer that reports the error."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (_encode(id), _one_line(error.encoded()))


def _one_line(text: bytes) -> bytes:
    """Return JSON without line breaks: within strings they are escaped, so these are mere layout."""
    return text.replace(b"\n", b" ") if b"\n" in text else text
