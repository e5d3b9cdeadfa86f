"""Runs of code, taken up and let go: at their beginning, where they were left, while they wait, at their end.

One process has a run at a time; whoever takes it up gets its journal. What its code does is not known here.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from pml.core.approvals import State
from pml.core.errors import CodeFailed, Conflict, NotFound, PmlError
from pml.core.journal import CodeRun, Kept, Step
from pml.core.loading import Found
from pml.core.ports import ApprovalQuery, PausedCall
from pml.core.sandbox import Conditions, Program
from pml.service.approvals import cancel
from pml.service.desk import Desk
from pml.service.gate import Attempt, Gate
from pml.service.workshop import Live, Workshop

BUSY: Final = "run_busy"
_OPEN: Final = frozenset({State.PENDING, State.ALLOWED})


class Make(Protocol):
    """Makes a call that the code asks for, and returns its value as JSON text."""

    async def __call__(self, attempt: Attempt) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a run's calls are made with. `chain` are the capabilities that run, with this one.

    `call` is what started the outermost run, if that is another.
    """

    gate: Gate
    workshop: Workshop
    make: Make
    chain: tuple[str, ...] = ()
    found: Found | None = None
    call: PausedCall | None = None
    resumed: bool = False
    told: Callable[[str], None] = lambda line: None


async def give_up(gate: Gate, run_id: str) -> bool:
    """End a run that waits: nobody wants it any more, nor an answer to what it asked. False if it is over.

    Raises: CodeFailed while it goes on.
    """
    if await taken(gate.desk, run_id) is None:
        return False
    if gate.workshop is not None:
        gate.workshop.drop(run_id)
    await forget_run(gate.desk, run_id)
    return True


async def forget_run(desk: Desk, run_id: str) -> None:
    """Forget the run with all that it had, and take back what it asked."""
    await desk.store.journals.end(run_id)
    await _withdraw(desk, run_id)


def is_left(desk: Desk, run: CodeRun) -> bool:
    """Tell whether nobody has the run: it waits for an answer, or its process is gone."""
    return run.owner is None or not (run.owner == desk.owners.me or desk.owners.alive(run.owner))


async def taken(desk: Desk, run_id: str) -> Kept | None:
    """Take the run up; None if there is none. Raises: CodeFailed while it goes on."""
    run = await desk.store.journals.get(run_id)
    if run is None:
        return None
    dead = [run.owner] if run.owner is not None and is_left(desk, run) else []
    taking = asyncio.ensure_future(desk.store.journals.take(run_id, desk.owners.me, dead=dead))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:  # interrupted half-way, nobody would know who has it
        with contextlib.suppress(PmlError):
            if (kept := await taking) is not None:
                await desk.store.journals.leave(run_id, dump=kept.dump, dumped=kept.dumped)
        raise
    except Conflict as exc:
        raise CodeFailed(
            "the code is running now", refusal=BUSY, hint="wait until it ends, or asks again"
        ) from exc


async def take_up(scene: Scene, run: CodeRun) -> Live:
    """Return the code, at its beginning or where it was left. Raises: CodeFailed, Unavailable."""
    desk = scene.gate.desk
    kept = await taken(desk, run.id) if scene.resumed else None
    if kept is None and scene.resumed and run.id == run.root:
        raise NotFound("the code is over", hint="run it again")  # never from its start: it has had effects
    if kept is None:
        return await _opened(scene, replace(run, owner=desk.owners.me, taken=1), {}, is_stored=False)
    if live := scene.workshop.unpark(run.id, taken=kept.run.taken):
        live.run = kept.run
        return live
    try:
        return await _reopened(scene, kept)
    except BaseException:  # also a caller who gave up: somebody may take it up later
        dump, dumped = kept.dump, kept.dumped
        await asyncio.shield(desk.store.journals.leave(run.id, dump=dump, dumped=dumped))
        raise


async def _reopened(scene: Scene, kept: Kept) -> Live:
    steps = {step.number: step for step in kept.steps}
    sandbox = scene.workshop.sandbox(kept.run.language)
    execution = None if kept.dump is None else await sandbox.load(_program(kept.run), kept.dump)
    if execution is None:
        return await _opened(scene, kept.run, steps, is_stored=True)
    return Live(run=kept.run, execution=execution, is_stored=True, steps=steps, delivered=kept.dumped)


async def _opened(scene: Scene, run: CodeRun, steps: dict[int, Step], *, is_stored: bool) -> Live:
    conditions = Conditions(seed=run.seed, at_ms=int(run.started_at.timestamp() * 1000))
    execution = await scene.workshop.sandbox(run.language).open(_program(run), conditions)
    return Live(run=run, execution=execution, is_stored=is_stored, steps=steps)


def _program(run: CodeRun) -> Program:
    return Program(language=run.language, code=run.code, args=run.args, export=run.export)


async def park(scene: Scene, live: Live) -> None:
    """Let go of code that waits: its state is kept, or its process for a while, and its journal."""
    dump = None
    if live.ended is None:
        with contextlib.suppress(PmlError):  # then it is replayed
            dump = await live.execution.dump()
    await scene.gate.desk.store.journals.leave(live.run.id, dump=dump, dumped=live.delivered)
    if dump is None and live.ended is None:
        scene.workshop.park(live)
    else:
        await live.execution.close()


async def break_off(scene: Scene, live: Live, *, is_given_up: bool) -> None:
    """Let go of code that does not go on now: whoever brings it on again replays it.

    `is_given_up`: by whoever wanted it, so that nobody is asked for it any more; answers stay.
    """
    scene.workshop.drop(live.run.id)
    await live.execution.close()
    if not live.is_stored:
        return
    with contextlib.suppress(PmlError):
        await scene.gate.desk.store.journals.leave(live.run.id, dump=None, dumped=0)
        if is_given_up and live.run.id == live.run.root:
            await _withdraw(scene.gate.desk, live.run.id, frozenset({State.PENDING}))


async def end_run(scene: Scene, live: Live) -> None:
    """Leave nothing of the code. The journal of one within another lives as long as that of the other.

    It would be run anew, else, if all ended before the outer one has kept its result.
    """
    scene.workshop.drop(live.run.id)
    await live.execution.close()
    if not live.is_stored:
        return
    if live.run.id != live.run.root:
        await scene.gate.desk.store.journals.leave(live.run.id, dump=None, dumped=0)
        return
    await scene.gate.desk.store.journals.end(live.run.id)
    if live.has_asked or live.run.taken > 1:
        await _withdraw(scene.gate.desk, live.run.id)


async def _withdraw(desk: Desk, run_id: str, states: frozenset[State] = _OPEN) -> None:
    """Cancel the questions of a run that is over, and answers that it did not use."""
    for record in await desk.store.approvals.page(ApprovalQuery(states=states, run_id=run_id)):
        with contextlib.suppress(PmlError):
            await cancel(desk, record.id, reason="the code that asked has ended")
