"""The port to one server, whatever it is made of: opened, written to, heard, ended.

A process is one kind, in `process`. Whether a server may be opened is decided in `upstream.preflight`, what
follows from its end in `upstream.server`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pml.core.errors import Changed, PmlError
from pml.core.servers.run import ContainedBy
from pml.core.sessions.process import Process
from pml.upstream.transport.outbox import Wire


class SessionEnded(Changed):
    """The server says that it knows the session no more, so that nothing of the call has run."""


def _nobody(call_id: int) -> bool:
    return False


def _not_told(call_id: int, why: PmlError) -> None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerListener:
    """Who hears what the server says, on the event loop."""

    output: Callable[[bytes], None]  # lines of JSON-RPC, in pieces of any length
    errors: Callable[[bytes], None]  # what it says beside them, for its log
    lost: Callable[[], None]  # once: it ended, or closed its output or its input
    waits: Callable[[int], bool] = _nobody  # whether a request still waits for its answer
    failed: Callable[[int, PmlError], None] = _not_told  # a request that will have none


class Transport(Wire, Protocol):
    """An open way to a server: lines of JSON-RPC go out by `write` and come in by `ServerListener`."""

    @property
    def process(self) -> Process | None:
        """The process of this machine that answers, once connected; None where something else does."""
        ...

    async def connect(self) -> None:
        """Begin to hear the server and to be heard by it. Raises: ServerFailed."""
        ...

    @property
    def is_gone_in_order(self) -> bool:
        """Whether what ended it is no fault: a session of the server's that is over."""
        ...

    def how_it_ended(self) -> str:
        """Return what became of the server, in words that follow its name."""
        ...

    async def stop(self) -> None:
        """End the server, or the way to it. Returns when it is gone."""
        ...

    async def kill(self) -> None:
        """End a server that could not be connected to."""
        ...


class Prepared(Protocol):
    """A server that was found fit to be opened, now: for a later start it is prepared anew."""

    @property
    def containment(self) -> ContainedBy | None:
        """What will hold it; None for what does not run on this machine."""
        ...

    @property
    def values(self) -> Mapping[str, str]:
        """The secrets that it is given beside those of its entry; its log masks them."""
        ...

    def open(self, listener: ServerListener) -> Transport:
        """Begin. Raises: ServerFailed."""
        ...
