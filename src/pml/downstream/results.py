"""Results that a model gets when a call does not simply run: the question that waits, or why it was refused.

The same words stand in the text and in `structuredContent`: some clients show only one of the two.
"""

from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Final

from pml.core.approvals.memory import can_last
from pml.core.approvals.record import Approval, Role, instant
from pml.core.approvals.subjects import asked_facts, headline, row_of, why_asked
from pml.core.errors import CodeFailed, IntegrityFailed, PmlError, ToolDenied
from pml.core.ports.records import Workflow
from pml.core.refusals import refusal_code
from pml.core.text import visible
from pml.core.values import Json, JsonObject

SHORT_ID: Final = 8
_AGAIN: Final = frozenset(
    {
        *("approval_expired", "approval_cancelled", "invalid_arguments"),
        *("server_failed", "config_broken", "env_missing"),
    }
)


def approval_result(
    record: Approval,
    workflow: Workflow,
    *,
    now: datetime,
    no_form: str | None = None,
    still: bool = False,
    anew: bool = False,
    is_shown: bool = False,
) -> dict[str, Json]:
    """Return the result that says: nothing has run, this is asked, and how to continue.

    `no_form` is why the client's own form was not asked; `still`: it was continued, and nobody has decided.
    `anew`: the same was asked before, and nobody answered in time; `is_shown`: its form is still open.
    """
    before = [
        *(["It is still undecided."] if still else []),
        *(["It was asked before, and the time to answer was over: it is asked again."] if anew else []),
        *(["Its form is still open in your client, and an answer there applies."] if is_shown else []),
    ]
    text = _approval_text(record, workflow, now, no_form, before, still=still)
    is_own = workflow.call is None or workflow.run_id is not None
    tool = record.tool_name if is_own or workflow.call is None else workflow.call.tool
    context: dict[str, Json] = {
        "type": record.subject.value,
        "tool": tool,
        "workflow_id": workflow.id,
        "expires_at": instant(record.expires_at),
        "approval_id": record.id,
    }
    if workflow.run_id is not None:
        context["run_id"] = workflow.run_id
    row = row_of(record)
    context |= {name: record.tool_input.get(name) for name in row.context}
    structured: JsonObject = {
        "status": "approval_required",
        "approval_required": True,
        "approval_context": context,
        "approval_type": row.approval_type,
        "description": text,
        "workflow_id": workflow.id,
        "options": ["continue", *(["always"] if _may_last(record) else []), "abort", "replan"],
    }
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": structured,
        "isError": False,
        "approval_required": True,
        "approval_context": context,
    }


def _approval_text(
    record: Approval,
    workflow: Workflow,
    now: datetime,
    no_form: str | None,
    before: list[str],
    *,
    still: bool,
) -> str:
    minutes = max(0, ceil((record.expires_at - now).total_seconds() / 60))
    short = record.id[:SHORT_ID]
    ran = "Nothing has run." if workflow.run_id is None else "This call has not run."
    lines = [headline(record), *before, ""]
    facts = [] if still else [*asked_facts(record), ("why", why_asked(record))]  # it was told them before
    for name, value in facts:
        first, *rest = value.split("\n")
        lines += [f"  {name}: {first}", *(f"    {line}" for line in rest)]
    if no_form is not None:
        lines += ["", f"Your client's own form does not decide this: {no_form}."]
    lines += [
        "",
        f"{ran} A person can decide it until {instant(record.expires_at)} ({minutes} min):",
        f"  pml approvals allow {short}    or    pml approvals deny {short}",
        "",
        *_how_to_continue(record, workflow),
    ]
    return "\n".join(lines)


def _how_to_continue(record: Approval, workflow: Workflow) -> list[str]:
    lines = _with_only(record, workflow)
    if workflow.run_id is None or workflow.call is None:
        return lines
    own = workflow.call.tool.removeprefix("pml:")
    return [f"The code waits at this call, which {own} made; what it did before is not done again.", *lines]


def _with_only(record: Approval, workflow: Workflow) -> list[str]:
    go_on = f'{{"continue_workflow": {{"workflow_id": "{workflow.id}", "approved": true}}}}'
    give_up = f'{{"continue_workflow": {{"workflow_id": "{workflow.id}", "approved": false}}}}'
    always = 'Add "always": true only if the user wants it never asked again. ' if _may_last(record) else ""
    if Role.MODEL in record.deciders:
        lines = [
            "You may confirm it (`approval.model_may_approve`), but only if the user agrees: use `call` "
            "with only this argument:",
            f"  {go_on}",
            f"{always}Do not approve it by yourself.",
        ]
    else:
        lines = [
            "You cannot approve it. Ask the user to decide, then use `call` with only this argument:",
            f"  {go_on}",
            "Then it runs if it was allowed; if it was denied or is still undecided, you are told.",
        ]
    return [*lines, f"To give it up: {give_up}"]


def _may_last(record: Approval) -> bool:
    """Tell whether a model's `always` would apply."""
    return Role.MODEL in record.deciders and can_last(record)


def refusal_result(error: PmlError) -> JsonObject | None:
    """Return what tells the model that the call was refused; None for an error that is not its business."""
    found = refusal_code(error)
    if found is None:
        return None
    code, message = found
    is_code = isinstance(error, CodeFailed)  # which has done things, whatever it failed at
    hint = error.hint if is_code else _ADVICE.get(code, error.hint)
    detail: dict[str, Json] = {"code": code, "message": message, "retry": code in _AGAIN and not is_code}
    lines = [message]
    if isinstance(error, IntegrityFailed):
        detail |= {"expected": error.expected, "got": error.got}
        lines.append(visible(f"Expected {error.expected}, got {error.got}"))
    if isinstance(error, CodeFailed):
        detail |= {"line": error.line, "column": error.column, "logs": error.logs}
        if error.line is not None:
            lines.append(f"at line {error.line}, column {error.column} of the code")
        lines += [visible(line) for line in error.logs]
    if isinstance(error, ToolDenied) and error.rule is not None:
        detail["rule"] = error.rule
        lines.append(f"rule: {visible(error.rule)}")
    if hint is not None:
        detail["hint"] = hint
        lines.append(hint)
    return {
        "content": [{"type": "text", "text": "\n".join(lines)}],
        "structuredContent": {"error": detail},
        "isError": True,
    }


_ADVICE: Final[Mapping[str, str]] = {
    "TOOL_DENIED": "Nothing has run. Do not retry, and do not look for another way to do the same.",
    "dependency_refused": "Nothing has run. Do not retry; ask the user how to continue.",
    "user_denied": "Nothing has run. Do not retry; ask the user how to continue.",
    "approval_expired": "Nobody decided, and nothing has run. It can be asked again.",
    "workflow_aborted": "Nothing more of it runs. Do not repeat it by yourself.",
    "run_unknown": "It may have run. Do not repeat it; let the user look.",
}
