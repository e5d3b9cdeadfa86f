"""What a question is about, in facts that a person can weigh: whole, with hidden characters made visible.

Terminal cards, forms and approval results all tell from here. How the facts are laid out is theirs.
"""

import re
from collections.abc import Mapping
from typing import Final

from pml.core.approvals import Approval, Channel, Decider, DeciderKind, MatchedRule, State, Subject
from pml.core.config import Unlisted
from pml.core.dependency import tell_changed, tell_install, tell_variables, why_install
from pml.core.errors import Invalid
from pml.core.launch import launch_facts
from pml.core.memory import LAUNCH_TOOL
from pml.core.rules import runs_code
from pml.core.text import has_hidden, visible, visible_json
from pml.core.values import Json, JsonObject, loads, loads_object

_WHY: Final[Mapping[Subject, str]] = {
    Subject.TOOL_CHANGED: "the server changed the description of this tool since it was first used",
    Subject.API_KEY_REQUIRED: "the server that was called cannot work without it",
    Subject.INTEGRITY_CHANGED: "files of the server are not those that were installed, trusted or accepted",
}
NEEDS: Final = "needs"  # why a capability is asked about: for the tools that its code calls
_UNLISTED: Final = "tools without a rule: PML asks"
_LEFT_TO_CLIENT: Final = "tools without a rule: the client asks, PML does not"
_PLAIN_NAME: Final = re.compile(r"(?!you$)[\w.@+-]+", re.IGNORECASE)  # it reads as nothing but a name
_UNITS: Final = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def gone_note(record: Approval, *, has_ended: bool) -> str | None:
    """Return what to say of a question whose asker may not wait for it; `has_ended`: its session has."""
    if record.status is not State.PENDING:
        return None
    if record.abandoned_at is not None:
        return "the agent disconnected; withdrawn unless it reconnects"
    return (
        "its session has ended: an answer applies only if it comes back and asks again" if has_ended else None
    )


def span(seconds: float) -> str:
    """Return a length of time in the two largest units that matter."""
    whole = max(0, int(seconds))
    for size, big, small_size, small in _UNITS:
        if whole >= size:
            return f"{whole // size} {big} {whole % size // small_size} {small}"
    return f"{whole} s"


def who_decided(by: Decider) -> str:
    """Return who it was, visible. Only a person stands there by name alone: a client chooses its own."""
    name = visible(by.id)
    if by.kind is DeciderKind.RULE:
        return "a rule"
    if by.kind is DeciderKind.PERSON and _PLAIN_NAME.fullmatch(name):
        return name
    what = "session" if by.kind is DeciderKind.PARENT else f"the {by.kind}"
    return f"{what} `{name}`" + (" (its model)" if by.channel is Channel.MODEL else "")


def entry_text(entry: Json) -> str:
    """Return a rule's entry as a person reads it and `pml rules` takes it."""
    return entry if isinstance(entry, str) and not has_hidden(entry) else visible_json(entry, indent=None)


def always_note(entry: Json) -> str | None:
    """Return what else an entry that "always" would write allows, None if it is nothing."""
    is_exact = isinstance(entry, Mapping)
    tool = str(entry.get("tool")) if is_exact else str(entry)
    if ":" in tool:
        return None
    with_what = " with these arguments" if is_exact else ""
    return f"also allows a tool called {visible(tool)} of any server{with_what}"


def session_memory(tool: str, arguments: JsonObject) -> str:
    """Return what an allow that is remembered for the session covers."""
    if not runs_code(tool, arguments):
        return f"every {visible(tool)} until the session ends"
    if tool == "Bash":
        return "this exact command, in any folder, until the session ends"
    folder = "" if ":" in tool else ", in any folder"  # where a server works does not depend on the call
    return f"exactly this {visible(tool)}{folder}, until the session ends"


