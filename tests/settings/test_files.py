"""Configuration files on disk: changes are noticed, edits lose nothing, a broken file is left alone."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pml.core.config import FileKind
from pml.core.errors import Changed, ConfigInvalid, Forbidden, Invalid, Unavailable
from pml.core.jsontext import parse
from pml.core.rules import Effect
from pml.core.values import Json
from pml.settings.files import ConfigFiles
from pml.settings.locks import locked
from pml.settings.reading import COARSE_RACY_NS, MAX_BYTES, RACY_NS, FileState
from pml.settings.replacing import replace_file
from tests.promises import promise

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
ODD = '{"z": 1.50, "permissions": {"ask": ["*"],\r\n  "deny": [ "Bash" ] }, "idle_s": 60, "a": 1E2}\r\n'


class Now:
    """The time of reading, far after every change unless a test says otherwise."""

    ns = 1 << 62

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "w"
    place.mkdir()
    return place


@pytest.fixture
def files(home: Path, workspace: Path, now: Now) -> ConfigFiles:
    return files_in(home, workspace, now=now)


def files_in(
    home: Path, workspace: Path, *, now: Now | None = None, lock_timeout_s: float = 10
) -> ConfigFiles:
    return ConfigFiles(
        pml_home=home / ".pml",
        workspace=workspace,
        user_home=home,
        now_ns=now or Now(),
        lock_timeout_s=lock_timeout_s,
    )


def entries(path: Path, effect: Effect) -> Json:
    return parse(path.read_text(encoding="utf-8"), path="f").members["permissions"].members[effect].value


def listing(place: Path) -> list[str]:
    return sorted(entry.name for entry in place.iterdir())


# reading


def test_absent_files_are_no_error(files: ConfigFiles, home: Path, workspace: Path) -> None:
    loaded = files.read()
    assert loaded.user == FileState(path=home / ".pml" / "config.json")
    assert loaded.workspace == FileState(path=workspace / ".pml.json")


def test_a_file_is_read_with_its_text_and_the_digest_of_its_bytes(
    files: ConfigFiles, workspace: Path
) -> None:
    (workspace / ".pml.json").write_bytes(ODD.encode())
    state = files.read().workspace
    assert (state.text, state.digest, state.error) == (ODD, hashlib.sha256(ODD.encode()).hexdigest(), None)
    assert state.config is not None
    assert [(rule.tool, rule.source and rule.source.line) for rule in state.config.rules] == [
        ("Bash", 2),
        ("*", 1),
    ]


def test_an_unchanged_file_is_the_same_object_at_the_cost_of_one_stat_each(
    files: ConfigFiles, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / ".pml.json").write_text("{}")
    first = files.read()
    looked_at: list[Path] = []
    look = os.stat

    def stat_noted(path: Path) -> os.stat_result:
        looked_at.append(path)
        return look(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat_noted)
        patched.delattr(os, "open")
        again = files.read()
    assert again is first
    assert looked_at == [first.user.path, first.workspace.path]


def test_a_changed_file_is_read_again(files: ConfigFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"idle_s": 1}')
    first = files.read()
    path.write_text('{"idle_s": 22}')
    second = files.read()
    path.unlink()
    assert [first.workspace.text, second.workspace.text, files.read().workspace.text] == [
        '{"idle_s": 1}',
        '{"idle_s": 22}',
        None,
    ]
    assert second.user is first.user


@dataclass
class StillStatus:
    """The status of a file whose stamps stand still, as they do between two ticks of a coarse clock."""

    st_mtime_ns: int
    st_ctime_ns: int
    st_mode: int = stat.S_IFREG
    st_size: int = 13
    st_ino: int = 1
    st_dev: int = 1


@pytest.mark.parametrize(("stamp_ns", "racy_ns"), [(10**18 + 1, RACY_NS), (10**18, COARSE_RACY_NS)])
def test_a_file_read_right_after_its_change_is_read_again_even_if_its_stamps_stay(
    home: Path,
    workspace: Path,
    now: Now,
    monkeypatch: pytest.MonkeyPatch,
    stamp_ns: int,
    racy_ns: int,
) -> None:
    files, path = files_in(home, workspace, now=now), workspace / ".pml.json"

    def still(_: object) -> StillStatus:
        return StillStatus(stamp_ns, stamp_ns)

    states: list[FileState] = []
    for text, age_ns in [("1", racy_ns), ("1", racy_ns), ("2", racy_ns + 1), ("3", racy_ns + 1)]:
        path.write_text(f'{{"idle_s": {text}}}')
        now.ns = stamp_ns + age_ns
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", still)
            patched.setattr(os, "fstat", still)
            states.append(files.read().workspace)
    assert [state.text for state in states] == [
        '{"idle_s": 1}',
        '{"idle_s": 1}',
        '{"idle_s": 2}',
        '{"idle_s": 2}',
    ]
    assert (states[1] is states[0], states[3] is states[2]) == (True, True)


def test_a_new_content_with_restored_size_and_mtime_is_noticed(files: ConfigFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"idle_s": 1}')
    status = os.stat(path)
    first = files.read().workspace
    replacement = workspace / "other"
    replacement.write_text('{"idle_s": 2}')
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.replace(path)
    assert (first.text, files.read().workspace.text) == ('{"idle_s": 1}', '{"idle_s": 2}')


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
    files: ConfigFiles, content: bytes, line: int, column: int, problem: str, which: FileKind
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
        files.remove_rule(which, None, "a:b")
    with pytest.raises(ConfigInvalid):
        files.edit(which, lambda _: "{}")
    assert path.read_bytes() == content


def make_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Path.mkdir, "the file is a directory"),
        (os.mkfifo, "the file is not a regular file"),
        (make_loop, "the file cannot be read: Too many levels of symbolic links"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_not_an_absent_file_until_it_is_mended(
    files: ConfigFiles, workspace: Path, make: Callable[[Path], None], problem: str
) -> None:
    path = workspace / ".pml.json"
    make(path)
    error = files.read().workspace.error
    assert error is not None
    assert (error.line, error.column, error.problem) == (1, 1, problem)
    path.rename(workspace / "away")
    path.write_text("{}")
    assert files.read().workspace.error is None


# writing


def test_a_missing_workspace_file_is_created_as_documented(files: ConfigFiles, workspace: Path) -> None:
    files.edit(WORKSPACE, lambda text: text)
    assert (workspace / ".pml.json").read_text() == NEW_WORKSPACE
    assert listing(workspace) == [".pml.json"]


def test_a_missing_users_file_is_created_readable_for_the_user_only(files: ConfigFiles, home: Path) -> None:
    files.add_rule(USER, Effect.DENY, "Bash")
    path = home / ".pml" / "config.json"
    assert json.loads(path.read_text()) == {"version": "0.1.0", "permissions": {"deny": ["Bash"]}}
    assert [stat.S_IMODE(os.stat(it).st_mode) for it in (path, home / ".pml")] == [0o600, 0o700]


def test_a_new_workspace_file_can_be_read_by_all_and_an_old_one_keeps_its_mode(
    files: ConfigFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    files.add_rule(WORKSPACE, Effect.DENY, "Bash")
    created = stat.S_IMODE(os.stat(path).st_mode)
    path.chmod(0o640)
    files.add_rule(WORKSPACE, Effect.DENY, "Write")
    assert [created, stat.S_IMODE(os.stat(path).st_mode)] == [0o644, 0o640]


def test_unknown_keys_order_line_ends_and_the_spelling_of_numbers_survive(
    files: ConfigFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    path.write_bytes(ODD.encode())
    files.add_rule(WORKSPACE, Effect.DENY, {"tool": "x:y", "args": {"n": 1}})
    expected = ODD.replace('[ "Bash" ]', '[ "Bash", {"tool": "x:y", "args": {"n": 1}} ]')
    assert path.read_bytes() == expected.encode()
    assert files.remove_rule(WORKSPACE, Effect.DENY, {"args": {"n": 1}, "tool": "x:y"}) == 1
    assert path.read_bytes() == ODD.encode()


def test_a_rule_that_is_there_is_not_added_again(files: ConfigFiles, workspace: Path) -> None:
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


def test_rules_are_removed_by_entry_or_id_from_one_list_or_all(files: ConfigFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    permissions = {"allow": ["a", "b", "a"], "deny": ["a", {"tool": "c", "id": "mine"}], "ask": ["a"]}
    path.write_text(json.dumps({"permissions": permissions}))
    assert files.remove_rule(WORKSPACE, Effect.ALLOW, "a") == 2
    assert files.remove_rule(WORKSPACE, None, "mine") == 1
    assert files.remove_rule(WORKSPACE, None, "nothing") == 0
    assert json.loads(path.read_text())["permissions"] == {"allow": ["b"], "deny": ["a"], "ask": ["a"]}
    assert files.remove_rule(WORKSPACE, None, "a") == 2


def test_removing_from_a_missing_file_creates_none(files: ConfigFiles, workspace: Path) -> None:
    assert files.remove_rule(WORKSPACE, None, "a") == 0
    assert listing(workspace) == []


@pytest.mark.parametrize(
    "entry", ["", 7, {"tool": "a:b", "nonsense": 1}, {"tool": "a:b", "args": {"x": float("nan")}}]
)
def test_a_rule_that_could_not_be_read_back_is_not_written(
    files: ConfigFiles, workspace: Path, entry: Json
) -> None:
    with pytest.raises(Invalid):
        files.add_rule(WORKSPACE, Effect.ALLOW, entry)
    assert listing(workspace) == []


@promise("config:never-overwritten-unparsed")
def test_a_change_that_would_break_the_file_is_not_written(files: ConfigFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_bytes(ODD.encode())
    for broken in ("{", '{"idle_s": "x"}', json.dumps({"x": "y" * MAX_BYTES})):
        with pytest.raises(Invalid):
            files.edit(WORKSPACE, lambda _, broken=broken: broken)
    assert path.read_bytes() == ODD.encode()
    assert listing(workspace) == [".pml.json"]


def test_the_hook_before_replacing_sees_both_texts_and_stops_the_write_when_it_raises(
    files: ConfigFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    seen: list[tuple[str | None, str, bool]] = []
    files.edit(
        WORKSPACE, lambda _: "{}", before_replace=lambda old, new: seen.append((old, new, path.exists()))
    )
    files.edit(WORKSPACE, lambda text: text, before_replace=lambda old, new: seen.append((old, new, True)))

    def refuse(old: str | None, new: str) -> None:
        seen.append((old, new, path.read_text() == old))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.edit(WORKSPACE, lambda _: '{"idle_s": 1}', before_replace=refuse)
    assert seen == [(None, "{}", False), ("{}", '{"idle_s": 1}', True)]
    assert (path.read_text(), listing(workspace)) == ("{}", [".pml.json"])


@promise("config:concurrent-writes-lose-nothing")
def test_what_another_program_writes_during_an_edit_is_not_overwritten(
    files: ConfigFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    path.write_text("{}")

    def meddle(_old: str | None, _new: str) -> None:
        path.write_text('{"idle_s": 5}')

    with pytest.raises(Changed):
        files.add_rule(WORKSPACE, Effect.ALLOW, "a:b", before_replace=meddle)
    assert (path.read_text(), listing(workspace)) == ('{"idle_s": 5}', [".pml.json"])


def test_a_link_in_a_workspace_is_read_but_not_written_through(
    files: ConfigFiles, workspace: Path, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere.json"
    target.write_text('{"idle_s": 5}')
    (workspace / ".pml.json").symlink_to(target)
    assert files.read().workspace.text == '{"idle_s": 5}'
    with pytest.raises(Forbidden):
        files.add_rule(WORKSPACE, Effect.ALLOW, "a:b")
    assert (target.read_text(), (workspace / ".pml.json").is_symlink()) == ('{"idle_s": 5}', True)


def test_the_users_own_link_is_written_through_and_stays_a_link(
    files: ConfigFiles, home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    (home / ".pml").mkdir()
    (home / ".pml" / "config.json").symlink_to(target)
    assert files.add_rule(USER, Effect.ALLOW, "a:b")
    assert (entries(target, Effect.ALLOW), (home / ".pml" / "config.json").is_symlink()) == (["a:b"], True)


def test_a_replacement_that_fails_leaves_no_other_file(workspace: Path) -> None:
    (workspace / "taken").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        replace_file(workspace / "taken", b"{}", mode=0o600, last_check=lambda: None)
    assert listing(workspace) == ["taken"]


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


# several processes


ADD = """
import sys
from pathlib import Path
from pml.core.config import FileKind
from pml.core.rules import Effect
from pml.settings.files import ConfigFiles

