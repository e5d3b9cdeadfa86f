"""`pml launch` with the real Claude Code: a stand-in is the hub, the terminal is the person's."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pml.hub.presence import Presence, sole_hub
from tests.agents.launching import claude_binary, offline
from tests.agents.stand_in_hub import Asked, StandInHub, allow, hub_answering
from tests.cli.terminals import Terminal
from tests.commands import TIMEOUT_S, Pml, Ran, spawn
from tests.e2e.installed import bare_environment
from tests.e2e.messages_api import LAST_WORD, MessagesApi, Turn, Use, scripted
from tests.promises import promise

DENIED, GONE = 3, 5
TOUCH = Use(tool="Bash", arguments={"command": "touch made", "description": "make a file"})


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a person types `pml launch`."""

    api: MessagesApi
    hub: StandInHub
    environment: dict[str, str]

    def start(self, *options: str, claude: tuple[str, ...]) -> subprocess.Popen[str]:
        command = (sys.executable, "-m", "pml", "launch", *options, "--", claude_binary(), *claude)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def launch(self, *options: str, claude: tuple[str, ...], stdin: str = "") -> Ran:
        with _ended(self.start(*options, claude=claude)) as process:
            out, err = process.communicate(stdin, timeout=TIMEOUT_S)
        return Ran(code=process.returncode, out=out, err=err)


