"""The names by which Claude Code knows PML's gateway.

Where its settings leave the gateway's tools to PML, the name must be one that no other server can take: a
project's `.mcp.json` could define a server of any name that is known. So it is made with a key of this home,
for one workspace, and the client keeps the server in its own file, which goes before the project's.
"""

import hmac
from contextlib import suppress
from pathlib import Path
from typing import Final

from pml.host.keys import key_at

SERVER: Final = "pml"  # in a project's `.mcp.json`, and for all projects of a user


def own_name(home: Path, workspace: str) -> str:
    """Return the name for this workspace. Raises: OSError, ValueError if there is no key to be had."""
    return f"{SERVER}-{hmac.digest(key_at(_key(home)), workspace.encode(), 'sha256').hex()[:8]}"


def gateway_names(home: Path, workspace: str) -> tuple[str, ...]:
    """Return all names that PML may have given its gateway here."""
    if not _key(home).exists():
        return (SERVER,)
    with suppress(OSError, ValueError):
        return SERVER, own_name(home, workspace)
    return (SERVER,)


def proven_names(home: Path, workspace: str, *, user_home: Path) -> tuple[str, ...]:
    """Return the names that are PML's here: where the made one is in use, a server called `pml` is not."""
    names = gateway_names(home, workspace)
    own = [name for name in names if name != SERVER]
    kept = (Path(workspace) / ".claude" / "settings.local.json", user_home / ".claude.json")
    is_used = any(name in _text(path) for name in own for path in kept)
    return tuple(own) if is_used else names


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _key(home: Path) -> Path:
    return home / "keys" / "names.key"
