"""`kill -9` at any moment, with real processes on one database: what was reported is there, and only once."""

import asyncio
import os
import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pml.app import open_context, person
from pml.core.approvals.record import Approval, ApprovalId, OwnerId, State
from pml.core.audit.chain import Link
from pml.core.ports.queries import ApprovalQuery, AuditQuery
from pml.service.approvals.claims import claim
from pml.service.approvals.lifecycle import Decision, Question, ask, decide, get
from pml.service.context import Context
from pml.service.upkeep import sweep
from pml.store.owners import OwnerLocks
from pml.store.sqlite.database import Database
from tests.chains import verify
from tests.faults.workers import place_of, session_in, spawn
from tests.promises import promise

ROUNDS = 20
BOUND_S = 60.0
SEED = 20_261_115
ALL = 1_000_000
DECISIONS = {"approval.allowed", "approval.denied"}


@dataclass
class Reports:
    """What killed processes had been told."""

    lines: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def take(self, text: str) -> None:
        for line in text.splitlines():
            word, _, approval_id = line.partition(" ")
            assert word != "error", line
            if approval_id:
                self.lines[word, approval_id] += 1

    def ids(self, word: str) -> set[str]:
        return {approval_id for told, approval_id in self.lines if told == word}


async def allowed(context: Context, home: Path, count: int) -> list[Approval]:
    """Return approvals that were allowed, ready to be claimed."""
    records: list[Approval] = []
    for n in range(count):
        session = await session_in(context, home, f"test-{n // 10}")
        record = await ask(context, Question(session=session, tool="test:work", arguments={"n": n}))
        decision = Decision(by=person(), digest=record.digest, allow=True)
        records.append((await decide(context, record.id, decision)).record)
    return records


def line_of(worker: "subprocess.Popen[str]") -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def end_of(worker: "subprocess.Popen[str]") -> str:
    """Return all that the worker still says once its stdin ends.

    Read as `line_of` reads: `communicate` would miss what that took into its buffer beyond a line.
    """
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.close()
    with worker.stdout as stdout:
        said = stdout.read()
    worker.wait(BOUND_S)
    return said


def kill_rounds(home: Path, reports: Reports) -> None:
    chance = random.Random(SEED)
    for number in range(ROUNDS):
        workers = [spawn("busy", home, f"{number}-{n}") for n in range(2)]
        if number % 4:
            for worker in workers:
                assert line_of(worker) == "ready"
            time.sleep(chance.uniform(0, 0.08))  # not a wait for anything: the moment of the kill
        else:
            time.sleep(chance.uniform(0.05, 0.4))  # also while it starts, opens and migrates
        for worker in workers:
            worker.kill()
            reports.take(end_of(worker))


async def rows_of(context: Context) -> dict[str, Approval]:
    return {row.id: row for row in await context.store.approvals.page(ApprovalQuery(limit=ALL))}


@promise("store:kill-loses-nothing")
async def test_killed_processes_lose_no_report_and_decide_and_claim_nothing_twice(tmp_path: Path) -> None:
    reports = Reports()
    async with open_context(place_of(tmp_path)) as context:
        (held,) = await allowed(context, tmp_path, 1)
        sibling = spawn("hold", tmp_path, held.id)
        assert line_of(sibling).startswith("executing")

        await asyncio.to_thread(kill_rounds, tmp_path, reports)

        before = await rows_of(context)
        await sweep(context)
        after = await rows_of(context)
        log = list(await context.store.audit.list(AuditQuery(limit=ALL)))
        assert reports.ids("completed")
        assert_reports_are_stored(reports, after, log)
        assert_nothing_happened_twice(reports, log)
        assert_only_the_lost_are_unknown(before, after, running=held.id)
        assert "completed" in end_of(sibling)
        assert (await get(context, held.id)).status is State.COMPLETED
        await assert_sound(context, tmp_path)


def assert_reports_are_stored(reports: Reports, rows: dict[str, Approval], log: list[Link]) -> None:
    logged = {(link.entry.kind, link.entry.approval_id) for link in log}
    words = {"asked": "requested"}
    missing = [
        told for told in reports.lines if (f"approval.{words.get(told[0], told[0])}", told[1]) not in logged
    ]
    assert missing == []
    assert {rows[each].status for each in reports.ids("denied")} <= {State.DENIED}
    assert {rows[each].status for each in reports.ids("completed")} == {State.COMPLETED}
    assert all(rows[each].decided_by == person() for each in reports.ids("allowed"))
    assert State.DENIED not in {rows[each].status for each in reports.ids("allowed")}


