"""Code at work: its calls go through the pipeline, and it waits where one of them is asked about.

Every call is begun in the journal before it is sent and finished there before the code gets its result; a
run that is taken up again gets the same replies in the same order and goes on where it was. What runs the
code (`Sandbox`), and what a call needs (`make`), arrives from outside.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from pml.core.approvals import State
from pml.core.digest import digest
from pml.core.errors import (
    CodeFailed,
    Conflict,
    IntegrityFailed,
    Invalid,
    NotFound,
    PmlError,
    ServerRefused,
    Unavailable,
)
from pml.core.journal import CodeRun, Kept, Step
from pml.core.loading import Found
from pml.core.names import ToolName
from pml.core.ports import ApprovalQuery, PausedCall
from pml.core.refusals import refusal_code
from pml.core.sandbox import CodeCall, Conditions, Ended, Ending, Fault, Program, Reply, Request, Sleep, Turn
from pml.core.values import JsonObject
from pml.service.approvals import cancel
from pml.service.desk import Desk
from pml.service.gate import Attempt, Gate, Inner, Suspended
from pml.service.workshop import Live, Workshop

IN_FLIGHT: Final = 8  # calls of one run that are made at once, or wait for an answer: each may ask
MAX_RESULT: Final = 10 * 1024 * 1024  # of one call, as the code gets it
MAX_MESSAGE: Final = 16 * 1024
MAX_LOGS: Final = 1024 * 1024  # characters; sandboxes keep to less
MAX_KEPT: Final = 64 * 1024 * 1024  # of all calls of a run: they are kept until it ends
_SLEEP: Final = "sleep"
BUSY: Final = "run_busy"
_OPEN: Final = frozenset({State.PENDING, State.ALLOWED})


_MENDABLE: Final = (NotFound, Invalid, Unavailable)  # what to do about it is told to the code too


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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the code returned, as JSON text, and what it printed."""

    value: bytes
    logs: tuple[str, ...]


async def run_code(scene: Scene, run: CodeRun) -> Outcome:
    """Run the code to its end, from wherever it was left.

    Raises: Suspended while it waits for an answer; CodeFailed, also while it goes on elsewhere.
    """
    is_nested = run.id != run.root
    try:
        with scene.workshop.place(run.principal, is_nested=is_nested):
            return await _run(scene, run)
    except CodeFailed as exc:
        if is_nested and exc.refusal == BUSY:
            raise BrokenOff(exc) from exc
        raise
    except PmlError as exc:
        if is_nested and await scene.gate.desk.store.journals.get(run.id) is not None:
            raise BrokenOff(exc) from exc
        raise
    except BrokenOff as exc:
        if is_nested:
            raise
        raise exc.error from exc


class BrokenOff(Exception):
    """Code within code cannot go on now, by no doing of its own: neither can the outer one."""

    def __init__(self, error: PmlError) -> None:
        super().__init__(error.message)
        self.error = error


async def _run(scene: Scene, run: CodeRun) -> Outcome:
    live = await _take_up(scene, run)
    try:
        await _drive(scene, live)
    except Suspended as exc:
        await asyncio.shield(_park(scene, live))
        exc.run_id = run.root
        raise
    except CodeFailed:
        await asyncio.shield(_end(scene, live))
        raise
    except BaseException:  # also a caller who gave up: made again, the same call goes on and repeats nothing
        await asyncio.shield(_break_off(scene, live))
        raise
    await asyncio.shield(_end(scene, live))
    return _outcome(live)


async def give_up(gate: Gate, run_id: str) -> bool:
    """End a run that waits: nobody wants it any more, nor an answer to what it asked. False if it is over.

    Raises: CodeFailed while it goes on.
    """
    if await _taken(gate.desk, run_id) is None:
        return False
    if gate.workshop is not None:
        gate.workshop.drop(run_id)
    await gate.desk.store.journals.end(run_id)
    await _withdraw(gate.desk, run_id)
    return True


def is_left(desk: Desk, run: CodeRun) -> bool:
    """Tell whether nobody has the run: it waits for an answer, or its process is gone."""
    return run.owner is None or not (run.owner == desk.owners.me or desk.owners.alive(run.owner))


async def _taken(desk: Desk, run_id: str) -> Kept | None:
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


async def _take_up(scene: Scene, run: CodeRun) -> Live:
    """Return the code, at its beginning or where it was left. Raises: CodeFailed, Unavailable."""
    desk = scene.gate.desk
    kept = await _taken(desk, run.id) if scene.resumed else None
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


