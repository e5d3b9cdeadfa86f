"""A JSON-RPC call to a cloud, read strictly, and the code of every kind of error. Pure; knows no HTTP."""

from collections.abc import Mapping
from typing import Final

from pml.core.errors import ErrorCode, Invalid
from pml.core.text import quote
from pml.core.values import kind_of, loads
from pml.jsonrpc.codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SERVER_ERROR,
)
from pml.jsonrpc.messages import Malformed, Request, as_id

RPC_CODE: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID: INVALID_PARAMS,
    ErrorCode.FORBIDDEN: SERVER_ERROR,
    ErrorCode.NOT_FOUND: SERVER_ERROR,
    ErrorCode.CONFLICT: SERVER_ERROR,
    ErrorCode.UNAVAILABLE: SERVER_ERROR,
    ErrorCode.INTERNAL: INTERNAL_ERROR,
}


def read_call(body: bytes) -> Request | Malformed:
    """Return the `tools/call`: it has a `name`, and `arguments` that are an object if they are there."""
    try:
        request = loads(body, what="the request")
    except Invalid as exc:
        return Malformed(None, PARSE_ERROR, exc.message)
    if not isinstance(request, Mapping):
        return Malformed(None, INVALID_REQUEST, f"a request is one object, not {kind_of(request)}")
    id, method, params = as_id(request.get("id")), request.get("method"), request.get("params")
    if id is None:
        return Malformed(None, INVALID_REQUEST, "`id` must be a whole number or a string")
    if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return Malformed(id, INVALID_REQUEST, 'a request has `"jsonrpc": "2.0"` and a `method`')
    if method != "tools/call":
        return Malformed(id, METHOD_NOT_FOUND, f"there is only `tools/call` here, not {quote(method)}")
    if not isinstance(params, Mapping):
        return Malformed(id, INVALID_PARAMS, "`params` must be an object")
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        return Malformed(id, INVALID_PARAMS, "`tools/call` needs `name`, and `arguments` must be an object")
    return Request(id, method, params)
