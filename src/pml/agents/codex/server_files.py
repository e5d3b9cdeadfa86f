"""Files in which Codex keeps its MCP servers, and its words for them."""

from collections.abc import Mapping
from typing import Final

from pml.core.imports.client_entries import Reading, common_words
from pml.core.imports.client_files import ClientFile, Syntax, everywhere
from pml.core.values import Json, JsonObject

_CLIENT: Final = "Codex"
_KEYS: Final = ("mcp_servers",)


def codex_words(value: JsonObject) -> Reading:
    """Read an entry of Codex: variables are passed on by name, and headers may come from variables."""
    entry = dict(value)
    headers: dict[str, Json] = {**_object(entry.pop("http_headers", None))}
    for header, name in _object(entry.pop("env_http_headers", None)).items():
        headers[header] = f"${{{name}}}"
    if isinstance(token := entry.pop("bearer_token_env_var", None), str):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    passed = entry.pop("env_vars", None)
    names = [each for each in passed if isinstance(each, str)] if isinstance(passed, list | tuple) else []
    env = {**{name: f"${{{name}}}" for name in names}, **_object(entry.pop("env", None))}
    return common_words(
        {**entry, **({"headers": headers} if headers else {}), **({"env": env} if env else {})}
    )


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


CODEX_FILES: Final = (
    ClientFile(
        client=_CLIENT,
        places=everywhere("{home}/.codex/config.toml"),
        moved_by=("CODEX_HOME", "config.toml"),
        keys=_KEYS,
        syntax=Syntax.TOML,
        words=codex_words,
    ),
    ClientFile(
        client=_CLIENT,
        places=everywhere("{workspace}/.codex/config.toml"),
        keys=_KEYS,
        syntax=Syntax.TOML,
        words=codex_words,
        is_project=True,
    ),
)
