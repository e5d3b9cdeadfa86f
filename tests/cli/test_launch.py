"""`pml launch` with the real Claude Code: a stand-in is the hub, the terminal is the person's."""

import json
import os
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
from tests.commands import TIMEOUT_S, Pml, Ran, spawn
from tests.e2e.installed import bare_environment
from tests.e2e.messages_api import LAST_WORD, MessagesApi, Turn, Use, scripted
from tests.promises import promise

TOUCH = Use(tool="Bash", arguments={"command": "touch made", "description": "make a file"})


@dataclass(frozen=True, kw_only=True)
class Desk:
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


MakeDesk = Callable[..., Desk]


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
def desk(workspace: Path, home: Path, tmp_path: Path) -> Generator[MakeDesk]:
    with ExitStack() as stack:

        def make(
            *script: Turn, answer: Callable[[Asked], dict[str, Any]] = allow, hub_runs: bool = True
        ) -> Desk:
            api = stack.enter_context(scripted(*script))
            hub = stack.enter_context(hub_answering(answer))
            if hub_runs:
                announce = stack.enter_context(sole_hub(home / ".pml"))
                announce(Presence(url=hub.url, pid=os.getpid(), started_at=datetime.now(UTC)))
            runtime = tmp_path / "run"
            runtime.mkdir(mode=0o700)
            own = {"PML_HOME": str(home / ".pml"), "XDG_RUNTIME_DIR": str(runtime)}
            return Desk(api=api, hub=hub, environment={**bare_environment(home), **offline(api), **own})

        yield make


def _left(workspace: Path) -> list[str]:
    """Return what is left of configurations."""
    return [str(path) for path in (workspace.parent / "run").rglob("*") if path.is_file()]


def test_its_tools_are_asked_for_its_result_is_printed_and_all_is_recorded(
    desk: MakeDesk, pml: Pml, workspace: Path
) -> None:
    made = desk(TOUCH)
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
    desk: MakeDesk, pml: Pml, workspace: Path
) -> None:
    made = desk(TOUCH, hub_runs=False)
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


def test_what_comes_by_a_pipe_is_passed_on_and_the_form_is_the_persons(desk: MakeDesk) -> None:
    made = desk()
    ran = made.launch(claude=("-p", "what is this?", "--output-format", "json"), stdin="the text")
    assert json.loads(ran.out)["result"] == LAST_WORD
    assert "what is this?\\nthe text" in json.dumps(made.api.conversations[0].messages)


def test_its_exit_code_is_that_of_the_client(desk: MakeDesk) -> None:
    ran = desk(TOUCH).launch("--loopback", claude=("-p", "make it", "--max-turns", "1"))
    assert ran.code == 1
    assert "maximum number of turns" in ran.out


@promise("launch:config-private-and-removed")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_launch_ends_the_agent_and_cleans_up(
    desk: MakeDesk, pml: Pml, workspace: Path, how: signal.Signals
) -> None:
    def interrupt(asked: Asked) -> dict[str, Any]:
        process.send_signal(how)
        process.wait(TIMEOUT_S)
        return allow(asked)

    made = desk(TOUCH, answer=interrupt)
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


def test_without_claude_that_is_said(desk: MakeDesk) -> None:
    made = desk()
    command = (sys.executable, "-m", "pml", "launch", "--", "claude", "-p", "hi")
    ran = subprocess.run(command, env=made.environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 1
    assert "Claude Code was not found" in ran.stderr
