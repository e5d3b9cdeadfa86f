"""Gemini CLI as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

GEMINI: Final = AgentProfile(
    settings_files=(".gemini/settings.json",),
    marks={"GEMINI_CLI": "Gemini CLI"},
)
