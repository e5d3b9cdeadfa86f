"""Hosts as URLs and `Host` headers spell them. Resolves nothing, and knows no server."""

import ipaddress
import re
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

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


def named_host(header: str) -> str:
    """Return the host that a `Host` header names, without its port; nothing for what is not a plain host."""
    found = _HOST.fullmatch(header)
    return "" if found is None else found[1].strip("[]")


def in_url(host: str) -> str:
    """Return the host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
