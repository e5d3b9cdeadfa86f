"""`pml hook` as Claude Code starts it: a process of its own beneath a client, answered from outside.

The client is a stand-in that starts the hook and waits for it; without it the test itself would be the agent.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.commands import TIMEOUT_S, Pml
from tests.promises import promise

BLOCKED: Final = 2
# It outlives its hook, as Claude Code does: a question must not be over only because the client is.
CLIENT: Final = """
import os, signal, subprocess, sys
hook = subprocess.Popen(sys.argv[1:])
os.close(1)
print("hook", hook.pid, file=sys.stderr, flush=True)
print("ended", hook.wait(), file=sys.stderr, flush=True)
signal.pause()
"""
COMMAND: Final = {"command": "make deploy", "description": "deploy"}


def asks(tool: str = "Bash", **more: object) -> dict[str, object]:
    """What Claude Code writes to the hook's standard input."""
    return {
        "session_id": "9f1c",
        "transcript_path": "/t.jsonl",
        "cwd": "/",
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": COMMAND,
        "tool_use_id": "toolu_1",
        **more,
    }


class Hook:
    """A hook that runs beneath a client."""

    def __init__(self, given: bytes, *options: str, env: Mapping[str, str]) -> None:
        words = [sys.executable, "-I", "-m", "pml", "hook", "--home", os.environ["PML_HOME"], *options]
        self.client = subprocess.Popen(
            [sys.executable, "-I", "-c", CLIENT, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "CLAUDECODE": "1", **env},
        )
        assert self.client.stdin is not None
        self.client.stdin.write(given)
        self.client.stdin.close()
        self.pid = int(self._line("hook").split()[1])

    def until_asked(self) -> str:
        """Return the id of the question, once it waits."""
        return self._line("waiting for an answer").split()[-1]

    def _line(self, text: str) -> str:
        """Return the line that has `text`, with those before it."""
        assert self.client.stderr is not None
        seen = ""
        for raw in self.client.stderr:
            seen += raw.decode()
            if text in seen:
                return seen
        raise AssertionError(f"the client ended: {seen}")

    def end(self) -> tuple[int, Any, str]:
        """Return the exit code, the answer (None: nothing was printed) and stderr."""
        assert self.client.stdout is not None
        out = self.client.stdout.read()
        err, _, code = self._line("ended").rpartition("ended")
        return int(code), json.loads(out)["hookSpecificOutput"] if out else None, err


@contextlib.contextmanager
def hooked(
    given: Mapping[str, object] | bytes, *options: str, env: Mapping[str, str] | None = None
) -> Generator[Hook]:
    text = given if isinstance(given, bytes) else json.dumps(given).encode()
    hook = Hook(text, *(options or ("--timeout", "600")), env=env or {})
    try:
        yield hook
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(hook.pid, signal.SIGKILL)
        hook.client.kill()
        for stream in (hook.client.stdout, hook.client.stderr):
            assert stream is not None
            stream.close()
        hook.client.wait(timeout=TIMEOUT_S)


def answered(given: Mapping[str, object] | bytes, *options: str, env: Mapping[str, str] | None = None) -> Any:
    """Return what a hook answered that had nobody to wait for."""
    with hooked(given, *options, env=env) as hook:
        code, answer, err = hook.end()
    assert code == 0, err
    return answer


@promise("hook:same-rules")
def test_a_rule_answers_at_once_and_a_deny_names_itself(pml: Pml) -> None:
    pml("rules", "allow", "Bash")
    pml("rules", "deny", "Write")
    allowed = answered(asks())
    assert (allowed["hookEventName"], allowed["permissionDecision"]) == ("PreToolUse", "allow")
    assert "updatedInput" not in allowed
    denied = answered(asks("Write"))
    assert denied["permissionDecision"] == "deny"
    assert denied["permissionDecisionReason"].startswith("Tool Write is denied by user config (")


@promise("hook:same-rules")
def test_what_no_rule_names_waits_in_the_inbox_and_the_edited_input_is_what_runs(pml: Pml) -> None:
    with hooked(asks()) as hook:
        asked = hook.until_asked()
        [shown] = pml("approvals", "list", "--json").json["approvals"]
        assert (shown["id"], shown["tool"]) == (asked, "Bash")
        assert pml("approvals", "allow", asked, "--input", '{"command": "make test"}').code == 0
        code, answer, _ = hook.end()
    assert (code, answer["permissionDecision"]) == (0, "allow")
    assert answer["updatedInput"] == {"command": "make test"}
    assert pml.status(asked) == "completed"


def test_a_persons_no_reaches_the_model_with_their_words(pml: Pml) -> None:
    with hooked(asks()) as hook:
        pml("approvals", "deny", hook.until_asked(), "--message", "use the staging server")
        code, answer, _ = hook.end()
    assert (code, answer["permissionDecision"]) == (0, "deny")
    assert "use the staging server" in answer["permissionDecisionReason"]


def test_a_permission_request_is_answered_in_its_own_shape(pml: Pml) -> None:
    request = asks(hook_event_name="PermissionRequest")
    del request["tool_use_id"]
    pml("rules", "allow", "Bash")
    assert answered(request) == {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
    pml("rules", "deny", "Bash")
    denied = answered(request)["decision"]
    assert (denied["behavior"], "denied by user config" in denied["message"]) == ("deny", True)


@promise("hook:fails-closed")
@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"not json",
        b"[]",
        b'{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_name": "Read"}',
        json.dumps(asks(hook_event_name="PostToolUse")).encode(),
        json.dumps(asks(tool_input="make deploy")).encode(),
        json.dumps(asks(tool_use_id=7)).encode(),
        json.dumps(asks(session_id="")).encode(),
        b'{"hook_event_name": "PreToolUse"}',
    ],
)
def test_input_that_is_not_understood_blocks_the_tool(pml: Pml, given: bytes) -> None:
    pml("rules", "allow", "*")
    with hooked(given) as hook:
        code, answer, err = hook.end()
    assert (code, answer) == (BLOCKED, None)
    assert err.startswith("pml: ")
    assert err.count("\n") == 1


