"""The handshake with a server, and reading all that it offers into a manifest.

Entries that PML or a client could not use are left out, with a line in the log. When to read, and what
follows from a change, is not known here.
"""

import re
from collections.abc import Callable, Set
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from pml import __version__
from pml.core.errors import Invalid, ServerFailed, ServerRefused
from pml.core.names import ToolName
from pml.core.ports.servers import Client
from pml.core.servers.manifest import Manifest
from pml.core.text import quote
from pml.core.values import JsonObject, loads, loads_object
from pml.upstream.limits import Limits
from pml.upstream.log import ServerLog
from pml.upstream.modern import PREFIX, VERSION, client_meta, discover

PROTOCOL: Final = "2025-11-25"
_NAME_CHARS: Final = 200
_OLDEST: Final = "2024-11-05"
KINDS: Final = frozenset({"tools", "prompts", "resources"})
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


class Connection(Protocol):
    async def request(
        self, method: str, params: JsonObject, *, on_progress: Callable[[JsonObject], None] | None = None
    ) -> bytes: ...

    async def listen(self, method: str, params: JsonObject) -> bytes: ...

    def begin_modern(self, meta: Callable[[], JsonObject]) -> None: ...

    def notify(self, method: str, params: JsonObject) -> None: ...


async def greet(
    server: str, target_digest: str, connection: Connection, client: Client, log: ServerLog
) -> Manifest:
    """Open the session and return a manifest without entries.

    Raises: ServerFailed if the server will not, or speaks no version that PML knows.
    """
    roots: JsonObject = {"roots": {}} if client.has_roots else {}
    forms: JsonObject = {"elicitation": {"form": {}}} if client.can_elicit else {}
    params: JsonObject = {
        "protocolVersion": PROTOCOL,
        "capabilities": {**roots, **forms},
        "clientInfo": {"name": "pml", "version": __version__},
    }
    try:
        said = loads_object(await connection.request("initialize", params), what="its greeting")
    except ServerRefused as exc:
        said = await _discovered(connection, client)
        if said is None:
            raise ServerFailed(f"{exc.message}, when it was to be initialized") from exc
        return _described(server, target_digest, said)
    except Invalid as exc:
        raise ServerFailed(f"server `{server}` cannot be initialized: {exc.message}") from exc
    version = said.get("protocolVersion")
    if not isinstance(version, str) or not _DATE.fullmatch(version) or version < _OLDEST:
        told = quote(log.mask(str(version)))
        raise ServerFailed(f"server `{server}` speaks protocol {told}, which PML does not")
    connection.notify("notifications/initialized", {})
    return _described(server, target_digest, said)


async def _discovered(connection: Connection, client: Client) -> JsonObject | None:
    """Return what a server of the modern era alone says of itself; None if it is not one.

    It is asked only now: a server of the older era may never answer what it does not know.
    """
    connection.begin_modern(lambda: client_meta(client))
    try:
        said = await discover(connection)
    except (ServerRefused, Invalid):
        return None
    versions = said.get("supportedVersions")
    return said if isinstance(versions, list) and VERSION in versions else None


def _described(server: str, target_digest: str, said: JsonObject) -> Manifest:
    offered, instructions = said.get("capabilities"), said.get("instructions")
    return Manifest(
        server=server,
        target_digest=target_digest,
        capabilities=offered if isinstance(offered, dict) else {},
        instructions=instructions if isinstance(instructions, str) else None,
        identity=_identity(said),
    )


def _identity(said: JsonObject) -> str | None:
    meta = said.get("_meta")
    known = said.get("serverInfo") or (meta.get(f"{PREFIX}serverInfo") if isinstance(meta, dict) else None)
    name = known.get("name") if isinstance(known, dict) else None
    return name[:_NAME_CHARS] if isinstance(name, str) else None


class Reader:
    """Reads what one server offers, entry by entry."""

    def __init__(self, server: str, connection: Connection, log: ServerLog, limits: Limits) -> None:
        self._server = server
        self._connection = connection
        self._log = log
        self._limits = limits

    async def read(self, before: Manifest, kinds: Set[str]) -> Manifest:
        """Return what the server offers now, reading only `kinds` again. Raises: ServerFailed."""
        declared, now = before.capabilities, before
        if "tools" in kinds:
            now = replace(now, tools=await self._tools(must="tools" in declared))
        if "prompts" in kinds and "prompts" in declared:
            now = replace(now, prompts=await self._optional("prompts/list", "prompts", "name"))
        if "resources" in kinds and "resources" in declared:
            templates = await self._optional("resources/templates/list", "resourceTemplates", "uriTemplate")
            resources = await self._optional("resources/list", "resources", "uri")
            now = replace(now, resources=resources, templates=templates)
        return now

    async def _tools(self, *, must: bool) -> tuple[JsonObject, ...]:
        try:
            return await self._entries("tools/list", "tools", self._tool_name)
        except ServerRefused as exc:
            if must:
                raise ServerFailed(f"{exc.message}, when it was to list its tools") from exc
            return ()

    async def _optional(self, method: str, member: str, key: str) -> tuple[JsonObject, ...]:
        try:
            return await self._entries(method, member, lambda entry: _text(entry, key))
        except ServerRefused as exc:
            self._log.note(f"{method}: {exc.message}")
            return ()

    async def _entries(
        self, method: str, member: str, name_of: Callable[[JsonObject], str]
    ) -> tuple[JsonObject, ...]:
        """Return the sound entries of all pages, in the order of their names, so that it never varies."""
        found: dict[str, JsonObject] = {}
        cursor: str | None = None
        for _ in range(self._limits.pages):
            params: JsonObject = {} if cursor is None else {"cursor": cursor}
            raws, cursor = self._page(await self._connection.request(method, params), method, member)
            for raw in raws:
                self._add(found, raw, method, name_of)
            if cursor is None:
                break
        else:
            self._log.note(f"{method}: more than {self._limits.pages} pages; the rest is left out")
        return tuple(entry for _, entry in sorted(found.items()))

    def _page(self, result: bytes, method: str, member: str) -> tuple[list[msgspec.Raw], str | None]:
        try:
            page = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
            raws = msgspec.json.decode(page.get(member, b"[]"), type=list[msgspec.Raw])
            cursor = msgspec.json.decode(page.get("nextCursor", b"null"), type=str | None)
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise ServerFailed(f"server `{self._server}` answered {method} with something else") from exc
        return raws, cursor

    def _add(
        self,
        found: dict[str, JsonObject],
        raw: msgspec.Raw,
        method: str,
        name_of: Callable[[JsonObject], str],
    ) -> None:
        try:
            entry = loads(bytes(raw), what="an entry")
            if not isinstance(entry, dict):
                raise Invalid("an entry is not an object")
            name = name_of(entry)
            if name in found:
                raise Invalid(f"{quote(self._log.mask(name))} is there twice")
            if len(found) >= self._limits.entries:
                raise Invalid(f"there are more than {self._limits.entries:,} entries")
            found[name] = entry
        except Invalid as exc:
            self._log.note(f"{method}: an entry was left out: {exc.message}")

    def _tool_name(self, entry: JsonObject) -> str:
        name = _text(entry, "name")
        ToolName(namespace=self._server, action=name)
        if not isinstance(entry.get("inputSchema"), dict):
            raise Invalid(f"tool {quote(self._log.mask(name))} has no `inputSchema`")
        return name


def _text(entry: JsonObject, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise Invalid(f"`{key}` is not text")
    return value
