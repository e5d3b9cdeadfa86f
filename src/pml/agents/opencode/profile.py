"""opencode as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

OPENCODE: Final = AgentProfile(
    settings_files=(
        "opencode.json",
        "opencode.jsonc",
        ".opencode/opencode.json",
        ".opencode/opencode.jsonc",
        ".config/opencode/config.json",
        ".config/opencode/opencode.json",
        ".config/opencode/opencode.jsonc",
    ),
    marks={"OPENCODE": "opencode", "OPENCODE_CLIENT": "opencode"},
)
