"""Messages: what one line is (a request, a notification, a response, a batch, or what is wrong with it).

Pure: it answers nothing and remembers nothing. `read` is for messages that are judged: what two parsers could
read differently is refused, with the request's id where that can be told. `Envelope` is for answers that are
passed on: their inside stays as it was written. Which methods exist, and what they mean, is not known here.
"""

import gc
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, TypeAlias, cast

import msgspec

from pml.core import values
from pml.core.errors import Invalid
from pml.core.text import quote
from pml.core.values import Json, JsonObject
from pml.jsonrpc.codes import INVALID_REQUEST, PARSE_ERROR

MAX_VALUES: Final = 100_000  # built in one go, while nobody else is served
MAX_BATCH: Final = 4096  # a line of 16 MiB could hold eight million wrong messages, each to be answered
SHORT: Final = 4096  # up to here counting brackets is cheaper than walking through the value
MAX_REASON: Final = 300  # a reason may quote the input, which may be a whole line

Id: TypeAlias = int | str


class Request(msgspec.Struct, frozen=True):
    id: Id
    method: str
    params: JsonObject
    size: int = 0  # bytes of the line, or of the whole batch


class Notification(msgspec.Struct, frozen=True):
    method: str
    params: JsonObject


class Response(msgspec.Struct, frozen=True):
    """An answer; without an id it complains of a message that it could not read."""

    id: Id | None
    result: Json
    error: JsonObject | None


class Malformed(msgspec.Struct, frozen=True):
    """To be answered with this error. `response_to` is the request of ours that it was meant to answer."""

    id: Id | None
    code: int
    message: str
    response_to: Id | None = None


Message: TypeAlias = Request | Notification | Response | Malformed


class Batch(msgspec.Struct, frozen=True):
    messages: tuple[Message, ...]


