"""A line on its way to a remote server: what of it HTTP headers repeat. Pure."""

import base64
import re
from dataclasses import dataclass
from typing import Final

import msgspec

MODERN: Final = "2026-07-28"
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_WRAPPED: Final = re.compile(r"=\?base64\?.*\?=")


class _Meta(msgspec.Struct):
    version: str | None = msgspec.field(default=None, name="io.modelcontextprotocol/protocolVersion")


class _Params(msgspec.Struct):
    name: str | None = None
    uri: str | None = None
    request_id: int | str | None = msgspec.field(default=None, name="requestId")
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


class _Line(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: _Params | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    """One message; `id` of a request of ours, `ends` the id of one that it cancels."""

    body: bytes
    method: str | None
    id: int | None
    ends: int | None = None
    is_modern: bool = False
    name: str | None = None

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """What the modern era repeats of the message in headers."""
        if not self.is_modern or self.method is None:
            return []
        found = [(b"mcp-protocol-version", MODERN.encode()), (b"mcp-method", self.method.encode())]
        return found if self.name is None else [*found, (b"mcp-name", header_value(self.name))]


_decode = msgspec.json.Decoder(_Line).decode


def read_outgoing(line: bytes) -> Outgoing:
    """Return what `line`, which PML wrote, says."""
    try:
        found = _decode(line)
    except msgspec.MsgspecError:  # arguments of ours never fail here; a name that is no text is the server's
        return Outgoing(body=line, method=None, id=None)
    params = found.params or _Params()
    key = _NAMED_BY.get(found.method or "")
    is_request = found.method is not None and isinstance(found.id, int)
    return Outgoing(
        body=line,
        method=found.method,
        id=found.id if is_request and isinstance(found.id, int) else None,
        ends=params.request_id
        if found.method == "notifications/cancelled" and isinstance(params.request_id, int)
        else None,
        is_modern=params.meta is not None and params.meta.version == MODERN,
        name=None if key is None else params.name if key == "name" else params.uri,
    )


def header_value(text: str) -> bytes:
    """Return `text` as a header can have it: as it is, or wrapped where it would not arrive so."""
    if _PLAIN.fullmatch(text) and not _WRAPPED.fullmatch(text):
        return text.encode()
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="
