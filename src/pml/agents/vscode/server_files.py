"""Files in which VS Code keeps its MCP servers: `mcp.json`, and `mcp` in older settings."""

from typing import Final

from pml.core.imports.client_entries import editor_words
from pml.core.imports.client_files import ClientFile, editor_place, everywhere

_CLIENT: Final = "VS Code"
_SETTINGS: Final = ("mcp", "servers")

VS_CODE_FILES: Final = (
    ClientFile(
        client=_CLIENT, places=editor_place("Code/User/mcp.json"), keys=("servers",), words=editor_words
    ),
    ClientFile(
        client=_CLIENT, places=editor_place("Code/User/settings.json"), keys=_SETTINGS, words=editor_words
    ),
    ClientFile(
        client=_CLIENT,
        places=everywhere("{workspace}/.vscode/mcp.json"),
        keys=("servers",),
        words=editor_words,
        is_project=True,
    ),
    ClientFile(
        client=_CLIENT,
        places=everywhere("{workspace}/.vscode/settings.json"),
        keys=_SETTINGS,
        words=editor_words,
        is_project=True,
    ),
)
