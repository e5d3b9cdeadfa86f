"""The file in which Windsurf keeps its MCP servers."""

from typing import Final

from pml.core.imports.client_files import ClientFile, everywhere

WINDSURF_FILES: Final = (
    ClientFile(client="Windsurf", places=everywhere("{home}/.codeium/windsurf/mcp_config.json")),
)
