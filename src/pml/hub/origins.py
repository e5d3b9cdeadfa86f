"""Under which names the hub may be spoken to, and from which pages: exactly its own, with the very port.

A page of another site that resolves its name to this machine keeps its name in `Host`, and a page on another
port keeps that in `Origin`: neither is on the list. Nor is `localhost` without a certificate: it is two
addresses, the hub listens on one of them, and any program may listen on the other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pml.core.errors import Invalid
from pml.core.text import quote
from pml.web.hosts import in_url

_LOCALHOST: Final = "localhost"
_LOCAL: Final = ("127.0.0.1", _LOCALHOST, "[::1]")
_NEAR: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", _LOCALHOST: "127.0.0.1"}  # what listens is there
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """The `Host` and `Origin` headers that are accepted, whole and in lowercase.

    `moved` tells for a `Host` that is not accepted where the page is instead. `public` is the URL that other
    machines know the hub by, if it was given a name for them.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    moved: Mapping[str, str]
    public: str | None = None


def allowed_names(host: str, address: str, port: int, *, scheme: str, more: Sequence[str] = ()) -> Allowed:
    """Return the names of the hub that was to listen on `host` and does so at `address`.

    `more` are names of it, perhaps with a port. Raises: Invalid for what is not a name.
    """
    own, named = (_NEAR.get(name, name) for name in (in_url(address), in_url(host.lower())))
    names = [own, named, *(_LOCAL if scheme == "https" else ())]
    places = [(scheme, name, port) for name in names]
    places += [_place(text, scheme=scheme, port=port) for text in more]
    if _is_ambiguous(places):
        raise Invalid(
            "`localhost` is two addresses, and another program may listen on the other",
            hint="open the hub by its address, or serve it with a certificate",
        )
    spelt = [(each, text) for each, name, at in places for text in _spellings(each, name, at)]
    hosts = frozenset(text for _, text in spelt)
    moved = {text: f"{scheme}://{own}:{port}" for text in _spellings(scheme, _LOCALHOST, port)}
    return Allowed(
        hosts=hosts,
        origins=frozenset(f"{each}://{text}" for each, text in spelt),
        moved={text: url for text, url in moved.items() if text not in hosts},
        public=outer_url(more[0], port, scheme=scheme) if more else None,
    )


def _is_ambiguous(places: Sequence[tuple[str, str, int]]) -> bool:
    names = (name for scheme, name, _ in places if scheme == "http")
    return any(name == _LOCALHOST or name.endswith(f".{_LOCALHOST}") for name in names)


def outer_url(name: str, port: int, *, scheme: str) -> str:
    """Return the URL under which others reach the hub that is called `name`. Raises: Invalid."""
    scheme, host, at = _place(name, scheme=scheme, port=port)
    return f"{scheme}://{min(_spellings(scheme, host, at), key=len)}"


def _place(text: str, *, scheme: str, port: int) -> tuple[str, str, int]:
    """Return scheme, name and port; a proxy before the hub may have another port, and with it a scheme."""
    found = _NAME.fullmatch(text.lower())
    if found is None or not 0 < int(found[2] or port) <= 65535:
        raise Invalid(
            f"{quote(text)} is not a name of a host", hint="like `hub.example` or `hub.example:443`"
        )
    at = int(found[2] or port)
    known = {number: each for each, number in _DEFAULT_PORTS.items()}
    return known.get(at, scheme), found[1], at


def _spellings(scheme: str, name: str, port: int) -> Iterator[str]:
    yield f"{name}:{port}"
    if _DEFAULT_PORTS[scheme] == port:  # clients leave it out then
        yield name
