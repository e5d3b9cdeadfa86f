"""`pml audit`: what happened can be found again, and what was changed afterwards shows."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.commands import Pml
from tests.promises import promise


def run_sql(pml_home: Path, *statements: str) -> None:
    """Change the database behind PML's back, past its triggers."""
    connection: Any = apsw.Connection(str(pml_home / "pml.db"))
    try:
        connection.execute("DROP TRIGGER audit_is_not_edited; DROP TRIGGER audit_is_not_removed")
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


@pytest.fixture
def history(pml: Pml) -> None:
    """Live a little: two questions, an allow that is collected, a deny, a rule."""
    pml("init")
    allowed = pml.ask("github:create_issue", '{"title": "hi"}')
    pml("approvals", "allow", allowed)
    pml.ask("github:create_issue", '{"title": "hi"}')
    denied = pml.ask("db:drop", session="other")
    pml("approvals", "deny", denied, "--message", "no")
    pml("rules", "deny", "db:*")


def kinds(pml: Pml, *argv: str) -> list[str]:
    return [each["kind"] for each in pml("audit", "list", "--json", *argv).json["entries"]]


ALL = [
    "workspace.trusted",
    "session.started",
    "approval.requested",
    "approval.allowed",
    "approval.completed",
    "session.started",
    "approval.requested",
    "approval.denied",
    "workspace.trusted",
    "rule.added",
]

# --- list


@pytest.mark.usefixtures("history")
def test_everything_that_happened_is_listed_in_its_order(pml: Pml) -> None:
    found = [kind for kind in kinds(pml) if kind != "approval.attached"]
    assert found == ALL


@pytest.mark.usefixtures("history")
def test_an_entry_tells_who_decided_what_and_when(pml: Pml) -> None:
    (entry,) = pml("audit", "list", "--decider", "person", "--tool", "db:drop", "--json").json["entries"]
    assert entry["by"] == {"kind": "person", "id": entry["by"]["id"], "channel": "terminal"}
    assert (entry["kind"], entry["session"], entry["tool"]) == ("approval.denied", "other", "db:drop")
    line = pml("audit", "list", "--decider", entry["by"]["id"], "--tool", "db:drop").out.splitlines()[1]
    assert f"db:drop, by person `{entry['by']['id']}` (terminal)" in line


@pytest.mark.usefixtures("history")
def test_entries_are_found_by_session_tool_approval_and_time(pml: Pml) -> None:
    assert kinds(pml, "--session", "other") == ["session.started", "approval.requested", "approval.denied"]
    assert kinds(pml, "--tool", "db:drop") == ["approval.requested", "approval.denied"]
    approval = pml("audit", "list", "--tool", "db:drop", "--json").json["entries"][0]["approval"]
    assert kinds(pml, "--approval", approval[:8]) == ["approval.requested", "approval.denied"]
    assert kinds(pml, "--since", "1h") == kinds(pml)
    assert kinds(pml, "--until", "1h") == []
    assert kinds(pml, "--since", "2020-01-01T00:00:00Z", "--until", "2020-01-02T00:00:00+01:00") == []


@pytest.mark.usefixtures("history")
def test_a_day_is_its_midnight_in_utc(pml: Pml, pml_home: Path) -> None:
    midnight = round(datetime(2020, 1, 2, tzinfo=UTC).timestamp() * 1_000_000)
    run_sql(
        pml_home,
        f"UPDATE audit SET at = {midnight} WHERE n = 1",
        f"UPDATE audit SET at = {midnight - 1} WHERE n = 2",
    )
    assert kinds(pml, "--since", "2020-01-02", "--until", "2020-01-03") == ALL[:1]
    assert kinds(pml, "--until", "2020-01-02") == ALL[1:2]


@pytest.mark.usefixtures("history")
def test_the_newest_come_first_to_hand_and_pages_lead_through_all(pml: Pml) -> None:
    every = kinds(pml)
    assert kinds(pml, "--limit", "2") == every[-2:]
    paged: list[str] = []
    after = 0
    while entries := pml("audit", "list", "--after", str(after), "--limit", "3", "--json").json["entries"]:
        paged += [each["kind"] for each in entries]
        after = entries[-1]["seq"]
    assert paged == every


@pytest.mark.usefixtures("history")
def test_an_approval_that_was_cleaned_up_is_still_found_by_its_whole_id(pml: Pml, pml_home: Path) -> None:
    entry = pml("audit", "list", "--tool", "db:drop", "--json").json["entries"][0]
    run_sql(pml_home, "DELETE FROM approvals")
    assert kinds(pml, "--approval", entry["approval"]) == ["approval.requested", "approval.denied"]
    assert pml("audit", "list", "--approval", entry["approval"][:8]).code == 5


class TwinIds:
    """Ids that begin alike."""

    def new(self) -> str:
        return "abc" + str(uuid.uuid4())[3:]


