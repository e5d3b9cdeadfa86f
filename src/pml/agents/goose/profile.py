"""goose as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

GOOSE: Final = AgentProfile(
    settings_files=(".config/goose/config.yaml", ".config/goose/permission.yaml"),
    marks={"GOOSE_TERMINAL": "goose"},
)
