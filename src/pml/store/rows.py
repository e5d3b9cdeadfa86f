"""Rows to domain values and back. Column order is that of the schema."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from pml.core.approvals import (
    Approval,
    ApprovalId,
    Channel,
    Decider,
    DeciderKind,
    MatchedRule,
    OwnerId,
    Role,
    Scope,
    SessionId,
    State,
    Subject,
)
from pml.core.audit import Entry, Link
from pml.core.identity import ParentMay, TokenRole
from pml.core.ports import Grant, Held, Intent, PausedCall, Pin, Process, Session, Workflow
from pml.core.rules import Effect
from pml.core.values import Json
from pml.store.database import Row, Value

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def at_micros(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def maybe_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def maybe_at(value: Any) -> datetime | None:
    return None if value is None else at_micros(value)


def spell(value: Json) -> str:
    """Return `value` as JSON that reads back exactly, key order included."""
    return msgspec.json.encode(value).decode()


def decider_text(by: Decider) -> str:
    return spell({"kind": by.kind, "id": by.id, "channel": by.channel})


def approval_values(record: Approval) -> tuple[Value, ...]:
    rule = None if record.rule is None else msgspec.json.encode(record.rule).decode()
    return (
        record.id,
        record.session_id,
        record.subject,
        record.tool_name,
        spell(record.tool_input),
        record.tool_use_id,
        record.digest,
        record.definition,
        record.artefact,
        rule,
        ",".join(sorted(record.deciders)),
        record.ttl_s,
        micros(record.created_at),
        micros(record.expires_at),
        record.owner,
        record.run_id,
        record.status,
        *_decision_values(record),
        record.version,
        record.cwd,
    )


def approval_changes(record: Approval) -> tuple[Value, ...]:
    """Return the values that an event can change, in the order of `update_approval`."""
    return (
        micros(record.expires_at),
        record.owner,
        record.status,
        *_decision_values(record),
        record.version,
    )


def _decision_values(record: Approval) -> tuple[Value, ...]:
    return (
        None if record.decided_by is None else decider_text(record.decided_by),
        record.scope,
        record.response_message,
        None if record.updated_input is None else spell(record.updated_input),
        record.reason,
        maybe_micros(record.abandoned_at),
        maybe_micros(record.resolved_at),
        maybe_micros(record.ended_at),
    )


def approval_of(row: Row) -> Approval:
    return Approval(
        id=ApprovalId(row[0]),
        session_id=SessionId(row[1]),
        subject=Subject(row[2]),
        tool_name=row[3],
        tool_input=json.loads(row[4]),
        tool_use_id=row[5],
        digest=row[6],
        definition=row[7],
        artefact=row[8],
        rule=None if row[9] is None else msgspec.json.decode(row[9], type=MatchedRule),
        deciders=frozenset(Role(word) for word in row[10].split(",")),
        ttl_s=row[11],
        created_at=at_micros(row[12]),
        expires_at=at_micros(row[13]),
        owner=OwnerId(row[14]),
        run_id=row[15],
        status=State(row[16]),
        decided_by=None if row[17] is None else _decider(row[17]),
        scope=None if row[18] is None else Scope(row[18]),
        response_message=row[19],
        updated_input=None if row[20] is None else json.loads(row[20]),
        reason=row[21],
        abandoned_at=maybe_at(row[22]),
        resolved_at=maybe_at(row[23]),
        ended_at=maybe_at(row[24]),
        version=row[25],
        cwd=row[26],
    )


def approvals_of(rows: Iterable[Row]) -> list[Approval]:
    return [approval_of(row) for row in rows]


def session_values(session: Session) -> tuple[Value, ...]:
    process = session.process
    return (
        session.id,
        session.name,
        session.principal,
        session.workspace,
        session.parent_id,
        None if process is None else process.pid,
        None if process is None else process.started,
        int(session.is_agent),
        micros(session.started_at),
        maybe_micros(session.ended_at),
        session.role,
        None if session.tools is None else spell(session.tools),
        int(session.waits),
        session.ttl_s,
        session.parent_may,
        int(session.launches_unasked),
    )


def session_of(row: Row) -> Session:
    return Session(
        id=SessionId(row[0]),
        name=row[1],
        principal=row[2],
        workspace=row[3],
        parent_id=None if row[4] is None else SessionId(row[4]),
        process=None if row[5] is None else Process(pid=row[5], started=row[6]),
        is_agent=bool(row[7]),
        started_at=at_micros(row[8]),
        ended_at=maybe_at(row[9]),
        role=TokenRole(row[10]),
        tools=None if row[11] is None else tuple(json.loads(row[11])),
        waits=bool(row[12]),
        ttl_s=row[13],
        parent_may=ParentMay(row[14]),
        launches_unasked=bool(row[15]),
    )


def grant_values(grant: Grant) -> tuple[Value, ...]:
    return (
        grant.id,
        grant.session_id,
        grant.tool,
        grant.digest,
        grant.definition,
        grant.artefact,
        grant.approval_id,
        decider_text(grant.by),
        micros(grant.created_at),
    )


def intent_values(intent: Intent) -> tuple[Value, ...]:
    return (
        intent.id,
        intent.workspace,
        intent.effect,
        spell(intent.entry),
        intent.approval_id,
        micros(intent.created_at),
        intent.model,
    )


def grant_of(row: Row) -> Grant:
    return Grant(
        id=row[0],
        session_id=SessionId(row[1]),
        tool=row[2],
        digest=row[3],
        definition=row[4],
        artefact=row[5],
        approval_id=None if row[6] is None else ApprovalId(row[6]),
        by=_decider(row[7]),
        created_at=at_micros(row[8]),
    )


def held_of(row: Row) -> Held:
    return Held(
        id=ApprovalId(row[0]),
        session_id=SessionId(row[1]),
        status=State(row[2]),
        owner=OwnerId(row[3]),
        abandoned_at=maybe_at(row[4]),
    )


def workflow_values(workflow: Workflow) -> tuple[Value, ...]:
    call = workflow.call
    return (
        workflow.id,
        workflow.approval_id,
        workflow.principal,
        micros(workflow.created_at),
        maybe_micros(workflow.continued_at),
        None if call is None else msgspec.json.encode(call).decode(),
        workflow.run_id,
    )


def workflow_of(row: Row) -> Workflow:
    return Workflow(
        id=row[0],
        approval_id=ApprovalId(row[1]),
        principal=row[2],
        created_at=at_micros(row[3]),
        continued_at=maybe_at(row[4]),
        call=None if row[5] is None else PausedCall(**json.loads(row[5])),
        run_id=row[6],
    )


def pin_values(pin: Pin) -> tuple[Value, ...]:
    return (
        pin.server,
        pin.launch,
        pin.action,
        spell(pin.definition),
        pin.digest,
        micros(pin.pinned_at),
    )


def pin_of(row: Row) -> Pin:
    return Pin(
        server=row[0],
        launch=row[1],
        action=row[2],
        definition=json.loads(row[3]),
        digest=row[4],
        pinned_at=at_micros(row[5]),
    )


def intent_of(row: Row) -> Intent:
    return Intent(
        id=row[0],
        workspace=row[1],
        effect=Effect(row[2]),
        entry=json.loads(row[3]),
        approval_id=ApprovalId(row[4]),
        created_at=at_micros(row[5]),
        model=row[6],
    )


def audit_values(chain: str, n: int, entry: Entry, prev: str, hashed: str) -> tuple[Value, ...]:
    by = entry.by
    return (
        chain,
        n,
        micros(entry.at),
        entry.kind,
        entry.approval_id,
        entry.session_id,
        entry.tool,
        None if by is None else by.kind,
        None if by is None else by.id,
        None if by is None else by.channel,
        spell(entry.detail),
        prev,
        hashed,
    )


def link_of(row: Row) -> Link:
    """Return the row's link; one whose columns make no sense becomes an entry that fits no hash."""
    try:
        entry = _entry_of(row)
    except (ValueError, TypeError, OverflowError):
        entry = Entry(at=_EPOCH, kind="unreadable")
    return Link(seq=row[0], chain=row[1], n=row[2], entry=entry, prev=row[12], hash=row[13])


def _entry_of(row: Row) -> Entry:
    by = None if row[8] is None else Decider(kind=DeciderKind(row[8]), id=row[9], channel=Channel(row[10]))
    return Entry(
        at=at_micros(row[3]),
        kind=row[4],
        approval_id=row[5],
        session_id=row[6],
        tool=row[7],
        by=by,
        detail=json.loads(row[11]),
    )


def _decider(text: str) -> Decider:
    return msgspec.json.decode(text, type=Decider)
