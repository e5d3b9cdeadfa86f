"""The sandbox for TypeScript: each program in a Deno process of its own that can do nothing but ask.

The process gets the program and the replies; it says which calls the program makes, what it prints and how
it ended. All that it says is checked here, and it is known by its pipe, never by its words. Who may call
what is not known here.

TypeScript is made JavaScript once, by a process that may do nothing, and kept by the hash of the source. A
kept file names the hash of what it holds: one that was damaged is made again. Imports are refused by their
place in the text, so that an author hears of them at once; nothing could be loaded anyway.
"""

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import msgspec

from pml.core.code.sandbox import (
    CodeCall,
    Conditions,
    Ended,
    Ending,
    Fault,
    Program,
    Reply,
    Request,
    Sleep,
    Turn,
)
from pml.core.errors import Invalid, Unavailable
from pml.core.values import JsonObject, check
from pml.host.private import private_directory
from pml.host.replace import replace_file
from pml.sandbox.deno.command import script
from pml.sandbox.deno.imports import find_import
from pml.sandbox.deno.limits import Limits
from pml.sandbox.deno.process import DenoProcess, Recipe, Stopped, start

_REPLACE_S: Final = 0.02  # a short program is over by then
_FORMAT: Final = b"1"  # of what is kept: another one is not found, and made anew
_NO_IMPORTS: Final = "code cannot import modules: call tools with `mcp.namespace.action()`"


class _Made(msgspec.Struct, frozen=True):
    """What the stripper answers: the code, or why there is none."""

    code: str | None = None
    message: str = ""
    line: int | None = None
    column: int | None = None


