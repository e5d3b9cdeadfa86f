"""Permission asked in the name of an agent's client, and given by the sessions above it or by a person.

`permit` blocks until somebody decides. Whoever is above sees what waits: the nearest is woken first, and
what it leaves, or may not decide, climbs to the next. A person sees everything from the start.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pml.core.approvals.deciders import Way, who_may_allow
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
from pml.core.config.merged import Settings
from pml.core.errors import Forbidden, NotFound, PmlError, ToolDenied
from pml.core.names import parse_tool
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.sessions.token import TokenRole
from pml.core.values import JsonObject
from pml.service.approvals.consent import Consent, is_allowed, seek_consent
from pml.service.approvals.inquiry import refusal
from pml.service.approvals.lifecycle import RECHECK_S, Decided, Decision, Question, decide
from pml.service.call import matter_of
from pml.service.context import Context
from pml.service.policy.policy import Judgement, current_policy, parent_may_decide

CLIMB_S: Final = 30.0  # how long the nearest session above has a request for itself
MAX_WAIT_S: Final = 3600.0
_ALL: Final = 1000
_MAY_NOT_ASK: Final = "No rule allows it, and this session was launched so that it may not ask"


@dataclass(frozen=True, kw_only=True)
class Permit:
    """The answer to a client: run `input`, or do not, and why."""

    allow: bool
    input: JsonObject
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """A question of a descendant. `may_decide` is False for what only a person may decide."""

    record: Approval
    session: Session
    may_decide: bool


async def permit(
    context: Context,
    session: Session,
    *,
    tool_name: str,
    input: JsonObject,
    tool_use_id: str,
    on_asked: Callable[[Approval], None],
    cwd: str | None = None,
    ttl_s: int | None = None,
    may_ask: bool = True,
    heard: Callable[[], Awaitable[None]] | None = None,
) -> Permit:
    """Return whether the agent's client may run the tool: by rule at once, else when somebody has decided.

    Doubt is a no: whatever goes wrong is told as a denial, and so is what no rule allows where nobody may be
    asked. `heard` returns once somebody is there to hear the answer. `ttl_s`: so long a question may wait,
    whatever the session or the settings say.
    """
    try:
        question = await _question(context, session, tool_name, input, tool_use_id, cwd)
        question = replace(question, ttl_s=ttl_s)
        settings = (await current_policy(context, session.workspace)).settings
        if not may_ask and not await is_allowed(context, question):
            return Permit(allow=False, input=input, message=_MAY_NOT_ASK)
        consent = await seek_consent(
            context,
            question,
            deciders=lambda judged: _deciders(question, settings, judged),
            wait_s=None,
            on_asked=on_asked,
            may_return=True,
            heard=heard,
        )
    except ToolDenied as exc:
        return _denied(tool_name, input, exc)
    except PmlError as exc:
        return Permit(allow=False, input=input, message=f"Not permitted: {exc.message}")
    return _permit(consent, input)


def _denied(tool_name: str, input: JsonObject, denied: ToolDenied) -> Permit:
    rule = "" if denied.rule is None else f" ({denied.rule})"
    return Permit(allow=False, input=input, message=f"Tool {tool_name} is denied by user config{rule}")


async def _question(
    context: Context, session: Session, tool_name: str, input: JsonObject, tool_use_id: str, cwd: str | None
) -> Question:
    """Raises: Invalid."""
    tool = str(parse_tool(tool_name))
    run = await context.store.runs.get(session.id)
    where = run.order.cwd if cwd is None and run is not None else cwd
    return Question(
        session=session,
        tool=tool,
        arguments=input,
        tool_use_id=tool_use_id,
        cwd=None if where == session.workspace else where,
    )


def _deciders(question: Question, settings: Settings, judged: Judgement) -> frozenset[Role]:
    """Return who may allow it: a person, and the sessions above as far as the user lets them."""
    session, tools = question.session, (question.tool,)
    way = Way(
        parent=parent_may_decide(session, settings, tools, named=False),
        parent_for_named=parent_may_decide(session, settings, tools, named=True),
    )
    return who_may_allow(matter_of(Subject.TOOL_CALL, judged, question.tool, question.arguments), way)


def _permit(consent: Consent, input: JsonObject) -> Permit:
    if consent.granted:
        return Permit(allow=True, input=consent.arguments)
    assert consent.record is not None
    error = refusal(consent.record)
    by = consent.record.decided_by
    if consent.record.status is State.DENIED and by is not None and by.kind is DeciderKind.PARENT:
        said = consent.record.response_message
        message = "Denied by the session that supervises this one" + ("" if said is None else f": {said}")
        return Permit(allow=False, input=input, message=message)
    return Permit(allow=False, input=input, message=error.message)


async def respond(
    context: Context,
    session: Session,
    approval_id: str,
    *,
    allow: bool,
    message: str | None = None,
    updated_input: JsonObject | None = None,
    scope: Scope = Scope.ONCE,
) -> Decided:
    """Decide a question of a descendant.

    Raises: Forbidden for a child, NotFound for what is not a descendant's, and what `decide` raises.
    """
    guard_supervisor(session)
    record = await context.store.approvals.get(ApprovalId(approval_id))
    below = {each.id for each in await context.store.sessions.descendants(session.id)}
    if record is None or record.session_id not in below:
        raise NotFound(
            f"no approval `{approval_id}` of a session that this one started",
            hint="`loopback_pending` lists what waits",
        )
    decision = Decision(
        by=Decider(kind=DeciderKind.PARENT, id=session.id, channel=Channel.LOOPBACK),
        digest=record.digest,
        allow=allow,
        scope=scope,
        message=message,
        updated_input=updated_input,
    )
    return await decide(context, record.id, decision)


def guard_supervisor(session: Session) -> None:
    """Raise Forbidden if the session only calls and asks."""
    if session.role is not TokenRole.SESSION:
        raise Forbidden(
            f"session `{session.name}` is a child: it calls tools and asks, and decides nothing",
            hint="the session that launched it decides, or a person",
        )


async def pending(context: Context, session: Session, *, of: SessionId | None = None) -> list[Request]:
    """Return what waits among the descendants of the session, or of `of` and those beneath it."""
    below = {each.id: each for each in await context.store.sessions.descendants(session.id)}
    if of is not None:
        beneath = {each.id for each in await context.store.sessions.descendants(of)} | {of}
        below = {id: each for id, each in below.items() if id in beneath}
    if not below:
        return []
    query = ApprovalQuery(states=frozenset({State.PENDING}), sessions=frozenset(below), limit=_ALL)
    return [
        Request(record=record, session=below[record.session_id], may_decide=Role.PARENT in record.deciders)
        for record in await context.store.approvals.page(query)
    ]


async def wait_for_requests(
    context: Context,
    session: Session,
    *,
    of: SessionId | None = None,
    timeout_s: float,
    told: set[ApprovalId],
) -> list[Request]:
    """Return what waits for this session to decide, as soon as there is something that it was not told.

    After the time: whatever waits.
    """
    guard_supervisor(session)
    until = context.clock.now() + timedelta(seconds=min(timeout_s, MAX_WAIT_S))
    with context.store.changes.watch() as changes:
        while True:
            due, next_at = await due_requests(context, session, of=of)
            now = context.clock.now()
            if fresh := untold(due, told):
                return fresh
            if now >= until:
                return due
            ends = min(until, next_at or until)
            await changes.wait(min(RECHECK_S, max(0.0, (ends - now).total_seconds())))


def untold(requests: Sequence[Request], told: set[ApprovalId]) -> list[Request]:
    """Return those that were not told before; from now on they were."""
    fresh = [request for request in requests if request.record.id not in told]
    told.update(request.record.id for request in fresh)
    return fresh


async def due_requests(
    context: Context, session: Session, *, of: SessionId | None
) -> tuple[list[Request], datetime | None]:
    """Return what has reached this session by now, and when the next will, if nobody below decides it."""
    due: list[Request] = []
    later: list[datetime] = []
    now = context.clock.now()
    for request in await pending(context, session, of=of):
        if not request.may_decide:
            continue
        steps = await _steps_between(context, request.session, session.id)
        reaches_at = request.record.created_at + timedelta(seconds=CLIMB_S * steps)
        if reaches_at <= now:
            due.append(request)
        else:
            later.append(reaches_at)
    return due, min(later, default=None)


async def _steps_between(context: Context, asker: Session, above: SessionId) -> int:
    """Return how many live sessions stand between the asker and the one above it."""
    steps = 0
    parent_id = asker.parent_id
    while parent_id is not None and parent_id != above:
        parent = await context.store.sessions.get(parent_id)
        if parent is None:
            break
        steps += parent.ended_at is None and parent.role is TokenRole.SESSION
        parent_id = parent.parent_id
    return steps
