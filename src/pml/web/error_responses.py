"""Error responses over HTTP: one table from kind to status, one shape on every server and path."""

from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pml.core.errors import ErrorCode, PmlError
from pml.core.values import Json
from pml.core.wire import error_json

HTTP_STATUS: Final[dict[ErrorCode, int]] = {
    ErrorCode.INVALID: 400,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
}
SECURITY_HEADERS: Final = {  # every answer has them; none ever lets another origin read it
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_WORDS: Final[dict[int, str]] = {  # of what only HTTP knows
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "forbidden",
    503: "busy",  # nothing was done: it may be sent again
}


def error_answer(error: PmlError) -> Response:
    """Return the answer that tells of `error`."""
    return JSONResponse(error_json(error), HTTP_STATUS[error.code])


def refusal(
    status: int, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer to what HTTP itself refuses, in the same shape."""
    code = _WORDS.get(status, "forbidden" if status == 403 else "invalid")
    error: dict[str, Json] = {"code": code, "message": message, "hint": hint}
    return JSONResponse({"error": error}, status, headers=headers)


async def tell_error(request: Request, exc: Exception) -> Response:
    """Answer for a framework that raised `exc`, which is a PmlError."""
    assert isinstance(exc, PmlError)
    return error_answer(exc)


async def tell_refusal(request: Request, exc: Exception) -> Response:
    """Answer for a framework that raised `exc`, which is an HTTPException."""
    assert isinstance(exc, HTTPException)
    return refusal(exc.status_code, exc.detail.lower(), headers=exc.headers)
