"""`pml doctor` and Claude Code: what is set up, what goes round PML, and the proof with the client itself."""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pml.agents.claude_code.probe import Proof
from pml.cli.checks import claude_code as claude_checks
from tests.cli import stand_in_claude
from tests.commands import Pml, run_process
from tests.e2e.claude import binary
from tests.promises import promise

VERSION = "2.1.325"


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that tells a version and keeps servers, alone on the PATH."""
    stand_in = shlex.join([sys.executable, str(stand_in_claude.__file__)])
    return install(tmp_path, monkeypatch, f'exec {stand_in} "$@"')


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "claude"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.defpath}")
    return program


def said(pml: Pml, name: str, *options: str) -> list[tuple[str, str]]:
    checks = pml("doctor", "--json", "--quick", *options).json["checks"]
    return [(each["status"], each["message"]) for each in checks if each["name"] == name]


def prompts(pml: Pml) -> Any:
    """Return the one check on who asks for the tools behind PML."""
    checks = pml("doctor", "--json", "--quick").json["checks"]
    [check] = [each for each in checks if each["name"] == "claude prompts"]
    return check


def test_without_claude_code_it_says_how_to_get_it(pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    ran = pml("doctor", "--json")
    [check] = [each for each in ran.json["checks"] if each["name"] == "claude"]
    assert (ran.code, check["status"], "npm install" in check["hint"]) == (0, "absent", True)


def test_the_version_is_told_and_one_that_lets_tools_run_when_a_hook_fails_is_a_warning(
    pml: Pml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path, monkeypatch, "echo '2.1.294 (Claude Code)'")
    [(status, message)] = said(pml, "claude")
    assert (status, "2.1.294" in message) == ("warn", True)
    program.write_text(f"#!/bin/sh\necho '{VERSION} (Claude Code)'\n")
    assert said(pml, "claude") == [("ok", f"{program} {VERSION}")]
    program.write_text("#!/bin/sh\n")
    assert said(pml, "claude")[0][0] == "warn"


@pytest.mark.usefixtures("claude")
def test_what_init_writes_is_found_again(pml: Pml) -> None:
    for name in ("claude hook", "claude server"):
        [(status, message)] = said(pml, name)
        assert (status, message.startswith("not set up")) == ("absent", True)
    assert "- claude hook" in pml("doctor", "--quick").out
    pml("init", "--claude-code")
    for name in ("claude hook", "claude server"):
        assert said(pml, name) == [("ok", "set up")]
    [(status, message)] = said(pml, "claude prompts")
    assert (status, message.startswith("one question a call")) == ("ok", True)


@promise("claude:never-nobody")
@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize(
    "approval", [{"unlisted": "if_client_cannot"}, {"enabled": False}], ids=["left to the client", "off"]
)
def test_nothing_is_left_to_pml_while_pml_does_not_ask(
    pml: Pml, workspace: Path, user: Path, approval: dict[str, object]
) -> None:
    pml("init", "--claude-code")
    local = workspace / ".claude" / "settings.local.json"
    assert len(json.loads(local.read_text())["permissions"]["allow"]) == 1
    user.write_text(json.dumps({"approval": approval}))
    check = prompts(pml)
    assert (check["status"], "nobody does" in check["message"]) == ("fail", True)
    assert f"run `pml init --claude-code --workspace {workspace}` now" in check["hint"]

    ran = pml("init", "--claude-code")
    assert (ran.code, "permissions" in json.loads(local.read_text())) == (0, False)
    assert "are asked about by Claude Code" in ran.out
    assert said(pml, "claude prompts") == []


@promise("claude:never-nobody")
@pytest.mark.usefixtures("claude")
def test_what_the_client_lets_run_goes_also_where_the_client_itself_is_gone(
    pml: Pml, workspace: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pml("init", "--claude-code")
    local = workspace / ".claude" / "settings.local.json"
    user.write_text(json.dumps({"approval": {"unlisted": "if_client_cannot"}}))
    monkeypatch.setenv("PATH", "")

    assert pml("init", "--claude-code").code == 0
    assert "permissions" not in json.loads(local.read_text())


@promise("claude:never-nobody")
@pytest.mark.usefixtures("claude")
def test_an_entry_that_init_does_not_take_out_is_named(pml: Pml, workspace: Path, user: Path) -> None:
    name = pml("init", "--claude-code", "--json").json["server_name"]
    local = workspace / ".claude" / "settings.local.json"
    local.write_text(json.dumps({"permissions": {"allow": [f"mcp__{name}__*"]}}))
    user.write_text(json.dumps({"approval": {"unlisted": "if_client_cannot"}}))

    check = prompts(pml)
    assert (check["status"], f"remove `mcp__{name}__*` from it" in check["hint"]) == ("fail", True)


@promise("claude:one-gateway")
@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize("scope", ["local", "user"])
def test_a_gateway_that_was_added_by_hand_too_is_a_warning_with_the_command(
    pml: Pml, workspace: Path, home: Path, scope: str
) -> None:
    pml("init", "--claude-code")
    file = home / ".claude.json"
    kept = json.loads(file.read_text())
    place = kept["projects"][str(workspace)] if scope == "local" else kept
    place.setdefault("mcpServers", {})["pml"] = {"command": "/opt/bin/pml", "args": ["stdio"]}
    file.write_text(json.dumps(kept))

    checks = pml("doctor", "--json", "--quick").json["checks"]
    [check] = [each for each in checks if "a second time" in each["message"]]
    assert (check["status"], check["hint"]) == ("warn", f"`claude mcp remove --scope {scope} pml`")
    assert f"claude mcp remove --scope {scope} pml" in pml("init", "--claude-code").out


@promise("claude:name-not-shadowed")
@pytest.mark.usefixtures("claude")
def test_a_name_that_starts_another_program_fails(pml: Pml, workspace: Path, home: Path) -> None:
    name = pml("init", "--claude-code", "--json").json["server_name"]
    kept = home / ".claude.json"
    config = json.loads(kept.read_text())
    for server in ({"command": "/bin/sh"}, None):
        config["projects"][str(workspace)]["mcpServers"] = {} if server is None else {name: server}
        kept.write_text(json.dumps(config))
        [(status, message)] = said(pml, "claude prompts")
        assert (status, "does not start this PML" in message) == ("fail", True)


@pytest.mark.usefixtures("claude")
def test_a_name_that_a_project_can_take_is_a_warning(pml: Pml, workspace: Path) -> None:
    (workspace / ".claude").mkdir()
    allowing = {"permissions": {"allow": ["mcp__pml__call"]}}
    (workspace / ".claude" / "settings.json").write_text(json.dumps(allowing))
    [(status, message)] = said(pml, "claude prompts")
    assert (status, "another server" in message) == ("warn", True)


@pytest.mark.usefixtures("claude")
def test_a_gateway_that_the_client_has_disabled_is_not_said_to_be_set_up(pml: Pml, workspace: Path) -> None:
    pml("init", "--claude-code")
    settings = workspace / ".claude" / "settings.local.json"
    text = json.loads(settings.read_text())
    settings.write_text(json.dumps({**text, "disabledMcpjsonServers": ["pml"]}))
    [(status, message)] = said(pml, "claude server")
    assert (status, "settings.local.json disables it" in message) == ("warn", True)


@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"disableAllHooks": True}, "turns all hooks off"),
        ({"env": {"PML_HOME": "/tmp/x"}}, "sets PML_HOME for every hook"),
        ({"env": {"LD_PRELOAD": "x.so"}}, "sets LD_PRELOAD for every hook"),
    ],
)
def test_settings_of_a_project_that_go_round_the_hook_are_a_warning(
    pml: Pml, workspace: Path, settings: Mapping[str, Any], told: str
) -> None:
    (workspace / ".claude").mkdir()
    (workspace / ".claude" / "settings.json").write_text(json.dumps(settings))
    [(status, message)] = said(pml, "claude settings")
    assert (status, told in message) == ("warn", True)


@promise("form:hook-is-no-person")
@pytest.mark.usefixtures("claude")
def test_a_hook_that_answers_forms_is_a_warning(pml: Pml, workspace: Path, home: Path) -> None:
    hooks = {"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": "yes"}]}]}}
    for path in (workspace / ".claude" / "settings.json", home / ".claude" / "settings.json"):
        path.parent.mkdir()
        path.write_text(json.dumps(hooks))
        told = [text for status, text in said(pml, "claude forms") if status == "warn"]
        assert any(f"{path} has a hook `Elicitation`" in text for text in told)
        path.write_text("{}")
        assert said(pml, "claude forms") == []


@pytest.mark.usefixtures("claude")
def test_a_hook_whose_program_is_gone_fails(pml: Pml, workspace: Path) -> None:
    pml("init", "--claude-code")
    path = workspace / ".claude" / "settings.local.json"
    path.write_text(path.read_text().replace(sys.executable, "/nowhere/python"))
    assert ("fail", True) in [
        (status, "/nowhere/python" in text) for status, text in said(pml, "claude hook")
    ]


def script(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "pml"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize(
    ("server", "status", "told"),
    [
        ({"command": "/nowhere/pml", "args": ["stdio"]}, "fail", "/nowhere/pml"),
        ({"command": "no-such-pml", "args": ["stdio"]}, "fail", "no-such-pml"),
        ({"command": "{tmp}/other/pml", "args": ["stdio"]}, "warn", "not this PML"),
        ({"command": "/bin/sh", "args": ["-m", "pml", "stdio"]}, "warn", "not this PML"),
        ({"command": "{tmp}/venv/python", "args": ["-m", "http.server"]}, "warn", "not this PML"),
        ({"command": "{tmp}/venv/python", "args": 7}, "warn", "not this PML"),
        ({"command": "{tmp}/venv/python", "args": ["-I", "-m", "pml", "stdio"]}, "ok", "set up"),
        ({"command": "{tmp}/venv/pml", "args": ["stdio"]}, "ok", "set up"),
        ({"command": "{tmp}/link/pml", "args": ["stdio"]}, "ok", "set up"),
        ({"type": "http", "url": "http://127.0.0.1:1/mcp"}, "ok", "set up"),
    ],
)
def test_a_gateway_that_is_not_there_or_is_another_pml_is_told_and_not_run(
    pml: Pml,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Mapping[str, Any],
    status: str,
    told: str,
) -> None:
    python = tmp_path / "venv" / "python"
    ours = script(tmp_path / "venv")
    ours.with_name("python").write_text("")
    python.chmod(0o755)
    script(tmp_path / "other").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "pml").symlink_to(ours)
    monkeypatch.setattr("sys.executable", str(python))
    text = json.dumps({"mcpServers": {"pml": server}}).replace("{tmp}", str(tmp_path))
    (workspace / ".mcp.json").write_text(text)
    [(found, message)] = said(pml, "claude server")
    assert (found, told in message) == (status, True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize("text", ["{", "[]", '{"env": 7}', '{"hooks": {"PreToolUse": [7, {"hooks": 1}]}}'])
def test_odd_settings_do_not_stop_it(pml: Pml, workspace: Path, text: str) -> None:
    (workspace / ".claude").mkdir()
    (workspace / ".claude" / "settings.json").write_text(text)
    assert said(pml, "claude hook")[0][1].startswith("not set up")


@pytest.mark.parametrize(
    ("proof", "problem"),
    [
        (Proof(told=("denied by user config", ""), denied_ran=True, allowed_ran=True), "did not ask PML"),
        (Proof(told=(), denied_ran=False, allowed_ran=False), "did not ask PML"),
        (Proof(told=("hook error", ""), denied_ran=False, allowed_ran=True), "did not ask PML: hook error"),
        (Proof(told=("denied by user config", "no"), denied_ran=False, allowed_ran=False), "did not run: no"),
    ],
)
def test_only_a_denied_command_that_did_not_run_and_an_allowed_one_that_did_are_a_proof(
    proof: Proof, problem: str
) -> None:
    assert proof.problem is not None
    assert problem in proof.problem


@promise("hook:fails-closed")
def test_the_client_itself_proves_that_the_hook_and_the_permission_tool_are_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    install(tmp_path, monkeypatch, f'exec "{binary()}" "$@"')
    ran = run_process("doctor", "--json", "--workspace", str(tmp_path))
    proofs = {each["name"]: each for each in ran.json["checks"] if "proven" in each["message"]}
    assert {name: each["status"] for name, each in proofs.items()} == {
        "hook proof": "ok",
        "permit proof": "ok",
    }, ran.out
    assert not (home / ".pml").exists()


def test_a_client_that_does_not_ask_the_hook_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_settings(command: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr("pml.agents.claude_code.settings.hook_settings", no_settings)
    check = next(claude_checks.check_proof(binary(), lambda _: None))
    assert check.status == "fail"
    assert "a command that a rule denies ran" in check.message
