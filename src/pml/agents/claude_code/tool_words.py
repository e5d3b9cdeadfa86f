"""Claude Code's own tools, by the names and arguments that it gives them."""

from collections.abc import Mapping
from typing import Final

from pml.core.sessions.client_tools import ClientTool, Shows


def _path(verb: str, argument: str = "file_path") -> ClientTool:
    return ClientTool(verb=verb, shows=Shows.PATH, argument=argument)


def _text(verb: str, argument: str) -> ClientTool:
    return ClientTool(verb=verb, shows=Shows.TEXT, argument=argument)


_AGENT: Final = ClientTool(verb="Start an agent:", shows=Shows.TASK, argument="prompt", or_else="description")
TOOLS: Final[Mapping[str, ClientTool]] = {
    "Bash": ClientTool(verb="Run", shows=Shows.COMMAND, argument="command", background="run_in_background"),
    "Task": _AGENT,
    "Agent": _AGENT,
    "Read": _path("Read"),
    "NotebookRead": _path("Read", "notebook_path"),
    "Edit": _path("Edit"),
    "MultiEdit": _path("Edit"),
    "Write": _path("Write to"),
    "NotebookEdit": _path("Edit", "notebook_path"),
    "LS": _path("List", "path"),
    "Glob": _text("Find files named", "pattern"),
    "Grep": _text("Search files for", "pattern"),
    "WebSearch": _text("Search the web for", "query"),
    "WebFetch": ClientTool(verb="Fetch", shows=Shows.PAGE, argument="url"),
    "Skill": _text("Use the skill", "skill"),
    "SlashCommand": _text("Run the client's command", "command"),
    "KillShell": ClientTool(verb="End a command that runs in the background"),
    "BashOutput": ClientTool(verb="Read what a command in the background has printed"),
    "TodoWrite": ClientTool(verb="Write down what is to be done"),
    "ExitPlanMode": ClientTool(verb="End planning and begin the work"),
}