@promise("hook:fails-closed")
def test_a_store_that_cannot_be_used_blocks_the_tool(pml: Pml, pml_home: Path) -> None:
    pml("rules", "allow", "*")
    (pml_home / "pml.db").write_bytes(b"no database" * 1000)
    with hooked(asks()) as hook:
        code, answer, err = hook.end()
    assert (code, answer, err.startswith("pml: ")) == (BLOCKED, None, True)


@promise("hook:fails-closed")
def test_a_hook_without_time_blocks_the_tool(pml: Pml) -> None:
    pml("rules", "allow", "*")
    with hooked(asks(), "--timeout", "5") as hook:
        code, answer, _ = hook.end()
    assert (code, answer) == (BLOCKED, None)


@promise("hook:fails-closed")
def test_a_mistake_of_our_own_blocks_the_tool(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(asks()).encode())))
    monkeypatch.setattr("pml.app.open_context", broken)
    ran = pml("hook", "--timeout", "600")
    assert (ran.code, ran.out, ran.err) == (BLOCKED, "", "pml: internal error: RuntimeError\n")


def test_it_says_that_time_is_over_before_its_client_ends_it(pml: Pml) -> None:
    with hooked(asks(), "--timeout", "6") as hook:
        asked = hook.until_asked()
        code, answer, _ = hook.end()
        assert pml.status(asked) == "cancelled"
    assert (code, answer["permissionDecision"]) == (0, "deny")
    assert answer["permissionDecisionReason"] == (
        "Approval timed out: nobody answered within a minute, and the tool did not run. "
        "It can be asked again."
    )


def test_a_question_waits_as_long_as_the_hook_whatever_the_settings_say(pml: Pml, pml_home: Path) -> None:
    pml_home.mkdir(exist_ok=True)
    (pml_home / "config.json").write_text('{"approval": {"ttl_s": 1}}')
    with hooked(asks(), "--timeout", "3600") as hook:
        asked = pml("approvals", "show", hook.until_asked(), "--json").json
    made_at, ends_at = (datetime.fromisoformat(asked[name]) for name in ("created_at", "expires_at"))
    assert (ends_at - made_at).total_seconds() == 3595  # what the hook needs to answer itself is left out


@promise("hook:fails-closed")
def test_a_hook_that_its_client_ends_takes_its_question_back_and_blocks_the_tool(pml: Pml) -> None:
    with hooked(asks()) as hook:
        asked = hook.until_asked()
        os.kill(hook.pid, signal.SIGTERM)
        code, answer, err = hook.end()
        assert pml.status(asked) == "cancelled"
    assert (code, answer) == (BLOCKED, None)
    assert "cancelled" in err


def test_the_question_of_a_client_that_was_killed_is_taken_back(pml: Pml) -> None:
    with hooked(asks()) as hook:
        asked = hook.until_asked()
        hook.client.kill()
        assert hook.client.stderr is not None
        said = hook.client.stderr.read().decode()  # ends with the hook, which holds the other end
    assert "the client is gone" in said
    assert pml.status(asked) == "cancelled"


@promise("hook:same-rules")
def test_a_command_that_names_pml_is_asked_though_a_rule_allows_every_command(pml: Pml) -> None:
    pml("rules", "allow", "Bash")
    with hooked(asks(tool_input={"command": "pml approvals allow 1"})) as hook:
        pml("approvals", "deny", hook.until_asked())
        _, answer, _ = hook.end()
    assert answer["permissionDecision"] == "deny"


def test_a_tool_of_a_server_that_only_calls_itself_pml_is_asked_like_any_other(pml: Pml) -> None:
    with hooked(asks("mcp__pml__shell")) as hook:
        pml("approvals", "deny", hook.until_asked())
        _, answer, _ = hook.end()
    assert answer["permissionDecision"] == "deny"


def test_the_rules_are_those_of_the_clients_project_wherever_the_agent_has_gone(
    pml: Pml, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pml("rules", "deny", "Bash")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    denied = answered(asks(cwd=str(elsewhere)), env={"CLAUDE_PROJECT_DIR": str(workspace)})
    assert denied["permissionDecision"] == "deny"


def test_a_project_that_sets_variables_for_hooks_changes_neither_its_home_nor_its_code(
    pml: Pml, workspace: Path, tmp_path: Path
) -> None:
    pml("rules", "deny", "Bash", "--user")
    (workspace / "msgspec.py").write_text("raise SystemExit(0)")
    env = {"PML_HOME": str(tmp_path / "other"), "PYTHONPATH": str(workspace)}
    assert answered(asks(), env=env)["permissionDecision"] == "deny"


def test_whoever_tries_it_by_hand_is_not_taken_for_an_agent(pml: Pml) -> None:
    with hooked(asks(), env={"CLAUDECODE": ""}) as hook:
        assert pml("approvals", "allow", hook.until_asked()).code == 0
        assert hook.end()[1]["permissionDecision"] == "allow"
        assert json.loads(pml("sessions", "list", "--json").out)["sessions"] == []
