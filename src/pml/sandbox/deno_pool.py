"""Processes kept ready, so that a program does not wait for one to start. Each is given away once.

What is taken is replaced a moment later, so that the replacing does not slow down who took it. What runs in
them is not known here.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from pml.core.errors import Unavailable
from pml.sandbox.deno_process import DenoProcess

_REPLACE_S: Final = 0.02  # a short program is over by then


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
        """Return a process that nobody else has or had. Raises: Unavailable."""
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
