"""One server process in a group of its own: the `Transport` that is spawned, and killed whole.

Knows nothing of JSON-RPC. What the process prints goes to whoever started it; when it is lost, it says so
once. If we are killed, its box ends with us; what has none, or has it not yet, the watchdog ends. A process
that leaves the group by itself (`setsid`) is out of reach, unless its box ends with it.
Where bwrap stands between, the server has a group of its own, so that it can be asked to end before it must.
"""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pml.core.errors import ServerFailed
from pml.core.servers.process_launch import missing_command
from pml.core.sessions.process import Process
from pml.core.text import quote
from pml.host.processes import SystemProcesses, identify
from pml.host.watched import watchdog
from pml.upstream.containment.pinned import Pinned, opened
from pml.upstream.limits import Limits
from pml.upstream.transport.port import ServerListener

if sys.platform == "win32":
    from asyncio.windows_utils import Popen  # its pipes can be read by the event loop
else:
    from subprocess import Popen

# asyncio's own buffer of 256 KiB is mapped and unmapped by the system at every read: half the cost of one.
_READ_BYTES: Final = 64 * 1024

if TYPE_CHECKING:
    AnyPopen = subprocess.Popen[bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What is executed, where, and with which environment.

    `is_boxed`: `command` is bwrap, which starts the server, and nothing in the box outlives that. `box` is
    what bwrap is told before `args`.
    """

    server: str
    command: str
    args: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    is_boxed: bool = False
    box: tuple[str | Pinned, ...] = ()


class _Told(msgspec.Struct, rename="kebab"):
    """What bwrap tells of the box."""

    child_pid: int


class ServerProcess:
    """A running process. `code` is its exit code once it ended, negative for a signal."""

    def __init__(self, launch: Launch, listener: ServerListener, limits: Limits) -> None:
        """Spawn the process. Raises: ServerFailed."""
        told, tell = os.pipe() if launch.is_boxed else (-1, -1)
        watchdog().start()
        try:
            process = _spawn(launch, tell)
        except BaseException:
            _close(told)
            raise
        finally:
            _close(tell)
        self.server = launch.server
        self.pid = process.pid
        self.group = process.pid  # in a box, from when bwrap has told: the server's
        self._pipes: Any = (process.stdin, process.stdout, process.stderr)  # on Windows handles, not files
        self.code: int | None = None
        self._process: Process | None = None
        self._ears = listener
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._reaping = threading.Lock()  # no signal meets a number that is another process's by now
        self._is_reaped = False
        self._open_pipes = 2
        self._is_lost = False
        self._input: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.BaseTransport] = []
        self._drain: asyncio.TimerHandle | None = None
        self._is_boxed = launch.is_boxed
        self._watched = [identify(self.pid)]
        watchdog().watch(self._watched[0])
        self._is_told = asyncio.Event()
        self._telling = b""
        if launch.is_boxed:
            self._loop.add_reader(told, self._at_told, told)
        else:
            self._is_told.set()
        threading.Thread(target=self._reap, args=(process,), name=f"pml-wait-{self.pid}", daemon=True).start()

    async def connect(self) -> None:
        """Begin to hear the process and to be heard by it. Raises: ServerFailed."""
        if not await self._happens(self._is_told, _BOX_S):
            raise ServerFailed(f"server `{self.server}` cannot be started: its box was not made in time")
        stdin, stdout, stderr = self._pipes
        self._input, _ = await self._loop.connect_write_pipe(lambda: _Input(self._at_input_closed), stdin)
        for pipe, hear in ((stdout, self._ears.output), (stderr, self._ears.errors)):
            output = _Output(hear, self._at_eof)
            connected, _ = await self._loop.connect_read_pipe(lambda it=output: it, pipe)
            connected.max_size = _READ_BYTES  # pyright: ignore[reportAttributeAccessIssue]
            self._outputs.append(connected)

    @property
    def process(self) -> Process:
        """The process that is the server: in a box, the first in there."""
        if self._process is None:
            self._process = identify(self.group)
        return self._process

    @property
    def unread_bytes(self) -> int:
        """How much was written that the process has not taken yet."""
        return self._input.get_write_buffer_size() if self._input is not None else 0

    def write(self, data: bytes) -> bool:
        """Write without waiting; False when the process no longer listens."""
        if self._input is None or self._input.is_closing():
            return False
        self._input.write(data)
        return True

    @property
    def is_gone_in_order(self) -> bool:
        """Never: nobody asked it to end."""
        return False

    def how_it_ended(self) -> str:
        """Return what became of the process, in words."""
        if self.code is None:
            return "closed its input or its output"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was ended by signal {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"

    async def stop(self) -> None:
        """End the process and its group: close its input, then ask, then kill. Returns when it is gone."""
        self._close_input()
        if not await self._happens(self._exited, self._limits.stop_s):
            self._signal(_TERMINATE)
            if not await self._happens(self._exited, self._limits.stop_s):
                self._signal(_KILL)
                await self._happens(self._exited, self._limits.drain_s)
        await self._group_ends()
        self._close_pipes()
        await asyncio.sleep(0)  # the event loop closes the descriptors in its next turn

    async def kill(self) -> None:
        """End a process that could not be connected to."""
        await self._happens(self._is_told, _BOX_S)  # else the server would outlive its bwrap
        self._signal(_KILL)
        await self.stop()
        for pipe in self._pipes:
            pipe.close()

    @staticmethod
    async def _happens(event: asyncio.Event, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def _group_ends(self) -> None:
        """Wait for what was killed with the process; a zombie that nobody reaps is not waited for."""
        for _ in range(int(self._limits.drain_s / _LOOK_S)):
            if not self._is_reaped or not (_group_exists(self.pid) or self._box_exists()):
                return
            await asyncio.sleep(_LOOK_S)

    def _box_exists(self) -> bool:
        """Tell whether anything runs that is in the server's group."""
        is_over = self._is_boxed and SystemProcesses().find(self.group) is None  # or a zombie
        return not is_over and _group_exists(self.group)

    def _reap(self, process: "AnyPopen") -> None:
        """Wait, on a thread of its own, for the end of the process, and kill what is left of its group."""
        if sys.platform != "win32" and hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # none is left to reap where SIGCHLD is ignored
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with self._reaping:
            if sys.platform != "win32":
                for group in {process.pid, self.group}:
                    _signal_group(group, _KILL)
            for each in self._watched:
                watchdog().release(each)
            code = process.wait()
            self._is_reaped = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
            self._loop.call_soon_threadsafe(self._at_exit, code)

    def _at_told(self, told: int) -> None:
        """Take in the number of the process in the box: all that bwrap starts is in its group."""
        data = os.read(told, 4096)
        self._telling += data
        if data:
            return
        self._loop.remove_reader(told)
        os.close(told)
        with contextlib.suppress(msgspec.MsgspecError):  # bwrap ended before there was one
            self.group = msgspec.json.decode(self._telling, type=_Told).child_pid
            self._watch_box()
        self._is_told.set()

    def _watch_box(self) -> None:
        """Have the first process of the box ended too: until it is made, it does not end with bwrap."""
        with self._reaping:
            if not self._is_reaped:
                self._watched.append(identify(self.group))
                watchdog().watch(self._watched[-1])

    def _at_exit(self, code: int) -> None:
        is_signal = self._is_boxed and code > _SIGNALLED
        self.code = _SIGNALLED - code if is_signal else code
        self._exited.set()
        self._await_end()

    def _at_input_closed(self) -> None:
        self._input = None
        self._await_end()

    def _at_eof(self) -> None:
        self._open_pipes -= 1
        self._await_end()

    def _await_end(self) -> None:
        """Tell of the loss when all has been heard; something may still hold the pipes, so not for ever."""
        if self.code is not None and not self._open_pipes:
            self._lose()
        elif self._drain is None:
            self._drain = self._loop.call_later(self._limits.drain_s, self._lose)

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._ears.lost()

    def _signal(self, how: signal.Signals) -> None:
        with self._reaping:
            if self._is_reaped:
                return
            for group in {self.group} if how is _TERMINATE else {self.group, self.pid}:
                _signal_group(group, how)

    def _close_input(self) -> None:
        closing, self._input = self._input, None
        if closing is not None:  # a transport that still has bytes would wait for them to be read
            closing.abort() if closing.get_write_buffer_size() else closing.close()

    def _close_pipes(self) -> None:
        self._is_lost = True
        if self._drain is not None:
            self._drain.cancel()
        self._close_input()
        for output in self._outputs:
            output.close()


_BOX_S = 10.0  # for bwrap to make a box: some milliseconds, and longer where the machine is busy
_SIGNALLED = 128  # what bwrap adds to the signal that ended the server
_LOOK_S = 0.005  # between looks at a group whose end no event tells
_TERMINATE = signal.SIGTERM
_KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL  # there both end the process at once


def _signal_group(group: int, how: signal.Signals) -> None:
    with contextlib.suppress(OSError):  # it is gone
        if sys.platform == "win32":
            os.kill(group, how)
        else:
            os.killpg(group, how)


def _group_exists(group: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _spawn(launch: Launch, tell: int) -> "AnyPopen":
    new_group: dict[str, Any] = (
        {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        if sys.platform == "win32"
        else {"start_new_session": True}
    )
    pipe = subprocess.PIPE
    telling = ("--info-fd", str(tell)) if launch.is_boxed else ()
    with opened(launch.server, launch.box) as (box, pinned):
        try:
            process: Any = Popen(
                [_program(launch), *telling, *box, *launch.args],
                cwd=launch.cwd,
                env=dict(launch.environment),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                close_fds=True,
                pass_fds=(tell, *pinned) if launch.is_boxed else (),
                **new_group,
            )
            return process
        except (OSError, ValueError) as exc:
            raise _not_started(launch, exc) from exc


def find_program(launch: Launch) -> str:
    """Return the path of what `launch` names, as the system would find it. Raises: ServerFailed."""
    if not os.path.isdir(launch.cwd):
        raise _not_started(launch, NotADirectoryError())
    if os.sep in launch.command:
        path = os.path.join(launch.cwd, launch.command)
        if os.path.exists(path) and not (os.path.isfile(path) and os.access(path, os.X_OK)):
            raise _not_started(launch, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        found = path if os.path.exists(path) else None
    else:
        found = _search(launch, os.defpath)
    if found is None:
        raise _not_started(launch, FileNotFoundError())
    return found


def _program(launch: Launch) -> str:
    if sys.platform == "win32":  # `npx` is `npx.cmd` there, which only this finds
        return _search(launch, None) or launch.command
    return launch.command


def _search(launch: Launch, default: str | None) -> str | None:
    import shutil

    return shutil.which(launch.command, path=launch.environment.get("PATH", default))


def _not_started(launch: Launch, exc: OSError | ValueError) -> ServerFailed:
    start = f"server `{launch.server}` cannot be started: "
    if not os.path.isdir(launch.cwd):
        return ServerFailed(f"{start}{quote(launch.cwd)} is not a folder", hint="correct its `cwd`")
    command = quote(launch.command)
    if isinstance(exc, FileNotFoundError):
        return ServerFailed(f"{start}command {command} was not found", hint=missing_command(launch.command))
    reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it cannot be executed"
    return ServerFailed(f"{start}command {command}: {reason.lower()}", hint="correct its `command`")


class _Output(asyncio.Protocol):
    def __init__(self, hear: Callable[[bytes], None], at_eof: Callable[[], None]) -> None:
        self._hear = hear
        self._at_eof = at_eof

    def data_received(self, data: bytes) -> None:
        self._hear(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._at_eof()


class _Input(asyncio.BaseProtocol):
    def __init__(self, at_close: Callable[[], None]) -> None:
        self._at_close = at_close

    def connection_lost(self, exc: Exception | None) -> None:
        self._at_close()
