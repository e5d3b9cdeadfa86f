"""Continuing a paused call: by the principal it was issued to, once, and never beyond who may decide it."""

import contextlib
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from pml.core.approvals.memory import can_last
from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, Role, Scope, State, Subject
from pml.core.digest import digest
from pml.core.errors import AlreadyClaimed, Conflict, Invalid, NotFound, WorkflowAborted, WorkflowGone
from pml.core.names import parse_tool
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.ports.records import PausedCall, Workflow
from pml.core.rules.ruleset import Effect
from pml.core.values import Json, JsonObject
from pml.service.approvals.answers import NARROWED, SETTLED
from pml.service.approvals.inquiry import refusal
from pml.service.approvals.lifecycle import Decision, cancel, decide, expire, get
from pml.service.call import Attempt, Gate, Paused, client_may_answer
from pml.service.code.lifetime import give_up
from pml.service.policy.policy import current_policy

_UNDECIDED_OR_UNUSED = (State.PENDING, State.ALLOWED)


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What `continue_workflow` says."""

    workflow_id: str
    approved: bool
    always: bool = False
    message: str | None = None
    arguments: JsonObject = field(default_factory=dict[str, Json])  # that came with it, of whatever tool


async def _at_once(record: Approval) -> Approval:
    return record


async def resume(
    gate: Gate,
    said: Continuation,
    *,
    given: Mapping[str, JsonObject] | None,
    client: str,
    undecided: Callable[[Approval], Awaitable[Approval]] = _at_once,
) -> tuple[Attempt, Approval]:
    """Return the call to go on with and the approval that was decided for it. The workflow is used up.

    That of code is not: it goes on with its run until that is over.

    `given` are the tools that may be meant, each with its arguments; None where any is, as with `call` alone.
    `undecided` waits a while for the decision, and returns the question as it is then.
    Raises: WorkflowGone, WorkflowAborted, NotApproved, Invalid, Paused (still undecided: the id lives on).
    """
    workflow, call = await _find(gate, said.workflow_id, given)
    arguments = said.arguments if given is None else given[call.tool]
    if arguments and digest(arguments) != digest(call.arguments):
        raise Invalid(
            "these are not the arguments that were asked about",
            hint="leave them out, or repeat them; to change them, call the tool without `continue_workflow`",
        )
    record = await get(gate.context, workflow.approval_id)
    if call.tool == LAUNCH_TOOL and record.session_id != gate.session.id:
        raise WorkflowGone  # a person let that very session be the agent's parent
    if record.status in _UNDECIDED_OR_UNUSED and gate.context.clock.now() >= record.expires_at:
        record = await expire(gate.context, record)
    if not said.approved:
        await _abort(gate, workflow, record, said, client)
    record = _without_model(gate, record)
    if record.status is State.PENDING and Role.MODEL in record.deciders:
        if said.always:
            await _refuse_hiding_asks(gate, record.tool_name)
        record = await _approve(gate, record, said, client)
    if record.status is State.PENDING:
        record = _without_model(gate, await undecided(record))
    if record.status is State.PENDING:
        raise Paused(record, workflow)
    is_settled = record.status is State.CANCELLED and record.reason in (SETTLED, NARROWED)
    if not is_settled and record.status in (State.EXPIRED, State.CANCELLED):
        raise WorkflowGone
    if workflow.run_id is None:
        await _use_once(gate, workflow, record)
    tool = parse_tool(call.tool)
    attempt = Attempt(
        tool=tool,
        arguments=call.arguments,
        offered=call.offered,
        run_id=workflow.run_id,
        prefix=call.prefix,
    )
    return attempt, record


def _without_model(gate: Gate, record: Approval) -> Approval:
    """Return the question as a model hears it: one that may not answer is not told that it may."""
    if client_may_answer(gate):
        return record
    return replace(record, deciders=record.deciders - {Role.MODEL})


async def _use_once(gate: Gate, workflow: Workflow, record: Approval) -> None:
    """Use the workflow of a call up. One of code lasts as long as its run, whose journal does what once does.

    Raises: NotApproved if the answer is no, or the outcome unknown; WorkflowGone if it was used.
    """
    if record.status is State.UNKNOWN:
        raise refusal(record)
    if _is_used(record):
        raise WorkflowGone
    await _use(gate, workflow)
    if record.status is State.DENIED:
        raise refusal(record)


async def _find(gate: Gate, workflow_id: str, tools: Container[str] | None) -> tuple[Workflow, PausedCall]:
    workflow = await gate.context.store.workflows.get(workflow_id)
    if workflow is None or workflow.call is None or workflow.principal != gate.session.principal:
        raise WorkflowGone
    if tools is not None and workflow.call.tool not in tools:
        raise WorkflowGone
    return workflow, workflow.call


async def _abort(gate: Gate, workflow: Workflow, record: Approval, said: Continuation, client: str) -> None:
    """Raise WorkflowAborted after the question is denied, or an unused answer withdrawn."""
    if workflow.run_id is not None:
        if not await give_up(gate, workflow.run_id):
            raise WorkflowGone
        raise WorkflowAborted(said.message)
    if record.status not in _UNDECIDED_OR_UNUSED:
        raise WorkflowGone
    await _use(gate, workflow)
    if not await _deny(gate, record, said, client):
        with contextlib.suppress(Conflict, NotFound):  # no answer is left for a later call to find
            await cancel(gate.context, record.id, reason="the client gave the call up")
    raise WorkflowAborted(said.message)


async def _deny(gate: Gate, record: Approval, said: Continuation, client: str) -> bool:
    """Tell whether the question is denied; to trust a file, or to accept a tool, is no model's to deny."""
    if record.subject is not Subject.TOOL_CALL:
        return False
    decision = Decision(by=_model(client), digest=record.digest, allow=False, message=said.message)
    try:
        await decide(gate.context, record.id, decision)
    except (Conflict, NotFound):
        return False
    return True


async def _approve(gate: Gate, record: Approval, said: Continuation, client: str) -> Approval:
    scope = Scope.ALWAYS if said.always and can_last(record) else Scope.ONCE
    decision = Decision(
        by=_model(client), digest=record.digest, allow=True, scope=scope, message=said.message
    )
    try:
        return (await decide(gate.context, record.id, decision)).record
    except Conflict:  # somebody was first; what they said counts
        return await get(gate.context, record.id)


async def _refuse_hiding_asks(gate: Gate, tool: str) -> None:
    """Raise Invalid if an allow of the whole tool would hide a rule that asks about some of its calls."""
    policy = await current_policy(gate.context, gate.session.workspace)
    if any(rule.effect is Effect.ASK and not rule.is_default for rule in policy.rules.naming(tool)):
        raise Invalid(
            f"`always` is a person's to say here: a rule asks about some calls of `{tool}`",
            hint="leave `always` out",
        )


async def _use(gate: Gate, workflow: Workflow) -> None:
    try:
        await gate.context.store.workflows.consume(workflow.id, at=gate.context.clock.now())
    except AlreadyClaimed as exc:
        raise WorkflowGone from exc


def _is_used(record: Approval) -> bool:
    """Tell whether the answer was used; one to trust a file, or to accept a tool, serves every call."""
    if record.subject is not Subject.TOOL_CALL:
        return record.status is State.FAILED
    return record.status in (State.EXECUTING, State.COMPLETED, State.FAILED)


def _model(client: str) -> Decider:
    return Decider(kind=DeciderKind.CLIENT, id=client, channel=Channel.MODEL)
