"""The client's own form: what it shows of a question, and what its answer means.

A form is never the only place that holds the question. One that could not show all of it is not sent, and an
answer that was not clearly given by somebody who read it decides nothing.
"""

from collections.abc import Mapping
from typing import Final

from pml.core.approvals import Approval, Channel, Decider, DeciderKind, Scope, Subject
from pml.core.errors import Invalid, PmlError
from pml.core.memory import always_entry
from pml.core.rules import runs_code
from pml.core.telling import asked_facts, why_asked
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject
from pml.core.wire import form_title
from pml.downstream.eras import NO_ENUM_TITLES, Era
from pml.service.approvals import Decision, decide, get
from pml.service.desk import Desk

MAX_LINES: Final = 20
MAX_COLUMNS: Final = 160
INSTANT_S: Final = 0.7  # nobody reads a form and answers it in less
_SHORT_ID: Final = 8
_SHORT: Final = 2 * MAX_COLUMNS  # arguments that are read as easily in one piece
_FIRST: Final = {"starts": 0, "allows": 1}
_AGAIN: Final = "asked once more: the answer came faster than anybody reads"


def form_params(record: Approval, era: Era, *, again: bool = False) -> JsonObject:
    """Return the params of `elicitation/create` for the question; `again`: it was answered too fast."""
    title, *facts = _lines(record)
    params: JsonObject = {
        "message": "\n".join([title, *([_AGAIN] if again else []), *facts]),
        "requestedSchema": {
            "type": "object",
            "properties": {"remember": _remember_field(record, era)},
            "required": ["remember"],
        },
    }
    return params if era.version in NO_ENUM_TITLES else {"mode": "form", **params}


def is_cut(record: Approval) -> bool:
    """Tell whether a form is too short to show all of the question."""
    return len(_lines(record)) > MAX_LINES


def is_too_fast(answer: Json, elapsed_s: float) -> bool:
    """Tell whether the form was accepted before anybody can have read it."""
    return isinstance(answer, Mapping) and answer.get("action") == "accept" and elapsed_s < INSTANT_S


async def apply_answer(
    desk: Desk, record: Approval, answer: Json, *, client: str, elapsed_s: float
) -> Approval | None:
    """Decide as the form's answer says; None if it is nobody's, or to half a question."""
    if is_cut(record):
        return None
    decision = _decision(record, answer, client=client, elapsed_s=elapsed_s)
    if decision is None:
        return None
    try:
        return (await decide(desk, record.id, decision)).record
    except PmlError:  # decided elsewhere, expired or forbidden meanwhile: what is stored counts
        return await get(desk, record.id)


def _decision(record: Approval, answer: Json, *, client: str, elapsed_s: float) -> Decision | None:
    if not isinstance(answer, Mapping):
        return None
    by = Decider(kind=DeciderKind.CLIENT, id=client, channel=Channel.FORM)
    content = answer.get("content")
    chosen = content.get("remember") if isinstance(content, Mapping) else None
    match answer.get("action"):
        case _ if elapsed_s < INSTANT_S:
            return None
        case "accept" if isinstance(chosen, str) and chosen in _scopes(record):
            return Decision(by=by, digest=record.digest, allow=True, scope=Scope(chosen))
        case "decline":
            return Decision(by=by, digest=record.digest, allow=False)
        case _:
            return None


def _scopes(record: Approval) -> Mapping[str, str]:
    """Return how long an answer can hold, each with what it says to the person."""
    if record.subject is Subject.WORKSPACE_TRUST:
        return {Scope.ONCE: "Trust exactly this content"}
    if record.subject is Subject.API_KEY_REQUIRED:
        return {Scope.ONCE: "It is set now: go on"}
    if record.subject not in (Subject.TOOL_CALL, Subject.DEPENDENCY_INSTALL):
        return {Scope.ONCE: "Accept it as it is now"}
    if record.is_foreign:
        return {Scope.ONCE: "Just this once"}
    try:
        entry = always_entry(record.tool_name, record.call_input)
    except Invalid:  # never remembered
        return {Scope.ONCE: "Just this once"}
    same = " exactly this call" if runs_code(record.tool_name, record.call_input) else ""
    if record.subject is Subject.DEPENDENCY_INSTALL:
        return {
            Scope.ONCE: _install_once(record, same or " the tool"),
            Scope.ALWAYS: f"Always: adds {visible_json(entry, indent=None)} to .pml.json",
        }
    return {
        Scope.ONCE: "Just this once",
        Scope.SESSION: f"Allow{same or ' this tool'} for this session",
        Scope.ALWAYS: f"Always: adds {visible_json(entry, indent=None)} to .pml.json",
    }


def _install_once(record: Approval, what: str) -> str:
    if record.covers_call:
        return f"Install exactly this; allow{what} this session"
    is_allowed = record.rule is not None and record.rule.verdict == "allow"
    return "Install exactly this" if is_allowed else "Install exactly this; the call is asked about next"


def _remember_field(record: Approval, era: Era) -> JsonObject:
    scopes = _scopes(record)
    field: dict[str, Json] = {
        "type": "string",
        "title": "Remember",
        "description": f"How long this answer holds. All of the question: {_where(record)}",
        "default": Scope.ONCE,
    }
    if era.version in NO_ENUM_TITLES:
        return field | {"enum": list(scopes), "enumNames": list(scopes.values())}
    return field | {"oneOf": [{"const": scope, "title": title} for scope, title in scopes.items()]}


def _lines(record: Approval) -> list[str]:
    """Return the question in lines that a form shows whole, what is asked first."""
    lines = _folded(form_title(record))
    for name, value in [*_facts(record), ("why", why_asked(record))]:
        first, *rest = value.split("\n")
        for line in (f"{name}: {first}", *(f"  {line}" for line in rest)):
            lines += _folded(line)
    return lines


def _where(record: Approval) -> str:
    """Return the command that shows all of the question, also what a client cuts off its form."""
    return f"pml approvals show {record.id[:_SHORT_ID]}"


def _facts(record: Approval) -> list[tuple[str, str]]:
    """Return the facts, what matters most first: some clients show only the beginning until asked for all."""
    facts = asked_facts(record)
    if record.subject is Subject.WORKSPACE_TRUST:
        facts.sort(key=lambda fact: _FIRST.get(fact[0], len(_FIRST)))
        launches = record.tool_input.get("launches")
        names = [
            visible(str(launch.get("name")))
            for launch in (launches if isinstance(launches, list | tuple) else ())
            if isinstance(launch, Mapping)
        ]
        return [("servers", ", ".join(names) or "none"), *facts]
    if record.subject is not Subject.TOOL_CALL:
        return facts
    short = visible_json(record.tool_input, indent=None)
    return [(name, short if name == "input" and len(short) <= _SHORT else value) for name, value in facts]


def _folded(line: str) -> list[str]:
    """Return the line in pieces that a form shows without cutting them."""
    pieces = [line[at : at + MAX_COLUMNS] for at in range(0, max(len(line), 1), MAX_COLUMNS)]
    return [pieces[0], *(f"  ↳ {piece}" for piece in pieces[1:])]
