"""Entries of the audit log: one for everything that happens, each made by one function here."""

from datetime import datetime
from typing import Final

import msgspec

from pml.core.approvals.events import (
    Abandoned,
    Allowed,
    Attached,
    Cancelled,
    Claimed,
    Delivered,
    Denied,
    Event,
    Failed,
    Unsent,
)
from pml.core.approvals.reasons import entry_of as reason_text
from pml.core.approvals.record import Approval, Decider
from pml.core.digest import digest
from pml.core.values import Json, JsonObject

REFUSED: Final = "approval.refused"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, before it has a place in a chain."""

    at: datetime
    kind: str
    approval_id: str | None = None
    session_id: str | None = None
    tool: str | None = None
    by: Decider | None = None
    detail: JsonObject = {}


def entry_of(record: Approval, event: Event | None) -> Entry:
    """Return the entry that tells that `event` made `record` what it is now (None: it was asked)."""
    return Entry(
        at=record.created_at if event is None else event.at,
        kind="approval.requested" if event is None else f"approval.{_word(record, event)}",
        approval_id=record.id,
        session_id=record.session_id,
        tool=record.tool_name,
        by=event.by if isinstance(event, Allowed | Denied) else None,
        detail=_detail(record, event),
    )


def call_judged(session_id: str, tool: str, digest: str, *, at: datetime, word: str, why: str) -> Entry:
    """A call that a rule, a grant or a switch answered at once: `word` is allowed or denied."""
    detail: JsonObject = {"digest": digest, "why": why}
    return Entry(at=at, kind=f"call.{word}", session_id=session_id, tool=tool, detail=detail)


def approval_refused(session_id: str, tool: str, digest: str, *, at: datetime, why: str) -> Entry:
    """A question that was not stored, so no person is asked: too many wait already, or it is too large."""
    detail: JsonObject = {"digest": digest, "why": why}
    return Entry(at=at, kind=REFUSED, session_id=session_id, tool=tool, detail=detail)


def session_started(session_id: str, name: str, *, at: datetime, parent_id: str | None) -> Entry:
    return Entry(
        at=at, kind="session.started", session_id=session_id, detail={"name": name, "parent": parent_id}
    )


def session_launched(
    session_id: str,
    *,
    at: datetime,
    by: Decider | None,
    approval_id: str | None,
    why: str,
    parent_may: str,
    launches_unasked: bool,
) -> Entry:
    """An agent that another had started: whose yes that was, and what it gave."""
    detail: JsonObject = {"why": why, "parent_may_decide": parent_may, "launches_unasked": launches_unasked}
    kind = "session.launched"
    return Entry(at=at, kind=kind, session_id=session_id, by=by, approval_id=approval_id, detail=detail)


def session_ended(session_id: str, *, at: datetime) -> Entry:
    return Entry(at=at, kind="session.ended", session_id=session_id)


def session_changed(session_id: str, state: str, *, at: datetime) -> Entry:
    """A launched agent's run that went on to `state`."""
    return Entry(at=at, kind="session.changed", session_id=session_id, detail={"state": state})


def session_said(session_id: str, kind: str, text: str, *, seq: int, at: datetime) -> Entry:
    """A message of a launched agent; of it only the digest, and its place among the messages."""
    detail: JsonObject = {"kind": kind, "seq": seq, "message_digest": digest(text)}
    return Entry(at=at, kind="session.said", session_id=session_id, detail=detail)


def token_created(
    token_id: str,
    role: str,
    name: str,
    *,
    forms: bool = False,
    at: datetime,
    by: Decider | None,
    session_id: str | None,
) -> Entry:
    detail: JsonObject = {"token": token_id, "role": role, "name": name, **({"forms": True} if forms else {})}
    return Entry(at=at, kind="token.created", session_id=session_id, by=by, detail=detail)


def token_revoked(token_id: str, *, at: datetime, by: Decider | None, session_id: str | None) -> Entry:
    return Entry(at=at, kind="token.revoked", session_id=session_id, by=by, detail={"token": token_id})


def grant_added(
    session_id: str, tool: str, *, at: datetime, by: Decider, approval_id: str | None, digest: str | None
) -> Entry:
    detail: JsonObject = {} if digest is None else {"digest": digest}
    return Entry(
        at=at,
        kind="grant.added",
        approval_id=approval_id,
        session_id=session_id,
        tool=tool,
        by=by,
        detail=detail,
    )


def grant_revoked(session_id: str, tool: str, *, at: datetime, by: Decider) -> Entry:
    return Entry(at=at, kind="grant.revoked", session_id=session_id, tool=tool, by=by)


def workspace_trusted(path: str, digest: str, *, at: datetime, by: Decider) -> Entry:
    return Entry(at=at, kind="workspace.trusted", by=by, detail={"path": path, "digest": digest})


def workspace_untrusted(path: str, *, at: datetime, by: Decider, digest: str | None = None) -> Entry:
    """Say that no content of the file is trusted any more; with `digest`, that this one is not."""
    detail = {"path": path} if digest is None else {"path": path, "digest": digest}
    return Entry(at=at, kind="workspace.untrusted", by=by, detail=detail)


