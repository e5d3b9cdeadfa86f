"""Where code runs: the sandboxes, and the code that waits for an answer with its process still there."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pml.core.code.journal import CodeRun, Step
from pml.core.code.sandbox import Ended, Execution, Language, Request, Sandbox
from pml.core.errors import ServerFailed, Unavailable

KEPT_S: Final = 60.0  # most answers come by then; after that a run is replayed, and its memory is free
AT_WORK: Final = 24  # pieces of code at once; each may take half a gigabyte
AT_WORK_EACH: Final = 12  # for one principal: the others want to run theirs
AT_WORK_NESTED: Final = 64  # with the capabilities that code calls: what began is not held up by what comes
KEPT: Final = 4  # processes that wait at once


@dataclass(kw_only=True)
class Live:
    """Code at work: the requests it waits for, the replies it has had, and what is kept of both."""

    run: CodeRun
    execution: Execution
    is_stored: bool
    has_begun: bool = False
    has_asked: bool = False  # and was not answered at once
    was_asked: bool = False  # and answered, while it went on
    steps: dict[int, Step] = field(default_factory=dict[int, Step])
    open: dict[int, Request] = field(default_factory=dict[int, Request])
    logs: list[str] = field(default_factory=list[str])
    delivered: int = 0
    ended: Ended | None = None

    @property
    def recorded(self) -> list[Step]:
        """The finished steps, in the order in which their replies were delivered."""
        finished = [step for step in self.steps.values() if step.place is not None]
        return sorted(finished, key=lambda step: step.place or 0)


@dataclass(frozen=True, kw_only=True)
class Sandboxes:
    """The sandboxes of one process, by language; each is opened when there is code for it."""

    sandboxes: Mapping[Language, Callable[[], Sandbox]]
    _opened: dict[Language, Sandbox] = field(default_factory=dict[Language, Sandbox])
    _parked: dict[str, tuple[Live, asyncio.TimerHandle]] = field(
        default_factory=dict[str, tuple[Live, asyncio.TimerHandle]]
    )
    _working: list[str] = field(default_factory=list[str])  # for whom
    _closing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def sandbox(self, language: Language) -> Sandbox:
        """Raises: Unavailable."""
        if language not in self.sandboxes:
            raise Unavailable(f"code in {language} cannot be run here")
        if language not in self._opened:
            self._opened[language] = self.sandboxes[language]()
        return self._opened[language]

    @contextlib.contextmanager
    def place(self, principal: str, *, is_nested: bool) -> Generator[None]:
        """Have room for one more piece of code at work, for the block. Raises: ServerFailed."""
        of_principal = self._working.count(principal)
        most = AT_WORK_NESTED if is_nested else AT_WORK
        if len(self._working) >= most or (of_principal >= AT_WORK_EACH and not is_nested):
            raise ServerFailed("too much code runs now", hint="try again when some of it has ended")
        self._working.append(principal)
        try:
            yield
        finally:
            self._working.remove(principal)

    def park(self, live: Live) -> None:
        """Keep the code with its process for a while: the answer it waits for may come soon."""
        timer = asyncio.get_running_loop().call_later(KEPT_S, self.drop, live.run.id)
        self._parked[live.run.id] = live, timer
        if len(self._parked) > KEPT:
            self.drop(next(iter(self._parked)))

    def unpark(self, run_id: str, *, taken: int) -> Live | None:
        """Return the code, if it still waits here and nobody has taken its run up elsewhere since."""
        found = self._parked.pop(run_id, None)
        if found is None:
            return None
        live, timer = found
        timer.cancel()
        if live.run.taken + 1 != taken:
            self._close(live)
            return None
        return live

    def drop(self, run_id: str) -> None:
        """Let go of the process, and of those of the capabilities it calls: the run can be replayed."""
        for id in [id for id in self._parked if id == run_id or id.startswith(f"{run_id}.")]:
            live, timer = self._parked.pop(id)
            timer.cancel()
            self._close(live)

    def _close(self, live: Live) -> None:
        task = asyncio.get_running_loop().create_task(live.execution.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for run_id in list(self._parked):
            self.drop(run_id)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await asyncio.gather(*(sandbox.close() for sandbox in self._opened.values()))
