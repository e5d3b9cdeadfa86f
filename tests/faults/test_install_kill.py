"""`kill -9` at each step of an install: it leaves nothing or a whole install, and the next one succeeds."""

import os
import sys
from pathlib import Path

import pytest

from pml.core.ports.loader import Accepted
from tests.faults.installing import install, spawn
from tests.install.makers import FakeEcosystem, ignore, make_installer, make_plan
from tests.promises import promise

BOUND_S = 100.0


@pytest.mark.skipif(sys.platform == "win32", reason="signals and forks are not Windows's")
@promise("install:atomic")
async def test_an_install_killed_at_any_step_is_whole_or_nothing(tmp_path: Path) -> None:
    worker = spawn("at-every-step", tmp_path)
    steps, code = worker.communicate(timeout=BOUND_S)[0].split()
    assert (code, int(steps) > 30) == (b"0", True)

    whole = 0
    for step in range(1, int(steps) + 1):
        installer = make_installer(tmp_path / str(step))
        found = installer.installed("memory")
        if found is not None:
            whole += 1
            await installer.prove(installer.launch(found, workspace="/repo"))
            assert installer.accepted("memory") == Accepted(lock=found.lock, terms=found.terms)
        again = await installer.install(make_plan(), told=ignore)
        await installer.prove(installer.launch(again, workspace="/repo"))
        await installer.gc()
        assert leftovers(tmp_path / str(step), again.path) == []
    assert 0 < whole < int(steps)


def leftovers(home: Path, path: str) -> list[str]:
    kept = {os.path.basename(path) + ending for ending in ("", ".files", ".stat")}
    found = {*os.listdir(home / "servers" / "memory"), *os.listdir(home / "servers" / ".staging")}
    return sorted(found - kept)


@promise("install:once")
def test_processes_that_install_the_same_at_once_do_it_once(tmp_path: Path) -> None:
    workers = [spawn("at-once", tmp_path) for _ in range(4)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=BOUND_S)
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0]
    assert (tmp_path / "log").read_bytes() == b"."
    assert install(tmp_path / "home", FakeEcosystem(log=tmp_path / "log")).dependency.name == "memory"
    assert (tmp_path / "log").read_bytes() == b"."