def asked_facts(record: Approval) -> list[tuple[str, str]]:
    """Return what is asked: the arguments, or what trusting, installing or accepting something means."""
    asked = record.tool_input
    match record.subject:
        case Subject.WORKSPACE_TRUST:
            return _trust_facts(asked)
        case Subject.TOOL_CHANGED:
            return [("changes", "\n".join(_texts(asked.get("diff"))))]
        case Subject.DEPENDENCY_INSTALL:
            return [*tell_install(asked, at=record.created_at), ("then", after_install(record))]
        case Subject.API_KEY_REQUIRED:
            return tell_variables(asked)
        case Subject.INTEGRITY_CHANGED:
            return tell_changed(asked)
        case Subject.TOOL_CALL if record.tool_name == LAUNCH_TOOL:
            facts = [*launch_facts(record.run_input), ("input", visible_json(asked))]
            edited = record.updated_input
            return facts if edited is None else [*facts, ("edited to", visible_json(edited))]
        case Subject.TOOL_CALL:
            facts = [("input", visible_json(asked)), *caller_facts(record)]
            if record.updated_input is not None:
                facts.append(("edited to", visible_json(record.updated_input)))
            return facts


def caller_facts(record: Approval) -> list[tuple[str, str]]:
    """Return what code makes a call, and what a capability that is called is and needs."""
    facts: list[tuple[str, str]] = []
    if record.run_id is not None:
        facts.append(("asked from", f"code that is paused here (run {record.run_id[:8]})"))
    told = needs_of(record)
    return facts if told is None else facts + _capability_facts(told)


def needs_of(record: Approval) -> JsonObject | None:
    """Return what a capability is and calls, as `service.capabilities.why_needs` tells it."""
    if record.rule is None or record.rule.verdict != NEEDS:
        return None
    return loads_object(record.rule.entry, what="what a capability needs")


def _capability_facts(told: JsonObject) -> list[tuple[str, str]]:
    name, source = visible(str(told.get("capability"))), visible(str(told.get("source")))
    facts = [("full name", f"{name}, from {source}")]
    if told.get("description"):
        facts.append(("does", visible(str(told["description"]))))
    facts.append(("calls", "\n".join(visible(line) for line in _texts(told.get("calls"))) or "no tools"))
    if covers := _texts(told.get("covers")):
        names = ", ".join(visible(name) for name in covers)
        facts.append(("covers", f"allowing it allows {names} too, in this run only"))
    return facts


def _trust_facts(asked: JsonObject) -> list[tuple[str, str]]:
    facts = [
        ("file", visible(str(asked.get("path")))),
        ("content", visible(str(asked.get("digest")))),
        ("allows", "\n".join(_texts(asked.get("allows"))) or "nothing"),
        ("starts", "\n".join(launch_lines(asked.get("launches"))) or "nothing"),
    ]
    if unusable := _texts(asked.get("unusable")):
        facts.append(("not started", "\n".join(map(visible, unusable))))
    if drops := _texts(asked.get("drops")):
        facts.append(("ends", "\n".join(drops)))
    if asked.get("launches"):
        facts.append(("unlisted", unlisted_note(asked)))
    return [*facts, ("sets", visible_json(asked["settings"]))] if asked.get("settings") else facts


def trust_summary(asked: JsonObject) -> str:
    """Return in one line what a file would start and allow."""
    launches = asked.get("launches")
    each = launches if isinstance(launches, list | tuple) else ()
    names = [visible(str(launch.get("name"))) for launch in each if isinstance(launch, Mapping)]
    allows = [allowed.removeprefix('"').removesuffix('"') for allowed in _texts(asked.get("allows"))]
    return f"It starts {', '.join(names) or 'nothing'}; allows {', '.join(allows) or 'nothing'}"


def unlisted_note(asked: JsonObject) -> str:
    """Return who asks about tools without a rule; as `service.trusting.trust_facts` tells the setting."""
    return _UNLISTED if asked.get("unlisted") == Unlisted.EVERY_CALL else _LEFT_TO_CLIENT


def _texts(values: Json) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list | tuple) else []


