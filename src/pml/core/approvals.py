"""An approval: a stored question, its states, and who may answer it.

The whole state machine is one table, `TRANSITIONS`, and one pure function, `advance`. An event that
the table or a guard does not admit raises and changes nothing. Knows no store, no clock, no client.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NewType

import msgspec

from pml.core.digest import digest_call
from pml.core.errors import (
    AlreadyClaimed,
    AlreadyDecided,
    ApprovalExpired,
    Changed,
    IllegalEvent,
    Invalid,
    MayNotDecide,
    PmlError,
)
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
    TOOL_CALL = "tool_call"
    DEPENDENCY_INSTALL = "dependency_install"
    API_KEY_REQUIRED = "api_key_required"
    INTEGRITY_CHANGED = "integrity_changed"
    TOOL_CHANGED = "tool_changed"
    WORKSPACE_TRUST = "workspace_trust"


ALONE: Final = frozenset(
    {
        Subject.WORKSPACE_TRUST,
        Subject.DEPENDENCY_INSTALL,
        Subject.TOOL_CHANGED,
        Subject.INTEGRITY_CHANGED,
    }
)  # each is read and allowed by itself, never with others


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


class MatchedRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule that made PML ask, as it stood when the question was put."""

    verdict: str
    entry: str
    file: str | None = None
    line: int | None = None
    foreign: bool = False  # the client spelt out another publisher than the short name means


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
    rule: MatchedRule | None = None
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
        return self.rule is not None and (self.rule.verdict in _FOR_ITSELF or self.rule.foreign)

    @property
    def is_foreign(self) -> bool:
        """Whether it is about another publisher's tool than the one that its short name means in rules."""
        return self.rule is not None and self.rule.foreign

    @property
    def covers_call(self) -> bool:
        """Whether allowing an install also allows the call that needed it: one that no rule decides."""
        return self.rule is None or self.rule.verdict == "unlisted"

    @property
    def run_input(self) -> JsonObject:
        """The arguments that would run: the edited ones where a decider edited them."""
        return self.tool_input if self.updated_input is None else self.updated_input

    @property
    def call_input(self) -> JsonObject:
        """The arguments of the call that the question is about, or that waits for it."""
        return call_arguments(self.tool_input) if self.subject in _ABOUT_SERVER else self.run_input

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


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens to an approval at an instant."""

    at: datetime


class Allowed(Event, frozen=True, kw_only=True):
    by: Decider
    digest: str
    scope: Scope = Scope.ONCE
    message: str | None = None
    updated_input: JsonObject | None = None


class Denied(Event, frozen=True, kw_only=True):
    by: Decider
    digest: str
    message: str | None = None


class Expired(Event, frozen=True, kw_only=True):
    pass


class Cancelled(Event, frozen=True, kw_only=True):
    reason: str
    version: int | None = None  # of the record that is meant: what has changed since stays


class Abandoned(Event, frozen=True, kw_only=True):
    """The process that waited is gone; the question stays open for a while in case it comes back."""


class Attached(Event, frozen=True, kw_only=True):
    """The same question was asked again; its new asker takes it over only if the old one has left it."""

    owner: OwnerId


class Claimed(Event, frozen=True, kw_only=True):
    owner: OwnerId
    digest: str


class Delivered(Event, frozen=True, kw_only=True):
    """The answer was given to whoever runs the call itself: that is claim and completion in one."""

    owner: OwnerId
    digest: str


class Completed(Event, frozen=True, kw_only=True):
    pass


class Failed(Event, frozen=True, kw_only=True):
    message: str


class Lost(Event, frozen=True, kw_only=True):
    """The owner died while the call ran."""


TRANSITIONS: Final[Mapping[tuple[State, type[Event]], State]] = {
    (State.PENDING, Allowed): State.ALLOWED,
    (State.PENDING, Denied): State.DENIED,
    (State.PENDING, Expired): State.EXPIRED,
    (State.PENDING, Cancelled): State.CANCELLED,
    (State.PENDING, Abandoned): State.PENDING,
    (State.PENDING, Attached): State.PENDING,
    (State.ALLOWED, Claimed): State.EXECUTING,
    (State.ALLOWED, Delivered): State.COMPLETED,
    (State.ALLOWED, Expired): State.EXPIRED,
    (State.ALLOWED, Cancelled): State.CANCELLED,
    (State.ALLOWED, Abandoned): State.ALLOWED,
    (State.ALLOWED, Attached): State.ALLOWED,
    (State.EXECUTING, Completed): State.COMPLETED,
    (State.EXECUTING, Failed): State.FAILED,
    (State.EXECUTING, Cancelled): State.CANCELLED,  # only when the server confirms that it stopped
    (State.EXECUTING, Lost): State.UNKNOWN,  # outcome lost with the process: never re-run by us
}


def advance(record: Approval, event: Event) -> Approval:
    """Return `record` after `event`, or raise and change nothing.

    Raises: AlreadyDecided, AlreadyClaimed, ApprovalExpired, MayNotDecide, Changed, IllegalEvent.
    """
    status = TRANSITIONS.get((record.status, type(event)))
    if status is None:
        raise _refusal(record, event)
    _guard(record, event)
    changes = _changes(record, event)
    if status != record.status and record.resolved_at is None:
        changes["resolved_at"] = event.at
    if status in ENDED:
        changes["ended_at"] = event.at
    return msgspec.structs.replace(record, status=status, version=record.version + 1, **changes)


_ABOUT_SERVER: Final = frozenset(
    {Subject.DEPENDENCY_INSTALL, Subject.API_KEY_REQUIRED, Subject.INTEGRITY_CHANGED}
)
# it may have run already; it covers what its code calls; it starts an agent
_FOR_ITSELF: Final = frozenset({"unknown", "needs", "launch"})
_USED: Final = frozenset({State.EXECUTING, State.COMPLETED, State.FAILED, State.UNKNOWN})


def role_of(by: Decider) -> Role | None:
    """Return the role in which `by` speaks; a rule has none: it can refuse, never allow."""
    match by.kind:
        case DeciderKind.PERSON:
            return Role.PERSON
        case DeciderKind.PARENT:
            return Role.PARENT
        case DeciderKind.CLIENT:
            return Role.MODEL if by.channel is Channel.MODEL else Role.FORM
        case DeciderKind.RULE:
            return None


def _changes(record: Approval, event: Event) -> dict[str, object]:
    match event:
        case Allowed():
            return {
                "decided_by": event.by,
                "scope": event.scope,
                "response_message": event.message,
                "updated_input": event.updated_input,
                "expires_at": event.at + timedelta(seconds=record.ttl_s),
            }
        case Denied():
            return {"decided_by": event.by, "response_message": event.message}
        case Cancelled():
            return {"reason": event.reason}
        case Abandoned():
            return {"abandoned_at": event.at}
        case Attached() if record.abandoned_at is None:
            return {}
        case Attached() | Claimed() | Delivered():
            return {"owner": event.owner, "abandoned_at": None}
        case Failed():
            return {"reason": event.message}
        case _:
            return {}


def _guard(record: Approval, event: Event) -> None:
    match event:
        case Allowed():
            _guard_time(record, event.at)
            _guard_digest(record.digest, event.digest)
            _guard_allow(record, event)
        case Denied():
            _guard_time(record, event.at)
            _guard_digest(record.digest, event.digest)
            if event.by.kind is DeciderKind.PARENT and Role.PARENT not in record.deciders:
                raise MayNotDecide(f"{event.by} may not decide approval `{record.id}`")
        case Claimed() | Delivered():
            _guard_time(record, event.at)
            _guard_digest(record.run_digest, event.digest)
        case Cancelled() if event.version not in (None, record.version):
            raise Changed(f"approval `{record.id}` has changed since it was looked at")
        case Expired() if event.at < record.expires_at:
            raise IllegalEvent(f"approval `{record.id}` does not expire before {instant(record.expires_at)}")
        case _:
            pass


def _guard_allow(record: Approval, event: Allowed) -> None:
    if role_of(event.by) not in record.deciders:
        allowed = ", ".join(sorted(record.deciders))
        raise MayNotDecide(
            f"{event.by} may not allow approval `{record.id}` ({record.subject})",
            hint=f"it can be allowed by: {allowed}",
        )
    if event.by.kind is DeciderKind.PARENT and event.scope is Scope.ALWAYS:
        raise MayNotDecide("a parent session may allow once or for the session, never always")
    if event.updated_input is not None:
        _guard_edit(record, event.by)


def _guard_edit(record: Approval, by: Decider) -> None:
    if record.subject is not Subject.TOOL_CALL:
        raise Invalid(f"only a tool call can be edited, not {record.subject}")
    if role_of(by) is Role.MODEL:
        raise MayNotDecide("a model may confirm the call it made, not change it")


def _guard_time(record: Approval, at: datetime) -> None:
    if at >= record.expires_at:
        raise _expired(record)


def _guard_digest(expected: str, named: str) -> None:
    if named != expected:
        raise Changed(f"decided on digest {named}, but the question has digest {expected}")


def _refusal(record: Approval, event: Event) -> PmlError:
    what = type(event).__name__.lower()
    if record.status is State.EXPIRED:
        return _expired(record)
    if isinstance(event, Allowed | Denied):
        return AlreadyDecided(f"approval `{record.id}` is already {told(record)}")
    if isinstance(event, Claimed | Delivered) and record.status in _USED:
        return AlreadyClaimed(f"approval `{record.id}` was used before: {told(record)}")
    return IllegalEvent(f"approval `{record.id}` is {told(record)}; it cannot become {what}")


def _expired(record: Approval) -> ApprovalExpired:
    waited = "collected" if record.decided_by else "decided"
    return ApprovalExpired(f"approval `{record.id}` was not {waited} by {instant(record.expires_at)}")


def state_word(state: State) -> str:
    """Return the state as people read it: who asked withdrew what is cancelled."""
    return "withdrawn" if state is State.CANCELLED else str(state)


def told(record: Approval) -> str:
    """Return what became of `record` in words: what, by whom, when."""
    word = state_word(record.status)
    if record.resolved_at is None:
        return word
    if record.decided_by is None:
        return f"{word} at {instant(record.resolved_at)}"
    verb = "denied" if record.status is State.DENIED else "allowed"
    now = "" if record.status in (State.DENIED, State.ALLOWED) else f", now {word}"
    return f"{verb} by {record.decided_by} at {instant(record.resolved_at)}{now}"


def instant(at: datetime) -> str:
    """Return `at` as people and programs read it: RFC 3339, UTC, whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
