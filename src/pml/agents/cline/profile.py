"""Cline as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

CLINE: Final = AgentProfile(
    settings_files=(
        ".clinerules/hooks/*",
        ".cline/hooks/*",
        ".cline/data/settings/cline_mcp_settings.json",
        ".cline/data/settings/global-settings.json",
        "cline_mcp_settings.json",  # in VS Code's own folder
    ),
    marks={"CLINE_ACTIVE": "Cline"},
)
