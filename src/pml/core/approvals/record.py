"""An approval: a stored question, who asked it, who may answer it, and what came of it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType

import msgspec

from pml.core.approvals.reasons import (
    AgentLaunch,
    CapabilityNeeds,
    DefaultRule,
    OutcomeUnknown,
    Reason,
    Reserved,
)
from pml.core.digest import digest_call
from pml.core.text import quote
from pml.core.values import JsonObject

ApprovalId = NewType("ApprovalId", str)


SessionId = NewType("SessionId", str)


OwnerId = NewType("OwnerId", str)


RECONNECT_S: Final = 30  # a lost connection has this long to come back before its question is cancelled


class State(StrEnum):
    PENDING = "pending"
    ALLOWED = "allowed"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


LIVE: Final = frozenset({State.PENDING, State.ALLOWED, State.EXECUTING})


ENDED: Final = frozenset(State) - LIVE


class Subject(StrEnum):
    # The table of approvals lists these words and refuses others. SQLite cannot change such a list in place:
    # the migration of a new subject makes the table, with its indexes, anew.
    TOOL_CALL = "tool_call"
    DEPENDENCY_INSTALL = "dependency_install"
    API_KEY_REQUIRED = "api_key_required"
    INTEGRITY_CHANGED = "integrity_changed"
    TOOL_CHANGED = "tool_changed"
    WORKSPACE_TRUST = "workspace_trust"
    LOGIN_REQUIRED = "login_required"


class DeciderKind(StrEnum):
    PERSON = "person"
    CLIENT = "client"
    PARENT = "parent"
    RULE = "rule"


class Channel(StrEnum):
    INBOX = "inbox"
    TERMINAL = "terminal"
    FORM = "form"
    MODEL = "model"
    LOOPBACK = "loopback"
    RULES = "rules"


class Role(StrEnum):
    """What an approval lists as able to allow it; a client's form and its model are two roles."""

    PERSON = "person"
    FORM = "form"
    MODEL = "model"
    PARENT = "parent"


class Scope(StrEnum):
    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"


class Decider(msgspec.Struct, frozen=True, kw_only=True):
    kind: DeciderKind
    id: str
    channel: Channel

    def __str__(self) -> str:
        return f"{self.kind} {quote(self.id)} ({self.channel})"


def call_facts(tool: str, arguments: JsonObject) -> JsonObject:
    """Return the call that a question about its server holds up; an approval covers exactly it."""
    return {"call": {"tool": tool, "arguments": arguments}}


def call_arguments(asked: JsonObject) -> JsonObject:
    """Return the arguments of the call that a question about its server holds up."""
    call = asked.get("call")
    arguments = call.get("arguments") if isinstance(call, Mapping) else None
    return arguments if isinstance(arguments, Mapping) else {}


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    id: ApprovalId
    session_id: SessionId
    subject: Subject
    tool_name: str
    tool_input: JsonObject
    tool_use_id: str
    digest: str
    definition: str | None = None
    artefact: str | None = None
    rule: Reason | None = None
    deciders: frozenset[Role] = frozenset({Role.PERSON})
    ttl_s: int
    created_at: datetime
    expires_at: datetime
    owner: OwnerId
    run_id: str | None = None
    cwd: str | None = None  # where it would be made, if not in the session's workspace
    status: State = State.PENDING
    decided_by: Decider | None = None
    scope: Scope | None = None
    response_message: str | None = None
    updated_input: JsonObject | None = None
    reason: str | None = None
    abandoned_at: datetime | None = None
    resolved_at: datetime | None = None
    ended_at: datetime | None = None
    version: int = 1

    @property
    def is_for_itself(self) -> bool:
        """Whether only an answer to this very question counts: no rule or grant on the name tells as much."""
        return self.rule is not None and (isinstance(self.rule, _FOR_ITSELF) or self.rule.foreign)

    @property
    def is_foreign(self) -> bool:
        """Whether it is about another publisher's tool than the one that its short name means in rules."""
        return self.rule is not None and self.rule.foreign

    @property
    def is_reserved(self) -> bool:
        """Whether it leads to settings files or names PML: memory would not apply, it asks every time."""
        return isinstance(self.rule, Reserved)

    @property
    def covers_call(self) -> bool:
        """Whether allowing an install also allows the call that needed it: one that no rule decides."""
        return self.rule is None or (isinstance(self.rule, DefaultRule) and not self.rule.foreign)

    @property
    def run_input(self) -> JsonObject:
        """The arguments that would run: the edited ones where a decider edited them."""
        return self.tool_input if self.updated_input is None else self.updated_input

    @property
    def run_digest(self) -> str:
        """The digest a claim must name: of the arguments that would run."""
        return digest_call(
            self.tool_name,
            self.run_input,
            definition=self.definition,
            artefact=self.artefact,
            cwd=self.cwd,
        )


# it may have run already; it covers what its code calls; it starts an agent
_FOR_ITSELF: Final = (OutcomeUnknown, CapabilityNeeds, AgentLaunch)


def state_word(state: State) -> str:
    """Return the state as people read it: who asked withdrew what is cancelled."""
    return "withdrawn" if state is State.CANCELLED else str(state)


def told(record: Approval, *, when: Callable[[datetime], str] | None = None) -> str:
    """Return what became of `record` in words: what, by whom, when; `when` words an instant."""
    when = when or instant
    word = state_word(record.status)
    if record.resolved_at is None:
        return word
    if record.decided_by is None:
        return f"{word} at {when(record.resolved_at)}"
    verb = "denied" if record.status is State.DENIED else "allowed"
    now = "" if record.status in (State.DENIED, State.ALLOWED) else f", now {word}"
    return f"{verb} by {record.decided_by} at {when(record.resolved_at)}{now}"


def instant(at: datetime) -> str:
    """Return `at` as people and programs read it: RFC 3339, UTC, whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