def launch_lines(launches: Json) -> list[str]:
    """Return what a file would start, one thing a line; as `service.trusting.trust_facts` tells it."""
    lines: list[str] = []
    for launch in launches if isinstance(launches, list | tuple) else ():
        if not isinstance(launch, Mapping):
            continue
        argv = [str(launch.get("command")), *_texts(launch.get("args"))]
        lines.append(f"{visible(str(launch.get('name')))}: {visible_json(argv, indent=None)}")
        if names := _texts(launch.get("env_names")):
            lines.append(f"  with {', '.join(visible(name) for name in names)} set")
        steering = launch.get("steering")
        for name, value in steering.items() if isinstance(steering, Mapping) else ():
            lines.append(f"  {visible(name)} = {visible_json(value, indent=None)}")
        lines += _variable_lines(launch)
        for key, word in (("cwd", "in"), ("permissions", "permitted")):
            if launch.get(key) is not None:
                lines.append(f"  {word} {visible_json(launch[key], indent=None)}")
    return lines


def _variable_lines(launch: Mapping[str, Json]) -> list[str]:
    """Return which variables of PML's own environment a server is given; never their values."""
    unset = _texts(launch.get("unset"))
    given = [name for name in _texts(launch.get("variables")) if name not in unset]
    lines = [f"  takes {', '.join(map(visible, given))} from your environment"] if given else []
    if unset:
        lines.append(f"  cannot be started until {', '.join(map(visible, unset))} is set")
    if launch.get("program") is not None:
        lines.append(f"  the program is now {visible_json(launch['program'], indent=None)}")
    return lines


def why_asked(record: Approval) -> str:
    """Return why PML asks: the rule that says so, or what is missing."""
    if record.subject in _WHY:
        return _WHY[record.subject]
    if record.subject is Subject.WORKSPACE_TRUST:
        return _why_trust(record.rule)
    if record.subject is Subject.DEPENDENCY_INSTALL:
        missing = why_install(record.tool_input, record.tool_name)
        is_left = record.rule is not None and record.rule.verdict == "broken"
        return f"{missing}; {_why_by(record)}" if is_left else missing
    return _why_by(record)


def _why_trust(rule: MatchedRule | None) -> str:
    if rule is None:
        return "what was called needs the servers that this file defines"
    return f"it would allow a call that waits, by {_rule_text(rule)}{_place(rule)}"


def _why_by(record: Approval) -> str:
    """Return what makes the call ask."""
    rule, tool = record.rule, visible(record.tool_name)
    if rule is None:
        return f"no rule covers {tool}"
    match rule.verdict:
        case "reserved" | "unknown" | "foreign" | "launch" | "link":
            return visible(rule.entry)
        case verdict if verdict == NEEDS:
            return "no rule allows this capability and all that its code calls"
        case "broken":
            where = f"{visible(rule.file or '')}:{rule.line}"
            return (
                f"{where} is broken: {visible(rule.entry)}\n"
                "until it is fixed its denies are unknown: look closely"
            )
        case "unlisted":
            return f'only your catch-all "ask {_entry_of(rule)}" matches {tool}'
        case _:
            return f"your rule {_rule_text(rule)} says so{_place(rule)}"


def _rule_text(rule: MatchedRule) -> str:
    """Return the rule as a person wrote it."""
    return f'"{rule.verdict} {_entry_of(rule)}"'


def _place(rule: MatchedRule) -> str:
    """Return where the rule stands; the workspace's file by its name alone."""
    file = visible(rule.file or "")
    name = ".pml.json" if file.endswith("/.pml.json") else file
    return f" ({name}, line {rule.line})" if file else ""


def _entry_of(rule: MatchedRule) -> str:
    try:
        return entry_text(loads(rule.entry))
    except Invalid:
        return visible(rule.entry)


def after_install(record: Approval) -> str:
    """Return what becomes of the call that needs the install, once it is allowed."""
    rule = record.rule
    if record.covers_call:
        return f"allows {session_memory(record.tool_name, record.call_input)}"
    if rule is not None and rule.verdict == "allow":
        return f"the call runs, since your rule {_rule_text(rule)} says so{_place(rule)}"
    return f"the call itself is asked about: {_why_by(record)}"
