"""Registries with the API of the official MCP registry: one server by its name, and a search in pages.

Recognised by an address that ends in `/v0.1` or `/v0.1/servers`; a mirror or a private sub-registry has the
same. Answers are bounded and cached like those of PML's own registries. A list endorses nothing: what is
found is installed or reached only after the same questions.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote as url_quote
from urllib.parse import urlencode

import msgspec

from pml.core.errors import Invalid, NotFound, PmlError
from pml.core.names import ToolName
from pml.core.packages.fields import Fields
from pml.core.packages.offer import usual_metadata
from pml.core.packages.server_json import ORG, ListedServer, is_listed_name, listed_name, parse_listed
from pml.core.ports.loader import Found
from pml.core.text import quote
from pml.core.values import loads_object
from pml.registry.client.addresses import registry_url
from pml.registry.client.cache import Key
from pml.registry.client.lookups import Lookups, Question
from pml.registry.entry_forms import EntryName, Form

MAX_PAGES: Final = 5
PAGE: Final = 30

_API: Final = re.compile(r"(.*/v0\.1)(?:/servers)?/?")
_LATEST: Final = "latest"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Servers that a search found, and where it continues; `unsound` entries are left out, with why."""

    servers: tuple[ListedServer, ...]
    cursor: str | None
    unsound: tuple[str, ...] = ()


def is_official(registry: str) -> bool:
    """Tell whether the address is that of the official registry's API."""
    return "://" in registry and _API.fullmatch(registry) is not None


class OfficialRegistry:
    """Asks through `lookups`: what was read lately is not asked for again, and is there offline."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups

    async def server(self, name: str, *, registry: str, version: str = _LATEST) -> ListedServer | None:
        """Return the server, None if the registry has none of that name and version.

        Raises: Invalid for a name that is none, or an answer that is not sound; Unavailable.
        """
        if not is_listed_name(name):
            raise Invalid(f"{quote(name)} is not a name like `io.github.user/server`")
        base = official_base(registry)
        path = f"/{url_quote(name, safe='')}/versions/{url_quote(version, safe='')}"

        def read(body: bytes) -> ListedServer:
            return read_listed(body, name, version=version, source=registry)

        key = Key(registry=base, name=EntryName(f"{name}@{version}"), form=Form.METADATA)
        return await self._lookups.answer(Question(key=key, url=f"{base}/servers{path}", read=read))

    async def search(self, query: str, *, registry: str, cursor: str | None = None) -> Page:
        """Return one page of the newest versions that fit `query`. Raises: Invalid, Unavailable."""
        base = official_base(registry)
        asked = {"search": query, "limit": str(PAGE), "version": _LATEST, "cursor": cursor}
        text = urlencode({key: value for key, value in asked.items() if value})
        key = Key(registry=base, name=EntryName(f"?{text}"), form=Form.METADATA)
        question = Question(key=key, url=f"{base}/servers?{text}", read=lambda body: _page(body, registry))
        found = await self._lookups.answer(question)
        if found is None:
            raise NotFound(f"registry {quote(registry)} has no list of servers to search in")
        return found

    async def find(self, tool: ToolName, *, registry: str, prefix: str | None) -> Found | None:
        """Return the server that offers `tool` beneath `prefix`, such as `mcp.io_github_user`.

        A short name alone means nothing here: anybody may list one. Raises: as `server`; Missing.
        """
        org, _, project = (prefix or "").partition(".")
        name = None if org != ORG or tool.namespace is None else listed_name(project, tool.namespace)
        server = None if name is None else await self.server(name, registry=registry)
        return None if server is None else Found(metadata=usual_metadata(server), source=registry)


def read_listed(body: bytes, name: str, *, version: str, source: str) -> ListedServer:
    """Return the server that `source` gave for `name`. Raises: Invalid, also if it is about another."""
    what = f"what {quote(source)} says of {quote(name)}"
    server = parse_listed(loads_object(body, what=what), what=what)
    if server.name != name or version not in (_LATEST, server.version):
        raise Invalid(
            f"{what} is about {quote(f'{server.name} {server.version}')}",
            hint="it is not used; tell the operator of the registry",
        )
    return server


def kept_server(key: Key, body: bytes) -> Found | None:
    """Return what is kept of a server; None for what is kept of a search. Raises: Invalid."""
    name, at, version = key.name.rpartition("@")
    if not at or not is_listed_name(name):
        return None
    server = read_listed(body, name, version=version, source=key.registry)
    return Found(metadata=usual_metadata(server), source=key.registry)


def _page(body: bytes, registry: str) -> Page:
    what = f"the list of {quote(registry)}"
    fields = Fields(what=what, value=loads_object(body, what=what))
    servers: list[ListedServer] = []
    unsound: list[str] = []
    for item in fields.items("servers", most=10 * PAGE):
        try:
            if not isinstance(item, Mapping):
                raise Invalid(f"{what} has an entry that is not an object")
            servers.append(parse_listed(item, what=what))
        except PmlError as exc:
            unsound.append(exc.message)
    metadata = fields.section("metadata")
    cursor = (
        None if metadata is None or not metadata.get("nextCursor") else metadata.text("nextCursor", most=1024)
    )
    return Page(servers=tuple(servers), cursor=cursor, unsound=tuple(unsound))


def official_base(registry: str) -> str:
    """Return the address of the API, up to its version. Raises: Invalid."""
    found = _API.fullmatch(registry_url(registry))
    if found is None:
        raise Invalid(f"registry {quote(registry)} must end in `/v0.1/servers` to be one of that kind")
    return found[1]