async def _drive(scene: Scene, live: Live) -> None:
    """Have the code's requests served until it has ended and none is left. Raises: Suspended, CodeFailed."""
    if not live.has_begun:
        live.has_begun = True
        await _absorb(scene, live, await live.execution.begin())
    await _replay(scene, live)
    serving: dict[asyncio.Task[Reply], int] = {}
    waiting: dict[int, Suspended] = {}
    try:
        while True:
            if len(live.open) == 1 and not serving and not waiting and live.ended is None:
                await _serve_alone(scene, live, waiting)
                continue
            _serve_more(scene, live, serving, waiting)
            if _is_idle(live, serving, waiting):
                answered = await _answered(scene.gate.desk, waiting)
                if not answered:
                    break
                live.was_asked = True
                for number in answered:
                    del waiting[number]
                continue
            done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: serving[task]):
                number = serving.pop(task)
                try:
                    reply = task.result()
                except Suspended as exc:
                    waiting[number] = exc
                else:
                    await _reply(scene, live, reply)
            live.has_asked |= bool(waiting)
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
    if waiting and (live.ended is None or live.ended.how is Ending.RETURNED):
        raise waiting[min(waiting)]
    if live.ended is None:
        live.ended = Ended(how=Ending.RAISED, message="the code waits for something that never comes")


async def _serve_alone(scene: Scene, live: Live, waiting: dict[int, Suspended]) -> None:
    """Serve the one request there is, without a task: most code makes one call after another."""
    [request] = live.open.values()
    try:
        reply = await _serve(scene, live, request)
    except Suspended as exc:
        waiting[request.number] = exc
        live.has_asked = True
    else:
        await _reply(scene, live, reply)


def _is_idle(live: Live, serving: dict[asyncio.Task[Reply], int], waiting: dict[int, Suspended]) -> bool:
    """Tell whether nothing is left to wait for; no sleep is, once code has ended or is asked about."""
    only_sleeps = all(isinstance(live.open[number], Sleep) for number in serving.values())
    return only_sleeps and (not serving or bool(waiting) or live.ended is not None)


async def _answered(desk: Desk, waiting: dict[int, Suspended]) -> list[int]:
    """Return the calls whose question was answered while others were made."""
    now = {number: await desk.store.approvals.get(exc.record.id) for number, exc in waiting.items()}
    return [number for number, record in now.items() if record is None or record.status is not State.PENDING]


def _serve_more(
    scene: Scene, live: Live, serving: dict[asyncio.Task[Reply], int], waiting: dict[int, Suspended]
) -> None:
    """Begin to serve requests, as many as may be served at once; after an error no more are begun."""
    if live.ended is not None and live.ended.how is not Ending.RETURNED:
        return
    has_ended = live.ended is not None
    taken = {*serving.values(), *waiting}
    for number, request in sorted(live.open.items()):
        if len(serving) + len(waiting) >= IN_FLIGHT:
            return
        if number not in taken and not (has_ended and isinstance(request, Sleep)):
            serving[asyncio.ensure_future(_serve(scene, live, request))] = number


async def _absorb(scene: Scene, live: Live, turn: Turn) -> None:
    """Take in what the code did. Raises: CodeFailed if it does other things than it did before."""
    live.logs += turn.logs if sum(map(len, live.logs)) < MAX_LOGS else ()
    live.ended = turn.ended or live.ended
    for request in turn.requests:
        live.open[request.number] = request
        step = live.steps.get(request.number)
        if step is not None and (step.what, step.digest) != _asked(request):
            raise _diverged(live, f"step {request.number} was {step.what}, and is {_asked(request)[0]} now")
    if turn.requests and not live.is_stored:
        await scene.gate.desk.store.journals.start(live.run)
        live.is_stored = True


async def _replay(scene: Scene, live: Live) -> None:
    """Give the code the replies that it has had before, in the order in which it had them."""
    for step in live.recorded[live.delivered :]:
        if step.number not in live.open:
            raise _diverged(live, f"it did not come to step {step.number}, {step.what}")
        reply = Reply(
            number=step.number, value=step.value or b"null", fault=step.fault, at_ms=step.at_ms or 0
        )
        await _deliver(scene, live, reply)


async def _reply(scene: Scene, live: Live, reply: Reply) -> None:
    """Keep the reply, then give it to the code."""
    what, asked = _asked(live.open[reply.number])
    step = Step(
        run_id=live.run.id,
        number=reply.number,
        what=what,
        digest=asked,
        place=live.delivered,
        value=None if reply.fault else reply.value,
        fault=reply.fault,
        at_ms=reply.at_ms,
    )
    await scene.gate.desk.store.journals.finish(step)  # before the code gets it: it may act on it
    live.steps[reply.number] = step
    scene.told(f"{what} {'failed' if reply.fault else 'done'}")
    await _deliver(scene, live, reply)


async def _deliver(scene: Scene, live: Live, reply: Reply) -> None:
    del live.open[reply.number]
    live.delivered += 1
    if live.ended is None:
        await _absorb(scene, live, await live.execution.deliver(reply))


async def _serve(scene: Scene, live: Live, request: Request) -> Reply:
    """Do what the code asks for. Raises: Suspended."""
    value, fault = b"null", None
    match request:
        case Sleep():
            await asyncio.sleep(request.seconds)
        case CodeCall():
            try:
                value = await scene.make(_attempt(scene, live, request))
                fault = _size_fault(live, request, len(value))
            except PmlError as exc:
                fault = _fault(exc)
            value = value if fault is None else b"null"
    now = scene.gate.desk.clock.now()
    return Reply(number=request.number, value=value, fault=fault, at_ms=int(now.timestamp() * 1000))


