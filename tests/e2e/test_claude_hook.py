"""Claude Code itself with `pml hook` in its settings: what runs, and what the model is told."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pml.agents.claude_code.settings import hook_command, hook_settings
from tests.e2e.claude import RUN_S, Setting, interactive
from tests.e2e.messages_api import LAST_WORD, MessagesApi, Use, scripted
from tests.e2e.workspaces import QUESTION_S, Workspace
from tests.promises import promise

WAITING: Final = "Waiting for approval"
ECHO = Use(tool="mcp__pml__everything__echo", arguments={"message": "hello"})
ENVIRONMENT = Use(tool="mcp__pml__everything__get-env", arguments={})


def touch(name: str) -> Use:
    return Use(tool="Bash", arguments={"command": f"touch {name}", "description": "leave a mark"})


def hooked(api: MessagesApi, workspace: Workspace, command: Sequence[str] | None = None) -> Setting:
    """Claude Code whose user has the hook, and whose own rules let every command run."""
    folder = workspace.home / ".claude"
    folder.mkdir()
    ours = hook_command(sys.executable, os.environ["PML_HOME"])
    settings = {"permissions": {"allow": ["Bash"]}, **hook_settings(command or ours)}
    (folder / "settings.json").write_text(json.dumps(settings))
    return Setting(api=api, server=workspace.gateway, home=workspace.home, workspace=workspace.path)


def start(setting: Setting) -> "subprocess.Popen[str]":
    """Start it without a screen."""
    return subprocess.Popen(
        setting.argv("-p", "go on", "--output-format", "stream-json", "--verbose"),
        cwd=setting.workspace,
        env=setting.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> None:
    with process:
        out, _ = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, out


def ran(workspace: Workspace) -> list[str]:
    """The marks that commands have left."""
    return sorted(path.name for path in workspace.path.iterdir() if path.suffix == ".mark")


def question(workspace: Workspace) -> str:
    """Return the id of the one thing that is asked, once it is."""
    workspace.wait_for_question()
    [asked] = workspace.pending()
    return asked["id"]


def until_over(workspace: Workspace, asked: str) -> str:
    """Return what became of the question, once nobody waits for it."""
    end = time.monotonic() + QUESTION_S
    while (status := workspace.pml("approvals", "show", asked, "--json").json["status"]) == "pending":
        assert time.monotonic() < end, "it waits still"
    return status


def allow(workspace: Workspace, entry: str) -> None:
    assert workspace.pml("rules", "allow", entry).code == 0


@promise("hook:same-rules")
def test_a_command_that_a_rule_denies_does_not_run_and_the_model_is_told_the_rule(
    workspace: Workspace,
) -> None:
    assert workspace.pml("rules", "deny", "Bash").code == 0
    with scripted(touch("a.mark")) as api:
        finish(start(hooked(api, workspace)))
    [told] = api.results
    assert "Tool Bash is denied by user config" in told
    assert ran(workspace) == []


@promise("hook:same-rules")
def test_a_command_that_a_rule_allows_runs_but_not_one_that_names_pml(workspace: Workspace) -> None:
    allow(workspace, "Bash")
    with scripted(touch("a.mark"), touch("pml.mark")) as api:
        process = start(hooked(api, workspace))
        workspace.pml("approvals", "deny", question(workspace), "--message", "that is for people")
        finish(process)
    assert "that is for people" in api.results[1]
    assert ran(workspace) == ["a.mark"]


def test_what_a_person_edits_is_what_runs(workspace: Workspace) -> None:
    with scripted(touch("a.mark")) as api:
        process = start(hooked(api, workspace))
        edited = json.dumps({"command": "touch edited.mark"})
        assert workspace.pml("approvals", "allow", question(workspace), "--input", edited).code == 0
        finish(process)
    assert ran(workspace) == ["edited.mark"]


@promise("hook:fails-closed")
def test_a_hook_that_crashes_or_is_not_there_blocks_the_command(workspace: Workspace) -> None:
    crash = [sys.executable, "-I", "-c", "import os; os.kill(os.getpid(), 9)"]
    with scripted(touch("a.mark")) as api:
        finish(start(hooked(api, workspace, crash)))
    assert "blocking because onFailure" in api.results[0]
    settings = workspace.home / ".claude" / "settings.json"
    settings.write_text(settings.read_text().replace(sys.executable, str(Path("/nowhere/python"))))
    with scripted(touch("a.mark")) as again:
        server = workspace.gateway
        finish(start(Setting(api=again, server=server, home=workspace.home, workspace=workspace.path)))
    assert "blocking because onFailure" in again.results[0]
    assert ran(workspace) == []


def test_a_tool_behind_the_gateway_is_not_asked_for_twice_and_a_deny_is_told_by_its_own_name(
    workspace: Workspace,
) -> None:
    with scripted(ECHO, ENVIRONMENT) as api:
        finish(start(hooked(api, workspace)))
    echoed, denied = api.results
    assert echoed == "Echo: hello"
    assert "PreToolUse" in denied
    assert "Tool everything:get-env is denied by user config" in denied
    assert workspace.pml("approvals", "list", "--all", "--json").json["approvals"] == []


def test_on_its_screen_it_waits_for_an_answer_given_in_another_terminal(workspace: Workspace) -> None:
    with scripted(touch("a.mark")) as api, interactive(hooked(api, workspace)) as screen:
        screen.wait(WAITING)
        assert ran(workspace) == []
        assert workspace.pml("approvals", "allow", question(workspace)).code == 0
        screen.wait(LAST_WORD)
    assert ran(workspace) == ["a.mark"]


def test_interrupting_it_on_its_screen_takes_the_question_back(workspace: Workspace) -> None:
    with scripted(touch("a.mark")) as api, interactive(hooked(api, workspace)) as screen:
        screen.wait(WAITING)
        asked = question(workspace)
        screen.press_until("Escape", lambda shown: "Interrupted" in shown)
        assert until_over(workspace, asked) == "cancelled"
    assert ran(workspace) == []
