"""Real processes that the fault tests start, kill and watch: each prints a line for what it was told is done.

Run as `python -m tests.faults.workers TASK PML_HOME …`; a line is in the pipe before the next step begins.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pml.app import Place, open_desk, person
from pml.core.approvals import ApprovalId, SessionId, State
from pml.core.errors import Conflict, Forbidden, NotFound, PmlError
from pml.core.ports import ApprovalQuery, Session
from pml.service.approvals import Decision, Question, ask, claim, decide, finish, pending, wait
from pml.service.desk import Desk
from pml.service.sessions import start_session
from pml.service.upkeep import sweep

ROOT = Path(__file__).parents[2]


def spawn(task: str, home: Path, *more: str) -> "subprocess.Popen[str]":
    """Start a worker whose lines can be read and whose stdin can be written."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.workers", task, str(home), *more],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def place_of(home: Path) -> Place:
    return Place(home=home, workspace=home, user_home=home)


def report(*words: str) -> None:
    os.write(1, f"{' '.join(words)}\n".encode())  # one write: a kill leaves whole lines only


async def session_in(desk: Desk, home: Path, name: str) -> Session:
    return await start_session(
        desk,
        session_id=SessionId(name),
        name=name,
        principal="tester",
        workspace=str(home),
        process=None,
        is_agent=False,
    )


async def busy(desk: Desk, home: Path, seed: str) -> None:
    """Ask, decide and claim for ever, beside others who do the same with the same approvals."""
    chance = random.Random(seed)
    await sweep(desk)
    session = await session_in(desk, home, f"busy-{seed}")
    report("ready")
    n = 0
    while True:
        n += 1
        try:
            question = Question(session=session, tool="test:work", arguments={"seed": seed, "n": n})
            report("asked", (await ask(desk, question)).id)
        except Forbidden:  # twenty wait already: answer some first
            pass
        await _decide_some(desk, chance)
        await _run_some(desk, chance)


async def _decide_some(desk: Desk, chance: random.Random) -> None:
    for record in chance.sample(waiting := await pending(desk, limit=4), k=min(2, len(waiting))):
        allow = chance.random() < 0.7
        try:
            await decide(desk, record.id, Decision(by=person(), digest=record.digest, allow=allow))
        except (Conflict, NotFound):  # somebody was faster
            continue
        report("allowed" if allow else "denied", record.id)


async def _run_some(desk: Desk, chance: random.Random) -> None:
    allowed = await desk.store.approvals.page(ApprovalQuery(states=frozenset({State.ALLOWED}), limit=4))
    for record in chance.sample(allowed, k=min(2, len(allowed))):
        try:
            await claim(desk, record.id)
        except (Conflict, NotFound):
            continue
        report("executing", record.id)
        await finish(desk, record.id)
        report("completed", record.id)


async def hold(desk: Desk, home: Path, approval_id: str) -> None:
    """Claim one approval, keep it running until stdin ends, then finish it."""
    await claim(desk, ApprovalId(approval_id))
    report("executing", desk.owners.me)
    await asyncio.to_thread(sys.stdin.read)
    await finish(desk, ApprovalId(approval_id))
    report("completed")


async def hold_with_child(desk: Desk, home: Path, approval_id: str) -> None:
    """Claim one approval and start a child that lives until stdin ends, longer than this process may."""
    await claim(desk, ApprovalId(approval_id))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import sys; sys.stdin.read()")
    report("executing", desk.owners.me)
    await child.wait()


async def claim_all(desk: Desk, home: Path, *approval_ids: str) -> None:
    """Wait for a line on stdin, then claim what can be claimed."""
    report("ready")
    sys.stdin.readline()
    for approval_id in approval_ids:
        try:
            await claim(desk, ApprovalId(approval_id))
        except Conflict:
            continue
        report("executing", approval_id)


async def wait_for(desk: Desk, home: Path, approval_id: str) -> None:
    """Wait for an answer, and tell it."""
    waiting = asyncio.ensure_future(wait(desk, ApprovalId(approval_id)))
    await asyncio.sleep(0)  # it is registered when it first gives up the loop
    report("waiting")
    report((await waiting).status)


TASKS = {
    "busy": busy,
    "hold": hold,
    "hold-with-child": hold_with_child,
    "claim-all": claim_all,
    "wait-for": wait_for,
}


async def main(task: str, home: Path, more: Sequence[str]) -> None:
    async with open_desk(place_of(home)) as desk:
        try:
            await TASKS[task](desk, home, *more)
        except PmlError as exc:
            report("error", exc.message)
            raise


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
