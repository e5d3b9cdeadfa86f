"""States of an approval: one table, and one pure function that moves a record on or refuses.

An illegal event raises and changes nothing. Storing, waking and clocks are not known here.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from pml.core.approvals.events import (
    Abandoned,
    Allowed,
    Attached,
    Cancelled,
    Claimed,
    Completed,
    Delivered,
    Denied,
    Event,
    Expired,
    Failed,
    Lost,
    Unsent,
)
from pml.core.approvals.record import (
    ENDED,
    Approval,
    Channel,
    Decider,
    DeciderKind,
    Role,
    Scope,
    State,
    Subject,
    instant,
    told,
)
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
    (State.EXECUTING, Unsent): State.ALLOWED,  # only when the server refused it before anything ran
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
        case Unsent():
            return {"expires_at": event.at + timedelta(seconds=record.ttl_s)}
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
