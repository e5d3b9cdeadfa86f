"""Every JSON shape that PML prints or sends, defined once: MCP results, HTTP API, `--json`, events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from pml.core.approvals.reasons import MatchedRule, matched
from pml.core.approvals.record import Approval, Decider, instant
from pml.core.approvals.subjects import headline, title
from pml.core.audit.chain import Link
from pml.core.errors import CodeFailed, PmlError
from pml.core.ports.records import Grant, Session
from pml.core.rules.ruleset import Rule, Verdict
from pml.core.sessions.agent import Message, Run
from pml.core.sessions.token import Token
from pml.core.text import visible
from pml.core.values import Json

MAX_LISTED_BYTES: Final = 64 * 1024  # of an input in a list, which may have a thousand of them


def approval_json(record: Approval) -> dict[str, Json]:
    """An approval as lists, `show` and events have it."""
    shape: dict[str, Json] = {
        "id": record.id,
        "subject": record.subject,
        "tool": record.tool_name,
        "title": title(record),
        "status": record.status,
        "session": record.session_id,
        "created_at": instant(record.created_at),
        "expires_at": instant(record.expires_at),
        "digest": record.digest,
        "input": record.tool_input,
        "tool_use_id": record.tool_use_id,
        "may_allow": sorted(record.deciders),
        "rule": None if record.rule is None else _matched_rule(matched(record.rule)),
        "run_id": record.run_id,
        "cwd": record.cwd,
    }
    if record.resolved_at is not None:
        shape |= {
            "resolved_at": instant(record.resolved_at),
            "decided_by": None if record.decided_by is None else decider_json(record.decided_by),
            "scope": record.scope,
            "message": record.response_message,
            "updated_input": record.updated_input,
            "reason": record.reason,
        }
    return shape


def listed_json(record: Approval) -> dict[str, Json]:
    """An approval in a list, or in the answer to a decision: without long inputs, which `show` has."""
    shape = approval_json(record)
    long = [key for key in ("input", "updated_input") if is_long(shape.get(key))]
    return shape | {key: None for key in long} | ({"omitted": long} if long else {})


def is_long(value: Json) -> bool:
    return value is not None and len(msgspec.json.encode(value)) > MAX_LISTED_BYTES


def shown_json(
    record: Approval,
    *,
    workspace: str,
    session_name: str,
    always: Json,
    covers: Sequence[Approval],
    code: str | None,
) -> dict[str, Json]:
    """An approval as `show` has it: with what "always" would write, what it covers, the code that calls."""
    more: dict[str, Json] = {"workspace": workspace, "session_name": session_name, "always": always}
    more |= {} if code is None else {"code": code}
    return approval_json(record) | more | {"covers": [other.id for other in covers]}


def requested_json(record: Approval, session: Session, *, delivery: str, url: str) -> dict[str, Json]:
    """What a webhook is told of a new question: who wants what, never with which arguments."""
    return {
        "id": delivery,
        "type": "approval.requested",
        "at": instant(record.created_at),
        "approval": {
            "id": record.id,
            "subject": record.subject,
            "tool": record.tool_name,
            "title": headline(record),
            "session_name": visible(session.name),
            "workspace": visible(session.workspace),
            "created_at": instant(record.created_at),
            "expires_at": instant(record.expires_at),
        },
        "url": url,
    }


def decider_json(by: Decider) -> dict[str, Json]:
    return {"kind": by.kind, "id": by.id, "channel": by.channel}


def _matched_rule(rule: MatchedRule) -> dict[str, Json]:
    return {"verdict": rule.verdict, "entry": rule.entry, "source": {"file": rule.file, "line": rule.line}}


def rule_json(rule: Rule) -> dict[str, Json]:
    """A rule as `rules list` has it."""
    return {
        "effect": rule.effect,
        "entry": rule.entry,
        "id": rule.id,
        "expires_at": None if rule.expires_at is None else instant(rule.expires_at),
        "source": source_json(rule),
    }


def source_json(rule: Rule | None) -> Json:
    if rule is None or rule.source is None:
        return None
    return {"file": rule.source.file, "line": rule.source.line}


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """A verdict as `rules explain` has it."""
    return {
        "verdict": verdict.kind,
        "rule": None if verdict.rule is None else verdict.rule.entry,
        "matched": [rule_json(rule) for rule in verdict.matched],
        "source": source_json(verdict.rule),
    }


def link_json(link: Link) -> dict[str, Json]:
    """An audit entry as `audit list` has it."""
    entry = link.entry
    return {
        "seq": link.seq,
        "chain": link.chain,
        "n": link.n,
        "at": instant(entry.at),
        "kind": entry.kind,
        "approval": entry.approval_id,
        "session": entry.session_id,
        "tool": entry.tool,
        "by": None if entry.by is None else decider_json(entry.by),
        "detail": entry.detail,
        "hash": link.hash,
    }


def grant_json(grant: Grant) -> dict[str, Json]:
    """What is remembered for a session."""
    return {
        "id": grant.id,
        "session": grant.session_id,
        "tool": grant.tool,
        "digest": grant.digest,
        "approval": grant.approval_id,
        "by": decider_json(grant.by),
        "created_at": instant(grant.created_at),
    }


def token_json(token: Token) -> dict[str, Json]:
    """A token as lists have it; its text is nobody's to show again."""
    return {
        "id": token.id,
        "role": token.role,
        "name": token.name,
        "session": token.session_id,
        "forms": token.forms,
        "created_at": instant(token.created_at),
        "expires_at": _instant(token.expires_at),
        "revoked_at": _instant(token.revoked_at),
    }


def session_json(session: Session, run: Run | None, *, state: str, waiting: int) -> dict[str, Json]:
    """A session as lists, the API and supervisors have it; `waiting` counts its open questions."""
    return {
        "id": session.id,
        "name": session.name,
        "role": session.role,
        "parent": session.parent_id,
        "workspace": session.workspace,
        "is_agent": session.is_agent,
        "pid": None if session.process is None else session.process.pid,
        "state": state,
        "waiting": waiting,
        "parent_may_decide": session.parent_may,
        "started_at": instant(session.started_at),
        "ended_at": _instant(session.ended_at),
        "run": None if run is None else _run_json(run),
    }


def _run_json(run: Run) -> dict[str, Json]:
    return {
        "prompt": run.order.prompt,
        "cwd": run.order.cwd,
        "model": run.order.model,
        "allowed_tools": run.order.tools,
        "may_launch": run.order.may_launch,
        "turns": run.turns,
        "cost_usd": round(run.cost_usd, 6),
        "result": run.result,
        "exit_code": run.exit_code,
        "ended_at": _instant(run.ended_at),
    }


def message_json(message: Message) -> dict[str, Json]:
    """One thing that a launched agent said or did."""
    return {"seq": message.seq, "kind": message.kind, "text": message.text, "at": instant(message.at)}


def _instant(at: datetime | None) -> str | None:
    return None if at is None else instant(at)


def error_json(error: PmlError) -> dict[str, Json]:
    """The one shape of an error, on every edge; that of code tells where, and what it printed."""
    detail: dict[str, Json] = {"code": error.code, "message": error.message, "hint": error.hint}
    if isinstance(error, CodeFailed):
        where = {"line": error.line, "column": error.column, "logs": error.logs}
        detail |= {"code": error.refusal, **where}
    return {"error": detail}
