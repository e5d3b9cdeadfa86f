"""Codex as the rules know it."""

from typing import Final

from pml.core.sessions.agent_profiles import AgentProfile

CODEX: Final = AgentProfile(
    settings_files=(".codex/config.toml", ".codex/hooks.json", ".codex/rules/*.rules"),
    marks=dict.fromkeys(
        ("CODEX_THREAD_ID", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_CI"), "Codex"
    ),
)
