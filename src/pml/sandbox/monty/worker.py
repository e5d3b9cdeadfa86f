"""The interpreter's processes, and what one run does in its own. All of it blocks, but for killing.

Nothing of the interpreter is imported with this module: that is left to the thread of the first run.
"""

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.core.code.sandbox import Conditions, Program, Reply, Turn
from pml.core.errors import Unavailable
from pml.core.sessions.process import Process
from pml.host.processes import SystemProcesses
from pml.host.watched import watchdog
from pml.sandbox.monty.box import interpreter, launchers
from pml.sandbox.monty.limits import LimitReached, MontyLimits
from pml.sandbox.monty.state import DumpSeal, new_state

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

    from pml.sandbox.monty.run import MontyRun

_SPAWN_S: Final = 10.0  # a process starts in some 10 ms; a machine under load takes longer
_GRACE_S: Final = 1.0  # for the interpreter to notice its limit, before its process is killed
_DEATH_S: Final = 5.0  # a killed process is gone in a millisecond
_NET_S: Final = 5.0  # beyond both: a process that answers nothing at all
_RECYCLED_AFTER: Final = 100  # runs; whatever they may have left in a process ends with it
_SPARE: Final = 32  # processes that are still being given back while others are taken
_TRIES: Final = 3  # at a process that is alive, before any code runs
_ENDLESS: Final = 2**31 - 1  # questions of the interpreter: each turn's time bounds them


class MontyWorkers:
    """The pool of processes, which is started when first needed, and the seal of dumps."""

    def __init__(self, home: Path, limits: MontyLimits) -> None:
        self._home = home
        self._limits = limits
        self._lock = threading.Lock()
        self._pool: Monty | None = None
        self.seal = DumpSeal(home)

    def start(self) -> "Monty":
        """Return the pool, which is started by the first to ask. Raises: Unavailable."""
        with self._lock:
            if self._pool is None:
                self._pool = self._started()
            return self._pool

    def session(self) -> "MontySession":
        """Return a new session with a process to itself. Raises: Unavailable."""
        from pydantic_monty import MontyError

        session = self.start().checkout(
            limits={
                "max_turn_duration_secs": self._limits.turn_s,
                "max_memory": self._limits.memory_bytes,
                "max_recursion_depth": self._limits.recursion,
                "max_suspensions": _ENDLESS,
            },
            os_policy={"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"},
        )
        try:
            return session.__enter__()
        except (MontyError, RuntimeError, OSError) as exc:
            raise Unavailable(f"no process of the Python sandbox could be had: {exc}") from exc

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)

    def _started(self) -> "Monty":
        from pydantic_monty import Monty, MontyError

        program = interpreter()
        if program is None:
            raise Unavailable(
                "the Python sandbox is not installed: there is no `monty`",
                hint="reinstall `pydantic-monty`",
            )
        trouble = ""
        for launcher in launchers(self._home, program, memory_bytes=self._limits.memory_bytes):
            pool = Monty(
                binary_path=launcher,
                max_processes=self._limits.runs + _SPARE,
                checkout_timeout=_SPAWN_S,
                request_timeout=self._limits.turn_s + _GRACE_S + _NET_S,
                max_checkouts_per_worker=_RECYCLED_AFTER,
                turn_duration_limit_grace=_GRACE_S,
            )
            try:
                pool.__enter__()
                with pool.checkout() as session:
                    session.feed_run("None")
                return pool
            except (MontyError, RuntimeError, OSError) as exc:
                pool.__exit__(None, None, None)
                trouble = str(exc)
        raise Unavailable(f"the Python sandbox does not start: {trouble}")


