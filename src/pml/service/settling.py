"""Settling a question that a call depends on: found answered, asked, waited for, or left as a workflow."""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from pml.core.approvals import Approval, MatchedRule, State, Subject
from pml.core.deciders import Matter
from pml.core.dependency import dependency_name
from pml.core.digest import digest
from pml.core.errors import AlreadyClaimed, AlreadySettled, Conflict, NotApproved, PmlError
from pml.core.ports import PausedCall, Workflow
from pml.core.rules import VerdictKind
from pml.service.answers import (
    SETTLED,
    answer_in_run,
    ask_within,
    is_answer,
    is_narrowed,
    untold_denial,
    was_declined,
    withdraw,
)
from pml.service.approvals import Question, cancel, wait
from pml.service.gate import Asking, Attempt, Gate, Inner, Paused, deciders
from pml.service.policy import Judged, Policy, kept_rule
from pml.service.trusting import answer_trust_questions, apply_trust, trust_question

CARRIED_OUT: Final = frozenset({State.ALLOWED, State.EXECUTING})
CARRY_S: Final = 10.0  # another asker of the same question carries it out; that is one write
UNKNOWN: Final = "unknown"  # why a call is asked about that may have been made
_USED: Final = frozenset({State.EXECUTING, State.COMPLETED, State.FAILED})
IsMoot = Callable[[], Awaitable[bool]]
_WORKFLOWS: Final = uuid.UUID("6f1d5d0e-6f63-4c0c-9b6e-0f6f1a6d7c55")


async def settle(
    gate: Gate,
    question: Question,
    because: MatchedRule | None,
    *,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
    is_moot: IsMoot | None = None,
) -> Approval:
    """Return the question, allowed by one of its deciders. `settled` is an answer that came with the call.

    `is_moot` tells whether it was settled for another call while this one was about to ask.
    Raises: NotApproved, AlreadySettled, AlreadyClaimed, Paused, TooManyPending, and what `asking` raises.
    """
    if attempt.inner is not None:
        question = of_run(question, attempt.inner)
        settled = await answer_in_run(gate.desk, question) if attempt.inner.resumed else None
    if settled is not None and is_answer(settled, question) and not _is_carried_out(settled):
        return _allowed(settled)
    denial = None
    if attempt.inner is None:
        denial = await untold_denial(gate.desk, question, workflow_id=lambda it: _workflow_id(it, attempt))
    if denial is not None:
        return _allowed(denial)
    while is_narrowed(record := await _ask(gate, question, because, asking, is_moot)):
        pass  # the same was asked meanwhile, of fewer: this call waits for that
    if record.status is State.PENDING:
        if record.subject is Subject.TOOL_CALL and attempt.inner is None:
            gate.paused[question.digest] = record.id
        raise Paused(record, await pause(gate, record, attempt))
    if record.subject is Subject.TOOL_CALL and record.status in _USED:
        raise AlreadyClaimed(f"approval `{record.id}` was used by the same call, made twice")
    return _allowed(record)


async def _ask(
    gate: Gate, question: Question, because: MatchedRule | None, asking: Asking, is_moot: IsMoot | None
) -> Approval:
    """Return the question as whoever is asked leaves it; taken back if the call is interrupted."""
    asked = asyncio.create_task(ask_within(gate.desk, question, because))
    try:
        record = await asyncio.shield(asked)  # interrupted half-way, nobody would know what was stored
        if record.status is State.PENDING and is_moot is not None and await is_moot():
            with contextlib.suppress(Conflict):  # only now can nobody settle it without seeing the question
                return await cancel(gate.desk, record.id, reason=SETTLED, version=record.version)
        return await asking.put(record) if record.status is State.PENDING else record
    except asyncio.CancelledError:
        with contextlib.suppress(PmlError):
            await withdraw(gate.desk, await asked)
        raise


def of_run(question: Question, inner: Inner) -> Question:
    """Return the question as that of one step of a run: no equal call, nor other run, has its answer.

    What a server needs is the same for every call of the run.
    """
    is_call = question.subject is Subject.TOOL_CALL
    return replace(question, run_id=inner.root, tool_use_id=inner.step if is_call else "")


def answers(settled: Approval | None, question: Question) -> bool:
    """Tell whether `settled` is what somebody said to this very question, and was not used before."""
    return (
        settled is not None
        and settled.status in (State.ALLOWED, State.DENIED)
        and is_answer(settled, question)
    )


def _is_carried_out(settled: Approval) -> bool:
    """Tell whether the trust, or the acceptance, was carried out; whoever still lacks it needs it anew."""
    return settled.subject is not Subject.TOOL_CALL and settled.status is State.COMPLETED