class RpcError(Exception):
    """A JSON-RPC error, to be sent or received. `raw` is the error object as a server wrote it."""

    def __init__(self, code: int, message: str, *, data: Json = None, raw: bytes | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.raw = raw

    def encoded(self) -> bytes:
        """Return the error object."""
        if self.raw is not None:
            return self.raw
        error: dict[str, Json] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return msgspec.json.encode(error)


class Envelope(msgspec.Struct):
    """A message of which only the outside is read: building a large result just to pass it on costs most."""

    id: Id | msgspec.UnsetType | None = msgspec.UNSET
    jsonrpc: object = None  # of any type: servers write what they like, and the one who cares compares
    method: str | None = None
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ErrorObject(msgspec.Struct):
    """What every error in an answer must have."""

    code: int
    message: str


# Each raises msgspec.MsgspecError, UnicodeError or RecursionError for other bytes.
read_envelope = msgspec.json.Decoder(Envelope).decode
read_envelopes = msgspec.json.Decoder(list[Envelope]).decode
read_error = msgspec.json.Decoder(ErrorObject).decode


def read(line: bytes) -> Message | Batch:
    """Return what `line` is. Never raises."""
    if _has_too_many_values(line):
        message = f"a message holds at most {MAX_VALUES:,} values"
        return Malformed(_id_of_head(line), INVALID_REQUEST, message)
    try:
        with _no_collection(line):
            value = _strict(line)
    except Invalid as exc:
        return Malformed(_id_in(line), PARSE_ERROR, _cut(exc.message))
    if not isinstance(value, list):
        return _message(value, len(line))
    if not value:
        return Malformed(None, INVALID_REQUEST, "a batch holds at least one message")
    if len(value) > MAX_BATCH:
        return Malformed(None, INVALID_REQUEST, f"a batch holds at most {MAX_BATCH:,} messages")
    return Batch(tuple(_message(one, len(line)) for one in value))


class _Head(msgspec.Struct, frozen=True):
    id: Id
    method: str


# a text as a whole, or a sign after which one more value begins
_SIGN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|,|[\[{](?!\s*+[\]}])', re.DOTALL)
_QUOTE: Final = ord('"')


def _has_too_many_values(line: bytes) -> bool:
    """Tell whether more values begin in the line than are built; a comma in a text is none."""
    if len(line) <= MAX_VALUES or sum(map(line.count, (b",", b"[", b"{"))) <= MAX_VALUES:
        return False
    count = 0
    for sign in _SIGN.finditer(line):
        if line[sign.start()] != _QUOTE:
            count += 1
            if count > MAX_VALUES:
                return True
    return False


def _id_of_head(line: bytes) -> Id | None:
    """Return the id of a request of which nothing else is built."""
    try:
        return msgspec.json.decode(line, type=_Head).id
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@contextmanager
def _no_collection(line: bytes) -> Generator[None]:
    """Keep the collector of garbage from walking through a long message again and again while it is built."""
    if len(line) <= SHORT or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def _strict(line: bytes) -> Json:
    """Return what `values.loads` returns, sooner where the line is spelled as we would spell it.

    A line that comes out the same when its value is written again has lost nothing in between: no second
    key of a name, no half surrogate, no number out of range. Only its depth is left to look at.
    """
    try:
        value = cast(Json, _decode(line))
        spelled_alike = _encode(value) == line
    except (msgspec.MsgspecError, ValueError, RecursionError):
        spelled_alike = False
        value = None
    if not spelled_alike or len(line) > values.MAX_BYTES:
        return values.loads(line, what="the message")
    if len(line) > SHORT or line.count(b"{") + line.count(b"[") > values.MAX_DEPTH:
        values.check(value, what="the message")
    return value


def _message(message: Json, size: int) -> Message:
    if not isinstance(message, dict):
        return Malformed(None, INVALID_REQUEST, f"a message is an object, not {values.kind_of(message)}")
    if "method" not in message:
        return _response(message)
    given = message.get("id")
    id = as_id(given)
    method = message["method"]
    params = message.get("params", {})
    wrong = None
    if message.get("jsonrpc") != "2.0":
        wrong = '`jsonrpc` must be "2.0"'
    elif id is None and "id" in message:
        wrong = f"`id` must be a whole number or a string, not {_kind(given)}"
    elif not isinstance(method, str):
        wrong = f"`method` must be a string, not {values.kind_of(method)}"
    elif not isinstance(params, dict):
        wrong = f"`params` of {quote(method)} must be an object, not {values.kind_of(params)}"
    elif "result" in message or "error" in message:
        wrong = "a message has either a `method` or a `result` or an `error`"
    elif id is None:
        return Notification(method, params)
    else:
        return Request(id, method, params, size)
    return Malformed(id, INVALID_REQUEST, wrong)


def _response(message: dict[str, Json]) -> Message:
    """Return what a message without a method is.

    What is wrong with a response is not said under its id: the client may have a request with that id.
    """
    given = message.get("id")
    id = as_id(given)
    error = message.get("error")
    if "result" not in message and "error" not in message:
        return Malformed(id, INVALID_REQUEST, "a message has a `method`, a `result` or an `error`")
    wrong = None
    if message.get("jsonrpc") != "2.0":
        wrong = '`jsonrpc` must be "2.0"'
    elif "result" in message and "error" in message:
        wrong = "a response has either a `result` or an `error`"
    elif "error" in message and not isinstance(error, dict):
        wrong = f"`error` must be an object, not {values.kind_of(error)}"
    elif id is None and (given is not None or "result" in message):
        wrong = f"`id` must be a whole number or a string, not {_kind(given)}"
    else:
        return Response(id, message.get("result"), cast("JsonObject | None", error))
    return Malformed(None, INVALID_REQUEST, wrong, response_to=id)


def as_id(given: Json) -> Id | None:
    """Return what may be the id of a request or a progress token; None for anything else."""
    return given if isinstance(given, int | str) and not isinstance(given, bool) else None


def _kind(given: Json) -> str:
    return "a fraction" if isinstance(given, float) else values.kind_of(given)


def _id_in(line: bytes) -> Id | None:
    """Return the id of a request that is JSON to others but not to us, so that its sender does not wait."""
    try:
        found = json.loads(line.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, tuple):
        return None
    pairs = cast(tuple[tuple[str, Json], ...], found)
    ids = [value for key, value in pairs if key == "id"]
    if len(ids) != 1 or not any(key == "method" for key, _ in pairs):
        return None
    id = as_id(ids[0])
    return None if isinstance(id, str) and not _encodable(id) else id


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cut(reason: str) -> str:
    return reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "…"
