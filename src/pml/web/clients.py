"""HTTP clients: proxies and certificate authorities are those of the environment, and nothing is remembered.

This machine is never reached by a proxy, no redirect is followed, no cookie is kept. The HTTP library is
imported when it is needed. What is asked, and what an answer means, is not known here.
"""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pml import __version__
from pml.web.hosts import in_url, is_loopback

if TYPE_CHECKING:
    import httpx2

AGENT: Final = f"pml/{__version__}"
_IDLE_S: Final = 2.0  # servers close what is idle, many after 5 s: what may be closing is not used again


def open_client(url: str, *, connect_s: float, read_s: float) -> "httpx2.AsyncClient":
    """Return a client for the host of `url`; the caller closes it."""
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx2

    host = urlsplit(url).hostname or ""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(read_s, connect=connect_s),
        mounts={f"all://{in_url(host)}": None} if is_loopback(host) else None,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=_IDLE_S),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
    )


def reason(exc: Exception) -> str:
    """Return the first line of what the library says of a failure."""
    return str(exc).partition("\n")[0] or type(exc).__name__
