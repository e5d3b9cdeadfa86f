"""Asking, waiting, deciding: the life of an approval as use cases, up to its answer. `claims` takes it on.

Nothing here knows who shows the question or runs the call. The store serialises; `core.approvals`
says what is legal; this module judges again wherever time has passed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pml.core.approvals.bounds import MAX_PENDING, refuse_large
from pml.core.approvals.events import (
    Allowed,
    Attached,
    Cancelled,
    Denied,
    Event,
    Expired,
    Lost,
)
from pml.core.approvals.reasons import Reason
from pml.core.approvals.record import (
    Approval,
    ApprovalId,
    Channel,
    Decider,
    DeciderKind,
    Role,
    Scope,
    SessionId,
    State,
    Subject,
)
from pml.core.approvals.subjects import frame_of, row_of
from pml.core.audit.entries import approval_refused
from pml.core.digest import digest_call
from pml.core.errors import (
    Changed,
    Conflict,
    Forbidden,
    Invalid,
    MayNotDecide,
    NotFound,
    TooLargeToAsk,
    TooManyPending,
)
from pml.core.names import parse_tool
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.rules.arguments import is_short
from pml.core.rules.places import Starts
from pml.core.rules.ruleset import VerdictKind, rule_text
from pml.core.sessions.token import ParentMay
from pml.core.values import JsonObject, check
from pml.service.context import Context
from pml.service.policy.memory import Remembered, apply_memory, memory_of
from pml.service.policy.policy import (
    Judgement,
    call_of,
    current_policy,
    judge,
    judge_in_session,
    parent_may_decide,
    refuse_denied,
    why,
)
from pml.service.session_tree import descends_from, session_of

_CANDIDATES: Final = 4
RECHECK_S: Final = 30.0  # every wait looks again this often, whatever woke it or did not
_TIMED: Final = frozenset({State.PENDING, State.ALLOWED})  # what runs has no time to end by
_NOT_OURS: Final = (Conflict, Forbidden, NotFound)  # one of many cannot be decided: the others still are


@dataclass(frozen=True, kw_only=True, slots=True)
class _Taken:
    """A digest, and of what it was taken: the very arguments, which are never changed."""

    tool: str
    arguments: JsonObject
    where: Mapping[str, str | None]
    digest: str


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be asked: exactly this call, for this reason."""

    session: Session
    tool: str
    arguments: JsonObject
    subject: Subject = Subject.TOOL_CALL
    tool_use_id: str = ""
    definition: str | None = None
    artefact: str | None = None
    deciders: frozenset[Role] = frozenset({Role.PERSON})
    run_id: str | None = None
    cwd: str | None = None  # where relative paths begin, if not in the session's workspace
    ttl_s: int | None = None  # how long it may wait, if not as the session or the settings say

    # Goes along when the question is put to others (`replace`); a question of another call takes its own.
    _taken: list[_Taken] = field(default_factory=list["_Taken"], repr=False, compare=False)

    @property
    def digest(self) -> str:
        """The digest of the call, taken once: of long arguments it takes long."""
        where = {"definition": self.definition, "artefact": self.artefact, "cwd": self.cwd}
        for taken in self._taken:
            if taken.arguments is self.arguments and (taken.tool, taken.where) == (self.tool, where):
                return taken.digest
        digest = digest_call(self.tool, self.arguments, **where)
        self._taken.append(_Taken(tool=self.tool, arguments=self.arguments, where=where, digest=digest))
        return digest


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An answer. `digest` is of what the decider was shown; `release` are the ids shown beside the button.

    `over_http`: it is a form's, and whoever holds the token may have filled it in.
    """

    by: Decider
    digest: str
    allow: bool
    scope: Scope = Scope.ONCE
    literal: bool = False
    message: str | None = None
    updated_input: JsonObject | None = None
    release: tuple[ApprovalId, ...] = ()
    is_batch: bool = False  # one of several that are given at once
    over_http: bool = False


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What came of a decision: the record, what was remembered, and which of the waiting it released."""

    record: Approval
    remembered: Remembered | None = None
    released: tuple[Approval, ...] = ()


