"""Replacing a file: on the disk before anyone relies on it, and nothing left behind, not even by a kill."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pml.core.config.file import FileKind
from pml.host.replace import replace_file
from tests.settings.places import files_in, listing

KILLED = """
import os, signal, sys
from pathlib import Path
from pml.host.replace import replace_file

replace_file(Path(sys.argv[1]), b"{}", mode=0o600, last_check=lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def replace(path: Path, content: bytes = b"{}") -> None:
    replace_file(path, content, mode=0o600, last_check=lambda: None)


def test_a_replacement_that_fails_leaves_no_other_file(workspace: Path) -> None:
    (workspace / "taken").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        replace_file(workspace / "taken", b"{}", mode=0o600, last_check=lambda: None)
    assert listing(workspace) == ["taken"]


def test_the_content_is_synced_before_the_name_and_the_name_before_it_is_relied_on(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(fd: int) -> None:
        status = os.fstat(fd)
        synced = "the directory" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes"
        steps.append(f"sync {synced}")
        real_sync(fd)

    def rename(source: str, target: Path) -> None:
        steps.append("replace")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)

    replace(workspace / ".pml.json", b"x" * 1000)

    assert steps == ["sync 1000 bytes", "replace", "sync the directory"]


def test_what_a_killed_edit_left_is_removed_by_the_next_one(home: Path, workspace: Path) -> None:
    path = workspace / ".pml.json"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (left,) = workspace.iterdir()
    os.utime(left, (0, 0))

    files_in(home, workspace).create(FileKind.WORKSPACE)

    assert listing(workspace) == [".pml.json"]


def test_what_may_still_be_written_and_what_is_not_ours_is_left_alone(workspace: Path) -> None:
    in_progress = ".pml.json.abcd_123.tmp"
    others = [
        ".pml.json.mine.tmp",
        ".pml.json.abcd_123.tmp.bak",
        "x.pml.json.abcd_123.tmp",
        ".pmlxjson.abcd_123.tmp",
        ".config.json.abcd_123.tmp",
    ]
    for name in [in_progress, *others]:
        (workspace / name).touch()
    for name in others:
        os.utime(workspace / name, (0, 0))

    replace(workspace / ".pml.json")

    assert listing(workspace) == sorted([".pml.json", in_progress, *others])
