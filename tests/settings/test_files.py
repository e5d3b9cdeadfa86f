"""Writing configuration files: edits lose nothing, and a broken file is left alone."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pml.core.config.file import FileKind
from pml.core.errors import Changed, ConfigInvalid, Forbidden, Invalid, Unavailable
from pml.core.rules.ruleset import Effect
from pml.core.values import Json
from pml.host.locks import locked
from pml.settings.config_files import WorkspaceFiles
from pml.settings.watched_file import MAX_BYTES
from tests.promises import promise
from tests.settings.places import ODD, files_in, listing

USER, WORKSPACE = FileKind.USER, FileKind.WORKSPACE
NEW_WORKSPACE = """{
  "version": "0.1.0",
  "permissions": {
    "allow": [],
    "deny": [],
    "ask": [
      "*"
    ]
  }
}
"""


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


UNUSABLE = [
    (b'{\n  "idle_s": "x"\n}', 2, 13, "`idle_s` must be a whole number from 1 to 31622400, not a string"),
    (b'{\n  "a": 1,\n}', 2, 9, "trailing comma: nothing follows it before `}`"),
    (b'{\n "\xc3\xa9": "\xff"}', 2, 8, "byte 0xff is not UTF-8"),
    (b"", 1, 1, "the file is empty; expected a JSON value"),
    (b" " * (MAX_BYTES + 1), 1, 1, "the file is larger than 4 MiB"),
]


@promise("config:never-overwritten-unparsed")
@pytest.mark.parametrize(("content", "line", "column", "problem"), UNUSABLE)
@pytest.mark.parametrize("which", FileKind)
def test_a_broken_file_is_reported_with_its_place_and_never_written(
    files: WorkspaceFiles, content: bytes, line: int, column: int, problem: str, which: FileKind
) -> None:
    path = files.path_of(which)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    loaded = files.read()
    error = (loaded.user if which is USER else loaded.workspace).error
    assert error is not None
    assert (error.path, error.line, error.column, error.problem) == (str(path), line, column, problem)
    with pytest.raises(ConfigInvalid) as refused:
        files.add_rule(which, Effect.ALLOW, "a:b")
    assert refused.value.message == error.message
    with pytest.raises(ConfigInvalid):
        files.remove_rule(which, Effect.ALLOW, "a:b")
    with pytest.raises(ConfigInvalid):
        files.edit(which, lambda _: "{}")
    assert path.read_bytes() == content


def test_a_missing_workspace_file_is_created_as_documented(files: WorkspaceFiles, workspace: Path) -> None:
    files.edit(WORKSPACE, lambda text: text)
    assert (workspace / ".pml.json").read_text() == NEW_WORKSPACE
    assert listing(workspace) == [".pml.json"]


def test_a_missing_users_file_is_created_readable_for_the_user_only(
    files: WorkspaceFiles, home: Path
) -> None:
    files.add_rule(USER, Effect.DENY, "Bash")
    path = home / ".pml" / "config.json"
    assert json.loads(path.read_text()) == {"version": "0.1.0", "permissions": {"deny": ["Bash"]}}
    assert [stat.S_IMODE(os.stat(it).st_mode) for it in (path, home / ".pml")] == [0o600, 0o700]


def test_a_new_workspace_file_can_be_read_by_all_and_an_old_one_keeps_its_mode(
    files: WorkspaceFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    files.add_rule(WORKSPACE, Effect.DENY, "Bash")
    created = stat.S_IMODE(os.stat(path).st_mode)
    path.chmod(0o640)
    files.add_rule(WORKSPACE, Effect.DENY, "Write")
    assert [created, stat.S_IMODE(os.stat(path).st_mode)] == [0o644, 0o640]


def test_unknown_keys_order_line_ends_and_the_spelling_of_numbers_survive(
    files: WorkspaceFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    path.write_bytes(ODD.encode())
    files.add_rule(WORKSPACE, Effect.DENY, {"tool": "x:y", "args": {"n": 1}})
    expected = ODD.replace('[ "Bash" ]', '[ "Bash", {"tool": "x:y", "args": {"n": 1}} ]')
    assert path.read_bytes() == expected.encode()
    assert files.remove_rule(WORKSPACE, Effect.DENY, {"args": {"n": 1}, "tool": "x:y"}) == 1
    assert path.read_bytes() == ODD.encode()


def test_a_rule_that_is_there_is_not_added_again(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    added = [
        files.add_rule(WORKSPACE, Effect.ALLOW, entry)
        for entry in (
            "a:b",
            "a:b",
            {"tool": "a:b", "args": {"x": 1, "y": 2}},
            {"args": {"y": 2, "x": 1}, "tool": "a:b"},
            {"tool": "a:b", "args": {"x": True, "y": 2}},
        )
    ]
    assert added == [True, False, True, False, True]
    assert len(json.loads(path.read_text())["permissions"]["allow"]) == 3


def test_rules_are_removed_by_entry_or_id_from_one_list(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    permissions = {"allow": ["a", "b", "a"], "deny": ["a", {"tool": "c", "id": "mine"}], "ask": ["a"]}
    path.write_text(json.dumps({"permissions": permissions}))
    assert files.remove_rule(WORKSPACE, Effect.ALLOW, "a") == 2
    assert files.remove_rule(WORKSPACE, Effect.DENY, "mine") == 1
    assert files.remove_rule(WORKSPACE, Effect.DENY, "nothing") == 0
    assert json.loads(path.read_text())["permissions"] == {"allow": ["b"], "deny": ["a"], "ask": ["a"]}


def test_removing_from_a_missing_file_creates_none(files: WorkspaceFiles, workspace: Path) -> None:
    assert files.remove_rule(WORKSPACE, Effect.ALLOW, "a") == 0
    assert listing(workspace) == []


@pytest.mark.parametrize(
    "entry", ["", 7, {"tool": "a:b", "nonsense": 1}, {"tool": "a:b", "args": {"x": float("nan")}}]
)
def test_a_rule_that_could_not_be_read_back_is_not_written(
    files: WorkspaceFiles, workspace: Path, entry: Json
) -> None:
    with pytest.raises(Invalid):
        files.add_rule(WORKSPACE, Effect.ALLOW, entry)
    assert listing(workspace) == []


@promise("config:never-overwritten-unparsed")
def test_a_change_that_would_break_the_file_is_not_written(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_bytes(ODD.encode())
    for broken in ("{", '{"idle_s": "x"}', json.dumps({"x": "y" * MAX_BYTES})):
        with pytest.raises(Invalid):
            files.edit(WORKSPACE, lambda _, broken=broken: broken)
    assert path.read_bytes() == ODD.encode()
    assert listing(workspace) == [".pml.json"]


def test_the_hook_before_replacing_sees_both_digests_and_stops_the_write_when_it_raises(
    files: WorkspaceFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    seen: list[tuple[str | None, str, bool]] = []

    def note(old: str | None, new: str, _text: str = "") -> None:
        seen.append((old, new, path.exists()))

    def refuse(old: str | None, new: str, _text: str) -> None:
        note(old, new)
        raise RuntimeError

    files.edit(WORKSPACE, lambda _: "{}", before_replace=note)
    files.edit(WORKSPACE, lambda text: text, before_replace=note)
    with pytest.raises(RuntimeError):
        files.edit(WORKSPACE, lambda _: '{"idle_s": 1}', before_replace=refuse)
    assert seen == [(None, digest("{}"), False), (digest("{}"), digest('{"idle_s": 1}'), True)]
    assert (path.read_text(), listing(workspace)) == ("{}", [".pml.json"])


def test_a_file_is_created_once_and_an_existing_one_is_left_alone(
    files: WorkspaceFiles, workspace: Path
) -> None:
    seen: list[tuple[str | None, str]] = []
    assert files.create(WORKSPACE, before_replace=lambda old, new, _: seen.append((old, new)))
    assert not files.create(WORKSPACE, before_replace=lambda old, new, _: seen.append((old, new)))
    assert seen == [(None, digest(NEW_WORKSPACE))]
    assert (workspace / ".pml.json").read_text() == NEW_WORKSPACE


@promise("config:concurrent-writes-lose-nothing")
def test_what_another_program_writes_during_an_edit_is_not_overwritten(
    files: WorkspaceFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    path.write_text("{}")

    def meddle(_old: str | None, _new: str, _text: str) -> None:
        path.write_text('{"idle_s": 5}')

    with pytest.raises(Changed):
        files.add_rule(WORKSPACE, Effect.ALLOW, "a:b", before_replace=meddle)
    assert (path.read_text(), listing(workspace)) == ('{"idle_s": 5}', [".pml.json"])


def test_a_link_in_a_workspace_is_read_but_not_written_through(
    files: WorkspaceFiles, workspace: Path, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere.json"
    target.write_text('{"idle_s": 5}')
    (workspace / ".pml.json").symlink_to(target)
    assert files.read().workspace.digest == digest('{"idle_s": 5}')
    with pytest.raises(Forbidden):
        files.add_rule(WORKSPACE, Effect.ALLOW, "a:b")
    assert (target.read_text(), (workspace / ".pml.json").is_symlink()) == ('{"idle_s": 5}', True)


def test_the_users_own_link_is_written_through_and_stays_a_link(
    files: WorkspaceFiles, home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    (home / ".pml").mkdir()
    (home / ".pml" / "config.json").symlink_to(target)
    assert files.add_rule(USER, Effect.ALLOW, "a:b")
    assert (
        json.loads(target.read_text())["permissions"]["allow"],
        (home / ".pml" / "config.json").is_symlink(),
    ) == (["a:b"], True)


def test_a_folder_that_cannot_be_written_is_said_to_be_so(home: Path, workspace: Path) -> None:
    path = workspace / "gone" / ".pml.json"
    with pytest.raises(Unavailable) as refused:
        files_in(home, path.parent).add_rule(WORKSPACE, Effect.ALLOW, "a:b")
    assert refused.value.message == f"cannot write `{path}`: No such file or directory"


def test_waiting_for_a_lock_ends_and_names_the_lock_file(home: Path, workspace: Path) -> None:
    files = files_in(home, workspace, lock_timeout_s=0)
    files.add_rule(WORKSPACE, Effect.ALLOW, "a:b")
    (lock,) = (home / ".pml" / "locks").iterdir()
    with locked(lock), pytest.raises(Unavailable) as refused:
        files.add_rule(WORKSPACE, Effect.ALLOW, "a:c")
    assert str(lock) in refused.value.message
    assert files.add_rule(WORKSPACE, Effect.ALLOW, "a:c")


EACH = 60  # entries of each process
ADD = """
import sys
from pathlib import Path
from pml.core.config.file import FileKind
from pml.core.rules.ruleset import Effect
from pml.settings.config_files import WorkspaceFiles

