"""Rules switched off and on in their file: nothing else of it changes."""

import json
from pathlib import Path

import pytest

from pml.core.config.file import FileKind
from pml.core.errors import ConfigInvalid
from pml.core.rules.ruleset import Effect
from pml.core.values import Json
from pml.settings.config_files import WorkspaceFiles

WORKSPACE = FileKind.WORKSPACE
TALL = """{
  "permissions": {
    "deny": [
      "Bash",
      {
        "tool": "fs:write",
        "args": {"path": {"under": "."}}
      }
    ]
  },
  "n": 1.50
}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    path.mkdir()
    return path


@pytest.fixture
def files(home: Path, workspace: Path) -> WorkspaceFiles:
    return WorkspaceFiles(pml_home=home / ".pml", workspace=workspace, user_home=home, environ={})


def test_switching_off_and_on_leaves_the_file_as_it_was(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text(TALL)
    entry: Json = {"args": {"path": {"under": "."}}, "tool": "fs:write"}
    assert files.switch_rule(WORKSPACE, Effect.DENY, entry, enabled=False) == 1
    assert files.switch_rule(WORKSPACE, Effect.DENY, "Bash", enabled=False) == 1
    assert path.read_text() == TALL.replace('"Bash"', '{"tool": "Bash", "enabled": false}').replace(
        '"args": {"path": {"under": "."}}', '"args": {"path": {"under": "."}},\n        "enabled": false'
    )
    config = files.read().workspace.config
    assert config is not None
    assert (len(config.rules), len(config.disabled)) == (0, 2)
    assert files.switch_rule(WORKSPACE, Effect.DENY, "Bash", enabled=True) == 1
    assert files.switch_rule(WORKSPACE, Effect.DENY, {**entry, "enabled": False}, enabled=True) == 1
    assert path.read_text() == TALL


def test_what_stands_as_it_is_asked_for_is_not_written(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text(TALL)
    assert files.switch_rule(WORKSPACE, Effect.DENY, "Bash", enabled=True) == 0
    assert files.switch_rule(WORKSPACE, Effect.ALLOW, "Bash", enabled=False) == 0
    assert files.switch_rule(WORKSPACE, Effect.DENY, "nothing", enabled=False) == 0
    assert files.switch_rule(FileKind.USER, Effect.DENY, "Bash", enabled=False) == 0
    assert path.read_text() == TALL


def test_rules_are_switched_by_id_in_one_list(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    rule = {"tool": "a:b", "id": "mine"}
    path.write_text(json.dumps({"permissions": {"allow": [rule, "a:b"], "ask": [rule]}}))
    assert files.switch_rule(WORKSPACE, Effect.ALLOW, "mine", enabled=False) == 1
    off = {**rule, "enabled": False}
    assert json.loads(path.read_text())["permissions"] == {"allow": [off, "a:b"], "ask": [rule]}


def test_an_entry_that_says_it_is_enabled_is_switched_too(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"permissions": {"deny": [{"enabled": true, "tool": "a:b"}]}}')
    assert files.switch_rule(WORKSPACE, Effect.DENY, "a:b", enabled=False) == 1
    assert path.read_text() == '{"permissions": {"deny": [{"enabled": false, "tool": "a:b"}]}}'


def test_the_default_ask_never_becomes_a_rule_that_asks_on_every_call(
    files: WorkspaceFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"permissions": {"ask": ["*"]}}')
    assert files.switch_rule(WORKSPACE, Effect.ASK, "*", enabled=False) == 0
    assert json.loads(path.read_text())["permissions"]["ask"] == ["*"]
    path.write_text('{"permissions": {"ask": [{"tool": "*"}]}}')
    assert files.switch_rule(WORKSPACE, Effect.ASK, "*", enabled=False) == 1
    assert files.switch_rule(WORKSPACE, Effect.ASK, "*", enabled=True) == 1
    assert path.read_text() == '{"permissions": {"ask": [{"tool": "*"}]}}'


def test_a_broken_file_is_left_alone(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"permissions": {"deny": ["Bash"]}')
    with pytest.raises(ConfigInvalid):
        files.switch_rule(WORKSPACE, Effect.DENY, "Bash", enabled=False)
    assert path.read_text() == '{"permissions": {"deny": ["Bash"]}'
