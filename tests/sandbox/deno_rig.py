"""Programs run in Deno sandboxes, in a box and without one, and what came of them."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import pytest

from pml.core.code.sandbox import (
    CodeCall,
    Conditions,
    Ended,
    Ending,
    Execution,
    Fault,
    Language,
    Program,
    Reply,
    Request,
    Turn,
)
from pml.core.values import Json
from pml.install.package_managers import find_deno
from pml.sandbox.deno.limits import Limits
from pml.sandbox.deno.sandbox import DenoSandbox

BOXED: Final = "boxed"
BARE: Final = "bare"
BOTH: Final = (BOXED, BARE)
SEED: Final = bytes(range(32))
NOON_MS: Final = 1_700_000_000_000
WAIT_S: Final = 30.0  # for what the system does in its own time

Answer: TypeAlias = "Callable[[Request], Json | Fault]"


def find_box(kind: str) -> str | None:
    """Return bubblewrap for a boxed sandbox, or skip the test."""
    if kind == BARE:
        return None
    found = shutil.which("bwrap")
    if found is None:
        pytest.skip("bwrap is not installed: install the package `bubblewrap`")
    return found


@asynccontextmanager
async def deno_sandbox(
    kind: str, cache: Path, *, limits: Limits | None = None, ready: int = 0
) -> AsyncGenerator[DenoSandbox]:
    bwrap = find_box(kind)
    sandbox = DenoSandbox(deno=find_deno, bwrap=lambda: bwrap, cache=cache, limits=limits, ready=ready)
    try:
        yield sandbox
    finally:
        await sandbox.close()


@dataclass(kw_only=True)
class Ran:
    """A whole run: what it asked for, what it printed, and how it ended."""

    turns: list[Turn] = field(default_factory=list[Turn])

    @property
    def ended(self) -> Ended:
        ended = self.turns[-1].ended
        assert ended is not None, self.turns
        return ended

    @property
    def requests(self) -> list[Request]:
        return [request for turn in self.turns for request in turn.requests]

    @property
    def logs(self) -> list[str]:
        return [line for turn in self.turns for line in turn.logs]

    @property
    def value(self) -> Json:
        assert self.ended.how is Ending.RETURNED, self.ended
        return msgspec.json.decode(self.ended.value)


def program(code: str, *, export: str | None = None, args: Json = None) -> Program:
    return Program(language=Language.TYPESCRIPT, code=code, args={} if args is None else args, export=export)


async def opened(sandbox: DenoSandbox, what: Program, *, seed: bytes = SEED) -> Execution:
    return await sandbox.open(what, Conditions(seed=seed, at_ms=NOON_MS))


async def run(
    sandbox: DenoSandbox,
    code: str,
    *,
    export: str | None = None,
    args: Json = None,
    answer: Answer = lambda _: None,
    seed: bytes = SEED,
) -> Ran:
    """Run code to its end; each request is answered in the order of its number, a second later each."""
    execution = await opened(sandbox, program(code, export=export, args=args), seed=seed)
    ran = Ran(turns=[await execution.begin()])
    waiting = list(ran.turns[-1].requests)
    at_ms = NOON_MS
    while ran.turns[-1].ended is None and waiting:
        at_ms += 1000
        request = waiting.pop(0)
        ran.turns.append(await execution.deliver(reply_to(request, answer(request), at_ms)))
        waiting += ran.turns[-1].requests
    await execution.close()
    return ran


def reply_to(request: Request, answer: "Json | Fault", at_ms: int = NOON_MS) -> Reply:
    if isinstance(answer, Fault):
        return Reply(number=request.number, fault=answer, at_ms=at_ms)
    return Reply(number=request.number, value=msgspec.json.encode(answer), at_ms=at_ms)


def calls(requests: list[Request]) -> list[tuple[str, Mapping[str, Json]]]:
    return [(f"{one.namespace}.{one.action}", one.arguments) for one in requests if isinstance(one, CodeCall)]


def deno_processes() -> set[int]:
    """Return the numbers of all processes of sandboxes that run beneath this one, boxes too."""
    return {pid for pid in _descendants(os.getpid()) if b"deno" in _command(pid)}


def deno_process() -> int:
    """Return the number of the only process that runs code."""
    (pid,) = (pid for pid in deno_processes() if b"bwrap" not in _command(pid))
    return pid


def of_process(pid: int, name: str) -> bytes:
    """Return what the system tells of a process under this name."""
    return Path(f"/proc/{pid}/{name}").read_bytes()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what the system does in its own time."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  nobody tells us
            await asyncio.sleep(0.005)


async def until_gone(processes: set[int]) -> None:
    await until(lambda: not any(_command(pid) for pid in processes))


def _descendants(pid: int) -> Iterator[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := _parent(int(entry))) is not None:
            parents.setdefault(parent, []).append(int(entry))
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        yield from children
        todo += children


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def _command(pid: int) -> bytes:
    """Return the command line; nothing for a process that is gone or only waits to be told so."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
