"""One Deno process: started, asked one thing at a time, and ended whole.

It answers each message with one line, within a time, a length and an amount of memory; else it is killed.
If we are killed, it reads the end of its input and exits; one that loops is ended by its box, or by the
watchdog where it has none. What the lines mean is not known here.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from pml.core.code.sandbox import Ending
from pml.core.errors import Unavailable
from pml.core.sessions.process import Process
from pml.core.text import visible
from pml.host.processes import SystemProcesses
from pml.host.watched import watchdog
from pml.sandbox.deno.command import ENVIRONMENT, boxed, command
from pml.sandbox.deno.limits import Limits, bound, resident_bytes

_READY_S: Final = 20.0  # it takes some 25 ms; a machine under heavy load takes far longer
_LOOK_S: Final = 0.05  # between two looks at its memory
_END_S: Final = 5.0  # for the system to end what was killed
_LAST_WORDS_BYTES: Final = 4096
_INFO_BYTES: Final = 4096
_OUT_OF_MEMORY: Final = (b"out of memory", b"memory allocation of")
_MEBIBYTE: Final = 1024 * 1024


class Stopped(Exception):
    """The process is ended: how, and why, in the words of how the code ended."""

    def __init__(self, how: Ending, message: str) -> None:
        super().__init__(message)
        self.how = how
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a process is made: the programs, the script, and what it may use."""

    deno: str
    bwrap: str | None
    script: Path
    limits: Limits


class _Info(msgspec.Struct, frozen=True):
    """What bubblewrap tells of the box."""

    child_pid: int = msgspec.field(name="child-pid")


