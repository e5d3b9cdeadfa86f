"""`pml uninstall`: all that PML put on the machine is shown and goes, and nothing else does."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

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
