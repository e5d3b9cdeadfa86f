"""Consent to a call that somebody else will run: the script behind `pml approvals ask`, a permission tool.

Delivering the answer is claim and completion: it is given out once, for exactly the approved arguments.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from pml.core.approvals.deciders import PERSON_ONLY
from pml.core.approvals.events import Abandoned
from pml.core.approvals.reasons import Reason
from pml.core.approvals.record import Approval, Role, State
from pml.core.audit.entries import call_judged
from pml.core.errors import AlreadyClaimed, Conflict, NotFound, PmlError
from pml.core.ports.records import Workflow
from pml.core.rules.ruleset import Call, VerdictKind
from pml.core.values import JsonObject
from pml.service.approvals.answers import ask_within, earlier, untold_denial, was_declined, withdraw
from pml.service.approvals.claims import deliver
from pml.service.approvals.lifecycle import Question, take_digest, wait
from pml.service.approvals.trust import apply_trust, trust_question
from pml.service.context import Context
from pml.service.policy.policy import (
    Judgement,
    current_policy,
    judge,
    kept_rule,
    matched_rule,
    refuse_denied,
    why,
)

_CARRIED_OUT: Final = frozenset({State.ALLOWED, State.EXECUTING})
_NOT_GRANTED: Final = frozenset({State.PENDING, State.DENIED, State.EXPIRED, State.CANCELLED})


@dataclass(frozen=True, kw_only=True)
class Consent:
    """An answer: `arguments` may run if `record` is None (a rule or grant allows) or completed."""

    judged: Judgement
    record: Approval | None
    arguments: JsonObject

    @property
    def granted(self) -> bool:
        return self.record is None or self.record.status is State.COMPLETED


async def seek_consent(
    context: Context,
    question: Question,
    *,
    wait_s: float | None,
    on_asked: Callable[[Approval], None],
    deciders: Callable[[Judgement], frozenset[Role]] = lambda _: PERSON_ONLY,
    may_return: bool = False,
    heard: Callable[[], Awaitable[None]] | None = None,
) -> Consent:
    """Judge the call and, if need be, ask; wait `wait_s` for the answer (None: until it expires).

    `on_asked` gets each approval once it is stored, before the wait. `deciders` says who may allow the call,
    by what rules say of it. `may_return`: an asker who is lost has
    a while to come back with the same `tool_use_id`, and is then told what was decided meanwhile. `heard`
    returns once somebody hears the answer: one that is given to nobody would be used up for nothing.

    An answer that is not waited for can be collected by asking the same again until it expires.
    Raises: ToolDenied, TooManyPending, and what `claim` raises when the decision no longer holds.
    """
    await take_digest(question)
    judged = await _judge(context, question)
    ask_so = _Asking(context=context, wait_s=wait_s, on_asked=on_asked, may_return=may_return, heard=heard)
    if judged.needs_trust:
        trust = await _settle_trust(ask_so, question, judged)
        if trust is not None and trust.status is State.PENDING:
            return Consent(judged=judged, record=trust, arguments=question.arguments)
        judged = await _judge(context, question)
    if judged.kind is VerdictKind.ALLOW:
        used = await _use_up(context, question)
        if used is not None:
            return Consent(judged=judged, record=used, arguments=used.run_input)
        await _record_verdict(context, question, judged)
        return Consent(judged=judged, record=None, arguments=question.arguments)
    question = replace(question, deciders=deciders(judged))
    can_return = may_return and question.tool_use_id
    denied = await earlier(context, question, State.DENIED) if can_return else []
    record = denied[-1] if denied else await untold_denial(context, question)
    if record is None:
        record = await _answer(ask_so, question, matched_rule(judged))
    if record.status not in _NOT_GRANTED:  # also what another asker has used: claiming it refuses
        record = await deliver(context, record.id, question)
    return Consent(judged=judged, record=record, arguments=record.run_input)


async def is_allowed(context: Context, question: Question) -> bool:
    """Tell whether a rule or grant allows the call. Raises: ToolDenied."""
    return (await _judge(context, question)).kind is VerdictKind.ALLOW


async def _judge(context: Context, question: Question) -> Judgement:
    session = question.session
    call = Call(
        tool=question.tool,
        arguments=question.arguments,
        cwd=session.workspace if question.cwd is None else question.cwd,
        definition=question.definition,
        artefact=question.artefact,
    )
    policy = await current_policy(context, session.workspace)
    judged = await judge(context, policy, call, session=session)
    if judged.kind is VerdictKind.DENY:
        await _record_verdict(context, question, judged)
    refuse_denied(judged, question.tool)
    return judged


async def _record_verdict(context: Context, question: Question, judged: Judgement) -> None:
    entry = call_judged(
        question.session.id,
        question.tool,
        question.digest,
        at=context.clock.now(),
        word="denied" if judged.kind is VerdictKind.DENY else "allowed",
        why=why(judged),
    )
    await context.store.audit.record(entry)


@dataclass(frozen=True, kw_only=True)
class _Asking:
    """How one call asks all its questions."""

    context: Context
    wait_s: float | None
    on_asked: Callable[[Approval], None]
    may_return: bool
    heard: Callable[[], Awaitable[None]] | None


async def _settle_trust(asking: _Asking, question: Question, judged: Judgement) -> Approval | None:
    """Ask whether to trust the file that would allow the call; a person who said no is not asked again."""
    context, session = asking.context, question.session
    asked = trust_question(session, await current_policy(context, session.workspace))
    asked = replace(asked, ttl_s=question.ttl_s)
    if await was_declined(context, asked):
        return None
    because = judged.if_trusted and kept_rule(judged.if_trusted, VerdictKind.ALLOW)
    record = await _answer(asking, asked, because)
    if record.status is State.ALLOWED:
        with contextlib.suppress(AlreadyClaimed):  # another asker of the same carries it out
            await apply_trust(context, record, session)
    return await wait(context, record.id, timeout_s=asking.wait_s, during=_CARRIED_OUT)


async def _use_up(context: Context, question: Question) -> Approval | None:
    """Return the answer to this very question that nobody waits for, now used.

    A rule or grant that came with the answer would let the call run without it, and leave it for later.
    """
    for record in await earlier(context, question, State.ALLOWED):
        if not context.owners.alive(record.owner):
            with contextlib.suppress(Conflict, NotFound):
                return await deliver(context, record.id, question)
    return None


async def _answer(asking: _Asking, question: Question, because: Reason | None) -> Approval:
    context, me = asking.context, object()
    asked = asyncio.create_task(ask_within(context, question, because))
    try:
        record = await asyncio.shield(asked)  # interrupted half-way, nobody would know what was stored
        context.askers[record.id] = me
        asking.on_asked(record)
        record = await wait(context, record.id, timeout_s=asking.wait_s)
        if asking.heard is not None:
            await asking.heard()
        is_one_call = asking.may_return and question.tool_use_id  # a question of trust serves every call
        if is_one_call and context.askers.get(record.id) is not me:
            raise AlreadyClaimed(f"approval `{record.id}` was asked for again since, and is answered there")
    except asyncio.CancelledError:
        with contextlib.suppress(PmlError):
            await _leave(asking, await asked)
        raise
    finally:
        if not asked.cancelled() and asked.done() and asked.exception() is None:
            _forget_asker(context, asked.result(), me)
    if record.status is State.PENDING:
        await context.store.workflows.issue(
            Workflow(
                id=record.id,
                approval_id=record.id,
                principal=question.session.principal,
                created_at=context.clock.now(),
            )
        )
    return record


def _forget_asker(context: Context, asked: Approval, who: object) -> None:
    if context.askers.get(asked.id) is who:
        del context.askers[asked.id]


async def _leave(asking: _Asking, asked: Approval) -> None:
    """Give the question up: at once, or after the while in which its asker may come back."""
    if asking.may_return:
        event = Abandoned(at=asking.context.clock.now())
        await asking.context.store.approvals.advance(asked.id, event)
    else:
        await withdraw(asking.context, asked)
