"""The file in which Copilot CLI keeps its MCP servers."""

from typing import Final

from pml.core.imports.client_files import ClientFile, everywhere

COPILOT_FILES: Final = (ClientFile(client="Copilot", places=everywhere("{home}/.copilot/mcp-config.json")),)
