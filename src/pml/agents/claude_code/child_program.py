"""The port that runs a program for this package: contained, in a group of its own, ended whole.

`app` introduces the one that does it; the containment and its processes are not known here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pml.core.sessions.process import Process


class Started(Protocol):
    """A program that runs."""

    @property
    def process(self) -> Process: ...

    def feed(self, data: bytes) -> None:
        """Write to its standard input."""
        ...

    async def fed(self) -> None:
        """Wait until it has taken most of what it was fed."""
        ...

    def close_input(self) -> None: ...

    async def finished(self) -> int:
        """Wait for its end and return its exit code; all that it printed was heard by then."""
        ...

    async def stop(self) -> None:
        """End it and all that it started, if it still runs."""
        ...


class Starter(Protocol):
    """What starts programs. Raises: Unavailable."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        own: str,
        heard: Callable[[bytes], None],
        complained: Callable[[bytes], None],
    ) -> Started:
        """Start a program on pipes: what it prints is heard, what it writes to stderr complained.

        `own` is all that it sees of PML_HOME: the folder with its configuration.
        """
        ...

    async def start_here(
        self, argv: Sequence[str], *, cwd: str, environment: Mapping[str, str], own: str
    ) -> Started:
        """Start a program that has this process's terminal for its own."""
        ...

    def kill(self, process: Process) -> None:
        """End a program that another process started, and all that it started, at once."""
        ...
