"""Files in which Claude Code keeps its MCP servers: the user's, and those of projects."""

from typing import Final

from pml.core.imports.client_files import ANY, ClientFile, everywhere

_CLIENT: Final = "Claude Code"
_OWN: Final = everywhere("{home}/.claude.json")
_MOVED: Final = ("CLAUDE_CONFIG_DIR", ".claude.json")

CLAUDE_CODE_FILES: Final = (
    ClientFile(client=_CLIENT, places=_OWN, moved_by=_MOVED),
    ClientFile(
        client=_CLIENT, places=_OWN, moved_by=_MOVED, keys=("projects", ANY, "mcpServers"), is_project=True
    ),
    ClientFile(client=_CLIENT, places=everywhere("{workspace}/.mcp.json"), is_project=True),
)
