"""Requests to one remote server: to the URL that was trusted, with what is bound to it, and nowhere else.

One pool of connections. A redirect is followed within the origin only, and only where it keeps the method. A
401 is answered once with another token, if there is one. What the answers mean is not known here.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
from httpcore2 import ConnectError, ConnectTimeout, PoolTimeout, Response

from pml.core.errors import LoginRequired, ServerFailed
from pml.core.ports.credentials import Credentials
from pml.core.servers.remote_target import RemoteTarget, origin_of, url_problem
from pml.core.text import quote
from pml.upstream.limits import Limits
from pml.upstream.remote.host_addresses import CheckedBackend, NotAllowed, is_loopback_name
from pml.web.clients import AGENT
from pml.web.hosts import in_url

Headers = list[tuple[bytes, bytes]]

_REDIRECTS: Final = 3
_KEEP_METHOD: Final = frozenset({307, 308})
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_IDLE_S: Final = 4.0  # servers close what is idle, many after 5 s: what may be closing is not used again
_END_S: Final = 1.0  # for a stream to end after its answer
_END_BYTES: Final = 64 * 1024
_CONNECT_S: Final = 10.0
_WRITE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Lost(Exception):
    """No answer came; `was_sent`: the server may have acted all the same."""

    why: str
    was_sent: bool


class RemoteRequests:
    """The way to one server's URL."""

    def __init__(
        self, server: str, target: RemoteTarget, credentials: Credentials | None, limits: Limits
    ) -> None:
        self.server = server
        self.target = target
        self._credentials = credentials
        self._limits = limits
        # without blanks around: none is part of a header, and an error about one would have the whole value
        self._own = [(name.encode(), value.strip(" \t").encode()) for name, value in target.headers.items()]
        self._own.append((b"user-agent", AGENT.encode()))
        self._has_own_login = any(name.lower() == "authorization" for name in target.headers)
        self._pool = _open_pool(target, limits)

    @asynccontextmanager
    async def answered(
        self, method: str, url: str, headers: Headers, body: bytes = b"", *, is_endless: bool = False
    ) -> AsyncGenerator[Response]:
        """Send a request and yield the answer, whose body is not read yet; it is closed after.

        Raises: Lost; LoginRequired; ServerFailed.
        """
        response = await self._authorized(method, url, headers, body, is_endless=is_endless)
        try:
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._pool.aclose()

    async def _authorized(
        self, method: str, url: str, headers: Headers, body: bytes, *, is_endless: bool
    ) -> Response:
        credentials = None if self._has_own_login else self._credentials
        sent = None if credentials is None else await credentials.authorization(self.server, self.target)
        response = await self._send(method, url, [*headers, *_login(sent)], body, is_endless=is_endless)
        if not _wants_login(response):
            return response
        await response.aclose()
        if self._has_own_login:
            raise ServerFailed(
                f"server `{self.server}` refuses the `Authorization` header of its entry ({response.status})",
                hint="correct the header; nothing of the call has run",
            )
        if credentials is None:
            raise LoginRequired(self.server)
        challenge = header(response, b"www-authenticate")
        again = await credentials.challenged(
            self.server, self.target, status=response.status, challenge=challenge, sent=sent
        )
        if again is None:
            raise LoginRequired(self.server)
        response = await self._send(method, url, [*headers, *_login(again)], body, is_endless=is_endless)
        if _wants_login(response):
            await response.aclose()
            raise ServerFailed(
                f"server `{self.server}` refuses every token that it is shown ({response.status})",
                hint=f"`pml logout {self.server}`, then `pml login {self.server}`",
            )
        return response

    async def _send(
        self, method: str, url: str, headers: Headers, body: bytes, *, is_endless: bool
    ) -> Response:
        """Send, and follow redirects that stay. Raises: Lost; ServerFailed."""
        read_s = None if is_endless else self._limits.call_s
        extensions = {
            "timeout": {"connect": _CONNECT_S, "write": _WRITE_S, "read": read_s, "pool": self._limits.call_s}
        }
        for _ in range(_REDIRECTS + 1):
            if origin_of(url) != self.target.origin:  # whatever led here: values go to one origin only
                raise ServerFailed(f"server `{self.server}` is not sent anything at another origin")
            request = httpcore2.Request(
                method,
                url,
                headers=[*_about(url, body), *self._own, *headers],
                content=body,
                extensions=extensions,
            )
            response = await self._exchange(request)
            if response.status not in _MOVED:
                return response
            await response.aclose()
            url = self._redirected(url, response)
        raise ServerFailed(f"server `{self.server}` redirects without end")

    async def _exchange(self, request: httpcore2.Request) -> Response:
        try:
            return await self._pool.handle_async_request(request)
        except NotAllowed as exc:
            raise ServerFailed(
                f"server `{self.server}` is not reached: {exc}; nothing was sent",
                hint='where the name of a public host means a private address, write `"private": true`',
            ) from exc
        except (ConnectError, ConnectTimeout, PoolTimeout, httpcore2.ProxyError) as exc:
            raise Lost(f"cannot be reached: {reason(exc)}", was_sent=False) from exc
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError) as exc:
            raise Lost(f"lost the connection: {reason(exc)}", was_sent=True) from exc

    def _redirected(self, url: str, response: Response) -> str:
        to = urljoin(url, header(response, b"location") or "")
        is_usable = url_problem(to, is_insecure=self.target.is_insecure) is None
        if is_usable and origin_of(to) == self.target.origin and response.status in _KEEP_METHOD:
            return to
        where = quote(origin_of(to)) if is_usable else "what is not a URL"
        raise ServerFailed(
            f"server `{self.server}` redirects ({response.status}) to {where}, which is not followed",
            hint="if that is where it is, write its URL into the entry",
        )