def assert_nothing_happened_twice(reports: Reports, log: list[Link]) -> None:
    decided = Counter(link.entry.approval_id for link in log if link.entry.kind in DECISIONS)
    claimed = Counter(link.entry.approval_id for link in log if link.entry.kind == "approval.executing")
    assert {*decided.values(), *claimed.values()} == {1}
    assert set(reports.lines.values()) == {1}


def assert_only_the_lost_are_unknown(
    before: dict[str, Approval], after: dict[str, Approval], *, running: str
) -> None:
    executing = {each for each, row in before.items() if row.status is State.EXECUTING}
    newly_unknown = {
        each
        for each, row in after.items()
        if row.status is State.UNKNOWN and before[each].status is not State.UNKNOWN
    }
    assert newly_unknown == executing - {running}
    assert after[running].status is State.EXECUTING


async def assert_sound(context: Context, home: Path) -> None:
    links = [link async for link in context.store.audit.links()]
    assert verify(links, {head.chain: head for head in await context.store.audit.heads_kept()}) == []
    database = Database(str(home / "pml.db"))
    assert database.run("PRAGMA integrity_check") == [("ok",)]
    database.close()


@promise("approval:survives-restart")
async def test_questions_and_answers_are_there_after_every_process_is_gone(tmp_path: Path) -> None:
    async with open_context(place_of(tmp_path)) as context:
        session = await session_in(context, tmp_path, "s")
        waiting = await ask(context, Question(session=session, tool="test:work", arguments={"n": "waiting"}))
        (answered,) = await allowed(context, tmp_path, 1)

    async with open_context(place_of(tmp_path)) as context:
        assert await get(context, waiting.id) == waiting
        assert await get(context, answered.id) == answered
        assert (await claim(context, answered.id)).status is State.EXECUTING


@promise("run:at-most-once")
async def test_two_processes_that_claim_the_same_approvals_get_each_once(tmp_path: Path) -> None:
    async with open_context(place_of(tmp_path)) as context:
        records = await allowed(context, tmp_path, 100)
        ids = [record.id for record in records]
        workers = [spawn("claim-all", tmp_path, *order) for order in (ids, list(reversed(ids)))]
        for worker in workers:
            assert line_of(worker) == "ready"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        reports = Reports()
        for worker in workers:
            reports.take(end_of(worker))

        assert reports.lines == Counter({("executing", approval_id): 1 for approval_id in ids})
        log = await context.store.audit.list(AuditQuery(limit=ALL))
        assert sum(link.entry.kind == "approval.executing" for link in log) == 100


@promise("run:unknown-never-rerun")
async def test_what_a_killed_process_ran_becomes_unknown_also_while_its_child_lives_on(
    tmp_path: Path,
) -> None:
    async with open_context(place_of(tmp_path)) as context:
        mine, theirs = await allowed(context, tmp_path, 2)
        sibling = spawn("hold", tmp_path, mine.id)
        assert line_of(sibling).startswith("executing")
        owner = spawn("hold-with-child", tmp_path, theirs.id)
        assert line_of(owner).startswith("executing")

        assert (await sweep(context)).lost == 0  # both live, and one has a child
        owner.kill()
        owner.wait(BOUND_S)  # its child still waits for our pipe to end
        assert (await sweep(context)).lost == 1

        assert (await get(context, theirs.id)).status is State.UNKNOWN
        assert (await get(context, ApprovalId(mine.id))).status is State.EXECUTING
        end_of(owner)
        assert "completed" in end_of(sibling)


async def test_what_a_killed_process_left_in_the_run_directory_is_gone_once_another_starts(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    async with open_context(place_of(tmp_path)) as context:
        session = await session_in(context, tmp_path, "s")
        record = await ask(context, Question(session=session, tool="test:work", arguments={}))
        mine = set(os.listdir(run))
        killed, living = spawn("wait-for", tmp_path, record.id), spawn("wait-for", tmp_path, record.id)
        assert [line_of(killed), line_of(living)] == ["waiting", "waiting"]
        killed.kill()
        end_of(killed)
        left = set(os.listdir(run)) - mine
        assert sorted(Path(name).suffix for name in left) == [".lock", ".lock", ".sock", ".sock"]
        for name in os.listdir(run):
            os.utime(run / name, (0, 0))

        with OwnerLocks(tmp_path, OwnerId("next")):
            kept = set(os.listdir(run)) - mine - {"next.lock"}

        assert sorted(Path(name).suffix for name in kept) == [".lock", ".sock"]
        assert len({Path(name).stem for name in kept}) == 1
        await decide(context, record.id, Decision(by=person(), digest=record.digest, allow=False))
        assert end_of(living) == "denied\n"
