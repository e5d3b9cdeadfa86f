"""The file in which Claude Desktop keeps its MCP servers."""

from typing import Final

from pml.core.imports.client_files import ClientFile, editor_place

CLAUDE_DESKTOP_FILES: Final = (
    ClientFile(client="Claude Desktop", places=editor_place("Claude/claude_desktop_config.json")),
)
