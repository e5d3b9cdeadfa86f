"""Values with sensible defaults: a test names only what it is about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from pml.core.approvals.events import Allowed, Claimed, Denied
from pml.core.approvals.record import (
    Approval,
    ApprovalId,
    Channel,
    Decider,
    DeciderKind,
    OwnerId,
    Role,
    Scope,
    SessionId,
    Subject,
)
from pml.core.digest import digest_call
from pml.core.ports.records import Grant, Intent, Session, Trust, Workflow
from pml.core.ports.session_store import Receipt
from pml.core.rules.ruleset import Effect
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.agent import Message, MessageKind, Order, Run
from pml.core.sessions.process import Process
from pml.core.sessions.token import AGENT_ROLES, ParentMay, Token, TokenId, TokenRole, secret_hash
from pml.core.values import Json, JsonObject

NOW: Final = datetime(2026, 11, 3, 12, 0, 0, 123456, tzinfo=UTC)
TTL_S: Final = 300
SESSION: Final = SessionId("session-1")
OWNER: Final = OwnerId("owner-1")
WORKSPACE: Final = "/repo/shop"
PATH: Final = f"{WORKSPACE}/.pml.json"

PERSON: Final = Decider(kind=DeciderKind.PERSON, id="ana", channel=Channel.TERMINAL)
FORM: Final = Decider(kind=DeciderKind.CLIENT, id="session-1", channel=Channel.FORM)
MODEL: Final = Decider(kind=DeciderKind.CLIENT, id="session-1", channel=Channel.MODEL)
PARENT: Final = Decider(kind=DeciderKind.PARENT, id="session-0", channel=Channel.LOOPBACK)
RULE: Final = Decider(kind=DeciderKind.RULE, id="github:*", channel=Channel.RULES)

ANYONE: Final = frozenset(Role)


def uuid(n: int) -> str:
    return str(UUID(int=n, version=4))


def later(seconds: float) -> datetime:
    """Return the instant `seconds` after `NOW`."""
    return NOW + timedelta(seconds=seconds)


def make_approval(
    n: int = 1,
    *,
    session_id: SessionId = SESSION,
    subject: Subject = Subject.TOOL_CALL,
    tool_name: str = "github:create_issue",
    tool_input: JsonObject | None = None,
    tool_use_id: str | None = None,
    deciders: frozenset[Role] = frozenset({Role.PERSON}),
    ttl_s: int = TTL_S,
    created_at: datetime = NOW,
    owner: OwnerId = OWNER,
) -> Approval:
    """Return the `n`-th pending approval: another `n` is another question."""
    arguments = {"title": "it is broken"} if tool_input is None else tool_input
    return Approval(
        id=ApprovalId(uuid(n)),
        session_id=session_id,
        subject=subject,
        tool_name=tool_name,
        tool_input=arguments,
        tool_use_id=f"use-{n}" if tool_use_id is None else tool_use_id,
        digest=digest_call(tool_name, arguments),
        deciders=deciders,
        ttl_s=ttl_s,
        created_at=created_at,
        expires_at=created_at + timedelta(seconds=ttl_s),
        owner=owner,
    )


def allow(
    record: Approval,
    *,
    at: datetime = NOW,
    by: Decider = PERSON,
    scope: Scope = Scope.ONCE,
    message: str | None = None,
    updated_input: JsonObject | None = None,
) -> Allowed:
    """Return the event that allows exactly what `record` asks."""
    return Allowed(
        at=at, by=by, digest=record.digest, scope=scope, message=message, updated_input=updated_input
    )


def deny(record: Approval, *, at: datetime = NOW, by: Decider = PERSON, message: str | None = None) -> Denied:
    """Return the event that denies exactly what `record` asks."""
    return Denied(at=at, by=by, digest=record.digest, message=message)


def claim(record: Approval, *, at: datetime = NOW, owner: OwnerId = OWNER) -> Claimed:
    """Return the event that takes exactly what was allowed."""
    return Claimed(at=at, owner=owner, digest=record.run_digest)


def make_session(
    session_id: SessionId = SESSION,
    *,
    name: str = "shop",
    principal: str = "ana:/repo/shop",
    workspace: str = WORKSPACE,
    parent_id: SessionId | None = None,
    process: Process | None = None,
    is_agent: bool = True,
    role: TokenRole = TokenRole.SESSION,
    tools: tuple[str, ...] | None = None,
    waits: bool = False,
    ttl_s: int | None = None,
    parent_may: ParentMay = ParentMay.NOTHING,
    launches_unasked: bool = False,
    started_at: datetime = NOW,
) -> Session:
    return Session(
        id=session_id,
        name=name,
        principal=principal,
        workspace=workspace,
        parent_id=parent_id,
        process=process,
        is_agent=is_agent,
        role=role,
        tools=tools,
        waits=waits,
        ttl_s=ttl_s,
        parent_may=parent_may,
        launches_unasked=launches_unasked,
        started_at=started_at,
    )


def make_grant(
    n: int = 1,
    *,
    session_id: SessionId = SESSION,
    tool: str = "github:create_issue",
    digest: str | None = None,
    definition: str | None = None,
    artefact: str | None = None,
    approval_id: ApprovalId | None = None,
    created_at: datetime = NOW,
) -> Grant:
    return Grant(
        id=uuid(n),
        session_id=session_id,
        tool=tool,
        digest=digest,
        definition=definition,
        artefact=artefact,
        approval_id=approval_id,
        by=PERSON,
        created_at=created_at,
    )


def make_workflow(
    n: int = 1, *, approval_id: ApprovalId | None = None, created_at: datetime = NOW
) -> Workflow:
    return Workflow(
        id=uuid(n),
        approval_id=ApprovalId(uuid(n)) if approval_id is None else approval_id,
        principal="ana:/repo/shop",
        created_at=created_at,
    )


def make_trust(path: str = PATH, digest: str = "sha256:1", *, trusted_at: datetime = NOW) -> Trust:
    return Trust(path=path, digest=digest, content=f"{{}} {digest}", by=PERSON, trusted_at=trusted_at)


def make_intent(
    n: int = 1, *, workspace: str = WORKSPACE, entry: Json = "github:create_issue", created_at: datetime = NOW
) -> Intent:
    return Intent(
        id=uuid(n),
        workspace=workspace,
        effect=Effect.ALLOW,
        entry=entry,
        approval_id=ApprovalId(uuid(n)),
        created_at=created_at,
    )


def make_token(
    n: int = 1,
    *,
    role: TokenRole = TokenRole.CHILD,
    name: str = "tests",
    secret: str = "",
    session_id: SessionId | None = SESSION,
    created_at: datetime = NOW,
    expires_at: datetime | None = None,
) -> Token:
    """Return the `n`-th token; only an agent's speaks for a session."""
    return Token(
        id=TokenId(f"{n:012x}"),
        role=role,
        name=name,
        hash=secret_hash(secret or f"secret-{n}"),
        session_id=session_id if role in AGENT_ROLES else None,
        created_at=created_at,
        expires_at=expires_at,
    )


