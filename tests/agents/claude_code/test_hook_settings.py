"""Claude Code's settings files: PML's entries go in and come out, and not a byte else changes."""

import json
import os
import shlex
from pathlib import Path

import pytest

from pml.agents.claude_code.settings import (
    hook_command,
    hook_commands,
    hook_entry,
    hook_settings,
    read_settings,
    remove_settings,
    server_in,
    with_hook,
    with_server,
    without_hook,
    without_server,
    write_settings,
)
from pml.core.errors import ConfigInvalid, Unavailable
from tests.promises import promise

PATH = Path("/home/ann/.claude/settings.json")
COMMAND = hook_command("/opt/py thon", "/home/ann/.pml")
ENTRY = hook_entry(COMMAND)
SERVER = {"command": "pml", "args": ["stdio"]}
OTHERS = """{
    "model": "opus",   "n": 1.50,
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "./mine hook"}]}
        ]
    },
    "permissions": {"allow": ["Read"]}
}
"""


@promise("hook:fails-closed")
def test_the_hook_stands_before_every_tool_blocks_when_it_fails_and_knows_its_time() -> None:
    [entry] = json.loads(json.dumps(hook_settings(COMMAND)))["hooks"]["PreToolUse"]
    [hook] = entry["hooks"]
    assert (entry["matcher"], hook["type"], hook["onFailure"]) == ("*", "command", "block")
    words = shlex.split(hook["command"])
    assert words[:5] == ["/opt/py thon", "-I", "-m", "pml", "hook"]
    assert words[words.index("--timeout") + 1] == str(hook["timeout"])
    assert words[words.index("--home") + 1] == "/home/ann/.pml"


def test_the_hook_goes_in_once_beside_what_is_there_and_comes_out_again() -> None:
    once = with_hook(OTHERS, ENTRY, PATH)
    assert json.loads(once)["hooks"]["PreToolUse"][1] == ENTRY
    assert '"model": "opus",   "n": 1.50,' in once
    assert with_hook(once, ENTRY, PATH) == once
    assert hook_commands(once, PATH) == [COMMAND]
    assert without_hook(once, PATH) == OTHERS


def test_a_hook_of_an_older_set_up_is_replaced() -> None:
    older = with_hook(OTHERS, hook_entry(["/old/pml", "hook"]), PATH)
    newer = with_hook(older, ENTRY, PATH)
    assert hook_commands(newer, PATH) == [COMMAND]
    assert newer == with_hook(OTHERS, ENTRY, PATH)


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"a": 1, "hooks": {"Stop": []}}', '{"hooks": {"Stop": [7]}, "a": 1}']
)
def test_no_empty_list_stays_where_pml_was_alone_in_it(text: str) -> None:
    assert json.loads(without_hook(with_hook(text, ENTRY, PATH), PATH)) == json.loads(text)


@pytest.mark.parametrize("text", ['{"hooks": {"PreToolUse": []}}', '{"hooks": {}}', '{"mcpServers": {}}'])
def test_an_empty_list_in_which_pml_was_not_stays(text: str) -> None:
    assert (without_hook(text, PATH), without_server(text, "pml", PATH)) == (text, text)


def test_a_new_file_holds_nothing_but_the_hook() -> None:
    assert json.loads(with_hook(None, ENTRY, PATH)) == hook_settings(COMMAND)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{}",
        '{"mcpServers": {}}',
        '{"mcpServers": {"other": {"command": "x"}}, "more": [1]}',
        '{\n  "mcpServers": {\n    "a": {"command": "a"},\n    "b": {"command": "b"}\n  }\n}\n',
    ],
)
def test_the_server_goes_in_once_and_comes_out_again(text: str | None) -> None:
    was = json.loads(text or "{}")
    once = with_server(text, "pml", SERVER, PATH)
    now = json.loads(once)
    assert now == {**was, "mcpServers": {**was.get("mcpServers", {}), "pml": SERVER}}
    assert with_server(once, "pml", SERVER, PATH) == once
    assert server_in(once, "pml", PATH) == SERVER
    assert json.loads(without_server(once, "pml", PATH)) == {
        key: value for key, value in was.items() if value
    }


def test_another_server_of_that_name_is_replaced_wherever_it_stands() -> None:
    for before in ('{"pml": 1}', '{"pml": 1, "b": 2}', '{"a": 0, "pml": 1, "b": 2}', '{"a": 0, "pml": 1}'):
        text = f'{{"mcpServers": {before}}}'
        expected = {**json.loads(before), "pml": SERVER}
        assert json.loads(with_server(text, "pml", SERVER, PATH)) == {"mcpServers": expected}


@promise("config:never-overwritten-unparsed")
@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1, "a": 2}', "// comment\n{}", '{"hooks": []}'])
def test_a_file_that_is_not_understood_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(ConfigInvalid):
        with_hook(read_settings(path), ENTRY, path)
    assert path.read_text() == text


def test_servers_that_are_no_object_are_refused() -> None:
    with pytest.raises(ConfigInvalid):
        with_server('{"mcpServers": []}', "pml", SERVER, PATH)


def test_a_file_keeps_its_mode_and_its_place_behind_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    write_settings(link, '{"a": 1}', was="{}")
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ('{"a": 1}', 0o640)


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_that_the_umask_leaves_it(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_settings(tmp_path / "new.json", "{}", was=None)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "new.json").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_file_that_somebody_else_has_changed_meanwhile_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"theirs": true}')
    with pytest.raises(Unavailable):
        remove_settings(path, was="{}")
    assert path.read_text() == '{"theirs": true}'


def test_a_file_that_somebody_else_has_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"theirs": true}')
    with pytest.raises(Unavailable):
        write_settings(path, '{"ours": true}', was="{}")
    assert path.read_text() == '{"theirs": true}'
