"""The sandbox for Python: Monty, an interpreter in processes of its own that knows no system.

Its calls block, so they run in threads; a call that is cancelled kills the process that it waits for. The
interpreter is imported, and its processes are started, when the first code runs. What a turn is, is in
`run`; how the processes are started, in `box`.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from pml.core.code.sandbox import Conditions, Ended, Ending, Program, Reply, Turn
from pml.core.errors import Unavailable
from pml.sandbox.monty.limits import MontyLimits
from pml.sandbox.monty.worker import MontyWorker, MontyWorkers

_THREADS: Final = 32  # turns at once; more wait for one of these to end

_T = TypeVar("_T")


class MontySandbox:
    """Runs Python code. `home` is where the key of its dumps is, and the script that starts its processes."""

    def __init__(self, home: Path, *, limits: MontyLimits | None = None) -> None:
        self._limits = limits or MontyLimits()
        self._workers = MontyWorkers(home, self._limits)
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="monty")
        self._running: set[MontyExecution] = set()
        self._is_closed = False

    async def warm(self) -> None:
        """Start a process ahead of the first run. Raises: Unavailable if there is none to be had."""
        await asyncio.wrap_future(self._threads.submit(self._workers.start))

    async def open(self, program: Program, conditions: Conditions) -> "MontyExecution":
        """Raises: Unavailable if too much runs already."""
        return self._seated(program, conditions)

    async def load(self, program: Program, dump: bytes) -> "MontyExecution | None":
        """Raises: Unavailable if the interpreter cannot be had, or too much runs already."""
        execution = self._seated(program, None)
        if await execution.restore(dump):
            return execution
        await execution.close()
        return None

    async def close(self) -> None:
        self._is_closed = True
        for execution in tuple(self._running):
            await execution.close()
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._workers.close)

    def _seated(self, program: Program, conditions: Conditions | None) -> "MontyExecution":
        if self._is_closed:
            raise Unavailable("the Python sandbox is closed")
        if len(self._running) >= self._limits.runs:
            raise Unavailable(f"{len(self._running):,} Python programs run already", hint="try again later")
        worker = MontyWorker(self._workers, program, conditions, self._limits)
        execution = MontyExecution(worker, self._threads, self._running.discard)
        self._running.add(execution)
        return execution


class MontyExecution:
    """One run; its process is taken with the first turn, and given back with the last."""

    def __init__(
        self, worker: MontyWorker, threads: ThreadPoolExecutor, forget: Callable[["MontyExecution"], None]
    ) -> None:
        self._worker = worker
        self._threads = threads
        self._forget = forget
        self._restored: Turn | None = None
        self._is_over = False

    async def begin(self) -> Turn:
        """Raises: Unavailable if the interpreter cannot be had."""
        return self._restored or await self._turn(self._worker.begin)

    async def restore(self, dump: bytes) -> bool:
        """Take up a run that was dumped; tell whether it could be. Raises: as `begin`."""
        self._restored = await self._in_thread(lambda: self._worker.restore(dump))
        return self._restored is not None

    async def deliver(self, reply: Reply) -> Turn:
        """Raises: Invalid if that request is not open."""
        return await self._turn(lambda: self._worker.deliver(reply))

    async def dump(self) -> bytes | None:
        return None if self._is_over else await self._in_thread(self._worker.dump)

    async def close(self) -> None:
        if not self._is_over:
            self._worker.kill_running()
            await self._in_thread(self._worker.leave)
            self._over()

    async def _turn(self, turn: Callable[[], Turn]) -> Turn:
        if self._is_over:
            return Turn(ended=Ended(how=Ending.BROKEN, message="the run was ended"))
        told = await self._in_thread(turn)
        if told.ended is not None:
            self._over()
        return told

    async def _in_thread(self, job: Callable[[], _T]) -> _T:
        try:
            return await asyncio.wrap_future(self._threads.submit(job))
        except BaseException:  # above all cancelled: the thread is still at it, and comes free by this
            self._worker.kill()
            self._threads.submit(self._worker.leave)
            self._over()
            raise

    def _over(self) -> None:
        self._is_over = True
        self._forget(self)
