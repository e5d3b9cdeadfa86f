"""What a decision remembers: nothing wider than what was shown beside the button.

For tools that run commands or code the arguments are the tool, so they are remembered exactly.
"""

from typing import Final

from pml.core.errors import Invalid
from pml.core.matchers import ANY
from pml.core.names import parse_tool
from pml.core.rules import runs_code, without_words
from pml.core.values import Json, JsonObject

OWN_NAMESPACE: Final = "pml"
CONTINUE: Final = "continue_workflow"  # reserved on every tool: for the client that was asked
META_TOOLS: Final = frozenset({"pml:call", "pml:discover"})  # they only carry other calls
EXECUTE: Final = "pml:execute"  # its code does nothing by itself: every call it makes is judged
LAUNCH_TOOL: Final = "pml:session_launch"  # starts an agent: a person's to allow, whatever rules cover it
# PML's own tools by which sessions ask, answer and supervise; who may use them is told by the session's role
SUPERVISING: Final = frozenset(
    f"pml:{name}"
    for name in (
        *("loopback_permit", "loopback_respond", "loopback_pending", "loopback_wait"),
        *("session_launch", "session_wait", "session_list", "session_stop"),
    )
)


def always_entry(tool: str, arguments: JsonObject, *, literal: bool = False) -> Json:
    """Return the entry that "always" writes; `literal` binds it to these arguments and no others.

    Raises: Invalid for tools that are never remembered.
    """
    check_rememberable(tool)
    if not literal and not runs_code(tool, arguments):
        return tool
    return {
        "tool": tool,
        "args": {_key(name): {"is": value} for name, value in without_words(tool, arguments).items()},
        "exact": True,
    }


def check_rememberable(tool: str) -> None:
    """Raise Invalid for a meta-tool, and for a name that would be read as a pattern."""
    parse_tool(tool)
    if not is_rememberable(tool):
        raise Invalid(f"`{tool}` only carries other calls and is never remembered", hint="allow it once")


def is_rememberable(tool: str) -> bool:
    """Tell whether an allow of the tool can hold longer than once; what only carries other calls cannot."""
    return tool not in META_TOOLS and tool not in SUPERVISING


def _key(name: str) -> str:
    """Return the argument's name as a rule spells it: a JSON pointer where it could mean something else."""
    if name and name != ANY and not name.startswith("/"):
        return name
    return "/" + name.replace("~", "~0").replace("/", "~1")
