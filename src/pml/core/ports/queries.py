"""What a store is asked for: a page of approvals or of the audit log, by what it must match."""

from datetime import datetime

import msgspec

from pml.core.approvals.record import ApprovalId, SessionId, State


class ApprovalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which approvals are wanted; `after` is the last of the page before.

    `search` is text that stands, in whatever case its ASCII letters are, in the tool's name, an input's
    JSON, the session's id or name, the decider's id, or what was said with the answer.
    """

    states: frozenset[State] | None = None
    session_id: SessionId | None = None
    sessions: frozenset[SessionId] | None = None
    digest: str | None = None
    run_id: str | None = None
    workspace: str | None = None
    search: str | None = None
    newest: bool = False
    after: tuple[datetime, ApprovalId] | None = None
    limit: int = 100


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    since: datetime | None = None
    until: datetime | None = None
    session_id: str | None = None
    tool: str | None = None
    decider: str | None = None
    approval_id: str | None = None
    kind: str | None = None
    after: int = 0
    before: int | None = None
    limit: int = 100
    newest: bool = False  # the last `limit` of what matches, instead of the first
