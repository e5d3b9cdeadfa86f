"""Listening and serving: uvicorn without its signals, its log and its patience. Knows no application."""

import asyncio
import gc
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from pml.core.errors import Unavailable
from pml.core.text import quote
from pml.web.connections import Limits, impatient
from pml.web.hosts import in_url

_GRACE_S: Final = 2  # for what is being answered when the server ends: waits are kept elsewhere
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_FILES: Final = 65_536
_TURN_S: Final = 0.0002
_YOUNG: Final = 20_000  # objects since the last collection of garbage: a call may bring 100,000 at once


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The files of a certificate and of its key."""

    certificate: str
    key: str


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any. Raises: Unavailable."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as exc:  # UnicodeError: a name that cannot be one, such as `a..b`
        reason = exc.strerror if isinstance(exc, OSError) else "that is not a name of a host"
        raise Unavailable(
            f"cannot listen on {quote(host)} port {port}: {reason}",
            hint="give another with `--host` or `--port`; port 0 picks a free one",
        ) from exc


def url_of(listening: socket.socket, *, scheme: str = "http") -> str:
    """Return the URL of what is served there; what listens everywhere is this machine itself."""
    host, port = listening.getsockname()[:2]
    return f"{scheme}://{in_url(_EVERYWHERE.get(str(host), str(host)))}:{port}"


async def serve(
    app: ASGIApp,
    listening: socket.socket,
    *,
    limits: Limits | None = None,
    tls: Tls | None = None,
    on_stop: Callable[[], None] | None = None,
) -> None:
    """Serve until cancelled; what is being answered is answered to its end, within bounds.

    `on_stop` ends what would run for ever.

    Raises: Unavailable if the certificate cannot be used.
    """
    limits = limits or Limits()
    config = uvicorn.Config(
        app,
        http=impatient(limits),
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=_GRACE_S,
        ws="none",
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    try:
        config.load()
    except OSError as exc:  # an SSLError is one
        raise Unavailable(
            f"cannot use the certificate and its key: {exc.strerror or exc}", hint="both must be PEM files"
        ) from exc
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    finally:
        if on_stop is not None:
            on_stop()
        server.should_exit = True
        await serving


def share_time() -> None:
    """Let what is done in threads hold up others little: for the process, once it has all that it keeps.

    A thread that computes keeps the interpreter for a whole turn whenever the loop lets go of it, which each
    statement of the database and each look at a file does; at the usual 5 ms one small call took 100 ms. And
    what is there for good need not be walked through at every collection of garbage.
    """
    sys.setswitchinterval(_TURN_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)


def allow_many_files() -> None:
    """Let this process hold as many connections as the system lets it: one that waits takes one each."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signals to the command."""
        return nullcontext()
