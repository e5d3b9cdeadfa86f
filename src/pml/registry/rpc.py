"""One JSON-RPC call to a cloud, read strictly, and the lines that answer it. Pure; knows no HTTP.

What is wrong with a request is a value that is raised: `RpcRefused`, with the id where it can be told.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from pml.core.errors import ErrorCode, Invalid
from pml.core.text import quote
from pml.core.values import Json, JsonObject, kind_of, loads

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_ERROR: Final = -32000
RPC_CODE: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID: INVALID_PARAMS,
    ErrorCode.FORBIDDEN: SERVER_ERROR,
    ErrorCode.NOT_FOUND: SERVER_ERROR,
    ErrorCode.CONFLICT: SERVER_ERROR,
    ErrorCode.UNAVAILABLE: SERVER_ERROR,
    ErrorCode.INTERNAL: INTERNAL_ERROR,
}

Id: TypeAlias = int | str


class RpcRefused(Exception):
    """A JSON-RPC error: what is wrong with a request, or what came of a call."""

    def __init__(self, code: int, message: str, *, data: Json = None, id: Id | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.id = id


class Call(msgspec.Struct, frozen=True):
    """A `tools/call`: `params` has a `name`, and `arguments` that are an object if they are there."""

    id: Id
    params: JsonObject


def read_call(body: bytes) -> Call:
    """Return the call. Raises: RpcRefused."""
    try:
        request = loads(body, what="the request")
    except Invalid as exc:
        raise RpcRefused(PARSE_ERROR, exc.message) from exc
    if not isinstance(request, Mapping):
        raise RpcRefused(INVALID_REQUEST, f"a request is one object, not {kind_of(request)}")
    id, method, params = request.get("id"), request.get("method"), request.get("params")
    if not isinstance(id, int | str) or isinstance(id, bool):
        raise RpcRefused(INVALID_REQUEST, "`id` must be a whole number or a string")
    if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise RpcRefused(INVALID_REQUEST, 'a request has `"jsonrpc": "2.0"` and a `method`', id=id)
    if method != "tools/call":
        raise RpcRefused(METHOD_NOT_FOUND, f"there is only `tools/call` here, not {quote(method)}", id=id)
    if not isinstance(params, Mapping):
        raise RpcRefused(INVALID_PARAMS, "`params` must be an object", id=id)
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        raise RpcRefused(
            INVALID_PARAMS, "`tools/call` needs `name`, and `arguments` must be an object", id=id
        )
    return Call(id, params)


def result_line(id: Id, result: bytes) -> bytes:
    """Return the answer with a result that is encoded already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (msgspec.json.encode(id), result)


def error_line(id: Id | None, error: RpcRefused | bytes) -> bytes:
    """Return the answer that tells of an error; as bytes, it is the error object as somebody wrote it."""
    if isinstance(error, RpcRefused):
        told: dict[str, Json] = {"code": error.code, "message": error.message}
        error = msgspec.json.encode(told if error.data is None else {**told, "data": error.data})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (msgspec.json.encode(id), error)
