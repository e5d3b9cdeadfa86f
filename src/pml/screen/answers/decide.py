"""Decisions given at the terminal: the first decision wins, and the second decider is told who was first."""

from collections.abc import Sequence
from dataclasses import dataclass

from pml.core.approvals.record import Approval, ApprovalId, Decider, Scope, State
from pml.core.errors import AlreadyDecided, ApprovalExpired, PmlError
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject, kind_of
from pml.screen.draw.words import problem, what_became
from pml.service.approvals.lifecycle import Decided, Decision, decide
from pml.service.context import Context
from pml.service.policy.memory import Remembered
from pml.service.rules.undo import take_back


@dataclass(frozen=True, kw_only=True)
class Given:
    """What came of it, in words; `record` is the question as it is now, if it is settled."""

    words: str
    is_done: bool
    record: Approval | None = None
    can_undo: bool = False  # what is remembered of it can be taken back


async def give(context: Context, approval_id: ApprovalId, decision: Decision) -> Given:
    """Decide, and tell what came of it; a refusal is told, not raised."""
    try:
        decided = await decide(context, approval_id, decision)
    except PmlError as exc:
        return await _refused(context, approval_id, exc)
    memory = decided.remembered
    can_undo = memory is not None and memory.added and memory.problem is None
    return Given(words=_told(decided), is_done=True, record=decided.record, can_undo=can_undo)


async def undo(context: Context, approval_id: ApprovalId, *, by: Decider, literal: bool) -> str:
    """Take back what an answer is remembered by, and say what came of it."""
    try:
        undone = await take_back(context, approval_id, by=by, literal=literal)
    except PmlError as exc:
        return f"not undone: {problem(exc)}"
    tool = visible(undone.record.tool_name)
    what = f"undone: {tool} is asked about again" if undone.taken_back else "it was no longer remembered"
    return f"{what}; this call {'had already gone ahead' if undone.has_run else 'did not run'}"


async def _refused(context: Context, approval_id: ApprovalId, error: PmlError) -> Given:
    record = await context.store.approvals.get(approval_id)
    is_settled = record is not None and record.status is not State.PENDING
    if record is not None and is_settled and isinstance(error, AlreadyDecided | ApprovalExpired):
        return Given(
            words=f"not decided here: {what_became(record, context.clock.now())}",
            is_done=False,
            record=record,
        )
    return Given(words=problem(error), is_done=False, record=record if is_settled else None)


def _told(decided: Decided) -> str:
    record = decided.record
    word = "denied" if record.status is State.DENIED else "allowed"
    parts = [f"{word} {visible(record.tool_name)}"]
    if decided.remembered is not None:
        parts.append(_memory(decided.remembered))
    if decided.released:
        parts.append(f"{len(decided.released)} more that waited were released")
    return "; ".join(parts)


def _memory(memory: Remembered) -> str:
    if memory.scope is Scope.SESSION:
        return "remembered for this session" if memory.problem is None else "not remembered: it has ended"
    entry, file = visible_json(memory.entry, indent=None), visible(memory.file or "")
    if memory.problem is not None:
        return f"{entry} is not in the file yet: {visible(memory.problem.message)}"
    doubt = "" if memory.counts else ", which is not trusted: `pml trust`"
    return f"{entry} added to {file}{doubt}"


_KINDS = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "object": "object",
    "array": "array",
}


def misfits(schema: Json, value: JsonObject) -> Sequence[str]:
    """Return where the top level of `value` is not as the tool's schema says; a server checks the rest."""
    if not isinstance(schema, dict):
        return ()
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, dict) else {}
    wrong = [
        f"`{visible(str(name))}` is required"
        for name in (required if isinstance(required, list | tuple) else ())
        if name not in value
    ]
    for name, each in value.items():
        about = known.get(name)
        expected = about.get("type") if isinstance(about, dict) else None
        if isinstance(expected, str) and expected in _KINDS and _KINDS[expected] not in kind_of(each):
            wrong.append(f"`{visible(name)}` must be a {visible(expected)}, not {kind_of(each)}")
        if about is None and schema.get("additionalProperties") is False:
            wrong.append(f"the tool has no argument `{visible(name)}`")
    return wrong