def _size_fault(live: Live, request: CodeCall, size: int) -> Fault | None:
    """Return the fault of a result that is too large, by itself or with all that the run has had before."""
    tool = f"{request.namespace}:{request.action}"
    if size > MAX_RESULT:
        message = f"the result of {tool} is too large for code: {size} bytes, at most {MAX_RESULT}"
        return Fault(code="too_large", message=message)
    kept = sum(len(step.value or b"") for step in live.steps.values())
    if kept + size > MAX_KEPT:
        message = (
            f"the results of this code are too large with that of {tool}: at most {MAX_KEPT} bytes in all"
        )
        return Fault(code="too_large", message=message)
    return None


def _fault(error: PmlError) -> Fault:
    known = refusal_code(error)
    if known is not None:
        is_brief = isinstance(error, IntegrityFailed)  # models are told the rest beside it
        message = error.message if is_brief else known[1]
        next_step = f" ({error.hint})" if error.hint and isinstance(error, _MENDABLE) else ""
        return Fault(code=known[0], message=f"{message}{next_step}")
    code = "server_refused" if isinstance(error, ServerRefused) else "failed"
    return Fault(code=code, message=error.message)


def _attempt(scene: Scene, live: Live, request: CodeCall) -> Attempt:
    """Return the call that the code makes. Raises: Invalid for a name that no tool can have."""
    run, before = live.run, live.steps.get(request.number)
    tool = ToolName(namespace=request.namespace, action=request.action)

    async def begin() -> None:
        what, asked = _asked(request)
        step = Step(run_id=run.id, number=request.number, what=what, digest=asked)
        await scene.gate.desk.store.journals.begin(step)

    inner = Inner(
        run_id=run.id,
        root=run.root,
        number=request.number,
        call=scene.call or PausedCall(tool=run.tool, arguments=run.arguments, offered=run.offered),
        chain=scene.chain,
        covered=run.covered,
        found=scene.found,
        begin=begin,
        resumed=run.taken > 1 or live.was_asked,
        is_unknown=before is not None and before.place is None,
    )
    return Attempt(tool=tool, arguments=request.arguments, offered=False, inner=inner)


def _asked(request: Request) -> tuple[str, str]:
    """Return what is kept of a request: its tool, and the digest by which it is known again."""
    if isinstance(request, Sleep):
        return _SLEEP, digest({"seconds": request.seconds})
    tool = f"{request.namespace}:{request.action}"
    asked: JsonObject = {"tool": tool, "arguments": request.arguments}
    return tool, digest(asked)


def _diverged(live: Live, how: str) -> CodeFailed:
    return CodeFailed(
        f"the code did not do again what it had done: {how}; nothing more of it was run",
        refusal="run_diverged",
        logs=tuple(live.logs),
        hint="what it did before the pause has happened; look at it before running the code anew",
    )


async def _park(scene: Scene, live: Live) -> None:
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


async def _break_off(scene: Scene, live: Live) -> None:
    """Let go of code that does not go on now: whoever brings it on again replays it. It asks nobody."""
    scene.workshop.drop(live.run.id)
    await live.execution.close()
    if not live.is_stored:
        return
    with contextlib.suppress(PmlError):
        await scene.gate.desk.store.journals.leave(live.run.id, dump=None, dumped=0)
        if live.run.id == live.run.root:
            await _withdraw(scene.gate.desk, live.run.id)


async def _end(scene: Scene, live: Live) -> None:
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


async def _withdraw(desk: Desk, run_id: str) -> None:
    """Cancel the questions of a run that is over, and answers that it did not use."""
    for record in await desk.store.approvals.page(ApprovalQuery(states=_OPEN, run_id=run_id)):
        with contextlib.suppress(PmlError):
            await cancel(desk, record.id, reason="the code that asked has ended")


def _outcome(live: Live) -> Outcome:
    ended, logs = live.ended, tuple(live.logs)
    if ended is None:
        raise AssertionError("code that was driven to its end has ended")
    if ended.how is Ending.RETURNED:
        return Outcome(value=ended.value, logs=logs)
    refusal = ended.code or _REFUSALS[ended.how]
    hint = "what it did before has happened, and running it again does it again" if live.steps else None
    if ended.how is Ending.MISSING:
        hint = f"it should have a function `{live.run.export}`, or `run`"
    raise CodeFailed(
        ended.message[:MAX_MESSAGE],
        refusal=refusal,
        line=ended.line,
        column=ended.column,
        logs=logs,
        hint=hint,
    )


_REFUSALS: Final = {
    Ending.RAISED: "code_failed",
    Ending.SYNTAX: "code_invalid",
    Ending.MISSING: "method_missing",
    Ending.VALUE: "code_value",
    Ending.LIMIT: "code_limit",
    Ending.BROKEN: "code_failed",
}
