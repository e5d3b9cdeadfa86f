"""The hub as one application: which path is whose, all of it behind the guard."""

import re
from collections.abc import Awaitable, Callable, Container
from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pml import __version__
from pml.core.approvals.record import instant
from pml.core.errors import Forbidden, Invalid, NotFound
from pml.core.ports.servers import ServerHost
from pml.core.sessions.token import TokenId, TokenRole, hub_proof
from pml.hub.api.api_request import Hub, LoginDesk, SecretShelf
from pml.hub.api.routes import Api
from pml.hub.body_limits import MCP_PATH, BodyLimits
from pml.hub.guard import ASSETS_PATH, OPEN_PATH, PROOF_PATH, ROOT_PATH, ROUTE, Complain, Guard
from pml.hub.metrics import CONTENT_TYPE, Gauges, Metrics
from pml.hub.origins import Allowed
from pml.hub.pages import show_asset, show_page
from pml.service.context import Context
from pml.service.sessions.launcher import Launcher
from pml.web.error_responses import error_answer, refusal
from pml.web.visitors import identity_of

_NONCE: Final = re.compile(r"[0-9a-f]{32,128}")


class Proof:
    """The application at `/proof`: anybody may ask, as what it tells is of use to who has the token only."""

    def __init__(self, context: Context, names: Container[str]) -> None:
        self._context = context
        self._names = names

    async def __call__(self, request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        if _NONCE.fullmatch(nonce) is None:
            return error_answer(Invalid("`nonce` has 32 to 128 hex digits"))
        token = await self._context.store.tokens.get(TokenId(request.query_params.get("token", "")))
        if token is None:
            return error_answer(NotFound("no such token"))
        host = request.query_params.get("host", "")
        if host not in self._names:
            return error_answer(Invalid("`host` is not a name of this hub"))
        return JSONResponse({"proof": hub_proof(token, nonce=nonce, host=host)})


EVENTS_PATH: Final = "/events"
METRICS_PATH: Final = "/metrics"
NAME: Final = "pml"  # how a hub is told from whatever else may listen on its port


def hub_app(
    context: Context,
    *,
    mcp: ASGIApp,
    events: ASGIApp,
    launcher: Launcher | None,
    server_host: ServerHost,
    secrets: SecretShelf,
    logins: LoginDesk,
    workspace: str,
    allowed: Allowed,
    gauges: Gauges,
    started_at: datetime,
    complain: Complain,
    limits: BodyLimits | None = None,
) -> ASGIApp:
    """Return the hub. `workspace` is the one that applies where a person names none."""
    metrics = Metrics(context, gauges, started_at=started_at)
    api = Api(
        Hub(
            context=context,
            launcher=launcher,
            server_host=server_host,
            secrets=secrets,
            logins=logins,
            workspace=workspace,
        )
    )
    paths = {
        ROOT_PATH: _only_get(show_page),
        OPEN_PATH: _only_get(_Health(started_at)),
        PROOF_PATH: _only_get(Proof(context, allowed.hosts)),
        METRICS_PATH: _only_get(_Numbers(metrics)),
        MCP_PATH: mcp,
        EVENTS_PATH: events,
        ASSETS_PATH: _only_get(show_asset),
    }

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = ASSETS_PATH if scope["path"].startswith(ASSETS_PATH) else scope["path"]
        found = paths.get(path)
        if found is not None:
            scope[ROUTE] = path
        await (found or api)(scope, receive, send)

    return Guard(
        dispatch, context=context, allowed=allowed, seen=metrics.seen, complain=complain, limits=limits
    )


class _Health:
    """Tells everybody that a hub is here, and nothing else."""

    def __init__(self, started_at: datetime) -> None:
        self._started_at = started_at

    async def __call__(self, request: Request) -> Response:
        started = instant(self._started_at)
        return JSONResponse({"status": "ok", "name": NAME, "version": __version__, "started_at": started})


class _Numbers:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, request: Request) -> Response:
        if identity_of(request.scope).role is not TokenRole.PERSON:
            return error_answer(Forbidden("only a person's token may read the numbers"))
        return Response(await self._metrics.text(), headers={"content-type": CONTENT_TYPE})


def _only_get(answer: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            response = await answer(Request(scope, receive))
        else:
            response = refusal(405, "method not allowed", headers={"allow": "GET, HEAD"})
        await response(scope, receive, send)

    return app
