"""The API of the inbox and of scripts: one table of routes, each with the roles that may use it.

What each row does stands in the modules beside this one. A request with an idempotency key is answered once,
however often it comes. As a rule one hub serves a store, so a receipt without an answer that is not being
answered here was begun by a hub that died, and is answered again.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pml.core.digest import digest
from pml.core.errors import Conflict, Forbidden, Invalid, PmlError
from pml.core.ports.session_store import Receipt
from pml.core.text import quote
from pml.core.wire import error_json
from pml.hub.api import approvals as api_approvals
from pml.hub.api import audit as api_audit
from pml.hub.api import hook as api_hook
from pml.hub.api import inbox as api_inbox
from pml.hub.api import login as api_login
from pml.hub.api import rules as api_rules
from pml.hub.api import secrets as api_secrets
from pml.hub.api import servers as api_servers
from pml.hub.api import sessions as api_sessions
from pml.hub.api import trust as api_trust
from pml.hub.api.api_request import ApiRequest, Hub, Route
from pml.hub.guard import ROUTE
from pml.service.context import Context
from pml.web.error_responses import HTTP_STATUS, refusal
from pml.web.visitors import identity_of

ROUTES: Final[tuple[Route, ...]] = (
    *api_approvals.ROUTES,
    *api_inbox.ROUTES,
    *api_rules.ROUTES,
    *api_sessions.ROUTES,
    *api_servers.ROUTES,
    *api_trust.ROUTES,
    *api_secrets.ROUTES,
    *api_audit.ROUTES,
    *api_hook.ROUTES,
    *api_login.ROUTES,
)
_MAX_PARAMETERS: Final = 20
_TOKEN: Final = re.compile(rb"(pml_[0-9a-f]{12})_[A-Za-z0-9_-]{43}")  # an error may repeat what was given
_KEY: Final = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: bytes


class ReceiptBook:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: dict[tuple[str, str], asyncio.Event] = {}

    async def answer_once(
        self, principal: str, key: str, request: str, produce: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Return the answer that this request was given before, or else the one that `produce` gives.

        `request` is the digest of what is asked. What failed for a reason of ours is not kept.
        Raises: Invalid for a key that is none; Conflict if it belongs to another request.
        """
        if _KEY.fullmatch(key) is None:
            raise Invalid("an idempotency key has 1 to 200 printable ASCII characters")
        place = (principal, key)
        while (other := self._open.get(place)) is not None:
            await other.wait()
        done = self._open[place] = asyncio.Event()
        try:
            return await self._answer(
                Receipt(principal=principal, key=key, request=request, made_at=self._context.clock.now()),
                produce,
            )
        finally:
            del self._open[place]
            done.set()

    async def _answer(self, receipt: Receipt, produce: Callable[[], Awaitable[Answer]]) -> Answer:
        before = await self._context.store.receipts.begin(receipt)
        if before is not None and before.request != receipt.request:
            raise Conflict(
                "this idempotency key was used for another request", hint="take a new key for each request"
            )
        if before is not None and before.body is not None:
            return Answer(status=before.status, body=before.body)
        answer = await produce()
        if answer.status < 500:
            await self._context.store.receipts.close(
                msgspec.structs.replace(before or receipt, body=answer.body, status=answer.status)
            )
        return answer


class Api:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._book = ReceiptBook(hub.context)
        paths = sorted({route.path for route in ROUTES}, key=lambda path: path.count("{"))  # plain ones first
        self._table = [
            (_pattern(path), {route.method: route for route in ROUTES if route.path == path})
            for path in paths
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(Request(scope, receive))
        if answer is not None:
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        """Return the answer; None if the client has gone."""
        found = self._find(request.scope["path"])
        if found is None:
            return refusal(404, "there is nothing here", hint="docs/hub.md has all paths of the API")
        methods, values = found
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            return refusal(405, "method not allowed", headers={"allow": ", ".join(sorted(methods))})
        request.scope[ROUTE] = route.path
        serving = self._serve(route, values, request)
        answer = await (_while_there(request, serving) if route.waits else serving)
        if answer is None:
            return None
        return Response(answer.body, answer.status, media_type="application/json")

    def _find(self, path: str) -> tuple[Mapping[str, Route], Mapping[str, str]] | None:
        for pattern, methods in self._table:
            if found := pattern.fullmatch(path):
                return methods, found.groupdict()
        return None

    async def _serve(self, route: Route, values: Mapping[str, str], request: Request) -> Answer:
        try:
            identity = identity_of(request.scope)
            if identity.role not in route.roles:
                raise Forbidden(f"a token of role {identity.role} may not do this")
            api_request = ApiRequest(
                hub=self._hub,
                identity=identity,
                path=values,
                query=_query(request, route),
                body=await request.body(),
            )
            key = request.headers.get("idempotency-key")
            if key is None or not route.once:
                return await _produce(route, api_request)
            asked = digest([route.method, request.url.path, api_request.json])
            return await self._book.answer_once(
                api_request.principal, key, asked, lambda: _produce(route, api_request)
            )
        except PmlError as exc:
            return _error(exc)


async def _while_there(request: Request, serving: Coroutine[Any, Any, Answer]) -> Answer | None:
    """Return the answer, None if the client goes away before it comes."""
    await request.body()
    answering = asyncio.ensure_future(serving)
    leaving = asyncio.ensure_future(request.receive())  # after the body comes only the end
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        leaving.cancel()
        answering.cancel()
        await asyncio.wait({answering})


async def _produce(route: Route, api_request: ApiRequest) -> Answer:
    try:
        return Answer(status=route.status, body=msgspec.json.encode(await route.serve(api_request)))
    except PmlError as exc:
        return _error(exc)


def _error(error: PmlError) -> Answer:
    body = _TOKEN.sub(rb"\1_...", msgspec.json.encode(error_json(error)))
    return Answer(status=HTTP_STATUS[error.code], body=body)


def _query(request: Request, route: Route) -> dict[str, str]:
    """Return the parameters, each once and known. Raises: Invalid."""
    try:
        pairs = parse_qsl(
            request.url.query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except ValueError as exc:  # bytes that are not UTF-8, too many fields
        raise Invalid("the query cannot be read") from exc
    query = dict(pairs)
    unknown = next((name for name in query if name not in route.query), None)
    if unknown is not None:
        known = ", ".join(route.query) or "none"
        raise Invalid(f"there is no parameter {quote(unknown)} here", hint=f"there are: {known}")
    if len(query) != len(pairs):
        raise Invalid("a parameter is given twice")
    return query


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))
