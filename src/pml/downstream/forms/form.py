"""The client's own form: what it shows of a question, and what its answer means.

A form is never the only place that holds the question. One that could not show all of it is not sent, and an
answer that was not clearly given by somebody who read it decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pml.core.approvals.fact import pairs
from pml.core.approvals.memory import always_entry, can_last, scopes_of
from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, Scope, Subject
from pml.core.approvals.subjects import call_input, form_title, row_of, why_asked
from pml.core.cards.shorten import brief
from pml.core.errors import PmlError
from pml.core.rules.ruleset import runs_code
from pml.core.text import entry_text, visible_json
from pml.core.values import Json, JsonObject
from pml.downstream.protocol.eras import NO_ENUM_TITLES, Era
from pml.service.approvals.lifecycle import Decision, decide, get
from pml.service.context import Context

MAX_LINES: Final = 20
MAX_COLUMNS: Final = 160
INSTANT_S: Final = 0.7  # a person cannot read a form and answer it in less
_SHORT_ID: Final = 8
_SHORT: Final = 2 * MAX_COLUMNS  # arguments that are read as easily in one piece
# Claude Code shows three lines of a form, each as long as its screen is wide, and 48 characters of a choice.
_SEEN_LINES: Final = 3
_MORE: Final = "  ↳ "
_SEEN_COLUMNS: Final = 72
_AGAIN: Final = "asked once more: the answer came faster than a person can read"
_ANEW: Final = "asked again: the time to answer was over, and nothing has run"


def form_params(record: Approval, era: Era, *, again: bool = False, anew: bool = False) -> JsonObject:
    """Return the params of `elicitation/create` for the question.

    `again`: it was answered too fast; `anew`: the same was asked before, and not answered in time.
    """
    title, *facts = _lines(record)
    note = [_AGAIN] if again else [_ANEW] if anew else []
    params: JsonObject = {
        "message": "\n".join([title, *note, *facts]),
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
    context: Context,
    record: Approval,
    answer: Json,
    *,
    client: str,
    elapsed_s: float,
    over_http: bool = False,
) -> Approval | None:
    """Decide as the form's answer says; None if it is nobody's, or to half a question."""
    if is_cut(record):
        return None
    decision = _decision(record, answer, client=client, elapsed_s=elapsed_s)
    if decision is None:
        return None
    try:
        return (await decide(context, record.id, replace(decision, over_http=over_http))).record
    except PmlError:  # decided elsewhere, expired or forbidden meanwhile: what is stored applies
        return await get(context, record.id)


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
    choices: dict[str, str] = {Scope.ONCE: row_of(record).form_once(record)}
    if not can_last(record):
        return choices
    if Scope.SESSION in scopes_of(record):
        is_exact = runs_code(record.tool_name, call_input(record))
        choices[Scope.SESSION] = f"Allow {'exactly this call' if is_exact else 'this tool'} for this session"
    entry = always_entry(record.tool_name, call_input(record))
    return choices | {Scope.ALWAYS: f"Always: adds {entry_text(entry)}"}


def _remember_field(record: Approval, era: Era) -> JsonObject:
    scopes = _scopes(record)
    writes = "Rules go to .pml.json. " if Scope.ALWAYS in scopes else ""
    field: dict[str, Json] = {
        "type": "string",
        "title": "Remember" if len(scopes) > 1 else "Answer",
        "description": f"{writes}All of it: {_where(record)}",
        "default": Scope.ONCE,
    }
    if era.version in NO_ENUM_TITLES:
        return field | {"enum": list(scopes), "enumNames": list(scopes.values())}
    return field | {"oneOf": [{"const": scope, "title": title} for scope, title in scopes.items()]}


def _lines(record: Approval) -> list[str]:
    """Return the question in lines that a form shows whole, what is asked first."""
    lines = _folded(_title(record))
    for name, value in [*_facts(record), ("why", why_asked(record))]:
        first, *rest = value.split("\n")
        for line in (f"{name}: {first}", *(f"  {line}" for line in rest)):
            lines += _folded(line, seen=_SEEN_LINES - len(lines) if name == "input" else 0)
    return lines


def _title(record: Approval) -> str:
    """Return the first line; that of trust says what the file would start and allow."""
    summary = row_of(record).summary
    if summary is None:
        return form_title(record)
    return brief(f"{form_title(record)} {summary(record.tool_input)}", MAX_COLUMNS)


def _where(record: Approval) -> str:
    """Return the command that shows all of the question, also what a client cuts off its form."""
    return f"pml approvals show {record.id[:_SHORT_ID]}"


def _facts(record: Approval) -> list[tuple[str, str]]:
    """Return the facts, what matters most first: some clients show only the beginning."""
    row = row_of(record)
    facts = row.facts(record)
    if record.subject is Subject.TOOL_CALL:
        short = visible_json(record.tool_input, indent=None)
        is_short = len(short) <= _SHORT
        return [(name, short if name == "input" and is_short else value) for name, value in pairs(facts)]
    if row.summary is not None:
        return _summed_facts(pairs(facts), row.first)
    return pairs(sorted(facts, key=lambda fact: (not fact.alarming, fact.name not in row.first)))


def _summed_facts(facts: list[tuple[str, str]], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the facts with these names in a line each, in that order; then the rest, and what those cut."""
    first: list[tuple[str, str]] = []
    rest = [fact for fact in facts if fact[0] not in names]
    for name, value in (fact for fact in facts if fact not in rest):
        line = "; ".join(each.strip() for each in value.split("\n"))
        first.append((name, brief(line, MAX_COLUMNS - len(name) - 2)))
        rest += [] if first[-1][1] == line else [(f"{name}, all", value)]
    return [*sorted(first, key=lambda fact: names.index(fact[0])), *rest]


def _folded(line: str, *, seen: int = 0) -> list[str]:
    """Return the line in pieces that a form shows without cutting them; the first `seen` are short."""
    pieces: list[str] = []
    while line or not pieces:
        mark = _MORE if pieces else ""
        width = (_SEEN_COLUMNS if len(pieces) < seen else MAX_COLUMNS) - len(mark)
        pieces.append(mark + line[:width])
        line = line[width:]
    return pieces
