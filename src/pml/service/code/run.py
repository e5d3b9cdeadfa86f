"""Code at work: its calls go through the pipeline, and it waits where one of them is asked about.

Every call is begun in the journal before it is sent and finished there before the code gets its result; a
run that is taken up again gets the same replies in the same order and goes on where it was. What runs the
code (`Sandbox`), and what a call needs (`make`), arrives from outside.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.record import State
from pml.core.code.journal import CodeRun, Step
from pml.core.code.sandbox import CodeCall, Ended, Ending, Fault, Reply, Request, Sleep, Turn
from pml.core.digest import digest
from pml.core.errors import (
    CodeFailed,
    IntegrityFailed,
    Invalid,
    NotFound,
    PmlError,
    ServerRefused,
    Unavailable,
)
from pml.core.names import ToolName
from pml.core.ports.records import PausedCall
from pml.core.refusals import refusal_code
from pml.core.values import JsonObject
from pml.service.call import Attempt, CodeOrigin, Suspended
from pml.service.code.lifetime import BUSY, RunContext, break_off, end_run, park, take_up
from pml.service.context import Context
from pml.service.sandboxes import Live

IN_FLIGHT: Final = 8  # calls of one run that are made at once, or wait for an answer: each may ask
MAX_RESULT: Final = 10 * 1024 * 1024  # of one call, as the code gets it
MAX_MESSAGE: Final = 16 * 1024
MAX_LOGS: Final = 1024 * 1024  # characters; sandboxes keep to less
MAX_KEPT: Final = 64 * 1024 * 1024  # of all calls of a run: they are kept until it ends
_SLEEP: Final = "sleep"


_MENDABLE: Final = (NotFound, Invalid, Unavailable)  # what to do about it is told to the code too


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the code returned, as JSON text, and what it printed."""

    value: bytes
    logs: tuple[str, ...]


async def run_code(run_context: RunContext, run: CodeRun) -> Outcome:
    """Run the code to its end, from wherever it was left.

    Raises: Suspended while it waits for an answer; CodeFailed, also while it goes on elsewhere.
    """
    is_nested = run.id != run.root
    try:
        with run_context.workshop.place(run.principal, is_nested=is_nested):
            return await _run(run_context, run)
    except CodeFailed as exc:
        if is_nested and exc.refusal == BUSY:
            raise BrokenOff(exc) from exc
        raise
    except PmlError as exc:
        if is_nested and await run_context.gate.context.store.journals.get(run.id) is not None:
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


async def _run(run_context: RunContext, run: CodeRun) -> Outcome:
    live = await take_up(run_context, run)
    try:
        await _drive(run_context, live)
    except Suspended as exc:
        await asyncio.shield(park(run_context, live))
        exc.run_id = run.root
        raise
    except CodeFailed:
        await asyncio.shield(end_run(run_context, live))
        raise
    except BaseException as exc:  # also a caller who gave up: made again, the same call goes on
        is_given_up = isinstance(exc, asyncio.CancelledError)
        await asyncio.shield(break_off(run_context, live, is_given_up=is_given_up))
        raise
    await asyncio.shield(end_run(run_context, live))
    return _outcome(live)


async def _drive(run_context: RunContext, live: Live) -> None:
    """Have the code's requests served until it has ended and none is left. Raises: Suspended, CodeFailed."""
    if not live.has_begun:
        live.has_begun = True
        await _absorb(run_context, live, await live.execution.begin())
    await _replay(run_context, live)
    serving: dict[asyncio.Task[Reply], int] = {}
    waiting: dict[int, Suspended] = {}
    try:
        while True:
            if len(live.open) == 1 and not serving and not waiting and live.ended is None:
                await _serve_alone(run_context, live, waiting)
                continue
            _serve_more(run_context, live, serving, waiting)
            if _is_idle(live, serving, waiting):
                answered = await _answered(run_context.gate.context, waiting)
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
                    await _reply(run_context, live, reply)
            live.has_asked |= bool(waiting)
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
    if waiting and (live.ended is None or live.ended.how is Ending.RETURNED):
        raise waiting[min(waiting)]
    if live.ended is None:
        live.ended = Ended(how=Ending.RAISED, message="the code waits for something that never comes")


async def _serve_alone(run_context: RunContext, live: Live, waiting: dict[int, Suspended]) -> None:
    """Serve the one request there is, without a task: most code makes one call after another."""
    [request] = live.open.values()
    try:
        reply = await _serve(run_context, live, request)
    except Suspended as exc:
        waiting[request.number] = exc
        live.has_asked = True
    else:
        await _reply(run_context, live, reply)