async def ask(context: Context, question: Question, why: Reason | None = None) -> Approval:
    """Store the question, or attach to the same one that waits already.

    One that is refused leaves an entry and a notice. Raises: TooManyPending, TooLargeToAsk, Invalid.
    """
    await _check_arguments(question.arguments, what="the arguments")
    await take_digest(question)
    check(question.tool_use_id, what="the tool use id")
    parse_tool(question.tool)
    now = context.clock.now()
    settings = (await current_policy(context, question.session.workspace)).settings
    ttl_s = question.ttl_s or question.session.ttl_s or settings.approval.ttl_s
    new = Approval(
        id=ApprovalId(context.ids.new()),
        session_id=question.session.id,
        subject=question.subject,
        tool_name=question.tool,
        tool_input=question.arguments,
        tool_use_id=question.tool_use_id,
        digest=question.digest,
        definition=question.definition,
        artefact=question.artefact,
        rule=why,
        deciders=question.deciders,
        ttl_s=ttl_s,
        created_at=now,
        expires_at=now + timedelta(seconds=ttl_s),
        owner=context.owners.me,
        run_id=question.run_id,
        cwd=question.cwd,
    )
    try:
        refuse_large(question.tool, question.arguments)
        return await context.store.approvals.ask(new, max_pending=MAX_PENDING)
    except (TooManyPending, TooLargeToAsk) as exc:
        entry = approval_refused(new.session_id, new.tool_name, new.digest, at=now, why=exc.message)
        await context.store.audit.record(entry)
        raise


async def take_digest(question: Question) -> None:
    """Take the digest of the question before it is asked for; of what is long, off the loop."""
    if not is_short(question.arguments):
        await asyncio.to_thread(getattr, question, "digest")


async def wait(
    context: Context,
    approval_id: ApprovalId,
    *,
    timeout_s: float | None = None,
    during: frozenset[State] = frozenset({State.PENDING}),
) -> Approval:
    """Return the approval once its state is not one of `during`, or as it is after `timeout_s`.

    Whoever waits for a question takes it over when its first asker has left it. Raises: NotFound.
    """
    until = None if timeout_s is None else context.clock.now() + timedelta(seconds=timeout_s)
    with context.store.changes.watch(approval_id) as changes:
        while True:
            record = await get(context, approval_id)
            now = context.clock.now()
            if record.status not in during:
                return record
            if record.status in _TIMED and now >= record.expires_at:
                await expire(context, record)
                continue
            if record.status is State.PENDING and record.abandoned_at is not None:
                await _try(context, record, Attached(at=now, owner=context.owners.me))
                continue
            if record.status is State.EXECUTING and not context.owners.alive(record.owner):
                await _try(context, record, Lost(at=now))
                continue
            if until is not None and now >= until:
                return record
            ends = [record.expires_at] if record.status in _TIMED else []
            ends += [] if until is None else [until]
            await changes.wait(min([RECHECK_S, *((at - now).total_seconds() for at in ends)]))


async def _try(context: Context, record: Approval, event: Event) -> None:
    with contextlib.suppress(Conflict, NotFound):  # somebody was faster; the next look tells
        await context.store.approvals.advance(record.id, event)