home, workspace, name, count = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
files = ConfigFiles(pml_home=home / ".pml", workspace=workspace, user_home=home, lock_timeout_s=100)
for number in range(count):
    assert files.add_rule(FileKind.WORKSPACE, Effect.ALLOW, f"{name}:{number}")
"""

CRASH = """
import os, sys
from pathlib import Path
from pml.core.config import FileKind
from pml.core.rules import Effect
from pml.settings.files import ConfigFiles

home, workspace = Path(sys.argv[1]), Path(sys.argv[2])
files = ConfigFiles(pml_home=home / ".pml", workspace=workspace, user_home=home)
files.add_rule(FileKind.WORKSPACE, Effect.ALLOW, "a:b", before_replace=lambda old, new: os._exit(7))
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
    files: ConfigFiles, home: Path, workspace: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    files.edit(WORKSPACE, lambda text: text)
    for name in ("one", "two"):
        command = [sys.executable, "-c", ADD, str(home), str(workspace), name, "200"]
        started.append(subprocess.Popen(command))
    reader = files_in(home, workspace)
    states = 0
    while any(process.poll() is None for process in started):
        state = reader.read().workspace
        assert (state.error, state.text is None) == (None, False)
        states += 1
    assert [process.wait() for process in started] == [0, 0]
    found = json.loads((workspace / ".pml.json").read_text())["permissions"]["allow"]
    assert sorted(found) == sorted(f"{name}:{number}" for name in ("one", "two") for number in range(200))
    assert [entry for entry in found if entry.startswith("one")] == [f"one:{number}" for number in range(200)]
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


# paths as rules see them


def test_real_paths_follow_links_and_keep_what_does_not_exist(
    files: ConfigFiles, home: Path, tmp_path: Path
) -> None:
    place = Path(os.path.realpath(tmp_path))
    (place / "link").symlink_to(place / "w")
    paths = files.real_paths()
    assert paths.home == str(home)
    assert paths.real(f"{place}/link/new/file") == f"{place}/w/new/file"
    assert paths.real(f"{place}/link/../w/./x") == f"{place}/w/x"
    assert paths.real("//no-such-folder/x") == "/no-such-folder/x"


@pytest.mark.parametrize("path", ["/a\0b", "relative", ""])
def test_a_path_that_no_system_can_open_is_refused(files: ConfigFiles, path: str) -> None:
    with pytest.raises(ValueError, match="absolute path without NUL"):
        files.real_paths().real(path)