def header(response: Response, name: bytes) -> str | None:
    """Return the header of this name in lower case, or None."""
    found = next((value for key, value in response.headers if key.lower() == name), None)
    return None if found is None else found.decode("latin-1")


BROKEN: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError)


async def read_whole(response: Response, *, max_bytes: int) -> bytes | None:
    """Return the body, None if it is larger. Raises: what `BROKEN` names."""
    parts: list[bytes] = []
    size = 0
    async for part in chunks(response):
        size += len(part)
        if size > max_bytes:
            return None
        parts.append(part)
    return b"".join(parts)


async def read_end(body: AsyncIterator[bytes]) -> None:
    """Read what is left of a body, which is nothing mostly: then its connection can be used again."""
    size = 0
    try:
        async with asyncio.timeout(_END_S):
            async for part in body:
                size += len(part)
                if size > _END_BYTES:
                    return
    except (TimeoutError, *BROKEN):
        return


async def chunks(response: Response) -> AsyncIterator[bytes]:
    """Yield the body as it comes."""
    async for part in response.aiter_stream():
        yield part


def _wants_login(response: Response) -> bool:
    if response.status == 401:
        return True
    return response.status == 403 and "insufficient_scope" in (header(response, b"www-authenticate") or "")


def _login(value: str | None) -> Headers:
    return [] if value is None else [(b"authorization", value.encode("latin-1", "replace"))]


def _about(url: str, body: bytes) -> Headers:
    """Return the headers that belong to any request of this URL."""
    parts = httpcore2.URL(url)
    port = b"" if parts.port is None else b":%d" % parts.port
    host = b"[" + parts.host + b"]" if b":" in parts.host else parts.host
    about = [(b"host", host + port), (b"accept-encoding", b"identity")]
    return [*about, (b"content-length", b"%d" % len(body))] if body else about


def reason(exc: Exception) -> str:
    """Return in words what broke."""
    text = str(exc).partition("\n")[0]
    return text or type(exc).__name__


def _open_pool(target: RemoteTarget, limits: Limits) -> httpcore2.AsyncConnectionPool:
    proxy = _proxy(target.url)
    return httpcore2.AsyncConnectionPool(
        ssl_context=httpcore2.default_ssl_context() if target.url.startswith("https:") else None,
        proxy=proxy,
        max_connections=limits.connections,
        max_keepalive_connections=limits.idle_connections,
        keepalive_expiry=_IDLE_S,
        network_backend=None if proxy is not None else CheckedBackend(may_be_private=target.is_private),
    )


def _proxy(url: str) -> httpcore2.Proxy | None:
    """Return the proxy that the user's environment names for `url`; never one for this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback_name(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named:
        return None
    given = urlsplit(named if "://" in named else f"http://{named}")
    auth = None if given.username is None else (unquote(given.username), unquote(given.password or ""))
    address = f"{given.scheme}://{in_url(given.hostname or '')}" + (f":{given.port}" if given.port else "")
    return httpcore2.Proxy(address, auth=auth)
