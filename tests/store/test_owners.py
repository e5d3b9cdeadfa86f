"""Owner locks: alive as long as the lock is held, and no longer. Killed processes: see tests/faults."""

import os
from pathlib import Path

import pytest

from pml.core.approvals.record import OwnerId
from pml.host.locks import try_lock
from pml.store.owners import OwnerLocks, socket_name

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


def leave(home: Path, owner: OwnerId, *, old: bool) -> list[Path]:
    """Leave what a killed owner leaves."""
    run = home / "run"
    run.mkdir(exist_ok=True)
    left = [run / f"{owner}.lock", run / socket_name(owner)]
    for path in left:
        path.touch()
        if old:
            os.utime(path, (0, 0))
    return left


def test_what_killed_owners_left_is_removed_when_the_next_one_starts(tmp_path: Path) -> None:
    left = leave(tmp_path, B, old=True)

    with OwnerLocks(tmp_path, A):
        assert [path.exists() for path in left] == [False, False]
        assert os.listdir(tmp_path / "run") == [f"{A}.lock"]


def test_the_files_of_an_owner_that_may_be_starting_and_of_one_that_lives_are_left_alone(
    tmp_path: Path,
) -> None:
    starting = leave(tmp_path, B, old=False)
    with OwnerLocks(tmp_path, C):
        living = leave(tmp_path, C, old=True)

        with OwnerLocks(tmp_path, A) as mine:
            assert all(path.exists() for path in [*starting, *living])
            assert mine.alive(C)


def test_what_cannot_be_removed_keeps_nobody_from_starting_and_nothing_else_from_being_removed(
    tmp_path: Path,
) -> None:
    for n in range(3):
        (tmp_path / "run" / f"odd-{n}.lock").mkdir(parents=True)
        os.utime(tmp_path / "run" / f"odd-{n}.lock", (0, 0))
    left = [path for n in range(3) for path in leave(tmp_path, OwnerId(f"dead-{n}"), old=True)]

    with OwnerLocks(tmp_path, A) as mine:
        assert mine.alive(A)
        assert [path for path in left if path.exists()] == []


def test_an_owner_whose_file_is_removed_before_it_is_locked_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / f"{A}.lock"
    tries: list[int] = []

    def lock_too_late(fd: int) -> bool:
        if not tries:
            path.unlink()
        tries.append(fd)
        return try_lock(fd)

    with monkeypatch.context() as patch:
        patch.setattr("pml.store.owners.try_lock", lock_too_late)
        mine = OwnerLocks(tmp_path, A)

    with mine, OwnerLocks(tmp_path, B) as other:
        assert path.exists()
        assert other.alive(A)


def test_the_file_that_took_the_place_of_a_dead_one_is_not_removed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[OwnerLocks] = []

    def lock_the_old_one(fd: int) -> bool:
        monkeypatch.undo()
        (tmp_path / "run" / f"{B}.lock").unlink()
        started.append(OwnerLocks(tmp_path, B))
        return try_lock(fd)

    with OwnerLocks(tmp_path, A) as mine:
        leave(tmp_path, B, old=True)
        monkeypatch.setattr("pml.store.owners.try_lock", lock_the_old_one)
        mine.alive(B)

        assert mine.alive(B)
        started[0].close()