async def trust_first(
    gate: Gate,
    policy: Policy,
    judged: Judged | None,
    *,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
    runs: bool,
) -> bool | None:
    """Ask whether to trust the workspace's file before the session first uses a tool; return what was said.

    None: it was not asked, or nobody answered. It is asked once for each content that would loosen something.
    `runs`: rules let the call run, so that it is not held where nobody answers a form. An agent that PML
    holds is only held for what its call needs.
    """
    content = policy.loaded.workspace.digest
    is_asked = attempt.inner is None and attempt.is_tool and not gate.session.waits and not gate.is_cloud
    if policy.untrusted is None or content is None or not is_asked or (runs and not asking.has_form):
        return None
    is_answered = settled is not None and settled.subject is Subject.WORKSPACE_TRUST
    if content in gate.trust_asked and not is_answered:
        return None
    gate.trust_asked.add(content)
    try:
        refused = await settle_trust(gate, policy, judged, attempt=attempt, asking=asking, settled=settled)
    except Paused:
        if runs:
            return None
        raise
    return refused is None


async def settle_trust(
    gate: Gate,
    policy: Policy,
    judged: Judged | None,
    *,
    attempt: Attempt,
    asking: Asking,
    settled: Approval | None,
) -> NotApproved | None:
    """Ask whether to trust the workspace's file that the call needs; return why not, None once it is.

    Content that a person declined is not asked about again. Raises: Paused, and what `apply_trust` raises.
    """
    question = trust_question(gate.session, policy)
    asked = Question(
        session=question.session,
        tool=question.tool,
        arguments=question.arguments,
        subject=question.subject,
        deciders=deciders(gate, policy.settings, asking, Matter(subject=question.subject), question.tool),
    )
    if await was_declined(gate.desk, asked):
        return NotApproved("Trust was denied before", outcome=State.DENIED)
    rule = None if judged is None else judged.if_trusted
    because = None if rule is None else kept_rule(rule, VerdictKind.ALLOW)
    try:
        record = await settle(gate, asked, because, attempt=attempt, asking=asking, settled=settled)
    except NotApproved as exc:
        return exc
    await carry_out_trust(gate, record)
    return None


async def carry_out_trust(gate: Gate, record: Approval) -> None:
    """Trust the file as the allowed `record` says; another asker of the same may have done it already."""
    if record.status is State.ALLOWED:
        with contextlib.suppress(AlreadyClaimed):
            policy = await apply_trust(gate.desk, record, gate.session)
            if record.decided_by is not None:
                await answer_trust_questions(gate.desk, policy, by=record.decided_by)
    await wait(gate.desk, record.id, timeout_s=CARRY_S, during=CARRIED_OUT)


async def pause(gate: Gate, record: Approval, attempt: Attempt) -> Workflow:
    """Issue the workflow with which the call can be continued; the same call gets the same one.

    What is no tool is not continued but asked for again.
    """
    desk, inner = gate.desk, attempt.inner
    call = PausedCall(
        tool=str(attempt.tool), arguments=attempt.arguments, offered=attempt.offered, prefix=attempt.prefix
    )
    call = call if inner is None else inner.call
    workflow = Workflow(
        id=_workflow_id(record, attempt),
        approval_id=record.id,
        principal=gate.session.principal,
        created_at=desk.clock.now(),
        call=call if attempt.is_tool else None,
        run_id=None if inner is None else inner.root,
    )
    await desk.store.workflows.issue(workflow)
    return workflow


def _workflow_id(record: Approval, attempt: Attempt) -> str:
    """Return the id: the approval's own, or, where several calls wait for one approval, one for each."""
    if record.subject is Subject.TOOL_CALL:
        return record.id
    run = None if attempt.inner is None else attempt.inner.root
    call = digest({"tool": str(attempt.tool), "arguments": attempt.arguments, "run": run})
    return str(uuid.uuid5(_WORKFLOWS, record.id + call))


def _allowed(record: Approval) -> Approval:
    match record.status:
        case State.ALLOWED:
            return record
        case State.COMPLETED | State.EXECUTING if record.subject is not Subject.TOOL_CALL:
            return record  # another call that needed the same answer has carried it out
        case _:
            raise refusal(record)


def refusal(record: Approval) -> NotApproved:
    """Return why the call that depends on `record` does not run."""
    match record.status:
        case State.DENIED if record.rule is not None and record.rule.verdict == UNKNOWN:
            return NotApproved(
                "Nobody knows whether the call ran, and it is not made again", outcome=State.UNKNOWN
            )
        case State.DENIED:
            said = "" if record.response_message is None else f": {record.response_message}"
            if record.subject is Subject.DEPENDENCY_INSTALL:
                refused = f"Dependency {dependency_name(record.tool_input)} required but not approved{said}"
                return NotApproved(refused, outcome="dependency_refused")
            return NotApproved(f"Tool execution denied by user{said}", outcome=record.status)
        case State.EXPIRED:
            return NotApproved("Approval timed out", outcome=record.status, hint="nobody answered; ask again")
        case State.CANCELLED if record.reason == SETTLED:
            return AlreadySettled(f"Approval cancelled: {SETTLED}", outcome=record.status)
        case State.CANCELLED:
            why = "" if record.reason is None else f": {record.reason}"
            return NotApproved(f"Approval cancelled{why}", outcome=record.status)
        case State.UNKNOWN:
            return NotApproved("Nobody knows whether the call ran", outcome=record.status)
        case _:
            return NotApproved(f"The approval was used before ({record.status})", outcome=record.status)
