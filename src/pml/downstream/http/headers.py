"""HTTP around a message: headers that must agree with it, a body within bounds, statuses of errors.

Everything here either returns a value or raises what is to be answered; it knows no session and no stream.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pml.core.text import quote
from pml.core.values import MAX_BYTES
from pml.downstream.http.streams import JSON, NO_STORE, Header, start
from pml.downstream.protocol.eras import ENVELOPE, LEGACY, MODERN, declared_version, modern_era
from pml.jsonrpc.codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from pml.jsonrpc.lines import error_line
from pml.jsonrpc.messages import Batch, Malformed, Message, Request, RpcError

if TYPE_CHECKING:
    from starlette.types import Receive, Send

BODY_S: Final = (
    30.0  # for the whole body; what is larger than a network takes in that time is larger than we take
)
STATUS_OF_ERROR: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
VERSION: Final = "mcp-protocol-version"
SESSION: Final = "mcp-session-id"
LAST_EVENT: Final = "last-event-id"
_METHOD: Final = "mcp-method"
_NAME: Final = "mcp-name"
_ONCE: Final = frozenset({VERSION, SESSION, LAST_EVENT, _METHOD, _NAME})
_NAMED: Final[Mapping[str, str]] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=")
_CLOSE: Final[Header] = (b"connection", b"close")


class Refused(Exception):
    """An HTTP request that is answered with an error, and goes no further."""

    def __init__(
        self, status: int, error: RpcError, *, id: int | str | None = None, headers: Iterable[Header] = ()
    ) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.id = id
        self.headers = tuple(headers)

    async def tell(self, send: "Send") -> None:
        """Answer with it."""
        await reply(send, self.status, error_line(self.id, self.error), *self.headers)


class Vanished(Exception):
    """The client went away before it had said all."""


def refuse(status: int, message: str, *headers: Header, code: int = INVALID_REQUEST) -> Refused:
    return Refused(status, RpcError(code, message), headers=headers)


async def reply(send: "Send", status: int, body: bytes, *headers: Header) -> None:
    """Answer at once and whole."""
    kind = (JSON,) if body else ()
    length = (b"content-length", b"%d" % len(body))
    await send(start(status, *kind, NO_STORE, length, *headers))
    await send({"type": "http.response.body", "body": body})


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by name. Raises: Refused for two of one where two readers could disagree."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        if key in headers and key in _ONCE:
            raise Refused(400, RpcError(HEADER_MISMATCH, f"the header {key} is there more than once"))
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


async def read_body(receive: "Receive", headers: Mapping[str, str]) -> bytes:
    """Return the body. Raises: Refused if it is too large or too slow, Vanished."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > MAX_BYTES:
        raise _too_large()
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Vanished
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > MAX_BYTES:
                    raise _too_large()
                if not message.get("more_body", False):
                    return b"".join(pieces)  # of a single piece this is not a copy
    except TimeoutError as exc:
        raise refuse(408, f"the body did not arrive within {BODY_S:.0f} s", _CLOSE) from exc


def _too_large() -> Refused:
    return refuse(413, f"a body has at most {MAX_BYTES:,} bytes", _CLOSE)


def check_media(headers: Mapping[str, str]) -> None:
    """Raise Refused unless JSON comes, and both JSON and events may go."""
    check_accept(headers, "application/json", "text/event-stream")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise refuse(415, f"the content type must be application/json, not {quote(kind)}")


def check_accept(headers: Mapping[str, str], *kinds: str) -> None:
    """Raise Refused unless the client takes all of `kinds`."""
    accepted = {each.partition(";")[0].strip().lower() for each in headers.get("accept", "").split(",")}
    for kind in kinds:
        if not accepted & {kind, kind.partition("/")[0] + "/*", "*/*"}:
            raise refuse(406, f"the client must accept {' and '.join(kinds)}")


def check_version(headers: Mapping[str, str]) -> None:
    """Raise Refused if a request outside a handshake names a version that has none; none is 2025-03-26."""
    version = headers.get(VERSION)
    if version is not None and version not in LEGACY:
        raise Refused(400, _unsupported(version))


def check_message(message: Message | Batch) -> None:
    """Raise Refused for a body that is not a message."""
    if isinstance(message, Malformed):
        raise Refused(400, RpcError(message.code, message.message), id=message.id)


def is_modern(message: Message | Batch, headers: Mapping[str, str]) -> bool:
    """Tell whether the message is to be judged by the rules of 2026-07-28: it says so, here or there."""
    version = headers.get(VERSION)
    if version is not None and version not in LEGACY:
        return True
    return isinstance(message, Request) and declared_version(message.params) is not None


def check_modern(message: Message | Batch, headers: Mapping[str, str]) -> None:
    """Raise Refused unless the message stands on its own and its headers say the same as it does."""
    version = headers.get(VERSION, "")
    if isinstance(message, Request):
        try:
            _check_envelope(message, headers)
            modern_era(message.params)
        except RpcError as exc:
            raise Refused(STATUS_OF_ERROR.get(exc.code, 400), exc, id=message.id) from exc
    elif isinstance(message, Batch) or "method" not in message.__struct_fields__:
        raise refuse(400, "a body must be a single request or notification")
    elif version != MODERN:
        raise Refused(400, _unsupported(version))


def _check_envelope(request: Request, headers: Mapping[str, str]) -> None:
    meta = request.params.get("_meta")
    missing = [key for key in ENVELOPE if not isinstance(meta, Mapping) or key not in meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"`params._meta` must have {' and '.join(missing)}")
    if headers.get(VERSION) != declared_version(request.params):
        raise RpcError(HEADER_MISMATCH, f"the header {VERSION} must name the version of the body")
    if headers.get(_METHOD) != request.method:
        raise RpcError(HEADER_MISMATCH, f"the header {_METHOD} must name the method of the body")
    key = _NAMED.get(request.method)
    named = None if key is None else request.params.get(key)
    if named is not None and _decoded(headers.get(_NAME)) != named:
        raise RpcError(HEADER_MISMATCH, f"the header {_NAME} must be the `{key}` of the body")


def _decoded(value: str | None) -> str | None:
    """Return what a header stands for; None if it is missing, or not what an encoder would have written."""
    found = None if value is None else _ENCODED.fullmatch(value)
    if found is None:
        return value
    try:
        decoded = base64.b64decode(found[1], validate=True)
        return decoded.decode() if base64.b64encode(decoded).decode() == found[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _unsupported(version: str) -> RpcError:
    return RpcError(
        UNSUPPORTED_VERSION,
        f"protocol version {quote(version[:40])} is not supported",
        data={"supported": [MODERN], "requested": version[:40]},
    )
