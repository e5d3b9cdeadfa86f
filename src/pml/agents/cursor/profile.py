"""Cursor as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

CURSOR: Final = AgentProfile(
    settings_files=(
        ".cursor/mcp.json",
        ".cursor/hooks.json",
        ".cursor/cli.json",
        ".cursor/permissions.json",
    ),
    marks={"CURSOR_AGENT": "Cursor"},
)
