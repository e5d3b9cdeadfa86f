"""Reading configuration files from disk: every change is noticed, and what cannot be read is an error."""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pml.core.ports.world import FileState
from pml.settings.config_files import WorkspaceFiles
from pml.settings.watched_file import COARSE_RACY_NS, RACY_NS
from tests.settings.places import ODD, Now, files_in


def idle_s(state: FileState) -> int | None:
    return state.config and state.config.idle_s


def test_absent_files_are_no_error(files: WorkspaceFiles, home: Path, workspace: Path) -> None:
    loaded = files.read()
    assert loaded.user == FileState(path=str(home / ".pml" / "config.json"))
    assert loaded.workspace == FileState(path=str(workspace / ".pml.json"))


def test_a_file_is_read_with_its_rules_and_the_digest_of_its_bytes(
    files: WorkspaceFiles, workspace: Path
) -> None:
    (workspace / ".pml.json").write_bytes(ODD.encode())
    state = files.read().workspace
    assert (state.digest, state.error) == (f"sha256:{hashlib.sha256(ODD.encode()).hexdigest()}", None)
    assert state.config is not None
    assert [(rule.tool, rule.source and rule.source.line) for rule in state.config.rules] == [
        ("Bash", 2),
        ("*", 1),
    ]


def test_an_unchanged_file_is_the_same_object_at_the_cost_of_one_stat_each(
    files: WorkspaceFiles, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / ".pml.json").write_text("{}")
    first = files.read()
    looked_at: list[str] = []
    look = os.stat

    def stat_noted(path: Path) -> os.stat_result:
        looked_at.append(str(path))
        return look(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat_noted)
        patched.delattr(os, "open")
        again = files.read()
    assert again is first
    secrets = str(Path(first.user.path).with_name("secrets.json"))  # entries may name what it has
    assert looked_at == [secrets, first.user.path, first.workspace.path]


def test_a_changed_file_is_read_again(files: WorkspaceFiles, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"idle_s": 1}')
    first = files.read()
    path.write_text('{"idle_s": 22}')
    second = files.read()
    path.unlink()
    assert [idle_s(state) for state in (first.workspace, second.workspace, files.read().workspace)] == [
        1,
        22,
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
    assert [idle_s(state) for state in states] == [1, 1, 2, 2]
    assert (states[1] is states[0], states[3] is states[2]) == (True, True)


def test_a_new_content_with_restored_size_and_mtime_is_noticed(
    files: WorkspaceFiles, workspace: Path
) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"idle_s": 1}')
    status = os.stat(path)
    first = files.read().workspace
    replacement = workspace / "other"
    replacement.write_text('{"idle_s": 2}')
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.replace(path)
    assert (idle_s(first), idle_s(files.read().workspace)) == (1, 2)


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
    files: WorkspaceFiles, workspace: Path, make: Callable[[Path], None], problem: str
) -> None:
    path = workspace / ".pml.json"
    make(path)
    error = files.read().workspace.error
    assert error is not None
    assert (error.line, error.column, error.problem) == (1, 1, problem)
    path.rename(workspace / "away")
    path.write_text("{}")
    assert files.read().workspace.error is None


def test_real_paths_follow_links_and_keep_what_does_not_exist(
    files: WorkspaceFiles, home: Path, tmp_path: Path
) -> None:
    place = Path(os.path.realpath(tmp_path))
    (place / "link").symlink_to(place / "w")
    paths = files.paths
    assert paths.home == str(home)
    assert paths.real(f"{place}/link/new/file") == f"{place}/w/new/file"
    assert paths.real(f"{place}/link/../w/./x") == f"{place}/w/x"
    assert paths.real("//no-such-folder/x") == "/no-such-folder/x"


@pytest.mark.parametrize("path", ["/a\0b", "relative", ""])
def test_a_path_that_no_system_can_open_is_refused(files: WorkspaceFiles, path: str) -> None:
    with pytest.raises(ValueError, match="absolute path without NUL"):
        files.paths.real(path)
