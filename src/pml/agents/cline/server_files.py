"""Files in which Cline keeps its MCP servers: as an extension of VS Code, and on the command line."""

from typing import Final

from pml.core.imports.client_files import ClientFile, editor_place, everywhere

_CLIENT: Final = "Cline"
_IN_VS_CODE: Final = "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"

CLINE_FILES: Final = (
    ClientFile(client=_CLIENT, places=editor_place(_IN_VS_CODE)),
    ClientFile(client=_CLIENT, places=everywhere("{home}/.cline/data/settings/cline_mcp_settings.json")),
)
