"""One GET to a registry: bounded in time, size and redirects, without cookies or credentials.

Proxies and certificate authorities are those of the environment; this machine is never reached by a proxy.
What the body says, and whether it is kept, is not known here. The HTTP client is imported when it is needed.
"""

import asyncio
import socket
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import msgspec

from pml.core.errors import Invalid, Unavailable
from pml.core.text import quote
from pml.registry.client.addresses import check_hop
from pml.registry.entry_forms import MAX_BYTES, Form
from pml.web.clients import AGENT, open_client, reason

if TYPE_CHECKING:
    import httpx2

MAX_REDIRECTS: Final = 3
MAX_ETAG: Final = 256
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ABSENT: Final = frozenset({404, 410})
_BUSY: Final = frozenset({408, 425, 429})  # they say "later", as 5xx do
_PLAIN: Final = "text/plain"  # what servers of plain files say of code
_TYPES: Final = {
    Form.TYPESCRIPT: {Form.TYPESCRIPT, "text/typescript", "application/x-typescript", _PLAIN},
    Form.PYTHON: {Form.PYTHON, "application/x-python", _PLAIN},
}


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited: to connect, for the next bytes, and for all of it, redirects included.

    A person waits for the call that needs this; what takes longer is taken for out of order.
    """

    connect_s: float = 5.0
    read_s: float = 10.0
    total_s: float = 30.0


class Offline(Unavailable):
    """The registry cannot be asked now; `is_whole`: not for this entry only, no connection comes about."""

    def __init__(self, url: str, problem: str, *, is_whole: bool) -> None:
        super().__init__(
            f"registry {quote(url)} cannot be asked: {problem}",
            hint="check the network and `registry` in .pml.json, then try again",
        )
        self.is_whole = is_whole


class Outcome(Enum):
    FOUND = "found"
    ABSENT = "absent"
    UNCHANGED = "unchanged"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    body: bytes = b""
    etag: str | None = None


async def get(url: str, form: Form, *, etag: str | None, patience: Patience, sent_by: str) -> Answer:
    """Return what is at `url` in `form`; `sent_by` is the URL of the registry that named it.

    Raises: Offline; Unavailable for another refusal; Invalid for an answer that is none, or leads astray.
    """
    import httpx2

    try:
        async with asyncio.timeout(patience.total_s):
            await check_hop(sent_by, url, resolve=_addresses)
            return await _follow(url, form, etag=etag, patience=patience)
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as exc:
        raise Offline(url, f"no connection ({reason(exc)})", is_whole=True) from exc
    except httpx2.TimeoutException as exc:
        raise Offline(url, f"no answer within {patience.read_s:g} s", is_whole=False) from exc
    except TimeoutError as exc:
        raise Offline(url, f"no whole answer within {patience.total_s:g} s", is_whole=False) from exc
    except (httpx2.HTTPError, httpx2.InvalidURL, zlib.error) as exc:
        raise Offline(url, f"a broken answer ({reason(exc)})", is_whole=False) from exc


async def _follow(url: str, form: Form, *, etag: str | None, patience: Patience) -> Answer:
    for _ in range(MAX_REDIRECTS + 1):
        async with _request(url, form, etag=etag, patience=patience) as response:
            if response.status_code not in _REDIRECTS:
                return await _answer(response, url, form, is_conditional=etag is not None)
            target = urljoin(url, response.headers.get("location", ""))
        await check_hop(url, target, resolve=_addresses)
        url = target
    raise Invalid(f"registry {quote(url)} redirects more than {MAX_REDIRECTS} times")


@asynccontextmanager
async def _request(
    url: str, form: Form, *, etag: str | None, patience: Patience
) -> "AsyncGenerator[httpx2.Response]":
    headers = {"accept": form.value, "accept-encoding": "gzip", "user-agent": AGENT}
    if etag is not None:
        headers["if-none-match"] = etag
    async with open_client(url, connect_s=patience.connect_s, read_s=patience.read_s) as client:
        request = client.build_request("GET", url, headers=headers)
        response = await client.send(request, stream=True, auth=None)
        try:
            yield response
        finally:
            await response.aclose()


async def _answer(response: "httpx2.Response", url: str, form: Form, *, is_conditional: bool) -> Answer:
    status = response.status_code
    if status == 200:
        _check_type(response, url, form)
        body = await _body(response, url, limit=MAX_BYTES[form])
        return Answer(outcome=Outcome.FOUND, body=body, etag=_etag(response))
    if status in _ABSENT:
        return Answer(outcome=Outcome.ABSENT)
    if status == 304 and is_conditional:
        return Answer(outcome=Outcome.UNCHANGED)
    if status >= 500 or status in _BUSY:
        raise Offline(url, f"it answered {status}", is_whole=False)
    raise Unavailable(
        f"registry {quote(url)} answered {status} to a request for {form.value}",
        hint="check `registry` in .pml.json; PML sends no credentials",
    )


def _check_type(response: "httpx2.Response", url: str, form: Form) -> None:
    given = response.headers.get("content-type", "")
    media = given.partition(";")[0].strip().lower()
    if form is Form.METADATA:
        is_right = media == form or (media.startswith("application/") and media.endswith("+json"))
    else:
        is_right = media in _TYPES[form]
    if not is_right:
        said = f"{quote(given)}" if given else "no content type"
        raise Invalid(
            f"registry {quote(url)} answered with {said} instead of {form.value}",
            hint="check `registry` in .pml.json: this may be the page of a site or of a network's sign-in",
        )


async def _body(response: "httpx2.Response", url: str, *, limit: int) -> bytes:
    """Return the whole body, at most `limit` bytes; what is packed is never unpacked beyond that."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise Invalid(f"registry {quote(url)} answered in the encoding {quote(encoding)}, not in gzip")
    unpacked = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk if unpacked is None else unpacked.decompress(chunk, limit + 1 - len(body))
        if len(body) > limit:
            raise Invalid(f"registry {quote(url)} answered with more than {limit:,} bytes")
        if unpacked is not None and unpacked.unused_data:
            raise zlib.error("the packed body goes on after its end")
    if unpacked is not None and not unpacked.eof:
        raise zlib.error("the packed body ends too soon")
    return bytes(body)


def _etag(response: "httpx2.Response") -> str | None:
    etag = response.headers.get("etag")
    return etag if etag and len(etag) <= MAX_ETAG and etag.isascii() and etag.isprintable() else None


async def _addresses(host: str) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # only a proxy knows it, if any
        return ()
    return [str(address[0]) for *_, address in found]