MakeContext = Callable[..., Context]


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Generator[subprocess.Popen[str]]:
    """Give the process, and end it where the test has not."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


@pytest.fixture
def context(workspace: Path, home: Path, tmp_path: Path) -> Generator[MakeContext]:
    with ExitStack() as stack:

        def make(
            *script: Turn, answer: Callable[[Asked], dict[str, Any]] = allow, hub_runs: bool = True
        ) -> Context:
            api = stack.enter_context(scripted(*script))
            hub = stack.enter_context(hub_answering(answer))
            if hub_runs:
                announce = stack.enter_context(sole_hub(home / ".pml"))
                announce(Presence(url=hub.url, pid=os.getpid(), started_at=datetime.now(UTC)))
            runtime = tmp_path / "run"
            runtime.mkdir(mode=0o700)
            own = {"PML_HOME": str(home / ".pml"), "XDG_RUNTIME_DIR": str(runtime)}
            return Context(api=api, hub=hub, environment={**bare_environment(home), **offline(api), **own})

        yield make


def _left(workspace: Path) -> list[str]:
    """Return what is left of configurations."""
    return [str(path) for path in (workspace.parent / "run").rglob("*") if path.is_file()]


def test_its_tools_are_asked_for_its_result_is_printed_and_all_is_recorded(
    context: MakeContext, pml: Pml, workspace: Path
) -> None:
    made = context(TOUCH)
    ran = made.launch("--loopback", "--name", "tester", claude=("-p", "make it"))
    assert (ran.code, ran.out) == (0, f"{LAST_WORD}\n")
    assert "pml approvals list" in ran.err
    assert [each["tool_name"] for each in made.hub.asked] == ["Bash"]
    [session] = [each for each in pml("sessions", "list", "--all", "--json").json["sessions"] if each["run"]]
    assert (session["name"], session["state"], session["run"]["turns"]) == ("tester", "done", 2)
    messages = pml("sessions", "messages", session["id"], "--json").json["messages"]
    assert [each["text"] for each in messages] == ["Bash: touch made", LAST_WORD, LAST_WORD]
    assert _left(workspace) == []


def test_without_a_hub_one_runs_here_and_another_terminal_answers(
    context: MakeContext, pml: Pml, workspace: Path
) -> None:
    made = context(TOUCH, hub_runs=False)
    with _ended(spawn(["approvals", "watch", "--json"])) as watching:
        with _ended(made.start("--loopback", claude=("-p", "make it"))) as launched:
            assert watching.stdout is not None
            asked = json.loads(watching.stdout.readline())["approval"]
            allowed = pml("approvals", "allow", asked)
            out, err = launched.communicate("", timeout=TIMEOUT_S)
    assert allowed.code == 0
    assert (launched.returncode, out) == (0, f"{LAST_WORD}\n"), err
    assert "no hub runs, so one runs here" in err
    assert (workspace / "made").exists()
    assert made.hub.asked == []
    assert _left(workspace) == []


@contextmanager
def _at_terminal(made: Context, *words: str) -> Generator[Terminal]:
    """Run `pml launch --loopback` with its complaints on a terminal."""
    mine, theirs = pty.openpty()
    command = (sys.executable, "-m", "pml", "launch", "--loopback", *words, "--", claude_binary(), "-p", "go")
    process = subprocess.Popen(
        command,
        env={**made.environment, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    try:
        with _ended(process):
            yield Terminal(process, mine)
    finally:
        os.close(mine)


def _asked(terminal: Terminal) -> tuple[str, str]:
    """Return what the next line says that waits, and the id in the command that allows it."""
    terminal.until("pml: waits for an answer: ")
    what = terminal.until("\n").strip()
    terminal.until("       pml approvals allow ")
    return what, terminal.until("\n").strip()


@promise("launch:exit-code-tells")
def test_at_a_terminal_every_question_is_told_as_it_begins_to_wait_and_at_the_end_what_came_of_them(
    context: MakeContext, pml: Pml
) -> None:
    hidden = {"command": f"touch \u202e{'x' * 200}", "description": "make another"}
    made = context(TOUCH, Use(tool="Bash", arguments=hidden), hub_runs=False)
    with _at_terminal(made) as terminal:
        what, first = _asked(terminal)
        assert what == "Bash touch made"
        assert pml("approvals", "allow", first).code == 0
        what, second = _asked(terminal)
        assert what.startswith("Bash touch \\u{202e}xxx")
        assert what.endswith("x…")
        assert pml("approvals", "deny", second).code == 0
        terminal.until("pml: 1 allowed, 1 denied\n")
        terminal.until("pml: exit code 3: a person said no; that of the agent is 0\n")
        assert terminal.end() == (DENIED, f"{LAST_WORD}\n")


@promise("launch:exit-code-tells")
def test_at_a_terminal_it_is_told_that_nobody_answered(context: MakeContext, workspace: Path) -> None:
    with _at_terminal(context(TOUCH, hub_runs=False), "--timeout", "1") as terminal:
        _, asked = _asked(terminal)
        terminal.until(f"pml: nobody answered {asked} in time; it did not run\n")
        terminal.until("pml: 1 expired\n")
        terminal.until("pml: exit code 5: nobody answered in time; that of the agent is 0\n")
        assert terminal.end()[0] == GONE
    assert not (workspace / "made").exists()


@promise("launch:exit-code-tells")
@pytest.mark.parametrize(
    ("options", "code"), [((), 0), (("--fail-on-deny",), 3), (("--fail-on-deny", "--exit-code", "agent"), 0)]
)
def test_what_rules_deny_is_counted_and_an_exit_code_where_that_is_wanted(
    context: MakeContext, workspace: Path, options: tuple[str, ...], code: int
) -> None:
    (workspace / ".pml.json").write_text(json.dumps({"permissions": {"deny": ["Bash"]}}))
    ran = context(TOUCH, hub_runs=False).launch("--loopback", *options, claude=("-p", "make it"))
    assert (ran.code, ran.out) == (code, f"{LAST_WORD}\n"), ran.err
    assert "pml: 1 denied by rules\n" in ran.err
    assert ("pml: exit code 3" in ran.err) is (code == DENIED)


@promise("launch:exit-code-tells")
def test_without_a_terminal_a_persons_no_is_the_exit_code(
    context: MakeContext, pml: Pml, workspace: Path
) -> None:
    made = context(TOUCH, hub_runs=False)
    with _ended(spawn(["approvals", "watch", "--json"])) as watching:
        with _ended(made.start("--loopback", claude=("-p", "make it"))) as launched:
            assert watching.stdout is not None
            asked = json.loads(watching.stdout.readline())["approval"]
            assert pml("approvals", "deny", asked).code == 0
            _, err = launched.communicate("", timeout=TIMEOUT_S)
    assert (launched.returncode, "pml: 1 denied\n" in err) == (DENIED, True)
    assert not (workspace / "made").exists()


def test_what_comes_by_a_pipe_is_passed_on_and_the_form_is_the_persons(context: MakeContext) -> None:
    made = context()
    ran = made.launch(claude=("-p", "what is this?", "--output-format", "json"), stdin="the text")
    assert json.loads(ran.out)["result"] == LAST_WORD
    assert "what is this?\\nthe text" in json.dumps(made.api.conversations[0].messages)


def test_a_broken_file_is_told_in_one_line(context: MakeContext, workspace: Path) -> None:
    (workspace / ".pml.json").write_text("{")
    ran = context().launch(claude=("-p", "hi"))
    assert (ran.code, ran.out) == (0, f"{LAST_WORD}\n")
    (line,) = [line for line in ran.err.splitlines() if ".pml.json" in line]
    assert line.startswith("warning: ")


def test_its_exit_code_is_that_of_the_client(context: MakeContext) -> None:
    ran = context(TOUCH).launch("--loopback", claude=("-p", "make it", "--max-turns", "1"))
    assert ran.code == 1
    assert "maximum number of turns" in ran.out


@promise("launch:config-private-and-removed")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_launch_ends_the_agent_and_cleans_up(
    context: MakeContext, pml: Pml, workspace: Path, how: signal.Signals
) -> None:
    def interrupt(asked: Asked) -> dict[str, Any]:
        process.send_signal(how)
        process.wait(TIMEOUT_S)
        return allow(asked)

    made = context(TOUCH, answer=interrupt)
    with _ended(made.start("--loopback", claude=("-p", "make it"))) as process:
        _, err = process.communicate("", timeout=TIMEOUT_S)
    assert process.returncode == 130, err
    [session] = [each for each in pml("sessions", "list", "--all", "--json").json["sessions"] if each["run"]]
    assert (session["state"], session["run"]["result"]) == ("stopped", "interrupted")
    assert not (workspace / "made").exists()
    assert _left(workspace) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "nothing to launch"),
        (("--",), "nothing to launch"),
        (("--", "codex"), "PML launches `claude`"),
        (("--loopback", "--", "claude", "-p", "--dangerously-skip-permissions", "hi"), "would go round"),
        (("--", "claude", "--mcp-config", "x"), "sets itself"),
        (("--", "claude", "mcp", "list"), "runs prompts, not claude's own commands"),
        (("--", "claude", "doctor"), "runs prompts, not claude's own commands"),
        (("--timeout", "0", "--", "claude"), "must be a number of seconds"),
    ],
)
def test_what_cannot_be_launched_is_refused_with_a_reason(
    pml: Pml, words: tuple[str, ...], told: str
) -> None:
    ran = pml("launch", *words)
    assert ran.code == 2
    assert told in ran.err


@pytest.mark.usefixtures("agent")
def test_an_agent_is_told_to_launch_by_its_tool(pml: Pml) -> None:
    ran = pml("launch", "--loopback", "--", "claude", "-p", "hi")
    assert ran.code == 1
    assert "session_launch" in ran.err


def test_without_claude_that_is_all_that_is_said(context: MakeContext, pml: Pml) -> None:
    made = context(hub_runs=False)
    command = (sys.executable, "-m", "pml", "launch", "--loopback", "--", "claude", "-p", "hi")
    ran = subprocess.run(command, env=made.environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 1
    first, hint = ran.stderr.splitlines()
    assert first == "pml: Claude Code was not found"
    assert "npm install -g @anthropic-ai/claude-code" in hint
    assert pml("sessions", "list", "--all", "--json").json == {"sessions": []}


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_what_claude_tells_of_itself_is_passed_on_without_a_session(
    context: MakeContext, pml: Pml, word: str
) -> None:
    made = context(hub_runs=False)
    ran = made.launch("--loopback", claude=(word,))
    assert (ran.code, ran.err) == (0, "")
    assert "Claude Code" in ran.out
    assert made.api.conversations == []
    assert pml("sessions", "list", "--all", "--json").json == {"sessions": []}
