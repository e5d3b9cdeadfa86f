"""The one shape of an event, and who may see it."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pml.core.approvals.events import Cancelled, Completed, Event, Expired, Failed, Lost
from pml.core.approvals.record import SessionId
from pml.core.approvals.states import advance
from pml.core.audit import entries as audit
from pml.core.audit.chain import Link
from pml.core.audit.entries import Entry
from pml.core.audit.feed_events import (
    FOR_PERSONS,
    MAX_BYTES,
    EventType,
    Payload,
    event_json,
    event_text,
    install_progress,
    may_see,
    server_changed,
    type_of,
    types_matching,
)
from pml.core.errors import Invalid
from pml.core.sessions.agent import Message, MessageKind
from pml.core.sessions.token import Identity, TokenId, TokenRole
from tests.builders import NOW, PERSON, SESSION, allow, claim, deny, later, make_approval
from tests.promises import promise

PARENT, CHILD, GRANDCHILD = SessionId("parent"), SessionId("child"), SessionId("grandchild")
QUESTION = {
    "approval_id": make_approval().id,
    "tool_name": "github:create_issue",
}


def told(entry: Entry, payload: Payload | None = None) -> dict[str, Any]:
    link = Link(seq=7, chain="c", n=1, entry=entry, prev="", hash="")
    text = event_text(link, payload or Payload())
    assert text is not None
    return json.loads(text)


def viewer(role: TokenRole, session_id: SessionId | None) -> Identity:
    return Identity(token_id=TokenId("0" * 12), role=role, name="x", session_id=session_id)


def test_a_question_is_told_with_all_that_deciding_needs() -> None:
    record = make_approval()
    payload = Payload(approval=record, session_name="shop")
    assert told(audit.entry_of(record, None), payload) == {
        "id": 7,
        "at": "2026-11-03T12:00:00Z",
        "type": "approval.requested",
        "session": SESSION,
        **QUESTION,
        "session_name": "shop",
        "tool_input": {"title": "it is broken"},
        "tool_use_id": "use-1",
        "subject": "tool_call",
        "digest": record.digest,
        "expires_at": "2026-11-03T12:05:00Z",
        "may_allow": ["person"],
    }


def test_a_question_is_told_again_as_it_was_then() -> None:
    record = make_approval()
    entry = audit.entry_of(record, None)
    after = advance(record, allow(record, at=later(60)))
    assert told(entry, Payload(approval=after)) == told(entry, Payload(approval=record))


def test_what_was_cleaned_up_is_absent_and_the_rest_is_told() -> None:
    record = make_approval()
    assert told(audit.entry_of(record, None)) == {
        "id": 7,
        "at": "2026-11-03T12:00:00Z",
        "type": "approval.requested",
        "session": SESSION,
        **QUESTION,
        "subject": "tool_call",
        "digest": record.digest,
    }


def test_a_payload_that_is_too_long_is_left_out_and_that_is_said() -> None:
    record = make_approval(tool_input={"text": "x" * MAX_BYTES})
    found = told(audit.entry_of(record, None), Payload(approval=record))
    assert found["omitted"] is True
    assert "tool_input" not in found


def test_a_decision_is_told_with_who_and_why() -> None:
    record = make_approval()
    event = allow(record, message="go on", updated_input={"title": "b"})
    after = advance(record, event)
    found = told(audit.entry_of(after, event), Payload(approval=after))
    assert found == {
        "id": 7,
        "at": "2026-11-03T12:00:00Z",
        "type": "approval.decided",
        "session": SESSION,
        **QUESTION,
        "decision": "allowed",
        "by": {"kind": "person", "id": "ana", "channel": "terminal"},
        "scope": "once",
        "message": "go on",
        "updated_input": {"title": "b"},
    }


def test_a_denial_is_told_as_one() -> None:
    record = make_approval()
    event = deny(record, message="not today")
    after = advance(record, event)
    found = told(audit.entry_of(after, event), Payload(approval=after))
    assert (found["type"], found["decision"], found["message"]) == ("approval.decided", "denied", "not today")
    assert "scope" not in found


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Expired(at=NOW + timedelta(hours=1)), {"type": "approval.expired"}),
        (Cancelled(at=NOW, reason="it went"), {"type": "approval.cancelled", "reason": "it went"}),
    ],
)
def test_the_end_of_a_question_is_told(event: Event, expected: dict[str, str]) -> None:
    after = advance(make_approval(), event)
    found = told(audit.entry_of(after, event), Payload(approval=after))
    assert {key: found[key] for key in found if key not in ("id", "at", "session")} == QUESTION | expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Completed(at=NOW), {"outcome": "completed"}),
        (Failed(at=NOW, message="no network"), {"outcome": "failed", "message": "no network"}),
        (Lost(at=NOW), {"outcome": "unknown"}),
    ],
)
def test_the_end_of_a_call_is_told(event: Event, expected: dict[str, str]) -> None:
    record = make_approval()
    allowed = advance(record, allow(record))
    after = advance(advance(allowed, claim(allowed)), event)
    found = told(audit.entry_of(after, event), Payload(approval=after))
    rest = {key: found[key] for key in found if key not in ("id", "at", "session", "type")}
    assert found["type"] == "approval.finished"
    assert rest == QUESTION | expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            audit.session_started(SESSION, "shop", at=NOW, parent_id="p"),
            {"type": "session.started", "session": SESSION, "name": "shop", "parent": "p"},
        ),
        (
            audit.session_changed(SESSION, "running", at=NOW),
            {"type": "session.changed", "session": SESSION, "state": "running"},
        ),
        (audit.session_ended(SESSION, at=NOW), {"type": "session.ended", "session": SESSION}),
        (
            audit.rule_removed("/f", "allow", "a:b", at=NOW, by=PERSON),
            {
                "type": "rules.changed",
                "change": "removed",
                "where": "/f",
                "effect": "allow",
                "entry": "a:b",
                "by": {"kind": "person", "id": "ana", "channel": "terminal"},
            },
        ),
        (
            audit.rule_switched("/f", "deny", "a:b", "disabled", at=NOW, by=PERSON),
            {
                "type": "rules.changed",
                "change": "disabled",
                "where": "/f",
                "effect": "deny",
                "entry": "a:b",
                "by": {"kind": "person", "id": "ana", "channel": "terminal"},
            },
        ),
        (
            audit.token_revoked("0a", at=NOW, by=None, session_id=SESSION),
            {"type": "tokens.changed", "session": SESSION, "change": "revoked", "token": "0a"},
        ),
    ],
)
def test_what_the_log_tells_whole_is_told_whole(entry: Entry, expected: dict[str, Any]) -> None:
    assert told(entry) == {"id": 7, "at": "2026-11-03T12:00:00Z"} | expected


def test_what_an_agent_said_is_told_while_it_is_kept() -> None:
    entry = audit.session_said(SESSION, "text", "done\n", seq=3, at=NOW)
    said = Message(session_id=SESSION, kind=MessageKind.TEXT, text="done\n", at=NOW, seq=3)
    found = told(entry, Payload(message=said))
    assert (found["type"], found["kind"], found["text"]) == ("session.said", "text", "done\n")
    assert "text" not in told(entry)


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    record = make_approval(tool_input={"a\r\nb": "c\nd\re\u2028f"})
    link = Link(seq=7, chain="c", n=1, entry=audit.entry_of(record, None), prev="", hash="")
    text = event_text(link, Payload(approval=record))
    assert text is not None
    assert b"\n" not in text
    assert b"\r" not in text


def test_what_a_rule_answered_at_once_is_no_event() -> None:
    assert type_of(audit.call_judged(SESSION, "a:b", "d", at=NOW, word="allowed", why="rule")) is None


def test_what_is_in_no_log_has_no_id() -> None:
    assert event_json(server_changed("memory", "ready", at=NOW)) == {
        "at": "2026-11-03T12:00:00Z",
        "type": "server.changed",
        "server": "memory",
        "state": "ready",
    }
    progress = install_progress("memory", done=1, total=None, message="m", at=NOW, session_id=SESSION)
    assert event_json(progress) == {
        "at": "2026-11-03T12:00:00Z",
        "type": "install.progress",
        "session": SESSION,
        "name": "memory",
        "done": 1,
        "total": None,
        "message": "m",
    }


@promise("events:only-what-the-token-may-see")
@pytest.mark.parametrize("event_type", EventType)
def test_a_person_sees_all_a_session_its_own_and_those_below_a_child_its_own(event_type: EventType) -> None:
    lines = {
        "parent": [PARENT],
        "child": [CHILD, PARENT],
        "grandchild": [GRANDCHILD, CHILD, PARENT],
        "nobody": [],
    }

    def seen(role: TokenRole, session_id: SessionId | None) -> set[str]:
        return {name for name, line in lines.items() if may_see(viewer(role, session_id), event_type, line)}

    is_private = event_type in FOR_PERSONS
    assert seen(TokenRole.PERSON, None) == set(lines)
    assert seen(TokenRole.SESSION, CHILD) == (set() if is_private else {"child", "grandchild"})
    assert seen(TokenRole.CHILD, CHILD) == (set() if is_private else {"child"})
    assert seen(TokenRole.CHILD, None) == set()
    assert seen(TokenRole.SESSION, None) == set()
    assert seen(TokenRole.LOGIN, None) == set()


def test_globs_name_types() -> None:
    assert types_matching(["approval.*", "server.changed"]) == {
        EventType.APPROVAL_REQUESTED,
        EventType.APPROVAL_DECIDED,
        EventType.APPROVAL_EXPIRED,
        EventType.APPROVAL_CANCELLED,
        EventType.APPROVAL_FINISHED,
        EventType.APPROVAL_REFUSED,
        EventType.SERVER_CHANGED,
    }


@pytest.mark.parametrize("glob", ["", "aproval.*", "Approval.*"])
def test_a_glob_that_names_no_type_is_refused_with_the_types_there_are(glob: str) -> None:
    with pytest.raises(Invalid, match="no type of event matches") as caught:
        types_matching(["approval.*", glob])
    assert "approval.requested" in str(caught.value.hint)


def test_the_page_on_events_explains_every_type_in_the_order_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", page, re.MULTILINE)
    assert explained == list(EventType)
