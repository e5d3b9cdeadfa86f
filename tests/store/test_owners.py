"""Owner locks: alive as long as the lock is held, and no longer. Killed processes: see tests/faults."""

import os
from pathlib import Path

import pytest

from pml.core.approvals import OwnerId
from pml.store.owners import OwnerLocks

A, B, C = OwnerId("owner-a"), OwnerId("owner-b"), OwnerId("owner-c")


def test_an_owner_is_alive_until_it_closes(tmp_path: Path) -> None:
    with OwnerLocks(tmp_path, A) as mine:
        other = OwnerLocks(tmp_path, B)

        assert mine.alive(A)
        assert mine.alive(B)
        assert other.alive(A)

        other.close()
        assert not mine.alive(B)
        other.close()


def test_an_owner_that_never_was_is_not_alive(tmp_path: Path) -> None:
    with OwnerLocks(tmp_path, A) as mine:
        assert not mine.alive(C)


def test_looking_at_a_live_owner_any_number_of_times_leaves_it_alive(tmp_path: Path) -> None:
    with OwnerLocks(tmp_path, A) as mine, OwnerLocks(tmp_path, B), OwnerLocks(tmp_path, C) as third:
        assert [mine.alive(B) for _ in range(100)] == [True] * 100
        assert third.alive(B)


def test_a_lock_file_that_was_left_behind_belongs_to_nobody_and_is_tidied_up(tmp_path: Path) -> None:
    with OwnerLocks(tmp_path, A) as mine:
        left = tmp_path / "run" / f"{B}.lock"
        left.touch()

        assert not mine.alive(B)
        assert not left.exists()
        assert not mine.alive(B)


def test_lock_files_are_private_and_inherited_by_no_child(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set[str]()
    with OwnerLocks(home, A):
        assert (home.stat().st_mode & 0o777, (home / "run").stat().st_mode & 0o777) == (0o700, 0o700)
        assert (home / "run" / f"{A}.lock").stat().st_mode & 0o777 == 0o600
        opened = set(os.listdir("/proc/self/fd")) - before if before else set[str]()
        held = [int(fd) for fd in opened if os.path.exists(f"/proc/self/fd/{fd}")]
        assert [fd for fd in held if os.get_inheritable(fd)] == []


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")

    with pytest.raises(OSError, match="home"):
        OwnerLocks(tmp_path / "home", A)
