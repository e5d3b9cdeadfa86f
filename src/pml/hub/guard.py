"""The guard in front of everything: names, pages, tokens, bodies. What it refuses reaches no application.

It tells applications whose request it is, and takes care that every answer has the security headers, that
none ever lets another origin read it, and that a mistake of ours is told in the one shape of errors. What
a token may do is decided behind it.
"""

from collections.abc import Callable
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pml.core.errors import Forbidden, PmlError
from pml.core.sessions.token import Identity, TokenRole
from pml.hub.body_limits import Bodies, BodyLimits
from pml.hub.origins import Allowed
from pml.service.context import Context
from pml.service.sessions.logins import why_spent
from pml.service.sessions.tokens import identify_bearer
from pml.web.error_responses import SECURITY_HEADERS, error_answer, refusal
from pml.web.visitors import set_identity

ROOT_PATH: Final = "/"
OPEN_PATH: Final = "/health"
LOGIN_PATH: Final = "/api/login"
ASSETS_PATH: Final = "/assets/"  # beneath it lie the files of the page, which are the same for everybody
PROOF_PATH: Final = "/proof"
OPEN_PATHS: Final = frozenset({ROOT_PATH, OPEN_PATH, PROOF_PATH})
ROUTE: Final = "pml.route"  # in a scope: the path of the table that answers, without any value
_HEADERS: Final = {**SECURITY_HEADERS, "cache-control": "no-store"}

Seen = Callable[[str, str, int], None]  # method, path of the table, status
Complain = Callable[[Exception], None]


class Guard:
    def __init__(
        self,
        app: ASGIApp,
        *,
        context: Context,
        allowed: Allowed,
        seen: Seen,
        complain: Complain,
        limits: BodyLimits | None = None,
    ) -> None:
        self._app = app
        self._context = context
        self._allowed = allowed
        self._seen = seen
        self._complain = complain
        self._bodies = Bodies(limits or BodyLimits())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = _Answering(scope, send, self._seen)
        try:
            refused = self._refuse_name(scope) or await self._let_in(scope, receive, answering.send)
            if refused is not None:
                await refused(scope, receive, answering.send)
        except PmlError as exc:
            await answering.end_with(error_answer(exc), receive)
        except Exception as exc:  # a mistake of ours: logged whole, shown bare
            self._complain(exc)
            await answering.end_with(error_answer(PmlError("internal error")), receive)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Let the application answer; or return why not."""
        if _is_open(scope):
            await self._app(scope, receive, send)
            return None
        identity = await self._identify(scope)
        if identity is None:
            return await self._refuse_stranger(scope)
        if identity.role is TokenRole.LOGIN and scope["path"] != LOGIN_PATH:
            return error_answer(Forbidden("a login's token is good for logging in, and for nothing else"))
        set_identity(scope, identity)
        async with self._bodies.read(scope, receive, identity.token_id) as body:
            if isinstance(body, Response):
                return body
            if body is not None:
                await self._app(scope, _given(body, receive), send)
        return None

    def _refuse_name(self, scope: Scope) -> Response | None:
        """Return why this name of the hub, or this page, is refused."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0] not in self._allowed.hosts:
            return self._refuse_host(scope, "" if len(hosts) != 1 else hosts[0])
        origins = _values(scope, b"origin")
        if origins and (len(origins) > 1 or origins[0] not in self._allowed.origins):
            return refusal(403, "the hub does not answer to pages of another origin")
        return None

    def _refuse_host(self, scope: Scope, host: str) -> Response:
        moved = self._allowed.moved.get(host)
        if moved is not None and scope["path"] == ROOT_PATH and scope["method"] in ("GET", "HEAD"):
            return RedirectResponse(f"{moved}{ROOT_PATH}", status_code=307)
        return refusal(
            421,
            "the hub does not answer to this host name",
            hint="`pml serve --allow-host NAME` adds one" if moved is None else f"it is at {moved}",
        )

    async def _identify(self, scope: Scope) -> Identity | None:
        return await identify_bearer(self._context, _bearer(scope))

    async def _refuse_stranger(self, scope: Scope) -> Response:
        """Only who comes to log in, with a link that was one, learns more than that no token is valid."""
        spent = await why_spent(self._context, _bearer(scope)) if scope["path"] == LOGIN_PATH else None
        return _no_token() if spent is None else error_answer(spent)


class _Answering:
    """The way back: adds to each answer what every answer has, and remembers how far it got."""

    def __init__(self, scope: Scope, send: Send, seen: Seen) -> None:
        self._scope = scope
        self._send = send
        self._seen = seen
        self._has_begun = False
        self._is_whole = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_begun = True
            message = {**message, "headers": [*message.get("headers", ())]}
            _put_headers(message)
            self._seen(self._scope["method"], self._scope.get(ROUTE, "other"), message["status"])
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._is_whole = True
        await self._send(message)

    async def end_with(self, answer: Response, receive: Receive) -> None:
        """Answer with an error. Raises: ConnectionAbortedError for half of one: it must not look whole."""
        if not self._has_begun:
            await answer(self._scope, receive, self.send)
        elif not self._is_whole:
            raise ConnectionAbortedError("the answer cannot be finished")


def _put_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name in [name for name in headers if name.startswith("access-control-")]:
        del headers[name]
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)


def _is_open(scope: Scope) -> bool:
    """Whether it is answered without a token."""
    is_asset = scope["path"].startswith(ASSETS_PATH) and scope["method"] in ("GET", "HEAD")
    return scope["path"] in OPEN_PATHS or is_asset


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key == name]


def _bearer(scope: Scope) -> str | None:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return given[0].decode("latin-1") if len(given) == 1 else None


def _given(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was read, then whatever comes."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return rest.pop() if rest else await receive()

    return again


def _no_token() -> Response:
    """The same for no token, a wrong one, and one that is no longer valid: the answer does not say which."""
    return refusal(
        401,
        "no valid token was sent",
        hint="send `Authorization: Bearer TOKEN`; `pml token create` makes one",
        headers={"www-authenticate": 'Bearer realm="pml"'},
    )
