"""`pml uninstall`: all that PML put on the machine is shown and goes, and nothing else does."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from pml.agents.claude_code.gateway_name import own_name
from tests.cli import stand_in_claude
from tests.cli.terminals import on_terminal
from tests.commands import Pml, spawn
from tests.promises import promise

OK, FAILED, DENIED, PENDING = 0, 1, 3, 4
MINE: dict[str, Any] = {"model": "opus", "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}]}}


class Machine:
    """A user with PML in Claude Code's settings, in two workspaces, with rules, and files of their own."""

    def __init__(self, pml: Pml, home: Path, workspace: Path) -> None:
        self.pml = pml
        self.home = home
        self.workspace = workspace
        self.other = workspace.parent / "other"
        self.other.mkdir()
        self.settings = home / ".claude" / "settings.json"
        self.settings.parent.mkdir()
        self.settings.write_text(json.dumps(MINE, indent=2))
        for place in (workspace, self.other):
            assert pml("init", "--workspace", str(place)).code == OK
            assert pml("init", "--claude-code", "--workspace", str(place)).code == OK
            assert pml("approvals", "ask", "x:y", "--workspace", str(place)).code == PENDING
        assert pml("init", "--claude-code", "--user").code == OK
        (home / ".pml" / ".env").write_text("KEY=value\n")

    def files(self) -> dict[str, bytes]:
        """Return all that stands there and does not change by being looked at."""
        top = self.workspace.parent
        paths = [path for folder in (self.home, top) for path in folder.rglob("*") if path.is_file()]
        own = self.home / ".pml"
        return {str(path): path.read_bytes() for path in paths if own not in path.parents}


@pytest.fixture
def machine(pml: Pml, home: Path, workspace: Path) -> Machine:
    return Machine(pml, home, workspace)


@promise("uninstall:only-its-own")
def test_a_preview_shows_everything_and_removes_nothing(machine: Machine) -> None:
    before = machine.files()
    ran = machine.pml("uninstall", "--dry-run")
    assert ran.code == OK
    for place in (machine.workspace, machine.other):
        assert f"{place}/.mcp.json would be removed" in ran.out
        assert f"{place}/.claude/settings.local.json would be removed" in ran.out
        assert f"{place}/.pml.json: rules of the workspace: they are yours" in ran.out
    assert f"{machine.settings} would be changed" in ran.out
    assert f"{machine.home}/.pml would be removed" in ran.out
    assert f"{machine.home}/.pml/.env: PML did not write it" in ran.out
    assert "uninstall pml-gateway" in ran.out
    assert machine.files() == before
    assert (machine.home / ".pml" / "pml.db").exists()


@promise("uninstall:only-its-own")
def test_what_pml_wrote_goes_and_all_else_stays(machine: Machine) -> None:
    ran = machine.pml("uninstall", "--yes", "--json")
    assert (ran.code, ran.json["removed"]) == (OK, True)
    assert json.loads(machine.settings.read_text()) == MINE
    assert [path.name for path in (machine.home / ".pml").iterdir()] == [".env"]
    for place in (machine.workspace, machine.other):
        assert sorted(os.listdir(place)) == [".claude", ".pml.json"]
        assert os.listdir(place / ".claude") == []


@promise("uninstall:only-its-own")
def test_a_server_that_somebody_else_called_pml_stays_and_so_does_what_links_lead_to(
    machine: Machine, tmp_path: Path
) -> None:
    theirs: dict[str, Any] = {"mcpServers": {"pml": {"command": "podman-launcher", "args": []}}}
    (machine.workspace / ".mcp.json").write_text(json.dumps(theirs))
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").touch()
    (machine.home / ".pml" / "cache").symlink_to(treasure)
    ran = machine.pml("uninstall", "--yes")
    assert ran.code == OK
    assert json.loads((machine.workspace / ".mcp.json").read_text()) == theirs
    assert "its server `pml` was not written by PML" in ran.out
    assert (treasure / "gold").exists()


THEIRS: dict[str, Any] = {"command": "podman-launcher", "args": []}