def rule_added(
    where: str,
    effect: str,
    entry: Json,
    *,
    at: datetime,
    by: Decider | None = None,
    approval_id: str | None = None,
) -> Entry:
    """A rule that was written; of one that may hold an approved call's arguments only the digest."""
    is_payload = approval_id is not None and not isinstance(entry, str)
    what: JsonObject = {"entry_digest": digest(entry)} if is_payload else {"entry": entry}
    detail: JsonObject = {"where": where, "effect": effect, **what}
    return Entry(at=at, kind="rule.added", approval_id=approval_id, by=by, detail=detail)


def rule_removed(where: str, effect: str, entry: Json, *, at: datetime, by: Decider) -> Entry:
    return Entry(at=at, kind="rule.removed", by=by, detail={"where": where, "effect": effect, "entry": entry})


def rule_switched(where: str, effect: str, entry: Json, word: str, *, at: datetime, by: Decider) -> Entry:
    """A rule that was switched: `word` is disabled or enabled."""
    return Entry(at=at, kind=f"rule.{word}", by=by, detail={"where": where, "effect": effect, "entry": entry})


def tool_pinned(server: str, action: str, digest: str, *, target_digest: str, at: datetime) -> Entry:
    """A tool that was used for the first time, with the definition that it had then."""
    detail: JsonObject = {"digest": digest, "launch": target_digest}
    return Entry(at=at, kind="tool.pinned", tool=f"{server}:{action}", detail=detail)


def tool_repinned(
    server: str, action: str, digest: str, *, target_digest: str, at: datetime, by: Decider
) -> Entry:
    """A tool whose changed definition `by` accepted."""
    detail: JsonObject = {"digest": digest, "launch": target_digest}
    return Entry(at=at, kind="tool.repinned", tool=f"{server}:{action}", by=by, detail=detail)


def dependency_installed(
    name: str,
    version: str,
    *,
    integrity: str | None,
    lock: str,
    why: str,
    at: datetime,
    session_id: str | None = None,
    tool: str | None = None,
    approval_id: str | None = None,
) -> Entry:
    """A server that was installed: for a call of `tool`, or by command."""
    detail: JsonObject = {"name": name, "version": version, "integrity": integrity, "lock": lock, "why": why}
    return Entry(
        at=at,
        kind="dependency.installed",
        approval_id=approval_id,
        session_id=session_id,
        tool=tool,
        detail=detail,
    )


def dependency_accepted(name: str, tree: str, *, at: datetime, by: Decider | None) -> Entry:
    """Changed files of an installed server that `by` accepted."""
    return Entry(at=at, kind="dependency.accepted", by=by, detail={"name": name, "tree": tree})


def secret_changed(name: str, word: str, *, at: datetime, by: Decider) -> Entry:
    """A secret that `by` stored or removed; of it only the name."""
    return Entry(at=at, kind=f"secret.{word}", by=by, detail={"name": name})


def server_changed(
    name: str, word: str, where: str, *, at: datetime, by: Decider, why: str, target: str | None = None
) -> Entry:
    """A server that `by` added to what PML may start, or removed; `where` has its entry."""
    detail: dict[str, Json] = {"name": name, "where": where, "why": why}
    return Entry(
        at=at, kind=f"server.{word}", by=by, detail={**detail, **({"target": target} if target else {})}
    )


def server_login_changed(server: str, word: str, *, issuer: str, at: datetime, by: Decider) -> Entry:
    """A login to a server that `by` made or ended; of it only where."""
    return Entry(at=at, kind=f"server.{word}", by=by, detail={"name": server, "issuer": issuer})


def cleaned(count: int, *, at: datetime, older_than: datetime) -> Entry:
    return Entry(
        at=at, kind="approvals.cleaned", detail={"count": count, "older_than": older_than.isoformat()}
    )


def _word(record: Approval, event: Event) -> str:
    match event:
        case Abandoned():
            return "abandoned"
        case Attached():
            return "attached"
        case Unsent():
            return "unsent"
        case _:
            return str(record.status)


def _detail(record: Approval, event: Event | None) -> JsonObject:
    match event:
        case None:
            detail: dict[str, Json] = {"subject": record.subject, "digest": record.digest}
            if record.rule is not None:
                detail["rule"] = reason_text(record.rule)
            return detail
        case Allowed():
            detail = {"scope": event.scope, "digest": event.digest}
            if event.updated_input is not None:
                detail["run_digest"] = record.run_digest
            return detail | _message(event.message)
        case Denied():
            return {"digest": event.digest} | _message(event.message)
        case Claimed() | Delivered():
            return {"digest": event.digest}
        case Cancelled():
            return {"reason": event.reason}
        case Failed():
            return _message(event.message)
        case _:
            return {}


def _message(message: str | None) -> dict[str, Json]:
    return {} if message is None else {"message_digest": digest(message)}
