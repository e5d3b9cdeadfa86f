"""Claude Code as the rules know it."""

from typing import Final

from pml.agents.claude_code.tool_words import TOOLS
from pml.core.imports.client_files import ANY, ClientFile, everywhere
from pml.core.sessions.agent_profiles import AgentProfile

CLAUDE_CODE: Final = AgentProfile(
    settings_files=(
        ".mcp.json",
        ".claude.json",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".claude/settings*.json",
    ),
    named_by=(".claude/settings",),
    readers=frozenset({"Glob", "Grep", "LS", "Read"}),
    marks=dict.fromkeys(("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_CHILD_SESSION"), "Claude Code"),
    tools=TOOLS,
    server_name="mcp__{server}__{tool}",
    unsandboxed=frozenset({"dangerouslyDisableSandbox"}),
)

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