async def decide(context: Context, approval_id: ApprovalId, decision: Decision) -> Decided:
    """Answer the question; the first answer wins.

    Raises: NotFound, ApprovalExpired, AlreadyDecided, MayNotDecide, Changed, ToolDenied, Invalid.
    """
    check(decision.message, what="the message")
    record = await get(context, approval_id)
    session = await session_of(context, record.session_id)
    now = context.clock.now()
    if record.status is State.PENDING and now >= record.expires_at:
        record = await expire(context, record)
    if decision.allow and decision.is_batch and frame_of(record) is not None:
        raise MayNotDecide(
            f"approval `{record.id}` is allowed by itself, not with others",
            hint="read it, then allow it alone",
        )
    await _guard_parent(context, decision.by, session)
    await _guard_edit(context, session, record, decision)
    if not decision.allow:
        event = Denied(at=now, by=decision.by, digest=decision.digest, message=decision.message)
        return Decided(record=await context.store.approvals.advance(approval_id, event))
    try:
        await judge_again(context, session, record, decision.updated_input)
    except Changed as exc:
        if record.status is State.PENDING:
            await cancel(context, approval_id, reason=exc.message)
        raise
    arguments = record.tool_input if decision.updated_input is None else decision.updated_input
    memory = memory_of(
        context,
        record,
        session,
        decision.by,
        decision.scope,
        arguments=arguments,
        literal=decision.literal,
        over_http=decision.over_http,
    )
    event = Allowed(
        at=now,
        by=decision.by,
        digest=decision.digest,
        scope=decision.scope,
        message=decision.message,
        updated_input=decision.updated_input,
    )
    record = await context.store.approvals.advance(approval_id, event, remember=memory)
    remembered = await apply_memory(context, memory) if memory is not None else None
    released = await release(context, decision.release, by=decision.by) if decision.release else ()
    return Decided(record=record, remembered=remembered, released=released)


async def release(context: Context, shown: Sequence[ApprovalId], *, by: Decider) -> tuple[Approval, ...]:
    """Judge those of the waiting that were shown again, and allow what a rule or grant now allows."""
    released: list[Approval] = []
    for approval_id in shown:
        with contextlib.suppress(*_NOT_OURS):
            record = await get(context, approval_id)
            if record.status is not State.PENDING or record.subject is not Subject.TOOL_CALL:
                continue
            if record.is_for_itself:
                continue
            session = await session_of(context, record.session_id)
            judged = await judge_in_session(context, session, call_of(record, session))
            if judged.kind is VerdictKind.ALLOW:
                message = "covered by a new rule or grant"
                decision = Decision(by=by, digest=record.digest, allow=True, message=message)
                released.append((await decide(context, approval_id, decision)).record)
    return tuple(released)


async def refuse_denied_waiting(context: Context, workspace: str) -> tuple[Approval, ...]:
    """Deny the waiting calls of `workspace` that a deny rule names now; a deny never needs showing first."""
    refused: list[Approval] = []
    async for record in all_pending(context):
        session = await session_of(context, record.session_id)
        if session.workspace != workspace or not row_of(record).is_about_call:
            continue
        judged = await judge_in_session(context, session, call_of(record, session))
        rule = judged.verdict.rule
        if judged.kind is VerdictKind.DENY and rule is not None:
            by = Decider(kind=DeciderKind.RULE, id=rule_text(rule), channel=Channel.RULES)
            decision = Decision(by=by, digest=record.digest, allow=False)
            with contextlib.suppress(*_NOT_OURS):
                refused.append((await decide(context, record.id, decision)).record)
    return tuple(refused)


async def cancel(
    context: Context, approval_id: ApprovalId, *, reason: str, version: int | None = None
) -> Approval:
    """Withdraw a question, or an answer that was not used. Raises: Changed if it has another `version`."""
    event = Cancelled(at=context.clock.now(), reason=reason, version=version)
    return await context.store.approvals.advance(approval_id, event)


async def expire(context: Context, record: Approval) -> Approval:
    """Mark an approval whose time is over; if somebody was faster, return what they made of it."""
    try:
        return await context.store.approvals.advance(record.id, Expired(at=context.clock.now()))
    except Conflict:
        return await get(context, record.id)


async def get(context: Context, approval_id: ApprovalId) -> Approval:
    """Raises: NotFound."""
    record = await context.store.approvals.get(approval_id)
    if record is None:
        raise NotFound(f"no approval `{approval_id}`", hint="`pml approvals list --all` shows all there are")
    return record


