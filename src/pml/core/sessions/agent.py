"""Agents that PML launches: what was ordered, how the run stands, what it said.

A run belongs to the session of the same id. Its states are one table; whether it waits for an approval is
told by its questions, not kept here. Knows no process and no client.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from pml.core.approvals.record import OwnerId, SessionId
from pml.core.errors import IllegalEvent
from pml.core.sessions.process import Process


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


ENDED_RUN: Final = frozenset({RunState.DONE, RunState.FAILED, RunState.STOPPED})
NEXT: Final[Mapping[RunState, frozenset[RunState]]] = {
    RunState.STARTING: frozenset({RunState.RUNNING, RunState.DONE, RunState.FAILED, RunState.STOPPED}),
    RunState.RUNNING: ENDED_RUN,
    RunState.DONE: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.STOPPED: frozenset(),
}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is launched with. `tools` are globs of what it may use; None: whatever the rules let."""

    prompt: str
    cwd: str
    model: str | None = None
    tools: tuple[str, ...] | None = None
    loopback: bool = True
    may_launch: bool = False
    arguments: tuple[str, ...] = ()  # of the client's own command line: a person's, never an agent's
    is_here: bool = False  # at the terminal of the person who launched it

    @property
    def is_held(self) -> bool:
        """Whether PML answers for all that it uses; a person may leave it to the client at their terminal."""
        return self.loopback or not self.is_here


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How a launched agent stands. `config` is the folder with its token, removed when it ends."""

    session_id: SessionId
    order: Order
    owner: OwnerId  # the process that keeps it
    state: RunState = RunState.STARTING
    config: str | None = None
    turns: int = 0
    cost_usd: float = 0.0
    result: str | None = None
    exit_code: int | None = None
    told_seq: int = 0  # the last message that its parent was given
    started_at: datetime
    ended_at: datetime | None = None

    def moved_to(self, state: RunState) -> "Run":
        """Return the run in `state`. Raises: IllegalEvent; then nothing has changed."""
        if state not in NEXT[self.state]:
            raise IllegalEvent(f"session `{self.session_id}` is {self.state}; it cannot become {state}")
        return msgspec.structs.replace(self, state=state)


class MessageKind(StrEnum):
    TEXT = "text"  # what the agent said
    TOOL = "tool"  # which tool it used
    RESULT = "result"  # its last word
    ERROR = "error"  # what it or its client complained of


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a launched agent said or did. `seq` orders all messages; 0: not stored yet."""

    session_id: SessionId
    kind: MessageKind
    text: str
    at: datetime
    seq: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    state: RunState
    exit_code: int | None
    result: str | None


class Told(Protocol):
    """Who is told how a run goes."""

    async def started(self, process: Process) -> None: ...

    async def said(self, kind: MessageKind, text: str) -> None: ...

    async def counted(self, *, turns: int, cost_usd: float) -> None: ...


class Agents(Protocol):
    """What can run an agent on this machine."""

    def config_folder(self, session_id: SessionId) -> str:
        """Return where the configuration of that session's run will stand; nothing is made yet."""
        ...

    def remove_config(self, folder: str) -> None:
        """Remove the configuration, if it is there."""
        ...

    def kill(self, process: Process) -> None:
        """End an agent whose keeper is gone, and all that it started."""
        ...

    async def run(self, order: Order, *, session_id: SessionId, token: str, told: Told) -> Outcome:
        """Write the configuration, run the agent to its end, and return how it ended.

        Cancelled, it ends the agent and all that it started. The configuration is gone afterwards.
        Raises: Unavailable if it cannot be started.
        """
        ...
