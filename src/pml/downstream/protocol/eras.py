"""The two protocol eras on one pipe: which one a request belongs to, and what its result must carry.

Legacy clients shake hands once with `initialize`; modern ones (2026-07-28) say with every request who they
are. Pure; it answers nothing itself.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pml import __version__
from pml.core.errors import ServerFailed
from pml.core.values import Json, JsonObject
from pml.jsonrpc.codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from pml.jsonrpc.messages import RpcError

MODERN: Final = "2026-07-28"
LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
BATCHING: Final = frozenset({"2024-11-05", "2025-03-26"})
ASSUMED: Final = "2025-03-26"  # over HTTP, where a client does not say
RESUMABLE: Final = frozenset({"2025-11-25"})  # its clients understand an event without data
NO_ENUM_TITLES: Final = frozenset({"2025-06-18"})  # its forms know `enum`, not yet `oneOf` with titles

_PREFIX: Final = "io.modelcontextprotocol/"
_VERSION: Final = _PREFIX + "protocolVersion"
_CLIENT: Final = _PREFIX + "clientInfo"
_CAPABILITIES: Final = _PREFIX + "clientCapabilities"
ENVELOPE: Final = (_VERSION, _CAPABILITIES)  # what every modern request must carry
SUBSCRIPTION: Final = _PREFIX + "subscriptionId"
_INFO: Final[JsonObject] = {"name": "pml", "version": __version__}
SERVER_META: Final[JsonObject] = {_PREFIX + "serverInfo": _INFO}
_STAMP: Final = b'{"resultType":"complete","_meta":' + msgspec.json.encode(SERVER_META)
_UNCACHED: Final[JsonObject] = {"ttlMs": 0, "cacheScope": "private"}
_WITHOUT_STRUCTURE: Final = frozenset({"2024-11-05", "2025-03-26"})
_WITH_FORMS: Final = frozenset({"2025-06-18", "2025-11-25", MODERN})
_WITH_LINKS: Final = frozenset({"2025-11-25", MODERN})
_DEFAULT_CLIENT: Final = "unnamed client"

CAPABILITIES: Final[JsonObject] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
INSTRUCTIONS: Final = (
    "Tools behind PML, which asks a person where the user's rules say so. `discover` finds tools, `call` "
    "runs one that is not listed by its own name. A result that begins `Approval required` means that "
    "nothing has run: follow what it says, and do not repeat the call by itself. A refusal is the user's "
    "decision; do not look for a way around it."
)


class Era(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a request comes from and in which protocol."""

    version: str
    client: str
    capabilities: JsonObject
    forms: bool = True  # False where the user switched them off

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN

    @property
    def has_form(self) -> bool:
        """Whether the client can be sent a form."""
        return self.forms and self.declares_form

    @property
    def declares_form(self) -> bool:
        """Whether the client says that it shows forms; a bare `elicitation: {}` means forms."""
        declared = self.capabilities.get("elicitation")
        if self.version not in _WITH_FORMS or not isinstance(declared, Mapping):
            return False
        return "form" in declared or "url" not in declared

    @property
    def has_link(self) -> bool:
        """Whether the client can have its user open a page."""
        declared = self.capabilities.get("elicitation")
        is_declared = self.version in _WITH_LINKS and isinstance(declared, Mapping) and "url" in declared
        return self.forms and is_declared

    @property
    def has_structure(self) -> bool:
        """Whether its results have `structuredContent`."""
        return self.version not in _WITHOUT_STRUCTURE

    @property
    def has_roots(self) -> bool:
        return isinstance(self.capabilities.get("roots"), Mapping)


def declared_version(params: JsonObject) -> Json:
    """Return the version that the request itself declares, None if it declares none."""
    meta = params.get("_meta")
    return meta.get(_VERSION) if isinstance(meta, Mapping) else None


def modern_era(params: JsonObject) -> Era | None:
    """Return the era that the request declares, None if it declares none. Raises: RpcError."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or _VERSION not in meta:
        return None
    version = meta[_VERSION]
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"`_meta.{_VERSION}` must be a string")
    if version != MODERN:
        raise RpcError(
            UNSUPPORTED_VERSION,
            f"protocol version `{version[:40]}` is not supported on single requests",
            data={"supported": [MODERN], "requested": version},
        )
    capabilities = meta.get(_CAPABILITIES)
    if not isinstance(capabilities, Mapping):
        raise RpcError(INVALID_PARAMS, f"`_meta.{_CAPABILITIES}` is missing or no object")
    return Era(version=version, client=_name(meta.get(_CLIENT)), capabilities=capabilities)


def legacy_era(params: JsonObject) -> Era:
    """Return the era that `initialize` asks for, or the nearest that is served. Raises: RpcError."""
    wanted, capabilities = params.get("protocolVersion"), params.get("capabilities", {})
    if not isinstance(wanted, str) or not isinstance(capabilities, Mapping):
        raise RpcError(INVALID_PARAMS, "`initialize` needs `protocolVersion` and `capabilities`")
    version = wanted if wanted in LEGACY else LEGACY[-1]
    return Era(version=version, client=_name(params.get("clientInfo")), capabilities=capabilities)


def initialized(era: Era) -> bytes:
    """Return the result of `initialize`."""
    return msgspec.json.encode(
        {
            "protocolVersion": era.version,
            "capabilities": {**CAPABILITIES, "logging": {}},
            "serverInfo": _INFO,
            "instructions": INSTRUCTIONS,
        }
    )


def discovered() -> bytes:
    """Return the result of `server/discover`; it says the same of every workspace."""
    return msgspec.json.encode(
        {
            "supportedVersions": [MODERN],
            "capabilities": CAPABILITIES,
            "instructions": INSTRUCTIONS,
            **_UNCACHED,
        }
    )


def uncached(result: bytes, era: Era) -> bytes:
    """Return the result of what clients may keep, saying that they should not: PML judges it each time."""
    if not era.is_modern:
        return result
    return msgspec.json.encode({**_members(result), **_UNCACHED})


def stamp(result: bytes, era: Era) -> bytes:
    """Return the result with what its era requires; what a server wrote stays as it wrote it.

    What kind of result it is, a server does not say: it could make a form of it that looks like PML's.
    Raises: ServerFailed if it is not an object, as every result must be.
    """
    tells_kind = b'"resultType"' in result or b"\\u" in result  # a key can be spelled with escapes
    if not era.is_modern:
        return _without_kind(result) if tells_kind else result
    if not tells_kind and b'"_meta"' not in result and result.startswith(b'{"'):
        return _STAMP + b"," + result[1:]
    members = _members(result)
    given = bytes(members.get("_meta", b"null"))
    meta = {} if given == b"null" else _members(given)
    return msgspec.json.encode({**members, "_meta": {**meta, **SERVER_META}, "resultType": "complete"})


def _without_kind(result: bytes) -> bytes:
    members = _members(result)
    return msgspec.json.encode(members) if members.pop("resultType", None) is not None else result


def _members(text: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as exc:
        raise ServerFailed("the server answered with a result that is not an object") from exc


def _name(info: Json) -> str:
    name = info.get("name") if isinstance(info, Mapping) else None
    return name[:100] if isinstance(name, str) and name else _DEFAULT_CLIENT