class KeptCode:
    """A folder of JavaScript by the hash of its source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, source: str) -> str | None:
        try:
            named, _, code = self._path(source).read_bytes().partition(b"\n")
        except OSError:
            return None
        return code.decode() if named == _hash(code) else None

    def keep(self, source: str, code: str) -> None:
        content = code.encode()
        with contextlib.suppress(OSError):  # a full disk: it is made again next time
            private_directory(self._folder)
            replace_file(self._path(source), _hash(content) + b"\n" + content, mode=0o600)

    def _path(self, source: str) -> Path:
        return self._folder / f"{_hash(_FORMAT + source.encode()).decode()}.js"


class Pool:
    """At most `size` ready processes. Close it in the loop that used it."""

    def __init__(self, start: Callable[[], Awaitable[DenoProcess]], *, size: int) -> None:
        self._start = start
        self._size = size
        self._ready: deque[DenoProcess] = deque()
        self._given: set[DenoProcess] = set()
        self._filling: asyncio.Task[None] | None = None
        self._is_closed = False

    async def take(self) -> DenoProcess:
        """Return a process that no other run has or had. Raises: Unavailable."""
        if self._is_closed:
            raise Unavailable("the sandbox is closed")
        self._given = {process for process in self._given if process.alive}
        process = self._pop()
        self._fill()
        if process is None:
            process = await self._started()
        self._given.add(process)
        return process

    async def warm(self) -> None:
        """Return once as many are ready as are kept. Raises: Unavailable."""
        while len(self._ready) < self._size and not self._is_closed:
            self._ready.append(await self._started())

    async def close(self) -> None:
        """End all processes, also those that were given away."""
        self._is_closed = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        for process in (*self._ready, *self._given):
            process.kill()
        for process in (*self._ready, *self._given):
            await process.end()
        self._ready.clear()
        self._given.clear()

    def _pop(self) -> DenoProcess | None:
        while self._ready:
            process = self._ready.popleft()
            if process.alive:
                return process
        return None

    async def _started(self) -> DenoProcess:
        process = await self._start()
        if self._is_closed:  # meanwhile
            await process.end()
            raise Unavailable("the sandbox is closed")
        return process

    def _fill(self) -> None:
        if self._size and (self._filling is None or self._filling.done()):
            self._filling = asyncio.get_running_loop().create_task(self._refill())

    async def _refill(self) -> None:
        await asyncio.sleep(_REPLACE_S)
        with contextlib.suppress(Unavailable):  # who takes one is told why there is none
            await self.warm()


BOX_TRIES: Final = 3  # a busy machine may fail to make one; one that fails this often cannot be made


READY: Final = 2  # processes kept for programs; one more is kept for making JavaScript


# One line in front of the program, as the runner assumes where it tells positions. The name that the module
# was loaded by is random, and would differ in another process.
_TAMED: Final = 'import.meta.url = "file:///code.ts"; delete import.meta.resolve; delete import.meta.main;'


_NONSENSE: Final = "the sandbox said what makes no sense"


class _SaidCall(msgspec.Struct, frozen=True, tag_field="type", tag="call"):
    number: int
    namespace: str
    action: str
    arguments: dict[str, object]


class _SaidSleep(msgspec.Struct, frozen=True, tag_field="type", tag="sleep"):
    number: int
    seconds: float


class _SaidEnd(msgspec.Struct, frozen=True):
    how: Ending
    value: msgspec.Raw = msgspec.Raw(b"null")
    message: str = ""
    line: int | None = None
    column: int | None = None
    code: str | None = None


class _Said(msgspec.Struct, frozen=True):
    """One line of the runner: what happened in a turn."""

    requests: list[_SaidCall | _SaidSleep]
    logs: list[str]
    ended: _SaidEnd | None = None


_DECODER: Final = msgspec.json.Decoder(_Said)


class DenoSandbox:
    """Runs TypeScript. `deno` and `bwrap` find the programs when the first process is started."""

    def __init__(
        self,
        *,
        deno: Callable[[], str],
        bwrap: Callable[[], str | None],
        cache: Path,
        limits: Limits | None = None,
        ready: int = READY,
    ) -> None:
        self._deno = deno
        self._bwrap = bwrap
        self._limits = limits or Limits()
        self._kept = KeptCode(cache)
        self._box_failures = 0  # in a row
        self._runners = Pool(lambda: self._start("runner.js"), size=ready)
        self._strippers = Pool(lambda: self._start("stripper.js"), size=1 if ready else 0)

    async def warm(self) -> None:
        """Start the processes that are kept ready. Raises: Unavailable."""
        await self._runners.warm()
        await self._strippers.warm()

    async def open(self, program: Program, conditions: Conditions) -> "DenoExecution":
        """Return the program, to be begun. Raises: Unavailable if there is no Deno."""
        self._deno()
        return DenoExecution(program, conditions, self)

    async def load(self, program: Program, dump: bytes) -> None:
        """Return None: a process cannot be kept in a file."""

    async def close(self) -> None:
        """End everything that runs, and all that is kept ready."""
        await self._runners.close()
        await self._strippers.close()

    @property
    def limits(self) -> Limits:
        return self._limits

    async def translated(self, program: Program) -> str | Ended:
        """Return the program as one JavaScript module. Raises: Unavailable."""
        most = self._limits.line_bytes
        if len(program.code) > most:
            return Ended(how=Ending.LIMIT, message=f"the code is larger than {most:,} bytes")
        kept = None if program.export is None else self._kept  # what an agent writes is seldom written twice
        made = await translate(program.code, self._strippers.take, kept)
        if isinstance(made, Ended):
            return made
        if program.export is None:
            return f"{_TAMED} export default async function (args, mcp) {{\n{made}\n}}"
        return f"{_TAMED}\n{made}"

    async def runner(self) -> DenoProcess:
        """Return a process for one program. Raises: Unavailable."""
        return await self._runners.take()

    async def _start(self, name: str) -> DenoProcess:
        """Start a process in a box if that can be; Deno's own permissions hold without it."""
        bwrap = self._bwrap() if self._box_failures < BOX_TRIES else None
        recipe = Recipe(deno=self._deno(), bwrap=bwrap, script=script(name), limits=self._limits)
        try:
            process = await start(recipe)
        except Unavailable:
            if bwrap is None:
                raise
        else:
            self._box_failures = 0 if bwrap is not None else self._box_failures
            return process
        unboxed = await start(replace(recipe, bwrap=None))
        self._box_failures += 1  # it is the box that did not start
        return unboxed