def _is_idle(live: Live, serving: dict[asyncio.Task[Reply], int], waiting: dict[int, Suspended]) -> bool:
    """Tell whether nothing is left to wait for; no sleep is, once code has ended or is asked about."""
    only_sleeps = all(isinstance(live.open[number], Sleep) for number in serving.values())
    return only_sleeps and (not serving or bool(waiting) or live.ended is not None)


async def _answered(context: Context, waiting: dict[int, Suspended]) -> list[int]:
    """Return the calls whose question was answered while others were made."""
    now = {number: await context.store.approvals.get(exc.record.id) for number, exc in waiting.items()}
    return [number for number, record in now.items() if record is None or record.status is not State.PENDING]


def _serve_more(
    run_context: RunContext,
    live: Live,
    serving: dict[asyncio.Task[Reply], int],
    waiting: dict[int, Suspended],
) -> None:
    """Begin to serve requests, as many as may be served at once; after an error no more are begun."""
    if live.ended is not None and live.ended.how is not Ending.RETURNED:
        return
    has_ended = live.ended is not None
    taken = {*serving.values(), *waiting}
    for number, request in sorted(live.open.items()):
        # What waits keeps its place: code that wants everything at once would ask hundreds of questions.
        if len(serving) + len(waiting) >= IN_FLIGHT:
            return
        if number not in taken and not (has_ended and isinstance(request, Sleep)):
            serving[asyncio.ensure_future(_serve(run_context, live, request))] = number


async def _absorb(run_context: RunContext, live: Live, turn: Turn) -> None:
    """Take in what the code did. Raises: CodeFailed if it does other things than it did before."""
    live.logs += turn.logs if sum(map(len, live.logs)) < MAX_LOGS else ()
    live.ended = turn.ended or live.ended
    for request in turn.requests:
        live.open[request.number] = request
        step = live.steps.get(request.number)
        if step is not None and (step.what, step.digest) != _asked(request):
            raise _diverged(live, f"step {request.number} was {step.what}, and is {_asked(request)[0]} now")
    # Stored with its first request: code that only computes leaves nothing behind.
    if turn.requests and not live.is_stored:
        await run_context.gate.context.store.journals.start(live.run)
        live.is_stored = True


async def _replay(run_context: RunContext, live: Live) -> None:
    """Give the code the replies that it has had before, in the order in which it had them."""
    for step in live.recorded[live.delivered :]:
        if step.number not in live.open:
            raise _diverged(live, f"it did not come to step {step.number}, {step.what}")
        reply = Reply(
            number=step.number, value=step.value or b"null", fault=step.fault, at_ms=step.at_ms or 0
        )
        await _deliver(run_context, live, reply)


async def _reply(run_context: RunContext, live: Live, reply: Reply) -> None:
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
    await run_context.gate.context.store.journals.finish(step)  # before the code gets it: it may act on it
    live.steps[reply.number] = step
    run_context.on_line(f"{what} {'failed' if reply.fault else 'done'}")
    await _deliver(run_context, live, reply)


async def _deliver(run_context: RunContext, live: Live, reply: Reply) -> None:
    del live.open[reply.number]
    live.delivered += 1
    if live.ended is None:
        await _absorb(run_context, live, await live.execution.deliver(reply))


async def _serve(run_context: RunContext, live: Live, request: Request) -> Reply:
    """Do what the code asks for. Raises: Suspended."""
    value, fault = b"null", None
    match request:
        case Sleep():
            await asyncio.sleep(request.seconds)
        case CodeCall():
            try:
                value = await run_context.make(_attempt(run_context, live, request))
                fault = _size_fault(live, request, len(value))
            except PmlError as exc:
                fault = _fault(exc)
            value = value if fault is None else b"null"
    now = run_context.gate.context.clock.now()
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


def _attempt(run_context: RunContext, live: Live, request: CodeCall) -> Attempt:
    """Return the call that the code makes. Raises: Invalid for a name that no tool can have."""
    run, before = live.run, live.steps.get(request.number)
    tool = ToolName(namespace=request.namespace, action=request.action)

    async def begin() -> None:
        what, asked = _asked(request)
        step = Step(run_id=run.id, number=request.number, what=what, digest=asked)
        await run_context.gate.context.store.journals.begin(step)

    async def take_back() -> None:
        await run_context.gate.context.store.journals.take_back(run.id, request.number)

    inner = CodeOrigin(
        run_id=run.id,
        root=run.root,
        number=request.number,
        call=run_context.call or PausedCall(tool=run.tool, arguments=run.arguments, offered=run.offered),
        chain=run_context.chain,
        covered=run.covered,
        found=run_context.found,
        begin=begin,
        take_back=take_back,
        resumed=run.taken > 1 or live.was_asked,
        # Begun and never finished: it may have run, so it is not made again unasked.
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
        hint="what it did before the pause has happened; look at it before running the code again",
    )


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
