"""Addresses of registries: which URLs one may have, and where it may lead from there.

Plain http stays on this machine; nothing outside leads to this machine or into the network around it. A name
is judged by the addresses it resolves to now; one that only a proxy can resolve is the proxy's to judge.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import SplitResult

from pml.core.errors import Invalid
from pml.core.text import quote
from pml.web.hosts import is_loopback, parse_address
from pml.web.urls import split_url

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]  # the addresses of a host; none if unknown


def registry_url(text: str) -> str:
    """Return the registry's URL, without a slash at its end. Raises: Invalid."""
    parts = _parts(text)
    if parts.query or parts.fragment:
        raise Invalid(f"registry {quote(text)} must be a URL without `?` and `#`")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise Invalid(
            f"registry {quote(text)} is plain http, which anyone on the way can change",
            hint="use https; plain http is for registries on this machine",
        )
    return text.rstrip("/")


async def check_hop(before: str, after: str, *, resolve: Resolve) -> None:
    """Raise Invalid if what is at `before` may not send us to `after`."""
    old, new = _parts(before), _parts(after)
    old_host, new_host = old.hostname or "", new.hostname or ""
    leads = f"{quote(before)} leads to {quote(after)}"
    if new.scheme == "http" and (
        old.scheme == "https" or not is_loopback(old_host) or not is_loopback(new_host)
    ):
        raise Invalid(f"{leads}: plain http, which is refused")
    if old_host == new_host or is_loopback(old_host):
        return
    if is_loopback(new_host) or any(_is_near(address) for address in await resolve(new_host)):
        raise Invalid(f"{leads}: an address of this machine or its network, which is refused")


def _is_near(address: str) -> bool:
    try:
        found = parse_address(address)
    except ValueError:
        return True  # no address at all: in doubt, no
    return not found.is_global or found.is_multicast


def _parts(text: str) -> SplitResult:
    return split_url(text, whose="a registry")