class MontyWorker:
    """One run in a process; only one call works at a time, and another waits for it."""

    def __init__(
        self, workers: MontyWorkers, program: Program, conditions: Conditions | None, limits: MontyLimits
    ) -> None:
        self._workers = workers
        self._program = program
        self._conditions = conditions
        self._limits = limits
        self._working = threading.Lock()
        self._process = _Process()
        self._session: MontySession | None = None
        self._run: MontyRun | None = None

    def begin(self) -> Turn:
        from pml.sandbox.monty.run import MontyRun

        assert self._conditions is not None
        with self._working:
            session = self._alive()
            self._answered(session)
            state = new_state(self._conditions, self._limits)
            self._run = MontyRun(session, self._program, state, self._limits)
            return self._told(self._run.begin())

    def restore(self, dump: bytes) -> Turn | None:
        from pml.sandbox.monty.run import MontyRun

        with self._working:
            found = self._workers.seal.open(self._program, dump)
            if found is None:
                return None
            session = self._entered()
            try:
                self._run = MontyRun(session, self._program, found.state, self._limits)
                told = self._run.restore(found.snapshot)
            except (ValueError, LimitReached):
                return None
            self._answered(session)
            return told

    def deliver(self, reply: Reply) -> Turn:
        with self._working:
            assert self._run is not None
            return self._told(self._run.deliver(reply))

    def dump(self) -> bytes | None:
        """Return the run as bytes; None if it does not wait, or there is no key to be had."""
        from pydantic_monty import MontyError

        with self._working, suppress(MontyError, OSError, ValueError):
            dumped = None if self._run is None else self._run.dump()
            if dumped is not None and len(dumped[0]) <= self._limits.dump_bytes:
                snapshot, state = dumped
                return self._workers.seal.seal(self._program, state, snapshot)
        return None

    def leave(self) -> None:
        with self._working:
            self._left()

    def kill(self) -> None:
        """End the process, or the one that it is about to get."""
        self._process.kill()

    def kill_running(self) -> None:
        """End the process if the code runs; if it waits, the process can serve another run."""
        if self._working.locked():
            self._process.kill()

    def _alive(self) -> "MontySession":
        """Return a session whose process has answered; the pool may give one that was killed a moment ago."""
        from pydantic_monty import MontyError

        for _ in range(_TRIES):
            session = self._entered()
            try:
                session.dump()  # only to have an answer
            except (MontyError, RuntimeError):
                self._left()
            else:
                return session
        raise Unavailable("the processes of the Python sandbox die", hint="try again")

    def _entered(self) -> "MontySession":
        self._session = self._workers.session()
        return self._session

    def _answered(self, session: "MontySession") -> None:
        """Let the process be killed from now on. Raises: Unavailable if it is no longer wanted.

        Not before it has answered: a box that is killed while it is made leaves what it has started.
        """
        if not self._process.found(session.worker_pid):
            self._left()
            raise Unavailable("the run was ended before it began")

    def _told(self, turn: Turn) -> Turn:
        if turn.ended is not None:
            self._left()
        return turn

    def _left(self) -> None:
        session, self._session, self._run = self._session, None, None
        self._process.forget()
        if session is not None:
            with suppress(Exception):  # a process that has died has nothing to give back
                session.__exit__(None, None, None)


class _Process:
    """The process of one run, to be killed by another thread, and never another one with its number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._descriptor: int | None = None
        self._is_killed = False
        self._watched: Process | None = None

    def found(self, pid: int | None) -> bool:
        """Take the process; tell whether it is still wanted."""
        with self._lock:
            self._pid = pid
            self._watched = None if pid is None else SystemProcesses().find(pid)
            if self._watched is not None:  # it may have no box to end with us
                watchdog().watch(self._watched)
            if sys.platform == "linux" and pid is not None:
                with suppress(OSError):  # it has died already
                    self._descriptor = os.pidfd_open(pid)
            return not self._is_killed

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            self._end()

    def forget(self) -> None:
        """Let go of the process; one that was killed has died then.

        Given back to the pool while it still dies, it would be handed to the next run.
        """
        with self._lock:
            self._pid = None
            descriptor, self._descriptor = self._descriptor, None
            if self._watched is not None:
                watchdog().release(self._watched)
                self._watched = None
        if descriptor is not None:
            if self._is_killed:
                select.select([descriptor], [], [], _DEATH_S)
            os.close(descriptor)

    def _end(self) -> None:
        with suppress(OSError):
            if sys.platform == "linux":
                if self._descriptor is not None:
                    signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
            elif self._pid is not None:
                os.kill(self._pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