home, workspace, name, count = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
files = WorkspaceFiles(
    pml_home=home / ".pml", workspace=workspace, user_home=home, environ={}, lock_timeout_s=100
)
for number in range(count):
    assert files.add_rule(FileKind.WORKSPACE, Effect.ALLOW, f"{name}:{number}")
"""

CRASH = """
import os, sys
from pathlib import Path
from pml.core.config.file import FileKind
from pml.core.rules.ruleset import Effect
from pml.settings.config_files import WorkspaceFiles

home, workspace = Path(sys.argv[1]), Path(sys.argv[2])
files = WorkspaceFiles(pml_home=home / ".pml", workspace=workspace, user_home=home, environ={})
files.add_rule(FileKind.WORKSPACE, Effect.ALLOW, "a:b", before_replace=lambda old, new, text: os._exit(7))
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@promise("config:concurrent-writes-lose-nothing")
def test_two_processes_writing_at_once_lose_no_entry_and_the_file_is_valid_at_every_moment(
    files: WorkspaceFiles, home: Path, workspace: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    files.edit(WORKSPACE, lambda text: text)
    for name in ("one", "two"):
        command = [sys.executable, "-c", ADD, str(home), str(workspace), name, str(EACH)]
        started.append(subprocess.Popen(command))
    reader = files_in(home, workspace)
    states = 0
    while any(process.poll() is None for process in started):
        state = reader.read().workspace
        assert (state.error, state.config is None) == (None, False)
        states += 1
    assert [process.wait() for process in started] == [0, 0]
    found = json.loads((workspace / ".pml.json").read_text())["permissions"]["allow"]
    assert sorted(found) == sorted(f"{name}:{number}" for name in ("one", "two") for number in range(EACH))
    assert [entry for entry in found if entry.startswith("one")] == [
        f"one:{number}" for number in range(EACH)
    ]
    assert listing(workspace) == [".pml.json"]
    assert states > 0


@promise("config:concurrent-writes-lose-nothing")
def test_two_threads_of_one_process_lose_no_entry(home: Path, workspace: Path) -> None:
    def add(name: str) -> None:
        files = files_in(home, workspace, lock_timeout_s=100)
        for number in range(20):
            files.add_rule(WORKSPACE, Effect.ALLOW, f"{name}:{number}")

    threads = [threading.Thread(target=add, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads((workspace / ".pml.json").read_text())["permissions"]["allow"]) == 40


def test_a_crash_before_replacing_leaves_the_old_file_whole_and_no_lock_held(
    home: Path, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    path.write_text(ODD)
    before = path.read_bytes()
    crashed = subprocess.run(
        [sys.executable, "-c", CRASH, str(home), str(workspace)], check=False, timeout=60
    )
    assert crashed.returncode == 7
    assert (path.read_bytes(), listing(workspace)) == (before, [".pml.json"])
    assert files_in(home, workspace, lock_timeout_s=0).add_rule(WORKSPACE, Effect.ALLOW, "a:b")
