"""Every agent client that PML knows of; another one is a folder of its own and a row here."""

from typing import Final

from pml.agents.claude_code.profile import CLAUDE_CODE, CLAUDE_CODE_FILES
from pml.agents.claude_desktop.server_files import CLAUDE_DESKTOP_FILES
from pml.agents.cline.profile import CLINE
from pml.agents.cline.server_files import CLINE_FILES
from pml.agents.codex.profile import CODEX
from pml.agents.codex.server_files import CODEX_FILES
from pml.agents.copilot.profile import COPILOT
from pml.agents.copilot.server_files import COPILOT_FILES
from pml.agents.cursor.profile import CURSOR
from pml.agents.cursor.server_files import CURSOR_FILES
from pml.agents.gemini.profile import GEMINI
from pml.agents.gemini.server_files import GEMINI_FILES
from pml.agents.goose.profile import GOOSE
from pml.agents.opencode.profile import OPENCODE
from pml.agents.opencode.server_files import OPENCODE_FILES
from pml.agents.vscode.profile import VS_CODE
from pml.agents.vscode.server_files import VS_CODE_FILES
from pml.agents.windsurf.server_files import WINDSURF_FILES
from pml.core.imports.client_files import ClientFile
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
_APPS: Final = AgentProfile(  # of which no more than the files of their servers are known
    settings_files=("claude_desktop_config.json", ".codeium/windsurf/mcp_config.json")
)
KNOWN: Final = AgentProfiles(
    (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, GOOSE, CURSOR, CLINE, VS_CODE, COPILOT, _APPS, _OTHERS)
)
SERVER_FILES: Final[tuple[ClientFile, ...]] = (
    *CLAUDE_CODE_FILES,
    *CLAUDE_DESKTOP_FILES,
    *CURSOR_FILES,
    *VS_CODE_FILES,
    *CODEX_FILES,
    *GEMINI_FILES,
    *OPENCODE_FILES,
    *WINDSURF_FILES,
    *CLINE_FILES,
    *COPILOT_FILES,
)
