"""A registry server: the sound entries of a folder over HTTP, read-only, under the URLs that clients use.

Only what is metadata under its own name, and the code that belongs to it, is served: no other file of the
folder, no list, nothing through a link. Imported by the command that serves: it brings the web framework.
"""

import asyncio
import hashlib
import re
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pml.core.errors import ErrorCode, Invalid, NotFound, PmlError, Unavailable
from pml.core.text import quote, visible
from pml.core.wire import error_json
from pml.registry.addresses import is_loopback
from pml.registry.connections import REQUEST_S, impatient
from pml.registry.entries import EntryName, Form, MetadataReader, code_form, entry_name
from pml.registry.folder import RegistryFolder
from pml.registry.negotiation import has_already, negotiate

HTTP_STATUS: Final[dict[ErrorCode, int]] = {
    ErrorCode.INVALID: 400,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
}
_HEADERS: Final = {
    "cache-control": "no-cache",  # may be kept, but is asked for again, by its ETag
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_GRACE_S: Final = 2  # an answer is a file: one that takes longer has no reader
_MAX_CONNECTIONS: Final = 512
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")

Say = Callable[[str], None]


def registry_app(folder: RegistryFolder, *, only_local: bool, debug: Say) -> ASGIApp:
    """Return the registry of `folder`. `only_local`: requests must name this machine as host."""
    reader = MetadataReader()

    async def entry(request: Request) -> Response:
        return _entry(folder, reader, request, debug)

    app = Starlette(
        routes=[Route("/mcp/{name}", entry), Route("/health", _health)],
        exception_handlers={HTTPException: _refusal, PmlError: _failure},
    )
    app.router.redirect_slashes = False
    return _Guard(app, only_local=only_local, debug=debug)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any. Raises: Unavailable."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as exc:  # UnicodeError: a name that cannot be one, such as `a..b`
        reason = exc.strerror if isinstance(exc, OSError) else "that is no name of a host"
        raise Unavailable(
            f"cannot listen on {quote(host)} port {port}: {reason}",
            hint="give another with `--host` or `--port`; port 0 takes any that is free",
        ) from exc


def url_of(listening: socket.socket) -> str:
    """Return the URL of what is served there."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: ASGIApp, listening: socket.socket, *, request_s: float = REQUEST_S) -> None:
    """Serve until cancelled; what is being answered is answered to its end, within bounds."""
    config = uvicorn.Config(
        app,
        http=impatient(request_s=request_s, max_per_peer=_MAX_CONNECTIONS // 2),
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
        ws="none",
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signals to the command."""
        return nullcontext()


def _entry(folder: RegistryFolder, reader: MetadataReader, request: Request, debug: Say) -> Response:
    """Return the entry in the form that is wanted. Raises: NotFound, Conflict, Unavailable, HTTPException."""
    given = request.path_params["name"]
    missing = NotFound(f"no such capability: {quote(given)}")
    try:
        name = entry_name(given)
        bodies = _bodies(folder, reader, name)
    except Invalid as exc:
        debug(f"registry: not served: {visible(exc.message)}")
        raise missing from exc
    except Unavailable as exc:  # its message names places on this machine
        debug(f"registry: {visible(exc.message)}")
        raise Unavailable("the registry cannot read this entry now") from exc
    if not bodies:
        raise missing
    form = negotiate(request.headers.get("accept"), list(bodies))
    if form is None:
        raise HTTPException(406, f"there is {', '.join(bodies)}")
    body = bodies[form]
    headers = {"vary": "Accept", "etag": f'"sha256-{hashlib.sha256(body).hexdigest()}"'}
    if has_already(request.headers.get("if-none-match"), headers["etag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, headers={**headers, "content-type": form.value})


def _bodies(folder: RegistryFolder, reader: MetadataReader, name: EntryName) -> dict[Form, bytes]:
    """Return the forms that a sound entry has. Raises: Invalid, Conflict, Unavailable."""
    body = folder.read(name, Form.METADATA)
    if body is None:
        return {}
    metadata = reader.read(body, name, source="the folder")
    bodies = {Form.METADATA: body}
    form = code_form(metadata)
    code = None if form is None else folder.read(EntryName(str(metadata.fqdn)), form)
    if form is not None and code is not None:
        bodies[form] = code
    return bodies


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _refusal(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed", 406: "not_acceptable"}
    error = {"code": codes.get(exc.status_code, "invalid"), "message": exc.detail.lower()}
    return JSONResponse({"error": error}, exc.status_code, headers={"vary": "Accept", **(exc.headers or {})})


async def _failure(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, PmlError)
    return JSONResponse(error_json(exc), HTTP_STATUS[exc.code], headers={"vary": "Accept"})


class _Guard:
    """Every answer has the security headers; every request is logged for who debugs."""

    def __init__(self, app: ASGIApp, *, only_local: bool, debug: Say) -> None:
        self._app = app
        self._only_local = only_local
        self._debug = debug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(key.encode(), value.encode()) for key, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
                self._debug(f"registry: {scope['method']} {visible(scope['path'])} {message['status']}")
            await send(message)

        request = Request(scope)
        if self._only_local and not is_loopback(_host(request.headers.get("host", ""))):
            error = {"code": "forbidden", "message": "this registry is for this machine only"}
            await JSONResponse({"error": error}, 421)(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)


def _host(header: str) -> str:
    """Return the host that the header names, without its port; nothing for what is no plain host."""
    found = _HOST.fullmatch(header)
    return "" if found is None else found[1].strip("[]")
