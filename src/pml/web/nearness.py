"""Places on the network that a URL may lead to: https or this machine, never nearer than where it came from.

A server in the open names further URLs (metadata, tokens). Each is checked as its own is, and what its name
resolves to is checked again at each request, which goes to the very address that was checked.
"""

import asyncio
import ipaddress
import socket
from enum import IntEnum
from typing import Final
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

from pml.core.errors import Invalid, Unavailable
from pml.core.text import quote
from pml.web.hosts import METADATA, Address, is_loopback, parse_address, ways_in
from pml.web.urls import split_url

_SHARED: Final = ipaddress.ip_network("100.64.0.0/10")
_METADATA_NAMES: Final = frozenset({"metadata.google.internal", "metadata.goog", "metadata"})
_RESOLVE_S: Final = 10.0


class Near(IntEnum):
    """How near to this machine an address is."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2


def nearness(address: Address) -> Near | None:
    """Return how near the address is, by any way that leads there; None where nothing may be reached."""
    found = [_nearness(each) for each in ways_in(address)]
    return None if None in found else max(each for each in found if each is not None)


def _nearness(address: Address) -> Near | None:
    if address.is_loopback:
        return Near.LOOPBACK
    is_metadata = address in METADATA or address.is_link_local
    if is_metadata or address.is_multicast or address.is_unspecified:
        return None
    is_shared = isinstance(address, ipaddress.IPv4Address) and address in _SHARED
    return Near.PRIVATE if address.is_private or address.is_reserved or is_shared else Near.PUBLIC


def check_url(text: str, *, whose: str, nearest: Near = Near.LOOPBACK) -> SplitResult:
    """Return the parts of a URL that may be followed, as far as its spelling tells.

    Raises: Invalid for plain http elsewhere, for what nothing is reached at, or is nearer than `nearest`.
    """
    parts = split_url(text, whose=whose)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme != "https" and not is_loopback(host):
        raise Invalid(f"{whose} {quote(text)} must be https: plain http goes to this machine only")
    if host.lower() in _METADATA_NAMES:
        raise _refused(whose, host)
    try:
        near = nearness(parse_address(host))
    except ValueError:
        near = Near.LOOPBACK if is_loopback(host) else Near.PUBLIC
    if near is None or near > nearest:
        raise _refused(whose, host)
    return parts


async def addresses(parts: SplitResult, *, whose: str, nearest: Near = Near.LOOPBACK) -> list[Address]:
    """Return what the host resolves to now, all of it fit to be reached. Raises: Invalid, Unavailable."""
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_RESOLVE_S):
            answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as exc:
        raise Unavailable(f"{whose} is at {quote(host)}, which cannot be resolved") from exc
    found = list(dict.fromkeys(parse_address(str(answer[4][0])) for answer in answers))
    for address in found:
        near = nearness(address)
        if near is None or near > nearest:
            raise _refused(whose, host if str(address) == host else f"{host} ({address})")
        if parts.scheme != "https" and near is not Near.LOOPBACK:
            raise Invalid(f"{whose} at {quote(host)} must be https: plain http goes to this machine only")
    return found


def is_proxied(parts: SplitResult) -> bool:
    """Tell whether the user's settings send this URL through a proxy, which then resolves the name."""
    host = parts.hostname or ""
    return not is_loopback(host) and parts.scheme in getproxies() and not proxy_bypass(host)


def _refused(whose: str, where: str) -> Invalid:
    return Invalid(
        f"{whose} leads to {quote(where)}, which is not for it to name: an address of this machine, of its "
        "network, or of its cloud's metadata",
        hint="the server, or its authorization server, is misconfigured or hostile: do not log in to it",
    )
