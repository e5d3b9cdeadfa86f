"""Marks of agents: variables by which a command can tell that an agent had it started.

PML sets its own for all that it starts, and knows those that clients set for their shells and servers. A
variable that editors also set in the terminals of people (`CURSOR_TRACE_ID`, `TERM_PROGRAM`) is not among
them. Whoever runs commands can remove a variable: a mark tells of an agent, its absence tells nothing.
"""

from collections.abc import Mapping
from typing import Final

MARK: Final = "PML_AGENT"  # PML's own
SET: Final = {MARK: "1"}
_MARKS: Final[Mapping[str, str]] = {
    MARK: "PML",
    "CLAUDECODE": "Claude Code",
    "CLAUDE_CODE_ENTRYPOINT": "Claude Code",
    "CLAUDE_CODE_CHILD_SESSION": "Claude Code",
    "CODEX_THREAD_ID": "Codex",
    "CODEX_SANDBOX": "Codex",
    "CODEX_SANDBOX_NETWORK_DISABLED": "Codex",
    "CODEX_CI": "Codex",
    "GEMINI_CLI": "Gemini CLI",
    "QWEN_CODE": "Qwen Code",
    "OPENCODE": "opencode",
    "OPENCODE_CLIENT": "opencode",
    "GOOSE_TERMINAL": "goose",
    "CURSOR_AGENT": "Cursor",
    "CLINE_ACTIVE": "Cline",
    "COPILOT_CLI": "Copilot CLI",
    "COPILOT_AGENT_SESSION_ID": "Copilot",
    "AUGMENT_AGENT": "Augment",
    "ANTIGRAVITY_AGENT": "Antigravity",
    "AI_AGENT": "agents",
    "AGENT": "agents",  # goose, Amp, opencode
}
NAMES: Final = frozenset(_MARKS)


def find_mark(environ: Mapping[str, str]) -> str | None:
    """Return in words which mark the environment carries, None if it has none; an empty one is none."""
    name = next((name for name in _MARKS if environ.get(name)), None)
    return None if name is None else f"`{name}` is set, as {_MARKS[name]} does for what it starts"
