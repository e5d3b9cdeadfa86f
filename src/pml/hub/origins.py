"""Under which names the hub may be spoken to, and from which pages: exactly its own, with the very port.

A page of another site that resolves its name to this machine keeps its name in `Host`, and a page on another
port keeps that in `Origin`: neither is on the list.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pml.core.errors import Invalid
from pml.core.text import quote
from pml.web.hosts import in_url

_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")
_ANY: Final = ("0.0.0.0", "[::]")  # what listens there is called by other names
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """The `Host` and `Origin` headers that count, whole and in lowercase.

    `public` is the URL that other machines know the hub by, if it was given a name for them.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    public: str | None = None


def allowed_names(host: str, port: int, *, scheme: str, more: Sequence[str] = ()) -> Allowed:
    """Return the names of the hub that listens on `host`; `more` are names of it, perhaps with a port.

    Raises: Invalid for what is no name.
    """
    own = in_url(host.lower())
    names = [*_LOCAL, *([] if own in _ANY else [own])]
    places = [(scheme, name, port) for name in names]
    places += [_place(text, scheme=scheme, port=port) for text in more]
    spelt = [(each, text) for each, name, at in places for text in _spellings(each, name, at)]
    return Allowed(
        hosts=frozenset(text for _, text in spelt),
        origins=frozenset(f"{each}://{text}" for each, text in spelt),
        public=outer_url(more[0], port, scheme=scheme) if more else None,
    )


def outer_url(name: str, port: int, *, scheme: str) -> str:
    """Return the URL under which others reach the hub that is called `name`. Raises: Invalid."""
    scheme, host, at = _place(name, scheme=scheme, port=port)
    return f"{scheme}://{min(_spellings(scheme, host, at), key=len)}"


def _place(text: str, *, scheme: str, port: int) -> tuple[str, str, int]:
    """Return scheme, name and port; a proxy before the hub may have another port, and with it a scheme."""
    found = _NAME.fullmatch(text.lower())
    if found is None or not 0 < int(found[2] or port) <= 65535:
        raise Invalid(f"{quote(text)} is no name of a host", hint="like `hub.example` or `hub.example:443`")
    at = int(found[2] or port)
    known = {number: each for each, number in _DEFAULT_PORTS.items()}
    return known.get(at, scheme), found[1], at


def _spellings(scheme: str, name: str, port: int) -> Iterator[str]:
    yield f"{name}:{port}"
    if _DEFAULT_PORTS[scheme] == port:  # clients leave it out then
        yield name
