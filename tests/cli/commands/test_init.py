"""`pml init --claude-code`: what it writes into Claude Code's settings, and that it shows all of it."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stand_in_claude
from tests.commands import Pml
from tests.promises import promise


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def hook_of(settings: Path) -> Any:
    [entry] = read(settings)["hooks"]["PreToolUse"]
    [hook] = entry["hooks"]
    return hook


def test_a_project_gets_the_hook_and_the_gateway_and_both_are_this_pml_whatever_the_path_leads_to(
    pml: Pml, workspace: Path, pml_home: Path
) -> None:
    ran = pml("init", "--claude-code")
    assert ran.code == 0
    hook = hook_of(workspace / ".claude" / "settings.local.json")
    assert (hook["onFailure"], str(pml_home) in hook["command"]) == ("block", True)
    server = read(workspace / ".mcp.json")["mcpServers"]["pml"]
    assert [server["command"], *server["args"]] == [sys.executable, "-I", "-m", "pml", "stdio"]
    for shown in (
        "+",
        "onFailure",
        "asked about twice",
        "deny → ask → allow",
        "pml launch",
    ):
        assert shown in ran.out
    assert not (workspace / ".pml.json").exists()


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Claude Code's own commands, on the PATH."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    stand_in = shlex.join([sys.executable, str(stand_in_claude.__file__)])
    program.write_text(f'#!/bin/sh\nexec {stand_in} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.defpath}")
    return program


@promise("claude:one-question")
@pytest.mark.usefixtures("claude")
def test_a_client_keeps_the_gateway_under_a_name_of_its_own_and_leaves_its_tools_to_pml(
    pml: Pml, workspace: Path, home: Path
) -> None:
    servers = {"pml": {"command": "p", "args": ["-I", "-m", "pml", "stdio"]}, "own": {"command": "x"}}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    ran = pml("init", "--claude-code", "--json")
    name = ran.json["server_name"]

    assert re.fullmatch(r"pml-[0-9a-f]{8}", name)
    local = read(workspace / ".claude" / "settings.local.json")
    assert local["permissions"] == {"allow": [f"mcp__{name}"]}
    kept = read(home / ".claude.json")["projects"][str(workspace)]["mcpServers"]
    assert kept == {name: {"type": "stdio", **ran.json["server"]}}
    assert read(workspace / ".mcp.json") == {"mcpServers": {"own": {"command": "x"}}}
    assert not (home / ".claude" / "settings.json").exists()

    again = pml("init", "--claude-code", "--json").json
    assert [each["changed"] for each in again["files"]] == [False, False]
    assert pml("init", "--claude-code", "--remove").code == 0
    assert read(home / ".claude.json")["projects"][str(workspace)]["mcpServers"] == {}
    assert not (workspace / ".claude" / "settings.local.json").exists()


@pytest.mark.usefixtures("claude")
def test_another_workspace_has_another_name_and_printing_tells_nobody(
    pml: Pml, workspace: Path, home: Path, tmp_path: Path
) -> None:
    shape = pml("init", "--claude-code", "--print", "--json").json
    other = pml("init", "--claude-code", "--print", "--json", "--workspace", str(tmp_path)).json

    assert shape["server_name"] != other["server_name"]
    assert shape["server_command"][:4] == ["claude", "mcp", "add-json", "--scope"]
    assert not (home / ".claude.json").exists()
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("script", ["exit 1", "exit 0"], ids=["fails", "keeps nothing"])
def test_where_the_client_does_not_keep_it_nothing_is_written(
    pml: Pml, workspace: Path, claude: Path, script: str
) -> None:
    claude.write_text(f"#!/bin/sh\n{script}\n")
    ran = pml("init", "--claude-code")

    assert (ran.code, "nothing was written" in ran.err) == (1, True)
    assert list(workspace.iterdir()) == []


def test_a_user_gets_the_hook_and_the_command_that_adds_the_gateway(
    pml: Pml, home: Path, workspace: Path
) -> None:
    ran = pml("init", "--claude-code", "--user")
    assert hook_of(home / ".claude" / "settings.json")["onFailure"] == "block"
    assert f"claude mcp add --scope user pml -- {sys.executable} -I -m pml stdio" in ran.out
    assert list(workspace.iterdir()) == []


def test_a_second_time_changes_nothing_and_removing_leaves_the_rest(pml: Pml, home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": "opus", "hooks": {"Stop": []}}')
    pml("init", "--claude-code", "--user")
    once = settings.read_text()
    again = pml("init", "--claude-code", "--user", "--json").json
    assert (again["files"][0]["changed"], settings.read_text()) == (False, once)
    said = pml("init", "--claude-code", "--user").out
    assert ("stays as it is" in said, "claude mcp add" in said, "claude -p" in said) == (True, True, False)
    removed = pml("init", "--claude-code", "--user", "--remove")
    assert removed.code == 0
    assert read(settings) == {"model": "opus", "hooks": {"Stop": []}}
    assert f"nothing of PML's in {settings}" in pml("init", "--claude-code", "--user", "--remove").out


def test_removing_takes_away_the_files_that_it_made_and_no_others(pml: Pml, workspace: Path) -> None:
    pml("init", "--claude-code")
    made = [workspace / ".claude" / "settings.local.json", workspace / ".mcp.json"]
    shown = pml("init", "--claude-code", "--remove", "--print").out
    assert all(f"{path} would be removed" in shown and path.exists() for path in made)
    assert pml("init", "--claude-code", "--remove").code == 0
    assert not any(path.exists() for path in made)
    (workspace / ".mcp.json").write_text("{}")
    said = pml("init", "--claude-code", "--remove").out
    assert all(f"nothing of PML's in {path}" in said for path in made)
    assert (workspace / ".mcp.json").read_text() == "{}"


def test_removing_leaves_a_link_where_it_is(pml: Pml, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "shared.json").write_text("{}")
    (workspace / ".mcp.json").symlink_to(tmp_path / "shared.json")
    pml("init", "--claude-code")
    pml("init", "--claude-code", "--remove")
    assert ((workspace / ".mcp.json").is_symlink(), read(tmp_path / "shared.json")) == (True, {})


def test_printing_writes_nothing(pml: Pml, workspace: Path) -> None:
    ran = pml("init", "--claude-code", "--print")
    assert "settings.local.json would be created" in ran.out
    shape = pml("init", "--claude-code", "--print", "--json").json
    assert [each["written"] for each in shape["files"]] == [False, False]
    assert shape["settings"]["hooks"]["PreToolUse"][0]["matcher"] == "*"
    assert list(workspace.iterdir()) == []


def test_printing_shows_also_what_a_user_would_get(pml: Pml, home: Path) -> None:
    ran = pml("init", "--claude-code", "--user", "--print")
    assert (ran.code, f"{home / '.claude' / 'settings.json'} would be created" in ran.out) == (0, True)
    assert "claude mcp add --scope user" in ran.out
    assert not (home / ".claude").exists()


@promise("config:never-overwritten-unparsed")
@pytest.mark.parametrize("broken", [".claude/settings.local.json", ".mcp.json"])
def test_a_broken_file_is_named_and_nothing_at_all_is_written(pml: Pml, workspace: Path, broken: str) -> None:
    (workspace / ".claude").mkdir()
    (workspace / broken).write_text("{ // mine\n}")
    before = sorted(path.name for path in workspace.rglob("*"))
    ran = pml("init", "--claude-code")
    assert (ran.code, broken in ran.err) == (1, True)
    assert (workspace / broken).read_text() == "{ // mine\n}"
    assert sorted(path.name for path in workspace.rglob("*")) == before


def test_what_goes_with_the_client_is_refused_without_it(pml: Pml, workspace: Path) -> None:
    assert pml("init", "--remove").code == 2
    assert list(workspace.iterdir()) == []
