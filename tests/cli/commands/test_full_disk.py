"""A disk that is full is called full, on every path that writes; what was there before is whole."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.commands import Pml
from tests.promises import promise

FAILED = 1
FULL = "the disk is full"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on no file can be synced: the lowest layer of everything that is replaced whole."""

    def fill() -> None:
        def fsync(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)

    return fill


@promise("disk:full-is-told")
def test_a_rule_that_does_not_fit_is_told_and_the_file_stays_whole(
    pml: Pml, local: Path, full: Callable[[], None]
) -> None:
    before = local.read_bytes()
    full()
    ran = pml("rules", "deny", "x:y")
    assert (ran.code, FULL in ran.err, "free some space" in ran.err) == (FAILED, True, True)
    assert local.read_bytes() == before


@promise("disk:full-is-told")
def test_init_tells_of_a_full_disk(pml: Pml, workspace: Path, full: Callable[[], None]) -> None:
    full()
    ran = pml("init", "--json")
    assert (ran.code, FULL in ran.err + ran.out) == (FAILED, True)
    assert not (workspace / ".pml.json").exists()


class _Usage(NamedTuple):
    total: int = 1 << 30
    used: int = 1 << 30
    free: int = 4096


@promise("disk:full-is-told")
def test_doctor_fails_on_a_full_disk(pml: Pml, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(folder: str) -> _Usage:
        return _Usage()

    monkeypatch.setattr(shutil, "disk_usage", usage)
    ran = pml("doctor", "--json")
    (check,) = [each for each in ran.json["checks"] if each["name"] == "disk"]
    assert (ran.code, check["status"], "is full" in check["message"]) == (FAILED, "fail", True)


SCRIPT = """
mount -t tmpfs -o size=640k tmpfs "$1" || exit 77
mkdir "$1/ws"; cd "$1/ws"; export PML_HOME="$1/home"
"$2" -m pml init >&2 && "$2" -m pml approvals ask x:y '{}' >&2
cat /dev/zero > "$1/fill" 2>&-
for words in "approvals ask x:z {}" "rules deny a:b" "secrets set KEY" "token create --role session"
do echo value | "$2" -m pml $words --json; done
"""


def _tmpfs(place: Path) -> list[Any]:
    """Return the errors of commands whose whole disk is full; skips where none can be mounted."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs `unshare`")
    argv = [unshare, "-rm", "sh", "-c", SCRIPT, "sh", str(place), sys.executable]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    if ran.returncode == 77 or "unshare" in ran.stderr:
        pytest.skip("no tmpfs can be mounted here")
    found: list[Any] = []
    decoder, text = json.JSONDecoder(), ran.stdout.strip()
    while text:
        value, at = decoder.raw_decode(text)
        found.append(value)
        text = text[at:].strip()
    return found


@promise("disk:full-is-told")
def test_on_a_disk_that_is_really_full_every_writing_command_says_so(tmp_path: Path) -> None:
    errors = [each["error"] for each in _tmpfs(tmp_path)]
    assert len(errors) == 4
    assert [FULL in each["message"] for each in errors] == [True] * 4
    assert ["free some" in (each.get("hint") or "") for each in errors] == [True] * 4