class DenoProcess(asyncio.SubprocessProtocol):
    """A process with a script of ours in it, made by `start`. It serves one program and no second one."""

    def __init__(self, limits: Limits) -> None:
        self.pid = 0  # that of Deno; the transport's is that of the box, if there is one
        self._exited = asyncio.Event()
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._said = bytearray()
        self._errors = bytearray()
        self._line: asyncio.Future[bytes] | None = self._loop.create_future()  # it says that it is ready
        self._watch: asyncio.TimerHandle | None = None
        self._watched: Process | None = None
        self._deadline = 0.0

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._exited.is_set()

    async def exchange(self, *parts: bytes) -> bytes:
        """Say `parts` and return the line that answers. Raises: Stopped; the process is killed then."""
        # One message, one line. A line that comes unasked would be taken for the answer to the next message.
        if self._said:
            self.kill()
            raise Stopped(Ending.BROKEN, "the sandbox spoke without being asked")
        if self._transport is None or self._exited.is_set():
            raise self._reason()
        line = self._line = self._loop.create_future()
        cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0)).write(b"".join(parts))
        return await self._within(line, self._limits.turn_s)

    async def _within(self, line: asyncio.Future[bytes], time_s: float) -> bytes:
        self._deadline = self._loop.time() + time_s
        self._watch = self._loop.call_later(_LOOK_S, self._look)
        try:
            return await line
        except BaseException:  # also when cancelled: what it is doing would be unknown
            self.kill()
            raise
        finally:
            self._line = None
            self._watch.cancel()

    def kill(self) -> None:
        """End the process, without waiting for it. Its box ends by itself then, and sees it off."""
        if self._transport is None or self._exited.is_set():
            return
        # Without a box its group is ours to kill. With one, only Deno is killed: its box waits for it and
        # ends by itself, with its status.
        if self.pid == self._transport.get_pid():
            self._kill_group(self._transport)
        else:
            with contextlib.suppress(OSError):  # it is gone
                os.kill(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it, and wait until it is gone, and its box."""
        if self._transport is None:
            return
        self.kill()
        if not await self._has_exited():  # the box did not see it off in time
            self._kill_group(self._transport)
            await self._has_exited()
        self._transport.close()

    async def _has_exited(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._exited.wait()
        return self._exited.is_set()

    def _kill_group(self, transport: asyncio.SubprocessTransport) -> None:
        with contextlib.suppress(OSError):  # it is gone
            if sys.platform == "win32":
                transport.kill()
            else:
                os.killpg(transport.get_pid(), signal.SIGKILL)

    async def become_ready(self) -> None:
        """Wait until the script says that it is ready. Raises: Unavailable."""
        assert self._line is not None
        try:
            await self._within(self._line, _READY_S)
        except Stopped as exc:
            said = self._errors.decode(errors="replace").strip().splitlines()
            raise Unavailable(
                f"the sandbox does not start: {visible(said[-1]) if said else exc.message}"
            ) from exc

    def _look(self) -> None:
        if self._line is None or self._line.done():
            return
        if self._loop.time() >= self._deadline:
            self._stop(
                Ending.LIMIT, f"the code ran for {self._limits.turn_s:g} s without waiting for anything"
            )
        elif self.pid and resident_bytes(self.pid) > self._limits.memory_mb * _MEBIBYTE:
            self._stop(Ending.LIMIT, f"the code used more than {self._limits.memory_mb} MB of memory")
        else:
            self._watch = self._loop.call_later(_LOOK_S, self._look)

    def _stop(self, how: Ending, message: str) -> None:
        self.kill()
        self._fail(Stopped(how, message))

    def _fail(self, reason: Stopped) -> None:
        if self._line is not None and not self._line.done():
            self._line.set_exception(reason)
            self._line.exception()  # who starts it may have been cancelled: then nothing awaits it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._errors += data
            del self._errors[:-_LAST_WORDS_BYTES]
            return
        self._said += data
        if len(self._said) > self._limits.line_bytes + self._limits.result_bytes:
            del self._said[:]
            self._stop(Ending.LIMIT, f"the code said more than {self._limits.line_bytes:,} bytes in one turn")
        # A line is complete when its newline is here; anything behind it would answer what was not asked.
        elif b"\n" in data and self._line is not None and not self._line.done():
            line = bytes(self._said)
            del self._said[:]
            if line.index(b"\n") == len(line) - 1:
                self._line.set_result(line)
            else:
                self._stop(Ending.BROKEN, "the sandbox gave more than one answer")

    def be_watched(self) -> None:
        """Have it end with us although it has no box."""
        self._watched = SystemProcesses().find(self.pid)
        if self._watched is not None:
            watchdog().watch(self._watched)

    def process_exited(self) -> None:
        self._exited.set()
        if self._watched is not None:
            watchdog().release(self._watched)
        self._fail(self._reason())
        if self._transport is not None:
            self._transport.close()

    def _reason(self) -> Stopped:
        """Return why it ended by itself."""
        code = None if self._transport is None else self._transport.get_returncode()
        limits = self._limits
        if any(words in self._errors for words in _OUT_OF_MEMORY):
            return Stopped(Ending.LIMIT, f"the code used more than {limits.heap_mb} MB of memory")
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return Stopped(
                Ending.LIMIT,
                f"the code used more than {limits.cpu_s} s of CPU, or the machine has no memory left",
            )
        return Stopped(Ending.BROKEN, f"the sandbox ended by itself, with code {code}")


async def start(recipe: Recipe) -> DenoProcess:
    """Return a process that is ready, and within its limits. Raises: Unavailable; nothing is left then."""
    process = DenoProcess(recipe.limits)
    try:
        with _info_pipe(recipe) as (reading, writing):
            await _whole(_spawn(recipe, process, writing))
            if reading is None:
                process.be_watched()
            await process.become_ready()
            # Once the script has spoken, bubblewrap has written who its child is: this read does not block.
            if reading is not None:
                process.pid = msgspec.json.decode(os.read(reading, _INFO_BYTES), type=_Info).child_pid
        bound(process.pid, recipe.limits)
    except BaseException:
        await process.end()
        raise
    return process


@contextlib.contextmanager
def _info_pipe(recipe: Recipe) -> Generator[tuple[int | None, int | None]]:
    """Yield both ends of the pipe on which bubblewrap tells the number of the process; none without a box."""
    if recipe.bwrap is None:
        yield None, None
        return
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def _whole(spawning: Coroutine[None, None, None]) -> None:
    """Wait for it to be over, also when cancelled: asyncio would kill the box and leave what it has begun."""
    task = asyncio.get_running_loop().create_task(spawning)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():  # it takes milliseconds
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise


async def _spawn(recipe: Recipe, process: DenoProcess, info_fd: int | None) -> None:
    heap_mb = recipe.limits.heap_mb
    if recipe.bwrap is None or info_fd is None:
        words = command(recipe.deno, str(recipe.script), heap_mb=heap_mb)
    else:
        words = boxed(recipe.bwrap, recipe.deno, recipe.script, heap_mb=heap_mb, info_fd=info_fd)
    pipe = asyncio.subprocess.PIPE
    try:
        await asyncio.get_running_loop().subprocess_exec(
            lambda: process,
            *words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd="/",  # not the workspace of the user
            env=ENVIRONMENT,
            start_new_session=True,
            pass_fds=() if info_fd is None else (info_fd,),
        )
    except OSError as exc:
        raise Unavailable(
            f"the sandbox does not start: {(exc.strerror or 'no reason given').lower()}"
        ) from exc
