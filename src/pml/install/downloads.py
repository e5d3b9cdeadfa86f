"""One artefact over HTTP, whole and within bounds: never by a redirect to another scheme.

Credentials go to the host they were asked for, and to no other that it may send us on to.
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from pml.core.errors import Invalid, Unavailable
from pml.core.text import quote

if TYPE_CHECKING:
    import httpx2

_MOST_REDIRECTS: Final = 5
_SILENCE_S: Final = 30.0  # between two pieces of a body; a slow drip is ended by the whole's time


async def download(
    url: str, *, authorization: str | None, cap_bytes: int, timeout_s: float, ca_file: str | None
) -> bytes:
    """Return the body at `url`. Raises: Unavailable; Invalid if it is larger than `cap_bytes`."""
    import httpx2

    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(verify=_trusted(ca_file), timeout=_SILENCE_S) as client,
        ):
            return await _follow(client, url, authorization, cap_bytes)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as exc:  # an SSLError, a TimeoutError too
        reason = str(exc) or type(exc).__name__
        raise Unavailable(f"{quote(url)} could not be downloaded: {reason}") from exc


def _trusted(ca_file: str | None) -> ssl.SSLContext:
    """Return the authorities of the system and of `SSL_CERT_FILE`, and those in `ca_file`."""
    trusted = ssl.create_default_context()
    if ca_file is not None:
        trusted.load_verify_locations(ca_file)
    return trusted


async def _follow(client: "httpx2.AsyncClient", url: str, authorization: str | None, cap_bytes: int) -> bytes:
    first = urlsplit(url)
    for _ in range(_MOST_REDIRECTS + 1):
        parts = urlsplit(url)
        if parts.scheme != first.scheme or parts.scheme not in ("http", "https"):
            raise Unavailable(f"{quote(url)} is not downloaded: it was redirected to from {first.scheme}")
        known = {"Authorization": authorization} if authorization and parts.netloc == first.netloc else {}
        async with client.stream("GET", url, headers=known) as response:
            if response.is_redirect:
                url = urljoin(url, response.headers["location"])
                continue
            if response.status_code != 200:
                raise Unavailable(f"{quote(url)} could not be downloaded: status {response.status_code}")
            return await _body(response, url, cap_bytes)
    raise Unavailable(f"{quote(url)} could not be downloaded: too many redirects")


async def _body(response: "httpx2.Response", url: str, cap_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > cap_bytes:
            raise Invalid(f"{quote(url)} has more than {cap_bytes:,} bytes")
    return bytes(body)
