"""Copilot as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

COPILOT: Final = AgentProfile(
    settings_files=(".github/hooks/*.json", ".copilot/mcp-config.json"),
    marks={"COPILOT_CLI": "Copilot CLI", "COPILOT_AGENT_SESSION_ID": "Copilot"},
)