async def find(context: Context, prefix: str) -> Approval:
    """Return the one approval whose id, or whose workflow's, is meant. Raises: Invalid, NotFound, Conflict.

    Of an approval's id the beginning is enough; agents are told the workflow's, which is taken whole.
    """
    if not prefix:
        raise Invalid("an empty id names no approval", hint="give the id, or the start of it")
    found = await context.store.approvals.find(prefix.lower(), limit=_CANDIDATES)
    if not found and (workflow := await context.store.workflows.get(prefix.lower())) is not None:
        record = await context.store.approvals.get(workflow.approval_id)
        found = [] if record is None else [record]
    if not found:
        raise NotFound(f"no approval `{prefix}`", hint="`pml approvals list --all` shows all there are")
    if len(found) > 1:
        some = ", ".join(record.id[: len(prefix) + 4] for record in found)
        raise Conflict(f"several approvals begin with `{prefix}`", hint=f"give more of the id: {some}, …")
    return found[0]


async def pending(
    context: Context, *, session_id: SessionId | None = None, after: Approval | None = None, limit: int = 100
) -> list[Approval]:
    """Return one page of the undecided, oldest first, after the last one of the page before."""
    query = ApprovalQuery(
        states=frozenset({State.PENDING}),
        session_id=session_id,
        after=None if after is None else (after.created_at, after.id),
        limit=limit,
    )
    return await context.store.approvals.page(query)


async def all_pending(context: Context, *, session_id: SessionId | None = None) -> AsyncIterator[Approval]:
    """Yield every undecided approval, page by page."""
    last: Approval | None = None
    while page := await pending(context, session_id=session_id, after=last):
        for record in page:
            yield record
        last = page[-1]
        await asyncio.sleep(0)  # thousands may wait, and others are served meanwhile


async def judge_again(
    context: Context,
    session: Session,
    record: Approval,
    updated_input: JsonObject | None,
    starts: Starts | None = None,
) -> Judgement | None:
    """Return what is to be said of the call that would run now; None where there is none.

    Raises: ToolDenied if a deny names it, Changed if what was asked is no more.
    """
    if record.subject is Subject.WORKSPACE_TRUST:
        await _check_same_file(context, session, record)
    if not row_of(record).is_about_call:
        return None
    if updated_input is not None:
        await _check_arguments(updated_input, what="the edited arguments")
        refuse_large(record.tool_name, updated_input)
    call = call_of(record, session, updated_input, starts=starts)
    judged = await judge_in_session(context, session, call)
    refuse_denied(judged, record.tool_name)
    return judged


async def _check_arguments(arguments: JsonObject, *, what: str) -> None:
    """Raise Invalid for what cannot be stored and shown exactly; what is long is looked at off the loop."""
    if is_short(arguments):
        check(arguments, what=what)
    else:
        await asyncio.to_thread(check, arguments, what=what)


async def _check_same_file(context: Context, session: Session, record: Approval) -> None:
    file = context.configs.of(session.workspace).read().workspace
    if file.digest != record.tool_input.get("digest"):
        raise Changed(
            f"{file.path} has changed since the question was asked; nothing was trusted",
            hint="the next call that needs it asks again",
        )


async def _guard_edit(context: Context, session: Session, record: Approval, decision: Decision) -> None:
    """Raise MayNotDecide if anybody but a person edits the call into one that they could not allow."""
    edited, by = decision.updated_input, decision.by
    if edited is None or by.kind is DeciderKind.PERSON:
        return
    policy = await current_policy(context, session.workspace)
    judged = await judge(context, policy, call_of(record, session, edited), session=session)
    if judged.reserved:
        raise MayNotDecide(f"{by} may not edit approval `{record.id}` so: {judged.why_reserved}")
    tools = (record.tool_name,)
    if judged.is_named and not parent_may_decide(session, policy.settings, tools, named=True):
        raise MayNotDecide(f"{by} may not edit approval `{record.id}` so: {why(judged)}")


async def _guard_parent(context: Context, by: Decider, session: Session) -> None:
    if by.kind is not DeciderKind.PARENT:
        return
    if not await descends_from(context, session, SessionId(by.id)):
        raise MayNotDecide(f"session `{session.id}` is not a descendant of session `{by.id}`")
    at: Session | None = session
    while at is not None and at.id != by.id:  # also for a question that was asked before this was kept
        if at.parent_may is ParentMay.NOTHING or at.parent_id is None:
            raise MayNotDecide(f"no person let the sessions above `{at.id}` answer for it")
        at = await context.store.sessions.get(at.parent_id)
