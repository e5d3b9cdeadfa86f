"""Drives Python code in the sandbox as the service does: begin, then one reply at a time."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from pml.core.code.sandbox import (
    CodeCall,
    Conditions,
    Ended,
    Execution,
    Fault,
    Language,
    Program,
    Reply,
    Request,
    Turn,
)
from pml.core.values import Json
from pml.sandbox.monty.limits import MontyLimits
from pml.sandbox.monty.sandbox import MontySandbox

NOW = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
CONDITIONS = Conditions(seed=bytes(range(32)), at_ms=NOW)
WAIT_S = 30.0  # nothing in these tests takes a second; a machine under load does
CLOSE_S = 15.0  # less than a turn may take: closing does not wait for one

Answered: TypeAlias = "Json | Fault"
Answer: TypeAlias = "Callable[[Request], Answered]"


@asynccontextmanager
async def sandbox_in(home: Path, limits: MontyLimits | None = None) -> AsyncGenerator[MontySandbox]:
    sandbox = MontySandbox(home, limits=limits)
    try:
        async with asyncio.timeout(WAIT_S):
            yield sandbox
    finally:
        async with asyncio.timeout(CLOSE_S):
            await sandbox.close()


def program(code: str, *, args: Json = None, export: str | None = None) -> Program:
    return Program(language=Language.PYTHON, code=code, args=args, export=export)


def reply(number: int, value: Answered = None, *, at_ms: int = NOW) -> Reply:
    if isinstance(value, Fault):
        return Reply(number=number, fault=value, at_ms=at_ms)
    return Reply(number=number, value=msgspec.json.encode(value), at_ms=at_ms)


def echo(request: Request) -> Json:
    """Answer a call with its action and arguments, a sleep with nothing."""
    if isinstance(request, CodeCall):
        return {"action": request.action, **request.arguments}
    return None


async def ran(sandbox: MontySandbox, code: str, answer: Answer = echo, **more: object) -> list[Turn]:
    """Run the code to its end, answering the oldest open request each time, a second later each."""
    execution = await sandbox.open(msgspec.structs.replace(program(code), **more), CONDITIONS)
    return await driven(execution, answer)


async def driven(execution: Execution, answer: Answer = echo) -> list[Turn]:
    turns = [await execution.begin()]
    waiting = list(turns[0].requests)
    while turns[-1].ended is None:
        request = waiting.pop(0)
        at_ms = NOW + 1000 * len(turns)
        turns.append(await execution.deliver(reply(request.number, answer(request), at_ms=at_ms)))
        waiting.extend(turns[-1].requests)
    return turns


async def ended(sandbox: MontySandbox, code: str, answer: Answer = echo, **more: object) -> Ended:
    found = (await ran(sandbox, code, answer, **more))[-1].ended
    assert found is not None
    return found


async def value(sandbox: MontySandbox, code: str, answer: Answer = echo, **more: object) -> Json:
    found = await ended(sandbox, code, answer, **more)
    assert found.message == ""
    return msgspec.json.decode(found.value)


def requests(turns: Sequence[Turn]) -> list[Request]:
    return [request for turn in turns for request in turn.requests]


def logs(turns: Sequence[Turn]) -> list[str]:
    return [line for turn in turns for line in turn.logs]


def workers() -> set[int]:
    """Return the processes beneath this one, whatever they are."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo.extend(below)
    return found


def seen(pid: int, what: str) -> bytes:
    """Return what /proc tells of a process."""
    return Path(f"/proc/{pid}/{what}").read_bytes()


def listed(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)
