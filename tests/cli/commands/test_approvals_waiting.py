"""`pml approvals ask --wait` and `watch`: real processes that wait, answered or interrupted from outside."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, Pml, Ran, run_process, spawn
from tests.promises import promise

OK, DENIED, GONE, DECIDED, INTERRUPTED = 0, 3, 5, 6, 130
TOOL = "github:create_issue"
INPUT = '{"title": "it is broken"}'
ESCAPE = "\x1b]0;owned\x07"


class Waiting:
    """An asker in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self._err = ""

    def until_asked(self) -> str:
        """Return the whole id of the question, once its card is on stderr and the wait has begun."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._err += line
            if line.startswith("waiting for an answer"):
                return self._err.partition("  id")[2].split()[0]
        raise AssertionError(f"ended without waiting: {self._err}")

    def end(self) -> Ran:
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return Ran(code=self.process.returncode, out=out, err=self._err + err)


@contextlib.contextmanager
def asking(*argv: str, tool: str = TOOL, text: str = INPUT) -> Generator[Waiting]:
    process = spawn(["approvals", "ask", tool, text, "--wait", *argv])
    try:
        yield Waiting(process)
    finally:
        process.kill()
        process.communicate()


def test_an_answer_from_another_process_is_told_with_the_edited_arguments(pml: Pml) -> None:
    with asking() as asker:
        asked = asker.until_asked()
        answered = run_process(
            "approvals", "allow", asked[:8], "--input", '{"title": "edited"}', "--message", "go on"
        )
        ran = asker.end()

    assert answered.code == OK
    assert ran.code == OK
    assert ran.out.startswith("allowed by person ")
    assert ran.out.endswith('as {"title": "edited"}: go on\n')
    assert pml.status(asked) == "completed"


def test_the_card_with_the_question_stands_on_stderr_before_the_wait(pml: Pml) -> None:
    with asking() as asker:
        asked = asker.until_asked()
        pml("approvals", "allow", asked)
        ran = asker.end()

    assert ran.err.startswith(f"Approval required to call {TOOL}")
    assert '"title": "it is broken"' in ran.err
    assert f"pml approvals allow {asked[:8]}" in ran.err
    assert "Ctrl-C withdraws the question" in ran.err


def test_as_json_only_the_answer_is_printed(pml: Pml) -> None:
    with asking("--json", "--session", "robot") as asker:
        asked = ""
        while not asked:  # ended by the test's own time limit
            found = pml("approvals", "list", "--json").json["approvals"]
            asked = found[0]["id"] if found else ""
        pml("approvals", "allow", asked, "--input", '{"title": "edited"}')
        ran = asker.end()

    assert (ran.code, ran.err) == (OK, "")
    assert ran.json["answer"] == "allowed"
    assert ran.json["input"] == {"title": "edited"}
    assert (ran.json["approval"]["id"], ran.json["approval"]["session"]) == (asked, "robot")


@promise("expiry:not-denial")
def test_a_denial_is_told_with_its_message(pml: Pml) -> None:
    with asking() as asker:
        pml("approvals", "deny", asker.until_asked(), "--message", "not today")
        ran = asker.end()

    assert ran.code == DENIED
    assert ran.out.startswith("denied by person ")
    assert ran.out.endswith(": not today\n")


@promise("expiry:not-denial")
def test_a_question_that_nobody_answers_is_told_as_expired(pml: Pml, pml_home: Path) -> None:
    pml_home.mkdir(mode=0o700)
    (pml_home / "config.json").write_text('{"approval": {"ttl_s": 1}}')

    ran = pml("approvals", "ask", TOOL, "--wait", "--json")

    assert (ran.code, ran.json["answer"]) == (GONE, "expired")
    assert ran.json["input"] is None
    late = pml("approvals", "allow", ran.json["approval"]["id"])
    assert late.code == GONE
    assert "was not decided by" in late.err


@promise("expiry:not-denial")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_asker_that_is_interrupted_withdraws_its_question(pml: Pml, number: signal.Signals) -> None:
    with asking() as asker:
        asked = asker.until_asked()
        asker.process.send_signal(number)
        ran = asker.end()

    assert (ran.code, ran.out) == (INTERRUPTED, "")
    assert "Traceback" not in ran.err
    shape = pml("approvals", "show", asked, "--json").json
    assert (shape["status"], shape["reason"]) == ("cancelled", "the asker stopped waiting")
    assert pml("approvals", "allow", asked).code == DECIDED


@promise("approval:survives-restart")
def test_a_question_whose_asker_was_killed_is_still_there_and_can_be_asked_again(pml: Pml) -> None:
    with asking("--session", "robot") as asker:
        asked = asker.until_asked()
        asker.process.kill()
        asker.end()
    assert pml.status(asked) == "pending"
    pml("approvals", "allow", asked)

    ran = pml("approvals", "ask", TOOL, INPUT, "--session", "robot", "--json")

    assert (ran.code, ran.json["approval"]["id"]) == (OK, asked)


@promise("run:at-most-once")
def test_of_two_processes_that_wait_for_one_answer_one_gets_it(pml: Pml) -> None:
    with asking("--session", "robot") as one, asking("--session", "robot") as two:
        asked = one.until_asked()
        assert two.until_asked() == asked
        pml("approvals", "allow", asked)
        codes = sorted([one.end().code, two.end().code])

    assert codes == [OK, DECIDED]


@promise("show:nothing-hidden")
def test_no_escape_sequence_from_outside_reaches_a_waiting_terminal(pml: Pml) -> None:
    text = json.dumps({"text": ESCAPE})
    with asking("--session", f"robot{ESCAPE}", text=text) as asker:
        asked = asker.until_asked()
        pml("approvals", "allow", asked, "--input", text, "--message", ESCAPE)
        ran = asker.end()

    assert {char for char in ran.out + ran.err if not char.isprintable()} == {"\n"}
    assert "owned" in ran.out


# --- watch


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@contextlib.contextmanager
def watching(*argv: str) -> Generator["subprocess.Popen[str]"]:
    process = spawn(["approvals", "watch", *argv])
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_watch_tells_what_waits_and_then_everything_that_happens(pml: Pml) -> None:
    waiting = pml.ask("a:b")
    with watching() as watch:
        first = line_of(watch)
        asked = pml.ask(TOOL, INPUT)
        second = line_of(watch)
        pml("approvals", "deny", asked)
        third = line_of(watch)
        watch.send_signal(signal.SIGTERM)
        watch.communicate(timeout=TIMEOUT_S)

    assert first.split()[1:] == ["requested", waiting[:8], "a:b", "[robot]", "{}"]
    assert second.split()[1:5] == ["requested", asked[:8], TOOL, "[robot]"]
    assert second.rstrip().endswith(INPUT)
    assert third.split()[1:6] == ["denied", asked[:8], TOOL, "[robot]", "by"]
    assert watch.returncode == INTERRUPTED


def test_watch_as_json_is_one_object_a_line(pml: Pml) -> None:
    asked = pml.ask(TOOL, INPUT)
    with watching("--json") as watch:
        requested = json.loads(line_of(watch))
        pml("approvals", "allow", asked)
        allowed = json.loads(line_of(watch))

    assert (requested["kind"], requested["approval"]) == ("approval.requested", asked)
    assert requested["input"] == json.loads(INPUT)
    assert (allowed["kind"], allowed["approval"], allowed["tool"]) == ("approval.allowed", asked, TOOL)
    assert allowed["by"]["kind"] == "person"
    assert set(allowed) == {
        "seq", "chain", "n", "at", "kind", "approval", "session", "tool", "by", "detail", "hash",
            "session_name",
    }  # fmt: skip


def test_watch_ends_quietly_when_its_reader_has_gone(pml: Pml) -> None:
    with watching() as watch:
        pml.ask("a:b")
        line_of(watch)
        assert watch.stdout is not None
        watch.stdout.close()
        watch.stdout = None
        pml.ask("a:c")
        _, err = watch.communicate(timeout=TIMEOUT_S)

    assert err == ""


@promise("show:nothing-hidden")
def test_no_escape_sequence_from_outside_reaches_a_watching_terminal(pml: Pml) -> None:
    with watching() as watch:
        pml.ask("a:b", json.dumps({"text": ESCAPE}), session=f"robot{ESCAPE}")
        line = line_of(watch)

    assert {char for char in line if not char.isprintable()} == {"\n"}
    assert "owned" in line
