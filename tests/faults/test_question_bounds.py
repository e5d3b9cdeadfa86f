"""Questions that are too large, or too many: refused with the reason at every door, and seen by people."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pml.core.approvals.bounds import MAX_INPUT_BYTES, MAX_INPUT_VALUES, MAX_PENDING, MAX_PENDING_BYTES
from pml.core.sessions.token import TokenRole
from tests.commands import Pml
from tests.faults.gateways import Place, Served, Visitor, opened, read, serving
from tests.promises import promise
from tests.upstream.fleets import ODD

TOO_LARGE = {"text": "x" * MAX_INPUT_BYTES}
LARGE = {"text": "x" * (MAX_INPUT_BYTES - 1000)}
TOO_MANY = {"rows": [0] * MAX_INPUT_VALUES}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.configure({"command": sys.executable, "args": [str(ODD)]})
    place.rule(ask=["odd:*", "Write"])
    return place


@pytest.fixture
def served(place: Place) -> Generator[Served]:
    with serving(place) as served:
        yield served


def refusals(place: Place) -> list[dict[str, Any]]:
    entries = place.run("audit", "list")["entries"]
    return [each for each in entries if each["kind"] == "approval.refused"]


def notices(place: Place, served: Served) -> list[dict[str, Any]]:
    return read(served.where, place.token(TokenRole.PERSON), "/api/inbox?limit=1")["notices"]


@pytest.mark.parametrize(
    ("arguments", "reason"), [(TOO_LARGE, "at most 1,048,576"), (TOO_MANY, "more than 20,000 values")]
)
@pytest.mark.parametrize("modern", [False, True])
@promise("approval:bounded-asks")
def test_over_stdio_a_question_that_is_too_large_is_refused_and_noticed(
    place: Place, served: Served, modern: bool, arguments: dict[str, Any], reason: str
) -> None:
    with opened(place, modern=modern) as client:
        client.send(1, "tools/call", {"name": "odd__echo", "arguments": arguments})
        result = client.answer(1)["result"]
    assert result["isError"]
    assert result["structuredContent"]["error"]["code"] == "too_large"
    assert reason in result["content"][0]["text"]
    assert [each["tool"] for each in refusals(place)] == ["odd:echo"]
    [notice] = notices(place, served)
    assert (notice["tool"], notice["count"]) == ("odd:echo", 1)
    assert reason in notice["text"]
    assert place.run("approvals", "list", "--all")["approvals"] == []


@promise("approval:bounded-asks")
def test_over_http_permission_for_what_is_too_large_is_refused_and_noticed(
    place: Place, served: Served
) -> None:
    client = Visitor(served.where, place.token(TokenRole.SESSION))
    arguments = {"tool_name": "Write", "input": TOO_LARGE, "tool_use_id": "toolu_1"}
    [content] = client.call({"name": "loopback_permit", "arguments": arguments})["content"]
    answer = json.loads(content["text"])
    assert answer["behavior"] == "deny"
    assert "at most 1,048,576" in answer["message"]
    assert [each["tool"] for each in refusals(place)] == ["Write"]
    assert [each["tool"] for each in notices(place, served)] == ["Write"]


@promise("approval:bounded-asks")
def test_what_is_allowed_may_be_larger_than_a_question(place: Place) -> None:
    place.rule(allow=["odd:*"])
    with opened(place, modern=False) as client:
        client.send(1, "tools/call", {"name": "odd__echo", "arguments": TOO_LARGE})
        result = client.answer(1)["result"]
    assert not result.get("isError")
    assert json.loads(result["content"][0]["text"]) == TOO_LARGE


@promise("approval:bounded-asks")
def test_a_session_has_so_many_bytes_waiting_and_no_more(place: Place, served: Served) -> None:
    with opened(place, modern=False) as client:
        codes: list[str | None] = []
        for n in range(1, 6):
            client.send(n, "tools/call", {"name": "odd__echo", "arguments": {**LARGE, "n": n}})
            result = client.answer(n)["result"]
            codes.append(result.get("structuredContent", {}).get("error", {}).get("code"))
    assert codes == [None] * 4 + ["too_many_pending"]
    waiting = place.run("approvals", "list")["approvals"]
    assert len(waiting) == MAX_PENDING_BYTES // MAX_INPUT_BYTES
    assert [(each["input"], each["omitted"]) for each in waiting] == [(None, ["input"])] * 4
    assert [each["count"] for each in notices(place, served)] == [1]


@promise("approval:bounded-asks")
def test_from_the_command_line_the_twenty_first_question_is_refused_and_noticed(
    place: Place, served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.workspace)
    pml = Pml(capsys)
    for n in range(MAX_PENDING):
        pml.ask("Write", json.dumps({"n": n}))
    asking = place.pml(
        *("approvals", "ask", "Write", "{}", "--session", "robot"),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, errors = asking.communicate()
    assert asking.returncode != 0
    assert b"already has 20 questions waiting" in errors
    assert [each["tool"] for each in refusals(place)] == ["Write"]
    [notice] = notices(place, served)
    assert "robot" in notice["text"]
    assert "already has 20 questions waiting" in notice["text"]
