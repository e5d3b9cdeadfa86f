"""Consent to a call that somebody else will run: the script behind `pml approvals ask`, a permission tool.

Delivering the answer is claim and completion: it is given out once, for exactly the approved arguments.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pml.core.approvals import Approval, MatchedRule, State
from pml.core.audit import call_judged
from pml.core.errors import AlreadyClaimed, Conflict, NotFound, PmlError
from pml.core.ports import Workflow
from pml.core.rules import Call, VerdictKind
from pml.core.values import JsonObject
from pml.service.answers import earlier, untold_denial, was_denied, withdraw
from pml.service.approvals import Question, ask, claim, finish, wait
from pml.service.desk import Desk
from pml.service.policy import Judged, current_policy, judge, kept_rule, matched_rule, refuse_denied, why
from pml.service.trusting import apply_trust, trust_question

_CARRIED_OUT: Final = frozenset({State.ALLOWED, State.EXECUTING})
_NOT_GRANTED: Final = frozenset({State.PENDING, State.DENIED, State.EXPIRED, State.CANCELLED})


@dataclass(frozen=True, kw_only=True)
class Consent:
    """An answer: `arguments` may run if `record` is None (a rule or grant allows) or completed."""

    judged: Judged
    record: Approval | None
    arguments: JsonObject

    @property
    def granted(self) -> bool:
        return self.record is None or self.record.status is State.COMPLETED


async def seek_consent(
    desk: Desk, question: Question, *, wait_s: float | None, on_asked: Callable[[Approval], None]
) -> Consent:
    """Judge the call and, if need be, ask; wait `wait_s` for the answer (None: until it expires).

    `on_asked` gets each approval once it is stored, before the wait.

    An answer that is not waited for can be collected by asking the same again until it expires.
    Raises: ToolDenied, TooManyPending, and what `claim` raises when the decision no longer holds.
    """
    judged = await _judge(desk, question)
    if judged.needs_trust:
        trust = await _settle_trust(desk, question, judged, wait_s=wait_s, on_asked=on_asked)
        if trust is not None and trust.status is State.PENDING:
            return Consent(judged=judged, record=trust, arguments=question.arguments)
        judged = await _judge(desk, question)
    if judged.kind is VerdictKind.ALLOW:
        used = await _use_up(desk, question)
        if used is not None:
            return Consent(judged=judged, record=used, arguments=used.run_input)
        await _record_verdict(desk, question, judged)
        return Consent(judged=judged, record=None, arguments=question.arguments)
    record = await untold_denial(desk, question)
    if record is None:
        record = await _answer(desk, question, matched_rule(judged), wait_s=wait_s, on_asked=on_asked)
    if record.status not in _NOT_GRANTED:  # also what another asker has used: claiming it refuses
        await claim(desk, record.id, definition=question.definition, artefact=question.artefact)
        record = await finish(desk, record.id)
    return Consent(judged=judged, record=record, arguments=record.run_input)


async def _judge(desk: Desk, question: Question) -> Judged:
    session = question.session
    call = Call(
        tool=question.tool,
        arguments=question.arguments,
        cwd=session.workspace,
        definition=question.definition,
        artefact=question.artefact,
    )
    policy = await current_policy(desk, session.workspace)
    judged = await judge(desk, policy, call, session_id=session.id)
    if judged.kind is VerdictKind.DENY:
        await _record_verdict(desk, question, judged)
    refuse_denied(judged, question.tool)
    return judged


async def _record_verdict(desk: Desk, question: Question, judged: Judged) -> None:
    entry = call_judged(
        question.session.id,
        question.tool,
        question.digest,
        at=desk.clock.now(),
        word="denied" if judged.kind is VerdictKind.DENY else "allowed",
        why=why(judged),
    )
    await desk.store.audit.record(entry)


async def _settle_trust(
    desk: Desk,
    question: Question,
    judged: Judged,
    *,
    wait_s: float | None,
    on_asked: Callable[[Approval], None],
) -> Approval | None:
    """Ask whether to trust the file that would allow the call; a person who said no is not asked again."""
    session = question.session
    asked = trust_question(session, await current_policy(desk, session.workspace))
    if await was_denied(desk, asked):
        return None
    because = judged.if_trusted and kept_rule(judged.if_trusted, VerdictKind.ALLOW)
    record = await _answer(desk, asked, because, wait_s=wait_s, on_asked=on_asked)
    if record.status is State.ALLOWED:
        with contextlib.suppress(AlreadyClaimed):  # another asker of the same carries it out
            await apply_trust(desk, record, session)
    return await wait(desk, record.id, timeout_s=wait_s, during=_CARRIED_OUT)


async def _use_up(desk: Desk, question: Question) -> Approval | None:
    """Return the answer to this very question that nobody waits for, now used.

    A rule or grant that came with the answer would let the call run without it, and leave it for later.
    """
    for record in await earlier(desk, question, State.ALLOWED):
        if not desk.owners.alive(record.owner):
            with contextlib.suppress(Conflict, NotFound):
                await claim(desk, record.id, definition=question.definition, artefact=question.artefact)
                return await finish(desk, record.id)
    return None


async def _answer(
    desk: Desk,
    question: Question,
    because: MatchedRule | None,
    *,
    wait_s: float | None,
    on_asked: Callable[[Approval], None],
) -> Approval:
    asking = asyncio.create_task(ask(desk, question, because))
    try:
        record = await asyncio.shield(asking)  # interrupted half-way, nobody would know what was stored
        on_asked(record)
        record = await wait(desk, record.id, timeout_s=wait_s)
    except asyncio.CancelledError:
        with contextlib.suppress(PmlError):
            await withdraw(desk, await asking)
        raise
    if record.status is State.PENDING:
        await desk.store.workflows.issue(
            Workflow(
                id=record.id,
                approval_id=record.id,
                principal=question.session.principal,
                created_at=desk.clock.now(),
            )
        )
    return record