def make_order(
    prompt: str = "mend the shop",
    *,
    model: str | None = None,
    tools: tuple[str, ...] | None = None,
    arguments: tuple[str, ...] = (),
) -> Order:
    return Order(prompt=prompt, cwd=WORKSPACE, model=model, tools=tools, arguments=arguments)


def make_run(
    session_id: SessionId = SESSION,
    *,
    order: Order | None = None,
    owner: OwnerId = OWNER,
    config: str | None = None,
    started_at: datetime = NOW,
) -> Run:
    """Return a run that is starting."""
    return Run(
        session_id=session_id,
        order=make_order() if order is None else order,
        owner=owner,
        config=config,
        started_at=started_at,
    )


def make_message(
    text: str = "it is mended",
    *,
    session_id: SessionId = SESSION,
    kind: MessageKind = MessageKind.TEXT,
    at: datetime = NOW,
) -> Message:
    return Message(session_id=session_id, kind=kind, text=text, at=at)


def make_receipt(
    key: str = "key-1", *, principal: str = "ana", request: str = "sha256:1", made_at: datetime = NOW
) -> Receipt:
    """Return a receipt that is still without its answer."""
    return Receipt(principal=principal, key=key, request=request, made_at=made_at)


def relaunched(spec: ServerSpec, **changes: Any) -> ServerSpec:
    """Return the server with another launch of its process."""
    return replace(spec, target=replace(spec.target, **changes))


def launch_of(spec: ServerSpec) -> ProcessLaunch:
    """Return the process that serves, for a test of one."""
    assert isinstance(spec.target, ProcessLaunch)
    return spec.target
