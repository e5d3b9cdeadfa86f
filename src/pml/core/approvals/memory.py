"""Memory of a decision: what an answer may cover, never wider than what was shown beside the button.

What shows the choices asks `scopes_of`; what stores an answer asks `check_scope`, which is the same.
For tools that run commands or code the arguments are the tool, so they are remembered exactly.
"""

from pml.core.approvals.record import Approval, Scope, State
from pml.core.approvals.subjects import call_input, row_of
from pml.core.errors import Invalid
from pml.core.names import parse_tool
from pml.core.own_tools import META_TOOLS, SUPERVISING
from pml.core.rules.matchers import ANY
from pml.core.rules.ruleset import runs_code, without_words
from pml.core.values import Json, JsonObject


def check_scope(record: Approval, scope: Scope) -> None:
    """Raise Invalid if an answer to the question may not cover so much."""
    if (refusal := _refusal(record, scope)) is not None:
        raise refusal
    if scope is not Scope.ONCE:
        check_rememberable(record.tool_name)


def scopes_of(record: Approval) -> frozenset[Scope]:
    """Return what an answer to the question may cover: all that `check_scope` lets pass."""
    scopes = {scope for scope in Scope if _refusal(record, scope) is None}
    return frozenset(scopes) if is_rememberable(record.tool_name) else frozenset({Scope.ONCE})


def can_last(record: Approval) -> bool:
    """Tell whether an answer to the question can be written down as a rule."""
    return Scope.ALWAYS in scopes_of(record)


def always_of(record: Approval) -> Json:
    """Return what "always" would write for a question that waits; None where nothing can be remembered."""
    if record.status is not State.PENDING or not can_last(record):
        return None
    return always_entry(record.tool_name, call_input(record))


def _refusal(record: Approval, scope: Scope) -> Invalid | None:
    if scope is Scope.ONCE:
        return None
    if scope is Scope.ALWAYS and record.is_foreign:
        problem = f"in a rule `{record.tool_name}` means another publisher's tool"
        return Invalid(problem, hint="allow it once")
    if record.is_reserved:
        problem = "such a call is asked about every time; nothing is remembered"
        return Invalid(problem, hint="allow it once")
    if scope not in row_of(record).scopes:
        return Invalid(f"a decision on {record.subject} holds once; it has nothing to remember")
    return None


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
