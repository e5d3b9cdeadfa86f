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

from pml.app import Place, open_context, person
from pml.core.approvals.record import ApprovalId, SessionId, State
from pml.core.errors import Conflict, Forbidden, NotFound, PmlError
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.lifecycle import Decision, Question, ask, decide, pending, wait
from pml.service.context import Context
from pml.service.session_tree import start_session
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


async def session_in(context: Context, home: Path, name: str) -> Session:
    return await start_session(
        context,
        session_id=SessionId(name),
        name=name,
        principal="tester",
        workspace=str(home),
        process=None,
        is_agent=False,
    )


async def busy(context: Context, home: Path, seed: str) -> None:
    """Ask, decide and claim for ever, beside others who do the same with the same approvals."""
    chance = random.Random(seed)
    await sweep(context)
    session = await session_in(context, home, f"busy-{seed}")
    report("ready")
    n = 0
    while True:
        n += 1
        try:
            question = Question(session=session, tool="test:work", arguments={"seed": seed, "n": n})
            report("asked", (await ask(context, question)).id)
        except Forbidden:  # twenty wait already: answer some first
            pass
        await _decide_some(context, chance)
        await _run_some(context, chance)


async def _decide_some(context: Context, chance: random.Random) -> None:
    for record in chance.sample(waiting := await pending(context, limit=4), k=min(2, len(waiting))):
        allow = chance.random() < 0.7
        try:
            await decide(context, record.id, Decision(by=person(), digest=record.digest, allow=allow))
        except (Conflict, NotFound):  # somebody was faster
            continue
        report("allowed" if allow else "denied", record.id)


async def _run_some(context: Context, chance: random.Random) -> None:
    allowed = await context.store.approvals.page(ApprovalQuery(states=frozenset({State.ALLOWED}), limit=4))
    for record in chance.sample(allowed, k=min(2, len(allowed))):
        try:
            await claim(context, record.id)
        except (Conflict, NotFound):
            continue
        report("executing", record.id)
        await finish(context, record.id)
        report("completed", record.id)


async def hold(context: Context, home: Path, approval_id: str) -> None:
    """Claim one approval, keep it running until stdin ends, then finish it."""
    await claim(context, ApprovalId(approval_id))
    report("executing", context.owners.me)
    await asyncio.to_thread(sys.stdin.read)
    await finish(context, ApprovalId(approval_id))
    report("completed")


async def hold_with_child(context: Context, home: Path, approval_id: str) -> None:
    """Claim one approval and start a child that lives until stdin ends, longer than this process may."""
    await claim(context, ApprovalId(approval_id))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import sys; sys.stdin.read()")
    report("executing", context.owners.me)
    await child.wait()


async def claim_all(context: Context, home: Path, *approval_ids: str) -> None:
    """Wait for a line on stdin, then claim what can be claimed."""
    report("ready")
    sys.stdin.readline()
    for approval_id in approval_ids:
        try:
            await claim(context, ApprovalId(approval_id))
        except Conflict:
            continue
        report("executing", approval_id)


async def wait_for(context: Context, home: Path, approval_id: str) -> None:
    """Wait for an answer, and tell it."""
    waiting = asyncio.ensure_future(wait(context, ApprovalId(approval_id)))
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
    async with open_context(place_of(home)) as context:
        try:
            await TASKS[task](context, home, *more)
        except PmlError as exc:
            report("error", exc.message)
            raise


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
