"""Agents as processes: in the wide box that hides PML_HOME, and ended with all that they started.

Their shells are in sessions of their own, so ending goes by who started whom, as it stands at that moment.
Without a box, a process that has let itself be adopted before is out of reach. If we are killed, the box ends
with us, or a watchdog ends them. Knows nothing of what the agent is or says.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import ServerFailed, Unavailable
from pml.core.packages.permissions import Containment
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.sessions.process import Process
from pml.host.processes import identify
from pml.host.watchdog import KILL, end_each, end_tree
from pml.host.watched import watchdog
from pml.upstream.containment.box import available, contain
from pml.upstream.containment.bubblewrap import DIE_WITH_PARENT, NEW_SESSION
from pml.upstream.containment.pinned import opened
from pml.upstream.containment.reach import CONFIG
from pml.upstream.limits import Limits
from pml.upstream.transport.port import ServerListener
from pml.upstream.transport.process import Launch, ServerProcess

NAME: Final = "agent"
_LIMITS: Final = Limits(stop_s=2.0)  # asked to end, an agent ends its shells first: some 300 ms
_UNREAD: Final = 1024 * 1024  # bytes it has not taken, beyond which the writer waits
_LOOK_S: Final = 0.01


class AgentBox:
    """Starts agents, contained as this machine can."""

    def __init__(self, *, home: Path, user_home: Path, kind: Containment | None = None) -> None:
        self._home = home
        self._user_home = user_home
        self._kind = kind

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        own: str,
        heard: Callable[[bytes], None],
        complained: Callable[[bytes], None],
    ) -> "AgentProcess":
        """Start a program on pipes, in a group of its own. Raises: Unavailable."""
        with _as_agent():
            process = AgentProcess(self._boxed(argv, cwd, environment, own), heard, complained)
            try:
                await process.connect()
            except BaseException:
                await asyncio.shield(process.kill())
                raise
            return process

    async def start_here(
        self, argv: Sequence[str], *, cwd: str, environment: Mapping[str, str], own: str
    ) -> "TerminalProcess":
        """Start a program that has this process's terminal for its own. Raises: Unavailable."""
        with _as_agent():
            return await TerminalProcess.start(self._boxed(argv, cwd, environment, own))

    def kill(self, process: Process) -> None:
        """End a program that another process started, and all that it started, at once."""
        end_tree(process.pid, process.started, KILL)

    def _boxed(self, argv: Sequence[str], cwd: str, environment: Mapping[str, str], own: str) -> Launch:
        command, *args = argv
        launch = Launch(server=NAME, command=command, args=tuple(args), cwd=cwd, environment=environment)
        kind = available() if self._kind is None else self._kind
        workspace = _workspace(cwd)
        return contain(
            launch,
            ProcessLaunch(command=command),
            home=self._home,
            user_home=self._user_home,
            workspace=workspace,
            kind=kind,
            shown=own,
        )


class AgentProcess(ServerProcess):
    """A program on pipes."""

    def __init__(
        self, launch: Launch, heard: Callable[[bytes], None], complained: Callable[[bytes], None]
    ) -> None:
        self._silent = asyncio.Event()  # all that it printed was heard
        super().__init__(launch, ServerListener(output=heard, errors=complained, lost=lambda: None), _LIMITS)

    def feed(self, data: bytes) -> None:
        self.write(data)

    async def fed(self) -> None:
        while self.unread_bytes > _UNREAD and not await self._happens(self._exited, _LOOK_S):
            pass

    def close_input(self) -> None:
        if self._input is not None:
            self._input.close()  # after all that was fed

    async def finished(self) -> int:
        await self._exited.wait()
        await self._happens(self._silent, self._limits.drain_s)
        return self.code if self.code is not None else -1

    async def stop(self) -> None:
        if self.code is None:
            tree = end_tree(self.process.pid, self.process.started, signal.SIGTERM)
            await self._happens(self._exited, self._limits.stop_s)
            end_each(tree, KILL)
        await super().stop()

    def _at_eof(self) -> None:
        super()._at_eof()
        if not self._open_pipes:
            self._silent.set()


class TerminalProcess:
    """A program at the terminal. It shares the group of this process: the terminal's signals meet both."""

    def __init__(self, running: asyncio.subprocess.Process, pid: int) -> None:
        self._running = running
        self.process = identify(pid)
        watchdog().watch(self.process)

    @classmethod
    async def start(cls, launch: Launch) -> "TerminalProcess":
        told, tell = os.pipe()
        telling = ("--info-fd", str(tell)) if launch.is_boxed else ()
        # Without a session of its own: else it would have no terminal. Ctrl-C ends bwrap, which is in the
        # terminal's group, and must not end the agent: so the watchdog ends the box if we are killed.
        words = tuple(word for word in launch.box if word not in (NEW_SESSION, DIE_WITH_PARENT))
        watchdog().start()
        with os.fdopen(told, "rb") as read, opened(launch.server, words) as (box, pinned):
            try:
                running = await asyncio.create_subprocess_exec(
                    *(launch.command, *telling, *box, *launch.args),
                    cwd=launch.cwd,
                    env=dict(launch.environment),
                    pass_fds=(tell, *pinned),
                )
            finally:
                os.close(tell)
            pid = running.pid
            if launch.is_boxed:
                with contextlib.suppress(msgspec.MsgspecError):
                    info = await asyncio.to_thread(read.read)
                    pid = msgspec.json.decode(info, type=dict[str, int])["child-pid"]
            return cls(running, pid)

    def feed(self, data: bytes) -> None:
        """It reads from the terminal."""

    async def fed(self) -> None: ...

    def close_input(self) -> None: ...

    async def finished(self) -> int:
        code = await self._running.wait()
        watchdog().release(self.process)
        return code

    async def stop(self) -> None:
        if self._running.returncode is not None:
            return
        tree = end_tree(self.process.pid, self.process.started, signal.SIGTERM, group=False)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._running.wait(), _LIMITS.stop_s)
        end_each(tree, KILL)
        await self.finished()


def _workspace(cwd: str) -> str:
    """Return the nearest folder above `cwd`, or itself, whose configuration is to be read-only."""
    for folder in (Path(cwd), *Path(cwd).parents):
        if (folder / CONFIG).exists():
            return str(folder)
    return cwd


@contextlib.contextmanager
def _as_agent() -> Generator[None]:
    """Tell of what fails as of an agent, not of a server."""
    try:
        yield
    except ServerFailed as exc:
        message = exc.message.replace(f"server `{NAME}`", "the agent")
        raise Unavailable(message, hint="`pml doctor` checks the setup") from exc
    except OSError as exc:
        raise Unavailable(f"the agent cannot be started: {(exc.strerror or str(exc)).lower()}") from exc
