"""`GET /proof`: the hub shows that it is the one that a browser's token is for, before it is sent that token.

The page stays open when the hub has ended, and whatever listens on its port then is the same origin to a
browser. Nobody else can give the proof, and none that was given under one name counts under another.
"""

import re
from collections.abc import Container
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pml.core.errors import Invalid, NotFound
from pml.core.identity import TokenId, hub_proof
from pml.service.desk import Desk
from pml.web.answers import error_answer

_NONCE: Final = re.compile(r"[0-9a-f]{32,128}")


class Proof:
    """The application at `/proof`: anybody may ask, as what it tells is of use to who has the token only."""

    def __init__(self, desk: Desk, names: Container[str]) -> None:
        self._desk = desk
        self._names = names

    async def __call__(self, request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        if _NONCE.fullmatch(nonce) is None:
            return error_answer(Invalid("`nonce` has 32 to 128 hex digits"))
        token = await self._desk.store.tokens.get(TokenId(request.query_params.get("token", "")))
        if token is None:
            return error_answer(NotFound("no such token"))
        host = request.query_params.get("host", "")
        if host not in self._names:
            return error_answer(Invalid("`host` is not a name of this hub"))
        return JSONResponse({"proof": hub_proof(token, nonce=nonce, host=host)})
