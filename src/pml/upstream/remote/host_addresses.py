"""Addresses that a remote server's host may lead to, checked on the very address that is connected to.

A name is looked up, its answers are judged, and the connection goes to one that passed: no second lookup
can lead elsewhere. Where a proxy of the user's stands between, it looks up, and this is not used.
"""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from httpcore2 import AnyIOBackend, AsyncNetworkStream, ConnectError
from httpcore2 import AsyncNetworkBackend as Backend

from pml.web.hosts import METADATA, Address, parse_address, ways_in

_INNER: Final = (".local", ".internal", ".lan", ".home.arpa", ".corp", ".intranet", ".private", ".test")


class NotAllowed(ConnectError):
    """The host leads where nothing may be sent; nothing was."""


def address_problem(host: str, address: Address, *, may_be_private: bool) -> str | None:
    """Return why a request for `host` may not go to `address`, or None."""
    ways = ways_in(address)
    if any(each in METADATA for each in ways):
        return "is where clouds keep credentials of machines"
    for each in ways:
        if each.is_link_local or each.is_multicast or each.is_unspecified:
            return "is no address of a server"
    if is_loopback_name(host):
        return None if address.is_loopback else "is not this machine, as the URL says"
    if any(each.is_loopback for each in ways):
        return "is this machine, which the URL does not say"
    is_public = all(each.is_global for each in ways)
    if is_public or may_be_private or _is_literal(host) or is_inner_name(host):
        return None
    return "is a private address, and the name a public one"


def is_inner_name(host: str) -> bool:
    """Tell whether the name is one of an own network: no public name server answers for it."""
    name = host.lower().rstrip(".")
    return "." not in name or name.endswith(_INNER)


def is_loopback_name(host: str) -> bool:
    """Tell whether the URL says this machine."""
    name = host.lower().rstrip(".")
    return name == "localhost" or (_is_literal(name) and parse_address(name).is_loopback)


def _is_literal(host: str) -> bool:
    try:
        parse_address(host)
    except ValueError:
        return False
    return True


class CheckedBackend(Backend):
    """Connects to addresses that may be connected to, and to no other."""

    def __init__(self, *, may_be_private: bool) -> None:
        self._may_be_private = may_be_private
        self._inner = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[
            tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
        ]
        | None = None,
    ) -> AsyncNetworkStream:
        """Raises: NotAllowed; ConnectError."""
        problem: Exception = ConnectError("the name has no address")
        for address in await _look_up(host, port, timeout):
            try:
                why = address_problem(host, parse_address(address), may_be_private=self._may_be_private)
            except ValueError:
                why = "cannot be read"
            if why is not None:
                problem = NotAllowed(f"{address} {why}")
                continue
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except Exception as exc:  # the next may answer
                problem = exc
        raise problem

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


async def _look_up(host: str, port: int, timeout_s: float | None) -> list[str]:
    if _is_literal(host):
        return [host]
    try:
        async with asyncio.timeout(timeout_s):
            answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as exc:
        raise ConnectError("the name could not be looked up") from exc
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
