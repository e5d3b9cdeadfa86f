"""Runs of code, taken up and let go: at their beginning, where they were left, while they wait, at their end.

One process has a run at a time; whoever takes it up gets its journal. What its code does is not known here.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from pml.core.approvals.record import State
from pml.core.code.journal import CodeRun, Kept, Step
from pml.core.code.sandbox import Conditions, Program
from pml.core.errors import CodeFailed, Conflict, NotFound, PmlError
from pml.core.ports.loader import Found
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import PausedCall
from pml.service.approvals.lifecycle import cancel
from pml.service.call import Gate, Make
from pml.service.context import Context
from pml.service.sandboxes import Live, Sandboxes

BUSY: Final = "run_busy"
_OPEN: Final = frozenset({State.PENDING, State.ALLOWED})


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What a run's calls are made with. `chain` are the capabilities that run, with this one.

    `call` is what started the outermost run, if that is another.
    """

    gate: Gate
    workshop: Sandboxes
    make: Make
    chain: tuple[str, ...] = ()
    found: Found | None = None
    call: PausedCall | None = None
    resumed: bool = False
    on_line: Callable[[str], None] = lambda line: None


async def give_up(gate: Gate, run_id: str) -> bool:
    """End a run that waits: nobody wants it any more, nor an answer to what it asked. False if it is over.

    Raises: CodeFailed while it goes on.
    """
    if await taken(gate.context, run_id) is None:
        return False
    if gate.workshop is not None:
        gate.workshop.drop(run_id)
    await forget_run(gate.context, run_id)
    return True


async def forget_run(context: Context, run_id: str) -> None:
    """Forget the run with all that it had, and take back what it asked."""
    await context.store.journals.end(run_id)
    await _withdraw(context, run_id)


def is_left(context: Context, run: CodeRun) -> bool:
    """Tell whether nobody has the run: it waits for an answer, or its process is gone."""
    return run.owner is None or not (run.owner == context.owners.me or context.owners.alive(run.owner))


async def taken(context: Context, run_id: str) -> Kept | None:
    """Take the run up; None if there is none. Raises: CodeFailed while it goes on."""
    run = await context.store.journals.get(run_id)
    if run is None:
        return None
    dead = [run.owner] if run.owner is not None and is_left(context, run) else []
    taking = asyncio.ensure_future(context.store.journals.take(run_id, context.owners.me, dead=dead))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:  # interrupted half-way, nobody would know who has it
        with contextlib.suppress(PmlError):
            if (kept := await taking) is not None:
                await context.store.journals.leave(run_id, dump=kept.dump, dumped=kept.dumped)
        raise
    except Conflict as exc:
        raise CodeFailed(
            "the code is running now", refusal=BUSY, hint="wait until it ends, or asks again"
        ) from exc


async def take_up(run_context: RunContext, run: CodeRun) -> Live:
    """Return the code, at its beginning or where it was left. Raises: CodeFailed, Unavailable."""
    context = run_context.gate.context
    kept = await taken(context, run.id) if run_context.resumed else None
    if kept is None and run_context.resumed and run.id == run.root:
        raise NotFound("the code is over", hint="run it again")  # never from its start: it has had effects
    if kept is None:
        return await _opened(run_context, replace(run, owner=context.owners.me, taken=1), {}, is_stored=False)
    if live := run_context.workshop.unpark(run.id, taken=kept.run.taken):
        live.run = kept.run
        return live
    try:
        return await _reopened(run_context, kept)
    except BaseException:  # also a caller who gave up: somebody may take it up later
        dump, dumped = kept.dump, kept.dumped
        await asyncio.shield(context.store.journals.leave(run.id, dump=dump, dumped=dumped))
        raise


async def _reopened(run_context: RunContext, kept: Kept) -> Live:
    steps = {step.number: step for step in kept.steps}
    sandbox = run_context.workshop.sandbox(kept.run.language)
    execution = None if kept.dump is None else await sandbox.load(_program(kept.run), kept.dump)
    if execution is None:
        return await _opened(run_context, kept.run, steps, is_stored=True)
    return Live(run=kept.run, execution=execution, is_stored=True, steps=steps, delivered=kept.dumped)


async def _opened(run_context: RunContext, run: CodeRun, steps: dict[int, Step], *, is_stored: bool) -> Live:
    conditions = Conditions(seed=run.seed, at_ms=int(run.started_at.timestamp() * 1000))
    execution = await run_context.workshop.sandbox(run.language).open(_program(run), conditions)
    return Live(run=run, execution=execution, is_stored=is_stored, steps=steps)


def _program(run: CodeRun) -> Program:
    return Program(language=run.language, code=run.code, args=run.args, export=run.export)


async def park(run_context: RunContext, live: Live) -> None:
    """Let go of code that waits: its state is kept, or its process for a while, and its journal."""
    dump = None
    if live.ended is None:
        with contextlib.suppress(PmlError):  # then it is replayed
            dump = await live.execution.dump()
    await run_context.gate.context.store.journals.leave(live.run.id, dump=dump, dumped=live.delivered)
    if dump is None and live.ended is None:
        run_context.workshop.park(live)
    else:
        await live.execution.close()


async def break_off(run_context: RunContext, live: Live, *, is_given_up: bool) -> None:
    """Let go of code that does not go on now: whoever brings it on again replays it.

    `is_given_up`: by whoever wanted it, so that nobody is asked for it any more; answers stay.
    """
    run_context.workshop.drop(live.run.id)
    await live.execution.close()
    if not live.is_stored:
        return
    with contextlib.suppress(PmlError):
        await run_context.gate.context.store.journals.leave(live.run.id, dump=None, dumped=0)
        if is_given_up and live.run.id == live.run.root:
            await _withdraw(run_context.gate.context, live.run.id, frozenset({State.PENDING}))


async def end_run(run_context: RunContext, live: Live) -> None:
    """Leave nothing of the code. The journal of one within another lives as long as that of the other.

    It would be run anew, else, if all ended before the outer one has kept its result.
    """
    run_context.workshop.drop(live.run.id)
    await live.execution.close()
    if not live.is_stored:
        return
    if live.run.id != live.run.root:
        await run_context.gate.context.store.journals.leave(live.run.id, dump=None, dumped=0)
        return
    await run_context.gate.context.store.journals.end(live.run.id)
    if live.has_asked or live.run.taken > 1:
        await _withdraw(run_context.gate.context, live.run.id)


async def _withdraw(context: Context, run_id: str, states: frozenset[State] = _OPEN) -> None:
    """Cancel the questions of a run that is over, and answers that it did not use."""
    for record in await context.store.approvals.page(ApprovalQuery(states=states, run_id=run_id)):
        with contextlib.suppress(PmlError):
            await cancel(context, record.id, reason="the code that asked has ended")
