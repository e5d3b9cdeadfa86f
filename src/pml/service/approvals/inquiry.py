"""Settling a question that a call depends on: found answered, asked, waited for, or left as a workflow."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, Literal

from pml.core.approvals.deciders import Matter
from pml.core.approvals.reasons import OutcomeUnknown, Reason
from pml.core.approvals.record import Approval, State, Subject
from pml.core.digest import digest
from pml.core.errors import AlreadyClaimed, AlreadySettled, Conflict, NotApproved, PmlError
from pml.core.packages.install_facts import dependency_name
from pml.core.ports.records import PausedCall, Session, Workflow
from pml.core.rules.ruleset import VerdictKind
from pml.service.approvals.answers import (
    SETTLED,
    answer_in_run,
    ask_within,
    is_answer,
    is_narrowed,
    untold_denial,
    was_declined,
    withdraw,
)
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.lifecycle import Question, cancel, wait
from pml.service.approvals.trust import answer_trust_questions, apply_trust, trust_question
from pml.service.call import Attempt, CodeOrigin, Paused, PendingCall, deciders
from pml.service.context import Context
from pml.service.policy.policy import kept_rule

CARRIED_OUT: Final = frozenset({State.ALLOWED, State.EXECUTING})
CARRY_S: Final = 10.0  # another asker of the same question carries it out; that is one write
_USED: Final = frozenset({State.EXECUTING, State.COMPLETED, State.FAILED})
IsMoot = Callable[[], Awaitable[bool]]
Deed = Callable[[Approval], Awaitable[None]]
Beside = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
_WORKFLOWS: Final = uuid.UUID("6f1d5d0e-6f63-4c0c-9b6e-0f6f1a6d7c55")


async def _here(work: Coroutine[Any, Any, None]) -> None:
    await work


async def ask_and_wait(
    call: PendingCall,
    question: Question,
    because: Reason | None,
    *,
    settled: Approval | None = None,
    is_moot: IsMoot | None = None,
) -> Approval:
    """Return the question, allowed by one of its deciders. `settled` is an answer found for the call.

    `is_moot` tells whether it was settled for another call while this one was about to ask.
    Raises: NotApproved, AlreadySettled, AlreadyClaimed, Paused, TooManyPending, and what `asking` raises.
    """
    gate, attempt, settled = call.gate, call.attempt, settled or call.settled
    if attempt.inner is not None:
        question = of_run(question, attempt.inner)
        settled = await answer_in_run(gate.context, question) if attempt.inner.resumed else None
    if settled is not None and is_answer(settled, question) and not _is_carried_out(settled):
        return _allowed(settled)
    denial = None
    if attempt.inner is None:
        denial = await untold_denial(gate.context, question, workflow_id=lambda it: _workflow_id(it, attempt))
    if denial is not None:
        return _allowed(denial)
    while is_narrowed(record := await _ask(call, question, because, is_moot)):
        pass  # the same was asked meanwhile, of fewer: this call waits for that
    if record.status is State.PENDING:
        if record.subject is Subject.TOOL_CALL and attempt.inner is None:
            # A client that cannot continue a workflow makes the same call again, which finds the answer.
            gate.paused[question.digest] = record.id
        raise Paused(record, await pause(call, record))
    if record.subject is Subject.TOOL_CALL and record.status in _USED:
        # One answer runs one call: this one attached to the question of its twin, and has to ask its own.
        raise AlreadyClaimed(f"approval `{record.id}` was used by the same call, made twice")
    return _allowed(record)


async def _ask(
    call: PendingCall, question: Question, because: Reason | None, is_moot: IsMoot | None
) -> Approval:
    """Return the question as whoever is asked leaves it; taken back if the call is interrupted."""
    context = call.gate.context
    asked = asyncio.create_task(ask_within(context, question, because))
    try:
        record = await asyncio.shield(asked)  # interrupted half-way, nobody would know what was stored
        if record.status is State.PENDING and is_moot is not None and await is_moot():
            with contextlib.suppress(Conflict):  # only now can nobody settle it without seeing the question
                return await cancel(context, record.id, reason=SETTLED, version=record.version)
        return await call.asking.put(record) if record.status is State.PENDING else record
    except asyncio.CancelledError:
        with contextlib.suppress(PmlError):
            await withdraw(context, await asked)
        raise


def of_run(question: Question, inner: CodeOrigin) -> Question:
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


async def trust_first(call: PendingCall, *, runs: bool) -> NotApproved | Literal[True] | None:
    """Ask whether to trust the workspace's file before the session first uses a tool.

    Return True once it is trusted, or why it is not; None: it was not asked. It is asked once for each
    content that would loosen something.
    `runs`: rules let the call run, so that it is not held where nobody answers a form. An agent that PML
    holds is only held for what its call needs.
    """
    gate, policy, attempt, settled = call.gate, call.policy, call.attempt, call.settled
    content = policy.loaded.workspace.digest
    is_asked = attempt.inner is None and attempt.is_tool and not gate.session.waits and not gate.is_cloud
    if policy.untrusted is None or content is None or not is_asked or (runs and not call.asking.has_form):
        return None
    is_answered = settled is not None and settled.subject is Subject.WORKSPACE_TRUST
    if content in gate.trust_asked and not is_answered:
        return None
    # Before the wait: calls that are made meanwhile must not ask the same again.
    gate.trust_asked.add(content)
    try:
        refused = await settle_trust(call)
    except Paused:
        if runs:
            return None
        raise
    return True if refused is None else refused


async def settle_trust(
    call: PendingCall, settled: Approval | None = None, *, is_for_call: bool = True
) -> NotApproved | None:
    """Ask whether to trust the workspace's file that the call needs; return why not, None once it is.

    Content that a person declined is not asked about again, and no content twice for one call. With
    `is_for_call` the question names the rule of the file that would allow the call.
    Raises: Paused, and what `apply_trust` raises.
    """
    if call.attempt.no_trust is not None:
        return call.attempt.no_trust
    context, session = call.gate.context, call.gate.session
    question = trust_question(session, call.policy)
    asked = Question(
        session=question.session,
        tool=question.tool,
        arguments=question.arguments,
        subject=question.subject,
        deciders=deciders(call, Matter(subject=question.subject), question.tool),
    )
    if await was_declined(context, asked):
        return NotApproved("Trust was denied before", outcome=State.DENIED)
    rule = call.judgement.if_trusted if is_for_call else None
    because = None if rule is None else kept_rule(rule, VerdictKind.ALLOW)
    try:
        record = await ask_and_wait(call, asked, because, settled=settled)
    except NotApproved as exc:
        return exc
    await carry_out_trust(context, record, session)
    return None


async def carry_out_trust(context: Context, record: Approval, session: Session) -> None:
    """Trust the file as the allowed `record` says, and answer for it all who ask the same."""
    if record.status is State.ALLOWED:
        with contextlib.suppress(AlreadyClaimed):  # another asker of the same carries it out
            policy = await apply_trust(context, record, session)
            if record.decided_by is not None:
                await answer_trust_questions(context, policy, by=record.decided_by)
    await wait(context, record.id, timeout_s=CARRY_S, during=CARRIED_OUT)


async def carry_out(
    context: Context,
    record: Approval,
    deed: Deed,
    *,
    definition: str | None = None,
    artefact: str | None = None,
    timeout_s: float = CARRY_S,
    beside: Beside = _here,
) -> None:
    """Claim what was allowed and do it, once; how it ended is kept with the approval.

    Another call that waited for the same answer may do it instead: then this one waits for that. `beside`
    does the work apart from the call. Raises: what `claim` and the deed raise.
    """

    async def work() -> None:
        claimed = await claim(context, record.id, definition=definition, artefact=artefact)
        async with finishing(context, claimed):
            await deed(claimed)

    if record.status is State.ALLOWED:
        with contextlib.suppress(AlreadyClaimed):
            await beside(work())
    await wait(context, record.id, timeout_s=timeout_s, during=CARRIED_OUT)


@contextlib.asynccontextmanager
async def finishing(context: Context, record: Approval | None) -> AsyncGenerator[None]:
    """Record how the deed that `record` approved ended."""
    try:
        yield
    except BaseException as exc:
        if record is not None:
            said = exc.message if isinstance(exc, PmlError) else "interrupted"
            await finish(context, record.id, error=said)
        raise
    if record is not None:
        await finish(context, record.id)


async def ask_and_use(call: PendingCall, question: Question, because: Reason | None) -> Approval:
    """Return the allowed question, claimed and used up: what it allowed is done by the caller at once.

    Raises: AlreadyClaimed if the same call, made twice, was faster; and as `ask_and_wait`.
    """
    record = await ask_and_wait(call, question, because)
    claimed = await claim(call.gate.context, record.id)
    await finish(call.gate.context, record.id)
    return claimed


async def pause(call: PendingCall, record: Approval) -> Workflow:
    """Issue the workflow with which the call can be continued; the same call gets the same one.

    What is not a tool is not continued but asked for again.
    """
    context, attempt, inner = call.gate.context, call.attempt, call.attempt.inner
    paused = PausedCall(
        tool=str(attempt.tool), arguments=attempt.arguments, offered=attempt.offered, prefix=attempt.prefix
    )
    paused = paused if inner is None else inner.call
    workflow = Workflow(
        id=_workflow_id(record, attempt),
        approval_id=record.id,
        principal=call.gate.session.principal,
        created_at=context.clock.now(),
        call=paused if attempt.is_tool else None,
        run_id=None if inner is None else inner.root,
    )
    await context.store.workflows.issue(workflow)
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
        case State.DENIED if isinstance(record.rule, OutcomeUnknown):
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
