"""Stand-ins for the clock, ids and processes. Each does what its port says, under the test's control."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from pml.core.approvals import OwnerId
from pml.core.ports import Process
from tests.builders import NOW, OWNER


class FakeClock:
    """A clock that stands still until it is told."""

    def __init__(self, at: datetime = NOW) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += timedelta(seconds=seconds)

    def set(self, at: datetime) -> None:
        self._at = at


class SequentialIds:
    """Valid UUIDs that count: the same ones in every run."""

    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return str(UUID(int=self._count, version=4))


class FakeOwners:
    """`me` is alive, and so are the owners in `others` until they are discarded."""

    def __init__(self, me: OwnerId = OWNER, others: Iterable[OwnerId] = ()) -> None:
        self.me = me
        self.others = set(others)

    def alive(self, owner: OwnerId) -> bool:
        return owner == self.me or owner in self.others


class FakeProcesses:
    """The processes that run, and the ones this process stands beneath (nearest first)."""

    def __init__(self, running: Iterable[Process] = (), ancestors: Iterable[Process] = ()) -> None:
        self.above = list(ancestors)
        self.alive = {*running, *self.above}

    def running(self, process: Process) -> bool:
        return process in self.alive

    def ancestors(self) -> list[Process]:
        return list(self.above)

    def leader(self) -> Process:
        return self.above[-1]
