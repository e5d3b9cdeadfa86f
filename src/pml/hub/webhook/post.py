"""One delivery to a webhook: where it may be sent at all, what is sent, and what the answer means.

An answer is its status and when to come again: its body is not read, and it leads nowhere else. When it is
tried again, and what was delivered, is not known here.
"""

import asyncio
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult

from pml.core.errors import Invalid
from pml.core.text import quote, visible
from pml.web.clients import AGENT, reason
from pml.web.hosts import in_url, is_loopback
from pml.web.urls import split_url


def sign(body: bytes, *, key: str, at_s: int) -> str:
    """Return the value of `PML-Signature` for a body that is sent at that Unix time."""
    made = hmac.new(key.encode(), b"%d." % at_s + body, hashlib.sha256)
    return f"t={at_s},v1={made.hexdigest()}"


if TYPE_CHECKING:
    import httpx2

SECRET: Final = "PML_WEBHOOK_SECRET"
NO_SECRET: Final = f"nothing is sent to the webhook: there is no secret {SECRET} to sign with"
SET_SECRET: Final = f"`pml secrets set {SECRET}` stores one; the receiver checks signatures with the same"
_GONE: Final = 410
_BUSY: Final = frozenset({429, 503})


class Target(NamedTuple):
    """Where messages go, and what they are signed with."""

    url: str
    key: str


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What became of one attempt; `problem` is for people, `after_s` when the receiver wants the next."""

    is_done: bool
    problem: str | None = None
    after_s: float | None = None


def check_webhook(url: str) -> None:
    """Raise Invalid for a URL that nothing is sent to."""
    import httpx2

    parts = split_url(url, whose="the webhook")
    try:
        httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise Invalid(
            f"nothing is sent to the webhook: {_shown(parts)} cannot be reached by that name",
            hint="fix `notify.webhook`",
        ) from None
    host = parts.hostname or ""
    # Names beneath `localhost` may be asked of a name server, which may say anything.
    is_here = is_loopback(host) and not host.rstrip(".").endswith(".localhost")
    if parts.fragment:
        raise Invalid("the webhook's URL must be without `#`", hint="fix `notify.webhook`")
    if parts.scheme == "http" and not is_here:
        raise Invalid(
            f"nothing is sent to the webhook: {_shown(parts)} is plain http, which others can read",
            hint="use https as `notify.webhook`; plain http is for a receiver on this machine",
        )


def shown_url(url: str) -> str:
    """Return scheme and host in backticks: what follows them is often a secret of the receiver's."""
    return _shown(split_url(url, whose="the webhook"))


def _shown(parts: SplitResult) -> str:
    port = "" if parts.port is None else f":{parts.port}"
    return quote(f"{parts.scheme}://{in_url(parts.hostname or '')}{port}")


async def post(
    client: "httpx2.AsyncClient", target: Target, body: bytes, *, delivery: str, at_s: int, timeout_s: float
) -> Answered:
    """Send the message once and tell what became of it."""
    import httpx2

    headers = {
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "pml-delivery": delivery,
        "pml-signature": sign(body, key=target.key, at_s=at_s),
        "user-agent": AGENT,
    }
    try:
        request = client.build_request("POST", target.url, content=body, headers=headers)
        async with asyncio.timeout(timeout_s):
            response = await client.send(request, stream=True, auth=None)
            await response.aclose()  # unread, which closes the connection: it may have no end
    except (TimeoutError, httpx2.TimeoutException):
        return Answered(is_done=False, problem=f"did not answer within {timeout_s:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as exc:
        return Answered(is_done=False, problem=f"cannot be reached: {visible(reason(exc))}")
    return _meaning(response.status_code, response.headers.get("retry-after"))


def _meaning(status: int, retry_after: str | None) -> Answered:
    if 200 <= status < 300:
        return Answered(is_done=True)
    if status == _GONE:
        return Answered(is_done=True, problem="answered 410 (gone): that question is not sent again")
    elsewhere = ", and nothing is sent elsewhere" if 300 <= status < 400 else ""
    after_s = _seconds(retry_after) if status in _BUSY else None
    return Answered(is_done=False, problem=f"answered {status}{elsewhere}", after_s=after_s)


def _seconds(header: str | None) -> float | None:
    """Return a `Retry-After` in seconds; None for none, and for one that names a date."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