class DenoExecution:
    """A program at work, in a process of its own, which is gone once the program has ended."""

    def __init__(self, program: Program, conditions: Conditions, sandbox: DenoSandbox) -> None:
        self._program = program
        self._conditions = conditions
        self._sandbox = sandbox
        self._limits = sandbox.limits
        self._process: DenoProcess | None = None
        self._made = 0
        self._open: set[int] = set()

    async def begin(self) -> Turn:
        """Run the first turn. Raises: Unavailable if no process can be had."""
        program, conditions = self._program, self._conditions
        code = await self._sandbox.translated(program)
        if isinstance(code, Ended):
            return Turn(ended=code)
        self._process = await self._sandbox.runner()
        content, args = code.encode(), msgspec.json.encode(program.args)
        header = {
            "limits": self._limits.told(),
            "seed": conditions.seed.hex(),
            "at_ms": conditions.at_ms,
            "export": program.export,
            "args": len(args),
            "code": len(content),
        }
        return await self._turn(self._process, msgspec.json.encode(header), b"\n", args, content)

    async def deliver(self, reply: Reply) -> Turn:
        """Give the program what it waits for; once it has ended, nothing happens any more."""
        process = self._process
        if process is None:
            return Turn()
        fault, value = reply.fault, reply.value
        if len(value) > self._limits.line_bytes:
            fault = Fault(
                code="TOO_LARGE", message=f"the result is larger than {self._limits.line_bytes:,} bytes"
            )
        content = b"null" if fault is not None else value
        header = {"number": reply.number, "at_ms": reply.at_ms, "fault": fault, "size": len(content)}
        self._open.discard(reply.number)
        return await self._turn(process, msgspec.json.encode(header), b"\n", content)

    async def dump(self) -> None:
        """Return None: a process cannot be kept in a file."""

    async def close(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            await process.end()

    async def _turn(self, process: DenoProcess, *parts: bytes) -> Turn:
        try:
            turn = self._read(await process.exchange(*parts))
        except Stopped as exc:
            turn = Turn(ended=Ended(how=exc.how, message=exc.message))
        if turn.ended is not None:
            self._process = None
            process.kill()  # it is gone in a moment; there is no need to wait for that
        return turn

    def _read(self, line: bytes) -> Turn:
        """Return what the runner said. Raises: Stopped if that makes no sense, or is too much."""
        try:
            said = _DECODER.decode(line)
            requests = [self._request(one) for one in said.requests]
            ended = None if said.ended is None else self._ended(said.ended)
        except (msgspec.DecodeError, ValueError, Invalid, RecursionError) as exc:
            raise Stopped(Ending.BROKEN, _NONSENSE) from exc
        if len(self._open) > self._limits.open_requests or self._made > self._limits.requests:
            raise Stopped(Ending.LIMIT, "the code made too many calls")
        return Turn(requests=requests, logs=said.logs, ended=ended)

    def _request(self, said: _SaidCall | _SaidSleep) -> Request:
        if said.number != self._made:
            raise Stopped(Ending.BROKEN, _NONSENSE)
        self._made += 1
        self._open.add(said.number)
        if isinstance(said, _SaidCall):
            arguments = cast(JsonObject, said.arguments)
            check(arguments)
            return CodeCall(
                number=said.number, namespace=said.namespace, action=said.action, arguments=arguments
            )
        if not 0 <= said.seconds <= self._limits.sleep_s:
            raise Stopped(Ending.BROKEN, _NONSENSE)
        return Sleep(number=said.number, seconds=said.seconds)

    def _ended(self, said: _SaidEnd) -> Ended:
        value = bytes(said.value)
        if len(value) > self._limits.result_bytes:
            raise Stopped(Ending.LIMIT, f"the result is larger than {self._limits.result_bytes:,} bytes")
        msgspec.json.decode(value)
        return Ended(
            how=said.how,
            value=value,
            message=said.message,
            line=said.line,
            column=said.column,
            code=said.code,
        )


async def translate(
    source: str, take: Callable[[], Awaitable[DenoProcess]], kept: KeptCode | None
) -> str | Ended:
    """Return the JavaScript of `source`, or how it ended before it began. Raises: Unavailable."""
    try:
        source.encode()
    except UnicodeEncodeError:
        return Ended(how=Ending.SYNTAX, message="SyntaxError: the code has half of a surrogate pair")
    if kept is not None and (found := await asyncio.to_thread(kept.find, source)) is not None:
        return found
    made = await _strip(source, take)
    if isinstance(made, str) and kept is not None:
        await asyncio.to_thread(kept.keep, source, made)
    return made


async def _strip(source: str, take: Callable[[], Awaitable[DenoProcess]]) -> str | Ended:
    text = "//" + source[2:] if source.startswith("#!") else source
    content = text.encode()
    process = await take()
    try:
        answer = await process.exchange(b"%d\n" % len(content), content)
        made = msgspec.json.decode(answer, type=_Made)
    except Stopped as exc:
        return Ended(how=exc.how, message=exc.message)
    except (msgspec.DecodeError, ValueError):
        return Ended(how=Ending.BROKEN, message="the sandbox made no sense")
    finally:
        process.kill()
    if made.code is None:
        return Ended(
            how=Ending.SYNTAX, message=f"SyntaxError: {made.message}", line=made.line, column=made.column
        )
    if (place := await asyncio.to_thread(find_import, made.code)) is not None:
        line, column = place
        return Ended(how=Ending.SYNTAX, message=f"SyntaxError: {_NO_IMPORTS}", line=line, column=column)
    return made.code


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
