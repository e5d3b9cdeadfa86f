"""The loopback and session tools as clients see them, and how their arguments are read.

What an argument means is not known here; what a tool does not have is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pml.core.approvals.record import SessionId
from pml.core.errors import Invalid
from pml.core.sessions.launch import PARENT_MAY
from pml.core.sessions.launch import SCHEMA as LAUNCH_SCHEMA
from pml.core.sessions.token import ParentMay
from pml.core.text import quote
from pml.core.values import Json, JsonObject
from pml.service.sessions.launcher import Wish
from pml.service.sessions.loopback import MAX_WAIT_S

WAIT_S: Final = 50.0  # unless told otherwise: most clients give a call up after 60 s
_OBJECT: Final[JsonObject] = {"type": "object"}
_TEXT: Final[JsonObject] = {"type": "string"}
_FLAG: Final[JsonObject] = {"type": "boolean"}
_SECONDS: Final[JsonObject] = {"type": "number"}


def read_wish(arguments: JsonObject) -> Wish:
    """Return what is to be launched. Raises: Invalid."""
    tools = arguments.get("allowed_tools")
    if tools is not None and not (
        isinstance(tools, list | tuple) and all(isinstance(tool, str) and tool for tool in tools)
    ):
        raise Invalid("`allowed_tools` must be a list of names or globs")
    ttl_s = arguments.get("loopback_timeout_secs")
    if ttl_s is not None and (isinstance(ttl_s, bool) or not isinstance(ttl_s, int)):
        raise Invalid("`loopback_timeout_secs` must be a whole number")
    may = arguments.get(PARENT_MAY)
    if may is not None and may not in [*ParentMay]:
        raise Invalid(f"`{PARENT_MAY}` must be one of {', '.join(ParentMay)}")
    return Wish(
        prompt=text_of(arguments, "prompt"),
        name=text_of(arguments, "name", default="") or None,
        cwd=text_of(arguments, "cwd", default="") or None,
        model=text_of(arguments, "model", default="") or None,
        tools=None if tools is None else tuple(str(tool) for tool in tools),
        loopback=flag_of(arguments, "loopback_enabled", default=True),
        ttl_s=ttl_s,
        may_launch=flag_of(arguments, "may_launch", default=False),
        parent_may=None if may is None else ParentMay(str(may)),
    )


def check_names(action: str, arguments: JsonObject) -> None:
    """Raise Invalid for an argument that the tool does not have: nothing is passed on unseen."""
    unknown = [name for name in arguments if name not in NAMES[action]]
    if unknown:
        names = ", ".join(quote(name) for name in unknown)
        raise Invalid(f"`{action}` has no argument {names}", hint=f"it has {', '.join(NAMES[action])}")


def text_of(arguments: JsonObject, name: str, *, default: str | None = None) -> str:
    """Return the text of that name. Raises: Invalid."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise Invalid(f"`{name}` must be a text")
    return value


def object_of(arguments: JsonObject, name: str) -> JsonObject:
    """Return the object of that name. Raises: Invalid."""
    value = arguments.get(name)
    if not isinstance(value, Mapping):
        raise Invalid(f"`{name}` must be an object")
    return value


def flag_of(arguments: JsonObject, name: str, *, default: bool | None = None) -> bool:
    """Return the truth value of that name. Raises: Invalid."""
    value = arguments.get(name, default)
    if not isinstance(value, bool):
        raise Invalid(f"`{name}` must be true or false")
    return value


def session_of(arguments: JsonObject) -> SessionId | None:
    """Return the session that is meant, if any. Raises: Invalid."""
    return SessionId(text_of(arguments, "session_id")) if arguments.get("session_id") is not None else None


def timeout_of(arguments: JsonObject) -> float:
    """Return how long to wait. Raises: Invalid."""
    value = arguments.get("timeout_s", WAIT_S)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_WAIT_S:
        raise Invalid(f"`timeout_s` must be from 0 to {MAX_WAIT_S:.0f}")
    return float(value)


def _tool(
    name: str, description: str, properties: Mapping[str, JsonObject], required: Sequence[str] = ()
) -> JsonObject:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
    }


def _properties(tool: JsonObject) -> Mapping[str, Json]:
    schema = tool["inputSchema"]
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _described(schema: JsonObject, description: str) -> JsonObject:
    return {**schema, "description": description}


_OF: Final = _described(_TEXT, "only of this session and those beneath it")
_FOR: Final = _described(_SECONDS, f"how long to wait at most (default {WAIT_S:.0f})")
PERMIT: Final = _tool(
    "loopback_permit",
    "For an agent's client, as its permission tool: blocks until the call is allowed or denied.",
    {"tool_name": _TEXT, "input": _OBJECT, "tool_use_id": _TEXT, "session_id": _TEXT},
    ["tool_name", "input"],
)
TOOLS: Final[tuple[JsonObject, ...]] = (
    PERMIT,
    _tool(
        "loopback_respond",
        "Decide a request of a session that you launched (or that it launched). You decide in your own name: "
        "allow only what the task needs. What only a person may decide is refused.",
        {
            "approval_id": _TEXT,
            "allow": _FLAG,
            "message": _described(_TEXT, "told to the agent, above all with a denial"),
            "updated_input": _described(_OBJECT, "run this input instead; it is judged again"),
            "scope": {"enum": ["once", "session"], "description": "session: not asked again in that session"},
        },
        ["approval_id", "allow"],
    ),
    _tool(
        "loopback_pending",
        "List what waits for a decision in sessions that you launched.",
        {"session_id": _OF},
    ),
    _tool(
        "loopback_wait",
        "Wait until a session that you launched needs a decision; returns at once if one waits.",
        {"session_id": _OF, "timeout_s": _FOR},
    ),
    {
        "name": "session_launch",
        "description": "Launch a child agent on a task, once a person has allowed it. It asks you, through "
        "`session_wait`, before it uses tools that no rule names, as far as that person let you answer. "
        "It may use nothing that you may not use.",
        "inputSchema": LAUNCH_SCHEMA,
    },
    _tool(
        "session_wait",
        "Wait for the next thing that needs you from sessions that you launched: a request to decide with "
        "`loopback_respond`, a message, or the end of one.",
        {"session_id": _OF, "timeout_s": _FOR},
    ),
    _tool("session_list", "List the sessions that you launched, with their state, turns and cost.", {}),
    _tool(
        "session_stop",
        "End a session that you launched, and all that it launched.",
        {"session_id": _TEXT},
        ["session_id"],
    ),
)
NAMES: Final = {str(tool["name"]): _properties(tool) for tool in TOOLS}
