"""Claude Code as the rules know it."""

from typing import Final

from pml.agents.claude_code.tool_words import TOOLS
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
