"""The journal of code that runs: which calls it made and what came of each, so that none is made twice.

A step is begun before its call is sent and finished before the code gets the result. One that was begun
and not finished is unknown: only a person lets it be made again. A journal ends with its run.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from pml.core.approvals.record import OwnerId, SessionId
from pml.core.code.sandbox import Fault, Language
from pml.core.values import Json, JsonObject


class CodeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of code, by `execute` or of a capability.

    `root` is the run that a client started: `id` itself, or the one whose code called this capability.
    `tool`, `arguments` and `offered` are the call that started it; `artefact` is the digest of a
    capability's code, and `covered` the tools that it was allowed to use when it was asked about (`ask x:y`
    where a rule asked about that one then).
    """

    id: str
    root: str
    principal: str
    session_id: SessionId
    tool: str
    arguments: JsonObject
    offered: bool
    language: Language
    code: str
    export: str | None
    args: Json
    artefact: str | None = None
    covered: frozenset[str] = frozenset()
    metadata: bytes | None = None  # of a capability, as its registry gave it
    source: str = ""  # where that is from
    seed: bytes
    started_at: datetime
    taken: int = 0  # how often it was taken up
    owner: OwnerId | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a run: begun, and finished once `place` says which in order its reply is."""

    run_id: str
    number: int
    what: str  # the tool, or `sleep`
    digest: str  # of what was asked for
    place: int | None = None
    value: bytes | None = None
    fault: Fault | None = None
    at_ms: int | None = None


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was left. `dump` is the sandbox's, made after the first `dumped` replies."""

    run: CodeRun
    steps: Sequence[Step] = ()
    dump: bytes | None = None
    dumped: int = 0


class Journals(Protocol):
    """Every method is one transaction and returns after its commit."""

    async def start(self, run: CodeRun) -> None:
        """Keep the run. One with its id that is there already stays as it is.

        Raises: NotFound for a run within one that has ended, Invalid.
        """
        ...

    async def take(self, run_id: str, owner: OwnerId, *, dead: Sequence[OwnerId]) -> Kept | None:
        """Take the run up, if nobody has it or its owner is among the `dead`; None if there is no such run.

        Counts `taken`. Raises: Conflict while an owner has it, also if that is `owner` itself.
        """
        ...

    async def leave(self, run_id: str, *, dump: bytes | None, dumped: int) -> None:
        """Let go of the run, which waits for an answer: the one that brings it takes it up again.

        Without a `dump`, an older one is dropped: it is replayed from its first reply.
        """
        ...

    async def get(self, run_id: str) -> CodeRun | None: ...

    async def begin(self, step: Step) -> None:
        """Keep that the step is about to be made. One that is there already stays as it is.

        Raises: NotFound if the run has ended.
        """
        ...

    async def take_back(self, run_id: str, number: int) -> None:
        """Forget that the step was begun: nothing of it was done. One that is finished stays."""
        ...

    async def finish(self, step: Step) -> None:
        """Keep what came of the step, whether it was begun or not.

        Raises: NotFound if the run has ended; Conflict if the step is finished already or was begun as
        another, or if its place is taken; Invalid. Then nothing has changed.
        """
        ...

    async def end(self, run_id: str) -> None:
        """Forget the run, all that it called, and the runs within it."""
        ...

    async def begun_with(self, principal: str, tool: str) -> Sequence[CodeRun]:
        """Return the runs that clients of the principal started with this tool, the newest first."""
        ...

    async def begun_in(self, session_id: SessionId) -> Sequence[str]:
        """Return the ids of the runs that the session's client started."""
        ...

    async def owners(self) -> Sequence[OwnerId]:
        """Return who has runs, the dead too."""
        ...

    async def forget(self, *, older_than: datetime, dead: Sequence[OwnerId]) -> int:
        """Forget what clients started, that nobody alive has and no question is open for; return how many.

        The runs within go with them. Those not started before `older_than` stay: their question may not
        be stored yet. So do those that an answer may still bring on, that did something since, or, for a day,
        that have begun what nobody knows the outcome of.
        """
        ...
