"""Requests of a login: each URL is checked, none is redirected, and what is answered is bounded.

A request goes to the address that was checked, under the name that the certificate must bear.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult

import msgspec

from pml.core.errors import Invalid, Unavailable
from pml.core.servers.remote_target import shown_url
from pml.core.text import quote
from pml.core.values import Json
from pml.web.clients import AGENT, open_client, reason
from pml.web.hosts import in_url
from pml.web.nearness import Near, addresses, check_url, is_proxied, nearness

if TYPE_CHECKING:
    import httpx2

_CONNECT_S: Final = 10.0
_READ_S: Final = 20.0
WHOLE_S: Final = 60.0  # for a whole answer, however it comes: whoever refreshes holds a lock
_MAX_BYTES: Final = 1024 * 1024  # metadata and tokens are a few kilobytes
_MAX_HEADERS: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer:
    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """What the answer says it is: `text/html`."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() or "nothing it names"

    def object(self) -> dict[str, Any] | None:
        """Return the JSON object that it is; None if it is not one."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


class LoginWeb:
    """Requests for a server: what it leads to is not nearer to this machine than the server itself."""

    def __init__(self, nearest: Near) -> None:
        self.nearest = nearest

    @classmethod
    async def of(cls, server_url: str) -> "LoginWeb":
        """Return what may be reached on behalf of the server. Raises: Invalid, Unavailable."""
        parts = check_url(server_url, whose="the server's URL")
        if is_proxied(parts):
            return cls(Near.PUBLIC)
        found = await addresses(parts, whose="the server")
        return cls(min((near for it in found if (near := nearness(it)) is not None), default=Near.PUBLIC))

    def check(self, url: str, *, whose: str) -> SplitResult:
        """Raises: Invalid if the URL may not be followed, as far as its spelling tells."""
        return check_url(url, whose=whose, nearest=self.nearest)

    async def send(
        self,
        method: str,
        url: str,
        *,
        whose: str,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        json: Json = None,
    ) -> Answer:
        """Return what is answered, a redirect too. `whose` says in errors what was asked.

        Raises: Invalid for a place that may not be reached; Unavailable.
        """
        import httpx2

        parts = self.check(url, whose=whose)
        sent = {
            "user-agent": AGENT,
            "accept": "application/json",
            "accept-encoding": "identity",
            **(headers or {}),
        }
        asked = httpx2.URL(url)
        extensions: dict[str, object] = {}
        if not is_proxied(parts):
            [address, *_] = await addresses(parts, whose=whose, nearest=self.nearest)
            sent["host"] = asked.netloc.decode("ascii")
            extensions = {"sni_hostname": asked.host}
            asked = asked.copy_with(host=in_url(str(address)).strip("[]"))
        try:
            async with (
                asyncio.timeout(WHOLE_S),
                open_client(str(asked), connect_s=_CONNECT_S, read_s=_READ_S) as client,
            ):
                request = client.build_request(
                    method, asked, headers=sent, data=form, json=json, extensions=extensions
                )
                response = await client.send(request, stream=True)
                try:
                    return await _read(response, url, whose)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise Unavailable(f"{whose} at {quote(shown_url(url))} did not answer in time") from None
        except httpx2.HTTPError as exc:
            why = type(exc).__name__ if form or json else reason(exc)  # which may repeat what was sent
            raise Unavailable(f"{whose} at {quote(shown_url(url))} cannot be reached: {why}") from None
        except (httpx2.InvalidURL, UnicodeError):
            raise Invalid(f"{whose} {quote(shown_url(url))} is not a URL") from None


async def _read(response: "httpx2.Response", url: str, whose: str) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    if sum(len(name) + len(value) for name, value in headers.items()) > _MAX_HEADERS:
        raise Unavailable(f"{whose} at {quote(shown_url(url))} answered with too many headers")
    if headers.get("content-encoding", "identity").lower() != "identity":  # a little may unpack to very much
        raise Unavailable(
            f"{whose} at {quote(shown_url(url))} answered in an encoding that was not asked for"
        )
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _MAX_BYTES:
            raise Unavailable(
                f"{whose} at {quote(shown_url(url))} answered with more than {_MAX_BYTES // 1024} KiB"
            )
    return Answer(url=url, status=response.status_code, headers=headers, body=bytes(body))
