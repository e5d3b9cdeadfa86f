"""Files in which Cursor keeps its MCP servers."""

from typing import Final

from pml.core.imports.client_entries import editor_words
from pml.core.imports.client_files import ClientFile, everywhere

_CLIENT: Final = "Cursor"

CURSOR_FILES: Final = (
    ClientFile(client=_CLIENT, places=everywhere("{home}/.cursor/mcp.json"), words=editor_words),
    ClientFile(
        client=_CLIENT,
        places=everywhere("{workspace}/.cursor/mcp.json"),
        words=editor_words,
        is_project=True,
    ),
)
