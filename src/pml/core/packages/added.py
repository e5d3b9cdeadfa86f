"""Servers that a person adds by a line: their name, and the entry that stands for them, as in a registry.

The line's package is pinned to one version and one lock; its arguments, variables and reach are the person's
choice. Nothing is looked up here.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from pml.core.names import parse_fqdn
from pml.core.packages.capability import (
    CapabilityMetadata,
    CapabilityType,
    McpDependency,
    parse_dependency,
)
from pml.core.packages.install_line import Request
from pml.core.packages.lock import Lock, lock_json
from pml.core.packages.package import PIN, Ecosystem
from pml.core.packages.permissions import Permissions, permissions_json
from pml.core.values import Json, JsonObject

_PREFIX: Final = "pml.added"
_DECORATION: Final = re.compile(r"^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-server-mcp|-server|-mcp)$")
_UNFIT: Final = re.compile(r"[^a-z0-9_-]+")
_RUNNERS: Final[Mapping[Ecosystem, tuple[str, str]]] = {
    Ecosystem.NPM: ("npx", "-p"),
    Ecosystem.PYPI: ("uvx", "--from"),
}


def default_name(request: Request) -> str:
    """Return what the server is called: `@scope/server-github` is `github`, `@scope/mcp` is `scope`."""
    scope, _, name = request.name.lower().rpartition("/")
    bare = _DECORATION.sub("", _DECORATION.sub("", name))
    if bare in ("", "mcp", "server"):
        bare = scope.lstrip("@") or name
    return _UNFIT.sub("-", bare).strip("-")[:64] or "server"


def added_dependency(
    name: str,
    request: Request,
    lock: Lock,
    *,
    permissions: Permissions,
    env: Mapping[str, str],
    env_required: Sequence[str],
    args: Sequence[str] | None = None,
) -> McpDependency:
    """Return the server, pinned to `lock`; `args` stand in place of the line's. Raises: Invalid.

    It is read as a registry's would be: what one may not say, a line may not either.
    """
    run, option = _RUNNERS[request.ecosystem]
    spec = f"{request.name}{PIN[request.ecosystem]}{lock.version}"
    words = [run, spec] if request.tool is None else [run, option, spec, request.tool]
    declared = dict(permissions_json(permissions) or {})
    shape: JsonObject = {
        "name": name,
        "type": "stdio",
        "install": shlex.join(words),
        "version": lock.version,
        "integrity": lock.artefact[0],
        "lock": lock_json(lock),
        "args": [*(request.args if args is None else args)],
        "env": dict(env),
        "env_required": [*env_required],
        "permissions": {**declared, "workspace": permissions.workspace.value},
    }
    given: dict[str, Json] = {key: value for key, value in shape.items() if value}
    return parse_dependency(given, what=f"server `{name}`")


def added_metadata(
    dependency: McpDependency, *, tools: Sequence[JsonObject], description: str | None
) -> CapabilityMetadata:
    """Return the entry of an added server; `tools` are what it listed when it was tried."""
    return CapabilityMetadata(
        fqdn=parse_fqdn(f"{_PREFIX}.{dependency.name}"),
        type=CapabilityType.SERVER,
        description=description,
        tools=tuple(tools),
        mcp_deps=(dependency,),
    )
