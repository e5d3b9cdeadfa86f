"""Records that a store keeps beside approvals: sessions, grants, workflows, trust, intents, pins."""

from datetime import datetime

import msgspec

from pml.core.approvals.record import ApprovalId, Decider, OwnerId, SessionId, State
from pml.core.errors import Conflict
from pml.core.rules.ruleset import Effect
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay, TokenRole
from pml.core.values import Json, JsonObject


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One agent connection (or a script's), with a parent or none.

    `tools` are globs of all that it may use, None where only the rules say. `waits`: it was launched with
    the permission tool, so every question of its calls is waited for. `ttl_s` is its own time to decide.
    `parent_may` is what those above it may answer for it, and `launches_unasked` that a person let it launch
    agents, and those beneath it too, without being asked each time.
    """

    id: SessionId
    name: str
    principal: str
    workspace: str
    parent_id: SessionId | None = None
    process: Process | None = None
    is_agent: bool
    role: TokenRole = TokenRole.SESSION
    tools: tuple[str, ...] | None = None
    waits: bool = False
    ttl_s: int | None = None
    parent_may: ParentMay = ParentMay.NOTHING
    launches_unasked: bool = False
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def gives(self) -> ParentMay:
        """The most that it and those above it may answer for its children: what was given for itself."""
        return ParentMay.ALL if self.parent_id is None else self.parent_may

    def joined_by(self, other: "Session") -> "Session":
        """Return the session after `other` starts it: itself while it lives, then `other`, without memory.

        Raises: Conflict if it is another principal's, workspace's or agent's.
        """
        if _belongs_to(self) != _belongs_to(other):
            raise Conflict(
                f"session `{self.id}` belongs to {self.principal}", hint="choose another id for the session"
            )
        return self if self.ended_at is None else other


def _belongs_to(session: Session) -> tuple[object, ...]:
    whose = (session.principal, session.workspace, session.parent_id, session.is_agent)
    return *whose, session.role, session.tools, session.waits


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered allow: a tool in a session, as it was then; with `digest`, only these exact arguments."""

    id: str
    session_id: SessionId
    tool: str
    digest: str | None = None
    definition: str | None = None
    artefact: str | None = None
    approval_id: ApprovalId | None = None
    by: Decider
    created_at: datetime


class PausedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a workflow continues; `offered`: the client lists the tool by its own name."""

    tool: str
    arguments: JsonObject
    offered: bool
    prefix: str | None = None  # the publisher that the client spelt out


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A paused call that its principal can continue; lives as long as its approval.

    `call` is None where whoever asked runs the call itself. With `run_id`, code waits at a call of its own:
    `call` is then what started that code.
    """

    id: str
    approval_id: ApprovalId
    principal: str
    created_at: datetime
    call: PausedCall | None = None
    run_id: str | None = None
    continued_at: datetime | None = None


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """A person trusts exactly this content of the workspace file at this path."""

    path: str
    digest: str
    content: str
    by: Decider
    trusted_at: datetime


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """A content that a file had; None where it was trusted before contents were stored."""

    digest: str
    content: str | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a content of a file is trusted, and the digest of the one whose denies and asks are kept."""

    trusted: bool
    kept: str | None


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """An "always" that was decided and must reach the workspace's file, also after a crash."""

    id: str
    workspace: str
    effect: Effect
    entry: Json
    approval_id: ApprovalId
    created_at: datetime
    model: str | None = None  # the client whose model, or form over HTTP, said so: no person is known to


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a tool as it was when it was first used, or when a person accepted a change of it."""

    server: str
    target_digest: str
    action: str
    definition: JsonObject
    digest: str
    pinned_at: datetime


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a live approval as tells whether somebody still cares for it."""

    id: ApprovalId
    session_id: SessionId
    status: State
    owner: OwnerId
    abandoned_at: datetime | None
