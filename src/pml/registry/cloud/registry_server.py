"""A registry server: the sound entries of a folder over HTTP, read-only, under the URLs that clients use.

Only what is metadata under its own name, and the code that belongs to it, is served: no other file of the
folder, no list, nothing through a link. Calls are run beside it where its operator wants that. Imported by
the command that serves: it brings the web framework.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pml.core.errors import Invalid, NotFound, PmlError, Unavailable
from pml.core.text import quote, visible
from pml.registry.cloud.served_calls import PATH, Calls
from pml.registry.entry_forms import EntryName, Form, MetadataReader, code_form, entry_name
from pml.registry.folder import RegistryFolder
from pml.web.error_responses import SECURITY_HEADERS, refusal, tell_error, tell_refusal
from pml.web.hosts import is_loopback, named_host


def negotiate(accept: str | None, offered: Sequence[Form]) -> Form | None:
    """Return the form of `offered` that the `Accept` header likes best, the first among equals."""
    if accept is None or not accept.strip():
        return offered[0] if offered else None
    ranges = list(_ranges(accept))
    liked = [(_quality(form, ranges), form) for form in offered]
    best = max((quality for quality, _ in liked), default=0.0)
    return next((form for quality, form in liked if quality == best > 0), None)


def has_already(if_none_match: str | None, etag: str) -> bool:
    """Tell whether the `If-None-Match` header names `etag`, weakly or not."""
    if if_none_match is None:
        return False
    given = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return "*" in given or etag in given


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            yield media, min(max(float(quality), 0.0), 1.0)
        except ValueError:  # a quality that is not a number makes the range unreadable, so it is ignored
            continue


def _quality(form: Form, ranges: Sequence[tuple[str, float]]) -> float:
    """Return what the most specific of the ranges that cover `form` says."""
    for covering in (form.value, f"{form.value.partition('/')[0]}/*", "*/*"):
        found = [quality for media, quality in ranges if media == covering]
        if found:
            return max(found)
    return 0.0


_HEADERS: Final = {
    **SECURITY_HEADERS,
    "cache-control": "no-cache",  # may be kept, but is asked for again, by its ETag
}

Say = Callable[[str], None]


def registry_app(
    folder: RegistryFolder, *, only_local: bool, debug: Say, calls: Calls | None = None
) -> ASGIApp:
    """Return the registry of `folder`, and what runs `calls`, if it does.

    `only_local`: requests must name this machine as host.
    """
    reader = MetadataReader()

    async def entry(request: Request) -> Response:
        return _entry(folder, reader, request, debug)

    app = Starlette(
        routes=[
            Route("/mcp/{name}", entry),
            Route("/health", _health),
            Route(PATH, _no_calls if calls is None else calls.answer, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _refusal, PmlError: _failure},
    )
    app.router.redirect_slashes = False
    return _Guard(app, only_local=only_local, debug=debug)


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


async def _no_calls(request: Request) -> Response:
    return refusal(404, "this registry runs no tools", hint="its operator lets it with `pml cloud --execute`")


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _refusal(request: Request, exc: Exception) -> Response:
    return _varying(await tell_refusal(request, exc))


async def _failure(request: Request, exc: Exception) -> Response:
    return _varying(await tell_error(request, exc))


def _varying(answer: Response) -> Response:
    answer.headers["vary"] = "Accept"
    return answer


class _Guard:
    """Every answer has the security headers; every request is logged for who debugs."""

    def __init__(self, app: ASGIApp, *, only_local: bool, debug: Say) -> None:
        self._app = app
        self._only_local = only_local
        self._debug = debug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"]]}
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                self._debug(f"registry: {scope['method']} {visible(scope['path'])} {message['status']}")
            await send(message)

        request = Request(scope)
        if self._only_local and not is_loopback(named_host(request.headers.get("host", ""))):
            answer = refusal(421, "this registry is for this machine only")
            await answer(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)
