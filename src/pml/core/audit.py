"""The audit log's entries and the chain that makes a change to them show.

Every writer has a chain of its own: entry n holds the hash of entry n-1. An entry holds digests of
payloads, never payloads, so that payloads can be deleted and the chain still verifies. Knows no store.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from pml.core.approvals import (
    Abandoned,
    Allowed,
    Approval,
    Attached,
    Cancelled,
    Claimed,
    Decider,
    Delivered,
    Denied,
    Event,
    Failed,
)
from pml.core.digest import digest
from pml.core.values import Json, JsonObject, canonical

GENESIS: Final = ""
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


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in its place: `seq` orders all chains of a store, `n` counts within one chain."""

    seq: int
    chain: str
    n: int
    entry: Entry
    prev: str
    hash: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a chain ends."""

    chain: str
    n: int
    hash: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with a chain."""

    chain: str
    n: int
    what: str


def link_hash(chain: str, n: int, entry: Entry, prev: str) -> str:
    """Return the hash of `entry` in place `n` of `chain` after `prev`."""
    by = None if entry.by is None else [entry.by.kind, entry.by.id, entry.by.channel]
    body: list[Json] = [
        chain,
        n,
        entry.at.isoformat(),
        entry.kind,
        entry.approval_id,
        entry.session_id,
        entry.tool,
        by,
        entry.detail,
        prev,
    ]
    return hashlib.sha256(canonical(body)).hexdigest()


class Verification:
    """One walk through all links, by chain, then n; it holds the end of each chain and not the links.

    Finds an edited, removed, added or reordered entry, a tail that was cut off, and a lost head.
    """

    def __init__(self, kept: Mapping[str, Head]) -> None:
        self.entries = 0
        self._kept = kept
        self._ends: dict[str, Link] = {}
        self._problems: list[Problem] = []

    @property
    def chains(self) -> int:
        return len(self._ends)

    def see(self, link: Link) -> None:
        """Take the next link."""
        before = self._ends.get(link.chain)
        after_n, after_hash, after_seq = (before.n, before.hash, before.seq) if before else (0, GENESIS, 0)
        if link.n != after_n + 1:
            self._note(link, f"stands where entry {after_n + 1} should be")
        elif link.prev != after_hash:
            self._note(link, "does not follow the entry before it")
        if link_hash(link.chain, link.n, link.entry, link.prev) != link.hash:
            self._note(link, "was edited: its hash does not match")
        if link.seq <= after_seq:
            self._note(link, "was moved before an older one")
        head = self._kept.get(link.chain)
        if head is not None and head.n == link.n and head.hash != link.hash:
            self._note(link, "is not the entry whose hash was kept outside the database")
        self._ends[link.chain] = link
        self.entries += 1

    def problems(self) -> list[Problem]:
        """Return what is wrong with the links that were seen, if those were all."""
        lost = [
            Problem(chain=end.chain, n=end.n, what="the chain has no head kept outside the database")
            for end in self._ends.values()
            if end.chain not in self._kept
        ]
        cut = [
            Problem(
                chain=head.chain,
                n=head.n,
                what=f"the chain should reach entry {head.n}: its tail was cut off",
            )
            for head in self._kept.values()
            if head.n > (self._ends[head.chain].n if head.chain in self._ends else 0)
        ]
        return [*self._problems, *lost, *cut]

    def _note(self, link: Link, what: str) -> None:
        self._problems.append(Problem(chain=link.chain, n=link.n, what=f"entry {link.n} {what}"))


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
    """A question that was not stored, so that nobody is asked: too many wait already, or it is too large."""
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


def tool_pinned(server: str, action: str, digest: str, *, launch: str, at: datetime) -> Entry:
    """A tool that was used for the first time, with the definition that it had then."""
    detail: JsonObject = {"digest": digest, "launch": launch}
    return Entry(at=at, kind="tool.pinned", tool=f"{server}:{action}", detail=detail)


def tool_repinned(server: str, action: str, digest: str, *, launch: str, at: datetime, by: Decider) -> Entry:
    """A tool whose changed definition `by` accepted."""
    detail: JsonObject = {"digest": digest, "launch": launch}
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
        case _:
            return str(record.status)


def _detail(record: Approval, event: Event | None) -> JsonObject:
    match event:
        case None:
            detail: dict[str, Json] = {"subject": record.subject, "digest": record.digest}
            if record.rule is not None:
                detail["rule"] = record.rule.entry
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
