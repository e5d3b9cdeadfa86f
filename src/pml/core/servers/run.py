"""Running servers as every PML process sees them: a server of one gateway, and what contains it."""

from datetime import datetime

import msgspec

from pml.core.approvals.record import OwnerId
from pml.core.packages.permissions import Containment
from pml.core.sessions.process import Process


class ContainedBy(msgspec.Struct, frozen=True, kw_only=True):
    """What contains one server, and that in words."""

    kind: Containment
    words: str


class ServerRun(msgspec.Struct, frozen=True, kw_only=True, rename={"target_digest": "launch"}):
    """One server of one gateway as it is now. `process` is None where none runs here: between a crash and the
    next start.

    `above` are the processes that the gateway runs beneath, nearest first: one of them holds its session.
    """

    name: str
    workspace: str
    target_digest: str
    state: str
    since: datetime
    restarts: int = 0
    process: Process | None = None
    last_error: str | None = None
    owner: OwnerId
    owner_process: Process
    above: tuple[Process, ...] = ()
    containment: ContainedBy | None = None
