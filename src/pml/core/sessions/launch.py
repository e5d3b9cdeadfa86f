"""A launch: what an agent asks to have started, what it would be given, and the person's yes to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.record import ApprovalId, Decider
from pml.core.config.file import ParentMayDecide
from pml.core.sessions.token import ParentMay
from pml.core.text import visible
from pml.core.values import Json, JsonObject

TOOLS: Final = "allowed_tools"
PARENT_MAY: Final = "parent_may_decide"
_TEXT: Final[JsonObject] = {"type": "string"}
_FLAG: Final[JsonObject] = {"type": "boolean"}
SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "prompt": {**_TEXT, "description": "the whole task: it sees nothing else"},
        "name": _TEXT,
        "cwd": {**_TEXT, "description": "a folder within the workspace"},
        "model": _TEXT,
        TOOLS: {
            "type": "array",
            "items": _TEXT,
            "description": "names or globs of all that it may use, such as Read, Bash, github:*",
        },
        "loopback_enabled": {
            **_FLAG,
            "description": "false: it cannot ask, and does only what rules allow",
        },
        "loopback_timeout_secs": {"type": "integer", "description": "how long each request may wait"},
        "may_launch": {
            **_FLAG,
            "description": "true: it may ask to launch children of its own, and supervises them",
        },
        PARENT_MAY: {
            "enum": [*ParentMay],
            "description": "the most that you may answer for it; a person decides the rest",
        },
    },
    "required": ["prompt"],
}
_ANSWERS: Final[Mapping[ParentMay, str]] = {
    ParentMay.NOTHING: "people only",
    ParentMay.LISTED: "the parent, for what `approval.parent_may_decide` lists; people for the rest",
    ParentMay.UNLISTED: "the parent, for what no rule names, commands included; people for the rest",
    ParentMay.ALL: "the parent, for all that no rule denies: commands, and what an ask rule names, included",
}


@dataclass(frozen=True, kw_only=True)
class LaunchConsent:
    """A person's yes to a launch: who gave it where, or what they said beforehand (`why`)."""

    why: str
    by: Decider | None = None
    approval_id: ApprovalId | None = None


def with_powers(arguments: JsonObject, *, tools: tuple[str, ...] | None, parent_may: ParentMay) -> JsonObject:
    """Return the arguments with all that the agent would be given, to be seen and narrowed."""
    given: JsonObject = {} if tools is None else {TOOLS: list(tools)}
    return {**arguments, **given, PARENT_MAY: parent_may}


def power_of(setting: ParentMayDecide) -> ParentMay:
    """Return the most that the user's `approval.parent_may_decide` gives to parents."""
    match setting:
        case bool():
            return ParentMay.ALL if setting else ParentMay.NOTHING
        case str():
            return ParentMay.UNLISTED
        case _:
            return ParentMay.LISTED


def launch_facts(arguments: JsonObject) -> list[tuple[str, str]]:
    """Return what the new agent may use and who may answer for it."""
    facts = [("may use", _uses(arguments.get(TOOLS))), ("answers", _answers(arguments))]
    if arguments.get("may_launch") is True:
        facts.append(("may launch", "agents of its own; each launch is asked about"))
    return facts


def gives_commands(arguments: JsonObject) -> bool:
    """Tell whether the parent could let the new agent run commands."""
    return arguments.get(PARENT_MAY) in (ParentMay.UNLISTED, ParentMay.ALL)


def _uses(tools: Json) -> str:
    if not isinstance(tools, list | tuple):
        return "every tool; your rules apply to each call"
    return ", ".join(visible(str(tool)) for tool in tools) or "no tool"


def _answers(arguments: JsonObject) -> str:
    if arguments.get("loopback_enabled") is False:
        return "nobody: it cannot ask, and does only what rules allow"
    given = arguments.get(PARENT_MAY)
    return _ANSWERS.get(ParentMay(given), "") if given in [*ParentMay] else f"? {visible(str(given))}"
