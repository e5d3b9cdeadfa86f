"""The folders of runs: nobody else reads them, and nothing else is ever removed."""

import os
from pathlib import Path

import pytest

from pml.agents.claude_code.configs import config_root, folder_of, remove_config, write_config
from pml.agents.claude_code.environment import environment_of
from pml.core.approvals.record import SessionId
from pml.core.errors import Unavailable
from pml.core.sessions.agent_marks import MARK
from tests.promises import promise

SESSION = SessionId("../../somewhere else")
FILES = {"mcp.json": b"{}", "settings.json": b"{}"}


def _root(tmp_path: Path) -> Path:
    return tmp_path / "configs"


@promise("launch:config-private-and-removed")
def test_a_configuration_is_its_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    folder = folder_of(_root(tmp_path), SESSION)
    before = os.umask(0)
    try:
        write_config(folder, FILES)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder.parent, folder, *folder.iterdir())}
    assert modes == {"configs": 0o700, folder.name: 0o700, "mcp.json": 0o600, "settings.json": 0o600}
    remove_config(folder)
    assert list(folder.parent.iterdir()) == []


def test_the_folder_of_a_session_is_always_the_same_and_within_the_root(tmp_path: Path) -> None:
    assert folder_of(tmp_path, SESSION) == folder_of(tmp_path, SESSION)
    assert folder_of(tmp_path, SESSION).parent == tmp_path
    assert folder_of(tmp_path, SESSION) != folder_of(tmp_path, SessionId("another"))


@promise("launch:config-private-and-removed")
def test_what_a_crash_left_is_replaced(tmp_path: Path) -> None:
    folder = folder_of(_root(tmp_path), SESSION)
    write_config(folder, FILES)
    write_config(folder, {"mcp.json": b"new"})
    assert [(file.name, file.read_bytes()) for file in folder.iterdir()] == [("mcp.json", b"new")]


@promise("launch:config-private-and-removed")
@pytest.mark.parametrize("kind", ["a link", "open to others", "a file"])
def test_a_place_that_is_not_this_users_alone_gets_no_token(tmp_path: Path, kind: str) -> None:
    root, other = _root(tmp_path), tmp_path / "other"
    if kind == "a link":
        other.mkdir(mode=0o700)
        root.symlink_to(other)
    elif kind == "open to others":
        root.mkdir()
        root.chmod(0o777)
    else:
        root.write_text("")
    with pytest.raises(Unavailable):
        write_config(folder_of(root, SESSION), FILES)
    assert not other.exists() or list(other.iterdir()) == []


@promise("launch:config-private-and-removed")
def test_a_folder_that_somebody_put_there_first_is_not_used(tmp_path: Path) -> None:
    folder = folder_of(_root(tmp_path), SESSION)
    folder.parent.mkdir(mode=0o700)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(Unavailable):
        write_config(folder, FILES)
    assert list(elsewhere.iterdir()) == []


def test_nothing_but_a_runs_own_files_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "mcp.json").write_text("mine")
    linked = _root(tmp_path) / folder_of(tmp_path, SESSION).name
    linked.parent.mkdir(mode=0o700)
    linked.symlink_to(precious)
    for folder in (precious, linked, tmp_path / "gone"):
        remove_config(folder)
    assert (precious / "mcp.json").read_text() == "mine"
    own = folder_of(_root(tmp_path), SessionId("b"))
    write_config(own, FILES)
    (own / "notes").write_text("not PML's")
    remove_config(own)
    assert [file.name for file in own.iterdir()] == ["notes"]


def test_configurations_lie_in_pml_home_which_no_agent_sees(tmp_path: Path) -> None:
    assert config_root(tmp_path).is_relative_to(tmp_path)


@promise("launch:settings-do-not-bypass")
def test_an_agents_environment_is_an_allow_list() -> None:
    loosening = {
        "CLAUDE_CODE_MANAGED_SETTINGS_PATH": "/x",
        "CLAUDE_CODE_EVEN_MORE_DANGEROUSLY_SKIP_PERMISSIONS": "1",
        "CLAUDE_BG_SESSION_PERMISSION_RULES": "x",
        "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "1",
        "MCP_TOOL_TIMEOUT": "1",
        "CLAUDECODE": "1",
    }
    ours = {
        "PML_HOME": "/p",
        "PML_LOG": "debug",
        "PML_TOKEN_FILE": "/t",
        "GITHUB_TOKEN": "secret",
        "LD_PRELOAD": "/x",
        "NODE_OPTIONS": "-r",
    }
    passed = {
        "HOME": "/h",
        "LANG": "C",
        "ANTHROPIC_API_KEY": "k",
        "AWS_PROFILE": "p",
        "CLAUDE_CONFIG_DIR": "/c",
    }
    found = environment_of({**loosening, **ours, **passed, "PATH": "bin:/usr/bin:."}, is_persons=True)
    day_ms = str(24 * 3600 * 1000)
    assert found == {
        **passed,
        "PATH": "/usr/bin",
        "MCP_TIMEOUT": "60000",
        "MCP_TOOL_TIMEOUT": day_ms,
        "ENABLE_TOOL_SEARCH": "false",
        "NO_PROXY": "127.0.0.1,localhost,::1",
        "no_proxy": "127.0.0.1,localhost,::1",
        MARK: "1",
    }


def test_no_proxy_is_asked_for_the_hub() -> None:
    found = environment_of({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "intra.example"}, is_persons=True)
    assert found["NO_PROXY"] == "intra.example,127.0.0.1,localhost,::1"
    assert found["HTTPS_PROXY"] == "http://proxy"


@promise("launch:never-wider-than-parent")
def test_a_file_that_an_agents_prompt_mentions_is_not_read() -> None:
    assert environment_of({}, is_persons=False)["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == "1"
    assert "CLAUDE_CODE_DISABLE_FILE_MENTIONS" not in environment_of({}, is_persons=True)
