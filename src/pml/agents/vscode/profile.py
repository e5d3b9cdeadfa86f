"""VS Code as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

VS_CODE: Final = AgentProfile(
    settings_files=(
        ".vscode/mcp.json",
        ".vscode/settings.json",
        "code/user/mcp.json",  # the user's own, in the folder of each system
        "code/user/settings.json",
    ),
)