@pytest.mark.usefixtures("history")
def test_an_approval_that_is_not_known_or_not_the_only_one_is_told(
    pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = pml("audit", "list", "--approval", "ffff")
    assert (ran.code, ran.out) == (5, "")
    assert "no approval `ffff`" in ran.err
    monkeypatch.setattr("pml.app.RandomIds", TwinIds)
    pml.ask("a:b")
    pml.ask("a:c")
    ran = pml("audit", "list", "--approval", "abc")
    assert (ran.code, "several approvals begin with `abc`" in ran.err) == (1, True)


@pytest.mark.parametrize(
    "argv",
    [
        ("--since", "yesterday"),
        ("--since", "2027-02-30"),
        ("--since", "20270131"),
        ("--since", "2027-01-31T08:00:00"),
        ("--since", "-1h"),
        ("--since", "999999999w"),
        ("--until", ""),
        ("--limit", "0"),
        ("--limit", "many"),
        ("--tool", ":x"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(pml: Pml, argv: tuple[str, ...]) -> None:
    assert pml("audit", "list", *argv).code == 2


def test_an_empty_log_is_no_error(pml: Pml) -> None:
    assert (pml("audit", "list").out, pml("audit", "list", "--json").json) == (
        "no entries\n",
        {"entries": []},
    )
    assert pml("audit", "verify").code == 0


# --- verify


@pytest.mark.usefixtures("history")
def test_a_log_that_nobody_touched_verifies(pml: Pml) -> None:
    ran = pml("audit", "verify", "--json")
    assert ran.code == 0
    assert ran.json == {"ok": True, "chains": 1, "entries": len(kinds(pml)), "problems": []}
    assert pml("audit", "verify").out.startswith("ok: ")


SWAP = """
    UPDATE audit SET n = -n WHERE n IN (3, 4);
    UPDATE audit SET n = 3 WHERE n = -4;
    UPDATE audit SET n = 4 WHERE n = -3;
"""


def lose_head(home: Path) -> None:
    (home / "audit" / "0001").unlink()


def tamper(*statements: str) -> Callable[[Path], None]:
    return lambda home: run_sql(home, "PRAGMA ignore_check_constraints = ON", *statements)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (tamper("UPDATE audit SET tool = 'fs:read' WHERE n = 3"), "entry 3 was edited"),
        (tamper("UPDATE audit SET by_id = 'mallory' WHERE kind = 'approval.allowed'"), "was edited"),
        (tamper("UPDATE audit SET at = at + 1 WHERE n = 3"), "entry 3 was edited"),
        (tamper("UPDATE audit SET detail = '{}' WHERE n = 3"), "entry 3 was edited"),
        (tamper("DELETE FROM audit WHERE n = 3"), "entry 4 stands where entry 3 should be"),
        (tamper("DELETE FROM audit WHERE n = 1"), "entry 2 stands where entry 1 should be"),
        (
            tamper("DELETE FROM audit WHERE n = 3", "UPDATE audit SET n = n - 1 WHERE n > 3"),
            "does not follow",
        ),
        (tamper(SWAP), "entry 3"),
        (tamper("DELETE FROM audit WHERE n > 3"), "its tail was cut off"),
        (tamper("DELETE FROM audit WHERE n = (SELECT max(n) FROM audit)"), "its tail was cut off"),
        (tamper("DELETE FROM audit"), "its tail was cut off"),
        (lose_head, "has no head kept outside the database"),
    ],
    ids=[
        "tool-edited",
        "decider-edited",
        "time-edited",
        "detail-edited",
        "one-removed",
        "first-removed",
        "removed-and-renumbered",
        "reordered",
        "tail-cut",
        "last-cut",
        "chain-removed",
        "head-lost",
    ],
)
@pytest.mark.usefixtures("history")
@promise("audit:tamper-shows")
def test_whatever_is_done_to_the_log_afterwards_shows(
    pml: Pml, pml_home: Path, change: Callable[[Path], None], complaint: str
) -> None:
    change(pml_home)
    ran = pml("audit", "verify")
    assert ran.code == 1
    assert complaint in ran.out
    assert "the audit log was changed" in ran.err
    shape = pml("audit", "verify", "--json").json
    assert shape["ok"] is False
    assert any(complaint in problem["what"] for problem in shape["problems"])


@pytest.mark.usefixtures("history")
@promise("audit:tamper-shows")
def test_what_was_done_to_the_log_still_shows_after_more_has_happened(pml: Pml, pml_home: Path) -> None:
    run_sql(pml_home, "DELETE FROM audit WHERE n > 3")
    pml.ask("fs:read")
    ran = pml("audit", "verify", "--json")
    assert (ran.code, ran.json["chains"]) == (1, 2)
    (problem,) = ran.json["problems"]
    assert (problem["chain"], "its tail was cut off" in problem["what"]) == ("0001", True)


@pytest.mark.usefixtures("history")
@promise("audit:tamper-shows")
def test_a_database_that_was_replaced_by_an_empty_one_shows(pml: Pml, pml_home: Path) -> None:
    for path in pml_home.glob("pml.db*"):
        path.unlink()
    assert pml("audit", "verify").code == 1
