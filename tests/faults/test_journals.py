"""`kill -9` while code runs: what was begun stays begun, what was finished stays finished, nothing is lost.

Run as a program it is the process that is killed: `python -m tests.faults.test_journals PML_HOME`.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pml.core.approvals.record import OwnerId
from pml.core.errors import Conflict
from pml.store.owners import OwnerLocks
from pml.store.sqlite.store import SqliteStore
from tests.contract.journals import RUN, begun, finished, make_code_run
from tests.faults.workers import ROOT, report
from tests.promises import promise

BOUND_S = 60.0
RUNNER, NEXT = OwnerId("runner"), OwnerId("next")


async def run_until_killed(home: Path) -> None:
    """Journal one step after the other for ever, telling what is kept."""
    with OwnerLocks(home, RUNNER):
        store = await SqliteStore.open(home, RUNNER)
        await store.journals.start(make_code_run(owner=RUNNER))
        report("started")
        number = 0
        while True:
            await store.journals.begin(begun(number))
            report("begun", str(number))
            sys.stdin.readline()
            await store.journals.finish(finished(number, place=number, value=b"%d" % number))
            report("finished", str(number))
            number += 1


@pytest.fixture
def runner(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.test_journals", str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def told_by(runner: "subprocess.Popen[str]") -> str:
    assert runner.stdout is not None
    return runner.stdout.readline().strip()


def go_on(runner: "subprocess.Popen[str]", steps: int) -> None:
    assert runner.stdin is not None
    runner.stdin.write("\n" * steps)
    runner.stdin.flush()


@promise("code:step-once")
async def test_a_process_killed_within_a_step_leaves_it_begun_and_its_run_to_the_next(
    tmp_path: Path, runner: "subprocess.Popen[str]"
) -> None:
    told = [told_by(runner), told_by(runner)]
    go_on(runner, 2)
    told += [told_by(runner) for _ in range(4)]
    assert told[-1] == "begun 2"

    with OwnerLocks(tmp_path, NEXT) as owners:
        store = await SqliteStore.open(tmp_path, NEXT)
        assert owners.alive(RUNNER)
        with pytest.raises(Conflict, match=RUNNER):
            await store.journals.take(RUN, NEXT, dead=())
        runner.kill()
        runner.wait(BOUND_S)
        dead = [owner for owner in await store.journals.owners() if not owners.alive(owner)]
        kept = await store.journals.take(RUN, NEXT, dead=dead)

        assert kept is not None
        assert (kept.run.owner, kept.run.taken) == (NEXT, 1)
        assert kept.steps == [
            finished(0, place=0, value=b"0"),
            finished(1, place=1, value=b"1"),
            begun(2),
        ]
        await store.close()


@promise("store:kill-loses-nothing")
async def test_a_process_killed_at_any_moment_has_kept_every_step_that_it_told_of(
    tmp_path: Path, runner: "subprocess.Popen[str]"
) -> None:
    assert told_by(runner) == "started"
    go_on(runner, 10_000)
    told = [told_by(runner) for _ in range(100)]
    runner.kill()
    assert runner.stdout is not None
    told += runner.stdout.read().splitlines()
    last, number = told[-1].split()

    store = await SqliteStore.open(tmp_path, NEXT)
    kept = await store.journals.take(RUN, NEXT, dead=(RUNNER,))

    assert kept is not None
    done = [step for step in kept.steps if step.place is not None]
    assert done == [finished(n, place=n, value=b"%d" % n) for n in range(len(done))]
    assert [*kept.steps[len(done) :]] in ([], [begun(len(done))])
    assert len(kept.steps) > int(number)
    assert len(done) > int(number) - (last == "begun")
    await store.close()


if __name__ == "__main__":
    asyncio.run(run_until_killed(Path(sys.argv[1])))
