"""Every agent client that PML knows of; another one is a folder of its own and a row here."""

from typing import Final

from pml.agents.claude_code.profile import CLAUDE_CODE
from pml.agents.cline.profile import CLINE
from pml.agents.codex.profile import CODEX
from pml.agents.copilot.profile import COPILOT
from pml.agents.cursor.profile import CURSOR
from pml.agents.gemini.profile import GEMINI
from pml.agents.goose.profile import GOOSE
from pml.agents.opencode.profile import OPENCODE
from pml.agents.vscode.profile import VS_CODE
from pml.core.sessions.agent_profiles import AgentProfile, AgentProfiles

_OTHERS: Final = AgentProfile(  # of which no more than their marks is known
    marks={
        "QWEN_CODE": "Qwen Code",
        "AUGMENT_AGENT": "Augment",
        "ANTIGRAVITY_AGENT": "Antigravity",
        "AI_AGENT": "agents",
        "AGENT": "agents",  # goose, Amp, opencode
    }
)
KNOWN: Final = AgentProfiles(
    (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, GOOSE, CURSOR, CLINE, VS_CODE, COPILOT, _OTHERS)
)
