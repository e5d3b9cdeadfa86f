"""A server's entry in a client's file, read into the words of `mcpServers`.

What PML has no use for is named, never dropped unseen; what would mean something else without it is refused.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pml.core.text import quote
from pml.core.values import Json, JsonObject

_KNOWN: Final = ("type", "command", "args", "env", "cwd", "url", "headers", "oauth", "disabled")
_PROCESS: Final = frozenset({"stdio", "local"})
_STREAMS: Final = {
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http", "remote"), "http"),
    "sse": "sse",
}
_OAUTH: Final[Mapping[str, str]] = {
    **dict.fromkeys(("clientId", "client_id"), "client_id"),
    **dict.fromkeys(("callbackPort", "callback_port"), "callback_port"),
    "scopes": "scopes",
}
_REFUSED_KEYS: Final[Mapping[str, str]] = {
    "headersHelper": "gets its headers from a command (`headersHelper`), which PML does not run",
    "envFile": "takes variables from a file (`envFile`): name them in `env`",
    "authProviderType": "logs in in a way of its client's own (`authProviderType`)",
    "dev": "is restarted and debugged by its editor (`dev`)",
}
_EDITOR_ENV: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_EDITOR_PLACE: Final = re.compile(
    r"\$\{(workspaceFolder(?:Basename)?|userHome|pathSeparator|/|input:[^}]*|command:[^}]*|config:[^}]*)\}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """An entry in the words of `mcpServers`. `left_out` are keys that do nothing in PML.

    `refused` says why it cannot be taken; it follows the name of the server.
    """

    entry: JsonObject = field(repr=False)
    left_out: tuple[str, ...] = ()
    refused: str | None = None


Words: TypeAlias = Callable[[JsonObject], Reading]
"""How one client's entries are read."""


def common_words(value: JsonObject) -> Reading:
    """Read an entry as Claude Code and most others write it; `serverUrl` and `httpUrl` are a `url`."""
    entry = {key: value[key] for key in _KNOWN if key in value}
    for other in ("serverUrl", "httpUrl"):
        if isinstance(value.get(other), str):
            entry.setdefault("url", value[other])
    if isinstance(enabled := value.get("enabled"), bool) and not enabled:
        entry["disabled"] = True
    used = {*_KNOWN, "serverUrl", "httpUrl", "enabled"}
    left_out = [key for key in value if key not in used]
    if isinstance(oauth := entry.pop("oauth", None), Mapping):
        entry["oauth"] = {_OAUTH[key]: each for key, each in oauth.items() if key in _OAUTH}
        left_out += [f"oauth.{key}" for key in oauth if key not in _OAUTH]
    refused = next((why for key, why in _REFUSED_KEYS.items() if value.get(key)), None)
    kind = entry.pop("type", None)
    if refused is None and kind is not None:
        refused = _set_kind(entry, kind)
    return Reading(entry=entry, left_out=tuple(left_out), refused=refused or _unusable(entry))


def editor_words(value: JsonObject) -> Reading:
    """As `common_words`, where `${env:NAME}` stands for a variable."""
    return common_words(replaced(value, lambda text: _EDITOR_ENV.sub(r"${\1}", text)))


def replaced(value: JsonObject, change: Callable[[str], str]) -> JsonObject:
    """Return the entry with every text in it changed."""

    def inner(each: Json) -> Json:
        if isinstance(each, str):
            return change(each)
        if isinstance(each, Mapping):
            return {key: inner(one) for key, one in each.items()}
        return [inner(one) for one in each] if isinstance(each, list | tuple) else each

    return {key: inner(each) for key, each in value.items()}


def _set_kind(entry: dict[str, Json], kind: Json) -> str | None:
    """Say in `entry` how the server is reached; return why it cannot be."""
    if kind in _PROCESS:
        return None
    if isinstance(kind, str) and kind in _STREAMS:
        entry["type"] = _STREAMS[kind]
        return None
    return f"is of type {quote(str(kind))}, which PML does not know"


def _unusable(entry: JsonObject) -> str | None:
    if "url" not in entry and "command" not in entry:
        return "has neither a `command` nor a `url`"
    if "url" in entry and "command" in entry:
        return "has both a `command` and a `url`"
    for text in texts_of(entry):
        if found := _EDITOR_PLACE.search(text):
            return f"has {quote(found[0])}, which only its editor fills in"
    return None


def texts_of(value: Json) -> list[str]:
    """Return every text in `value`."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for each in inner for text in texts_of(each)]


_SHOWN: Final = frozenset({"type", "command", "serverUrl", "httpUrl", "url", "cwd", "disabled", "enabled"})


def hidden_values(value: Json) -> Json:
    """Return an entry to be shown: all texts but those that say what is started or reached are hidden."""
    if not isinstance(value, Mapping):
        return _hidden(value)
    return {
        key: each
        if key in _SHOWN and isinstance(each, str | bool) and "?" not in str(each)
        else _hidden(each)
        for key, each in value.items()
    }


def _hidden(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _hidden(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(each) for each in value]
    return "…" if isinstance(value, str) else value