def listing(machine: Machine, own: str) -> dict[str, Any]:
    """Return Claude Code's own list with PML in it, as init and `claude mcp add` write it, and others."""
    stdio = {"type": "stdio", "command": "/usr/bin/python3", "args": ["-I", "-m", "pml", "stdio"]}
    typed: dict[str, Any] = {"type": "stdio", "command": "/opt/bin/pml", "args": ["stdio"], "env": {}}
    here: dict[str, Any] = {own: stdio, "pml": typed, "notes": THEIRS}
    return {
        "numStartups": 3,
        "mcpServers": {"pml": typed, "notes": THEIRS},
        "projects": {
            str(machine.workspace): {"mcpServers": here, "hasTrustDialogAccepted": True},
            str(machine.other): {"mcpServers": {"pml": THEIRS}},
            "/gone": {"mcpServers": {"pml": typed}},
        },
    }


def without_pml(machine: Machine, listed: dict[str, Any]) -> dict[str, Any]:
    projects: dict[str, Any] = {
        str(machine.workspace): {"mcpServers": {"notes": THEIRS}, "hasTrustDialogAccepted": True},
        str(machine.other): {"mcpServers": {"pml": THEIRS}},
        "/gone": {"mcpServers": {}},
    }
    return {**listed, "mcpServers": {"notes": THEIRS}, "projects": projects}


@promise("uninstall:client-list")
@pytest.mark.parametrize("client", ["there", "failing", "absent"])
def test_the_clients_own_list_loses_pml_and_nothing_else(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    told = tmp_path / "told"
    if client != "absent":
        stand_in = shlex.join([sys.executable, str(stand_in_claude.__file__)])
        run = f'echo "$PWD: $@" >> {told}\n' + ("exit 1" if client == "failing" else f'exec {stand_in} "$@"')
        put_on_path(tmp_path, monkeypatch, run)
    own = own_name(machine.home / ".pml", str(machine.workspace))
    listed = listing(machine, own)
    file = machine.home / ".claude.json"
    file.write_text(json.dumps(listed, indent=2))

    shown = machine.pml("uninstall", "--dry-run")
    assert f"claude mcp remove --scope local {own}" in shown.out
    assert "claude mcp remove --scope user pml" in shown.out
    assert (json.loads(file.read_text()), told.exists()) == (listed, False)

    ran = machine.pml("uninstall", "--yes", "--json")
    assert (ran.code, len(ran.json["claude_code"])) == (OK, 4)
    assert json.loads(file.read_text()) == without_pml(machine, listed)
    assert told.exists() is (client != "absent")
    if client == "there":
        assert f"{machine.workspace}: mcp remove --scope local {own}\n" in told.read_text()


@promise("uninstall:client-list")
def test_a_list_that_cannot_be_parsed_is_named_and_stays(machine: Machine) -> None:
    file = machine.home / ".claude.json"
    file.write_text('{"mcpServers": {"pml": ')
    ran = machine.pml("uninstall", "--yes")
    assert (ran.code, file.read_text()) == (OK, '{"mcpServers": {"pml": ')
    assert "it cannot be read, and may still start PML" in ran.out


def put_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "programs" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.defpath}")


def test_nobody_there_to_answer_means_that_nothing_is_removed(machine: Machine) -> None:
    before = machine.files()
    assert machine.pml("uninstall").code == PENDING
    assert machine.files() == before


@pytest.mark.parametrize(("answer", "code", "stays"), [("n", DENIED, True), ("y", OK, False)])
def test_at_a_terminal_it_asks(machine: Machine, answer: str, code: int, stays: bool) -> None:
    with on_terminal("uninstall", stdout_too=True) as terminal:
        terminal.until("Remove all of this? [y/N] ")
        terminal.type(f"{answer}\n")
        assert terminal.end()[0] == code
    assert (machine.home / ".pml" / "pml.db").exists() is stays


def test_while_pml_runs_nothing_is_removed(machine: Machine) -> None:
    with spawn(["approvals", "watch", "--json"]) as watching:
        try:
            assert watching.stdout is not None
            watching.stdout.readline()  # what waits: from here on it surely runs
            ran = machine.pml("uninstall", "--yes")
        finally:
            watching.terminate()
            watching.communicate()
    assert (ran.code, "PML still runs" in ran.err) == (FAILED, True)
    assert (machine.home / ".pml" / "pml.db").exists()


def test_where_pml_never_was_there_is_nothing_to_remove(pml: Pml, home: Path) -> None:
    ran = pml("uninstall", "--dry-run")
    assert (ran.code, "there is nothing of PML's on this machine" in ran.out) == (OK, True)
    assert not (home / ".pml").exists()
