"""Events that the hub sends to its listeners: the one shape of an event, and who may see it.

Most events are entries of the audit log. The log holds digests only, so what was asked or said is looked
up beside it, and is absent once it was cleaned up. Knows no store, no stream and no reader.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from pml.core.approvals.record import Approval, SessionId, instant
from pml.core.audit.chain import Link
from pml.core.audit.entries import Entry
from pml.core.errors import Invalid
from pml.core.rules.globs import Glob
from pml.core.sessions.agent import Message
from pml.core.sessions.token import Identity, TokenRole
from pml.core.text import quote
from pml.core.values import Json, JsonObject
from pml.core.wire import decider_json

MAX_BYTES: Final = 1024 * 1024  # of one event; every reader that is slow may hold one


class EventType(StrEnum):
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_EXPIRED = "approval.expired"
    APPROVAL_CANCELLED = "approval.cancelled"
    APPROVAL_FINISHED = "approval.finished"
    APPROVAL_REFUSED = "approval.refused"
    APPROVALS_CLEANED = "approvals.cleaned"
    SESSION_STARTED = "session.started"
    SESSION_CHANGED = "session.changed"
    SESSION_SAID = "session.said"
    SESSION_ENDED = "session.ended"
    GRANTS_CHANGED = "grants.changed"
    RULES_CHANGED = "rules.changed"
    TRUST_CHANGED = "trust.changed"
    TOKENS_CHANGED = "tokens.changed"
    SECRETS_CHANGED = "secrets.changed"
    INSTALL_PROGRESS = "install.progress"
    INSTALL_FINISHED = "install.finished"
    SERVER_CHANGED = "server.changed"


FOR_PERSONS: Final = frozenset(
    {
        EventType.APPROVALS_CLEANED,
        EventType.RULES_CHANGED,
        EventType.TRUST_CHANGED,
        EventType.TOKENS_CHANGED,
        EventType.SECRETS_CHANGED,
        EventType.SERVER_CHANGED,
    }
)


class HubEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. `id` is its place in the audit log; what has none is never told again."""

    type: EventType
    at: datetime
    id: int | None = None
    session_id: SessionId | None = None
    facts: JsonObject = {}


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What the log does not hold, as far as it is still there."""

    approval: Approval | None = None
    session_name: str | None = None
    message: Message | None = None


NO_PAYLOAD: Final = Payload()

_Facts = Callable[[Entry, Payload], dict[str, Json]]


def type_of(entry: Entry) -> EventType | None:
    """Return the type of the event that the entry is, None for what is only for the log."""
    found = _KINDS.get(entry.kind)
    return None if found is None else found[0]


def event_of(link: Link, payload: Payload) -> HubEvent | None:
    """Return the event that a link of the audit log is, None for what is only for the log."""
    entry = link.entry
    found = _KINDS.get(entry.kind)
    if found is None:
        return None
    event_type, facts = found
    session_id = None if entry.session_id is None else SessionId(entry.session_id)
    return HubEvent(
        type=event_type, at=entry.at, id=link.seq, session_id=session_id, facts=facts(entry, payload)
    )


def server_changed(server: str, state: str, *, at: datetime) -> HubEvent:
    """A server of this hub that went on to `state`."""
    return HubEvent(type=EventType.SERVER_CHANGED, at=at, facts={"server": server, "state": state})


def install_progress(
    name: str, *, done: int, total: int | None, message: str, at: datetime, session_id: SessionId | None
) -> HubEvent:
    """How far the install of a server is; `total` is None while it is not known."""
    facts: JsonObject = {"name": name, "done": done, "total": total, "message": message}
    return HubEvent(type=EventType.INSTALL_PROGRESS, at=at, session_id=session_id, facts=facts)


def event_json(event: HubEvent) -> dict[str, Json]:
    """Return the event as it is sent."""
    place: dict[str, Json] = {} if event.id is None else {"id": event.id}
    session: dict[str, Json] = {} if event.session_id is None else {"session": event.session_id}
    return {**place, "at": instant(event.at), "type": event.type, **session, **event.facts}


def event_text(link: Link, payload: Payload) -> bytes | None:
    """Return the event of `link` in one line of JSON; if that is too long, without its payload."""
    event = event_of(link, payload)
    if event is None:
        return None
    text = msgspec.json.encode(event_json(event))
    if len(text) <= MAX_BYTES:
        return text
    bare = event_of(link, NO_PAYLOAD)
    assert bare is not None
    return msgspec.json.encode({**event_json(bare), "omitted": True})


def request_facts(record: Approval, session_name: str | None) -> dict[str, Json]:
    """Return what whoever decides is told of a question, by an event and by `loopback_wait` alike."""
    return {
        "approval_id": record.id,
        "session_name": session_name,
        "tool_name": record.tool_name,
        "tool_input": record.tool_input,
        "tool_use_id": record.tool_use_id,
    }


def may_see(viewer: Identity, event_type: EventType, line: Sequence[SessionId]) -> bool:
    """Tell whether `viewer` may see an event; `line` is its session and all above it, nearest first."""
    if viewer.role is TokenRole.PERSON:
        return True
    if event_type in FOR_PERSONS or viewer.session_id is None or not line:
        return False
    return viewer.session_id == line[0] if viewer.role is TokenRole.CHILD else viewer.session_id in line


def types_matching(globs: Sequence[str]) -> frozenset[EventType]:
    """Return the types that any of `globs` names. Raises: Invalid for one that names none."""
    found: set[EventType] = set()
    for glob in globs:
        matching = {each for each in EventType if Glob(glob).matches(each)}
        if not matching:
            raise Invalid(f"no type of event matches {quote(glob)}", hint=f"there is {', '.join(EventType)}")
        found |= matching
    return frozenset(found)


def _question(entry: Entry) -> dict[str, Json]:
    return {"approval_id": entry.approval_id, "tool_name": entry.tool}


def _requested(entry: Entry, payload: Payload) -> dict[str, Json]:
    facts = _question(entry) | {key: entry.detail.get(key) for key in ("subject", "digest")}
    record = payload.approval
    if record is None:
        return facts
    until = record.created_at + timedelta(seconds=record.ttl_s)  # as it was then: a decision moves it
    return {
        **request_facts(record, payload.session_name),
        **facts,
        "expires_at": instant(until),
        "may_allow": sorted(record.deciders),
    }


def _decided(entry: Entry, payload: Payload) -> dict[str, Json]:
    facts = _question(entry) | {"decision": entry.kind.partition(".")[2], **_by(entry)}
    if "scope" in entry.detail:
        facts["scope"] = entry.detail["scope"]
    record = payload.approval
    if record is not None and record.response_message is not None:
        facts["message"] = record.response_message
    if record is not None and record.updated_input is not None:
        facts["updated_input"] = record.updated_input
    return facts


def _expired(entry: Entry, payload: Payload) -> dict[str, Json]:
    return _question(entry)


def _cancelled(entry: Entry, payload: Payload) -> dict[str, Json]:
    return _question(entry) | dict(entry.detail)


def _refused(entry: Entry, payload: Payload) -> dict[str, Json]:
    return {"tool_name": entry.tool, "reason": entry.detail.get("why")}


def _finished(entry: Entry, payload: Payload) -> dict[str, Json]:
    facts = _question(entry) | {"outcome": entry.kind.partition(".")[2]}
    record = payload.approval
    if record is not None and record.reason is not None:
        facts["message"] = record.reason
    return facts


def _said(entry: Entry, payload: Payload) -> dict[str, Json]:
    kind: dict[str, Json] = {"kind": entry.detail.get("kind")}
    return kind if payload.message is None else kind | {"text": payload.message.text}


def _installed(entry: Entry, payload: Payload) -> dict[str, Json]:
    return {"name": entry.detail.get("name"), "version": entry.detail.get("version")}


def _as_logged(entry: Entry, payload: Payload) -> dict[str, Json]:
    return dict(entry.detail)


def _changed(entry: Entry, payload: Payload) -> dict[str, Json]:
    tool: dict[str, Json] = {} if entry.tool is None else {"tool_name": entry.tool}
    return {"change": entry.kind.partition(".")[2], **tool, **_by(entry), **entry.detail}


def _by(entry: Entry) -> dict[str, Json]:
    return {} if entry.by is None else {"by": decider_json(entry.by)}


_KINDS: Final[Mapping[str, tuple[EventType, _Facts]]] = {
    "approval.requested": (EventType.APPROVAL_REQUESTED, _requested),
    "approval.allowed": (EventType.APPROVAL_DECIDED, _decided),
    "approval.denied": (EventType.APPROVAL_DECIDED, _decided),
    "approval.expired": (EventType.APPROVAL_EXPIRED, _expired),
    "approval.cancelled": (EventType.APPROVAL_CANCELLED, _cancelled),
    "approval.completed": (EventType.APPROVAL_FINISHED, _finished),
    "approval.failed": (EventType.APPROVAL_FINISHED, _finished),
    "approval.unknown": (EventType.APPROVAL_FINISHED, _finished),
    "approval.refused": (EventType.APPROVAL_REFUSED, _refused),
    "approvals.cleaned": (EventType.APPROVALS_CLEANED, _as_logged),
    "session.started": (EventType.SESSION_STARTED, _as_logged),
    "session.changed": (EventType.SESSION_CHANGED, _as_logged),
    "session.said": (EventType.SESSION_SAID, _said),
    "session.ended": (EventType.SESSION_ENDED, _as_logged),
    "grant.added": (EventType.GRANTS_CHANGED, _changed),
    "grant.revoked": (EventType.GRANTS_CHANGED, _changed),
    "rule.added": (EventType.RULES_CHANGED, _changed),
    "rule.removed": (EventType.RULES_CHANGED, _changed),
    "rule.disabled": (EventType.RULES_CHANGED, _changed),
    "rule.enabled": (EventType.RULES_CHANGED, _changed),
    "workspace.trusted": (EventType.TRUST_CHANGED, _changed),
    "workspace.untrusted": (EventType.TRUST_CHANGED, _changed),
    "token.created": (EventType.TOKENS_CHANGED, _changed),
    "token.revoked": (EventType.TOKENS_CHANGED, _changed),
    "secret.stored": (EventType.SECRETS_CHANGED, _changed),
    "secret.removed": (EventType.SECRETS_CHANGED, _changed),
    "dependency.installed": (EventType.INSTALL_FINISHED, _installed),
}
