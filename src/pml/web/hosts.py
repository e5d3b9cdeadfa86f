"""Hosts as URLs and `Host` headers spell them. Resolves nothing, and knows no server."""

import ipaddress
import re
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# what clouds tell a machine about itself, with its credentials; some of it at ordinary addresses
METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
_EMBEDDING: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Tell whether `host` is spelt as this machine itself."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return parse_address(name).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> Address:
    """Return the address; one of IPv4 in the clothes of IPv6 as what it is. Raises: ValueError."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def ways_in(address: Address) -> list[Address]:
    """Return the address, and those of IPv4 that an address of IPv6 stands for where networks are joined."""
    if not isinstance(address, ipaddress.IPv6Address) or address.is_loopback or address.is_unspecified:
        return [address]
    found = [each for each in (address.sixtofour, *(address.teredo or ())) if each is not None]
    if any(address in network for network in _EMBEDDING):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *found]


def named_host(header: str) -> str:
    """Return the host that a `Host` header names, without its port; nothing for what is not a plain host."""
    found = _HOST.fullmatch(header)
    return "" if found is None else found[1].strip("[]")


def in_url(host: str) -> str:
    """Return the host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
