"""The ports between a gateway, the MCP servers behind it, the client before it, and the machine they run on.

How a server is started and spoken to, and how a client is asked, is the adapters' business.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from pml.core.ports.loader import Installer
from pml.core.ports.server_logins import ServerLogin
from pml.core.servers.manifest import Manifest
from pml.core.servers.run import ContainedBy, ServerRun
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject


class Servers(Protocol):
    """The MCP servers of one gateway, started when they are first needed. Raises everywhere: ServerFailed."""

    def live(self, spec: ServerSpec) -> Manifest | None:
        """Return what the running server offers now; None if it is not running or has announced a change."""
        ...

    async def manifest(self, spec: ServerSpec) -> Manifest:
        """Start the server if it does not run, and return what it offers now."""
        ...

    async def request(
        self,
        spec: ServerSpec,
        method: str,
        params: JsonObject,
        *,
        seen: Manifest | None = None,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> bytes:
        """Send a request and return its result as the server wrote it.

        With `seen`, it is sent at once or not at all: Changed is raised unless `seen` is what `live` returns
        at that moment. Without, the server is started if need be. Cancelling the caller cancels the request
        at the server. A request that was interrupted is never sent again. Raises: ServerRefused; Changed.
        """
        ...

    async def close(self) -> None:
        """Stop every server and all that they started."""
        ...


class Client(Protocol):
    """What servers may ask of the client that the gateway serves."""

    @property
    def can_elicit(self) -> bool: ...

    @property
    def has_roots(self) -> bool:
        """Whether it has roots; a server that hears of some may take them for all that it is to serve."""
        ...

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        """Put the server's form before the client's user and return the answer."""
        ...

    async def roots(self) -> JsonObject:
        """Return the result of `roots/list`."""
        ...

    def logged(self, server: str, params: JsonObject) -> None:
        """Pass a log message of the server on."""
        ...

    def changed(self, server: str, kind: str) -> None:
        """Learn that what the server offers has changed and was read: `tools`, `prompts` or `resources`."""
        ...


class ServerLog(Protocol):
    """What a server wrote to stderr, and what PML noted about it; the values of variables are masked."""

    @property
    def path(self) -> str: ...

    def exists(self) -> bool: ...

    def tail(self, count: int) -> list[str]:
        """Return the last lines; none if nothing was written yet. Reads files: not for an event loop."""
        ...

    def follow(self, count: int) -> AsyncIterator[str]:
        """Yield the last lines and then, without end, those that are written."""
        ...


class ServerHost(Protocol):
    """The machine that servers run on, whichever PML process started them."""

    @property
    def installer(self) -> Installer: ...

    def runs(self, workspace: str) -> Sequence[ServerRun]:
        """Return what runs in the workspace; what killed gateways left is ended first."""
        ...

    def containment(self, spec: ServerSpec, *, workspace: str) -> ContainedBy | None:
        """Return what would contain the server, None for one that runs elsewhere.

        Raises: PmlError if it could not be started.
        """
        ...

    def login(self, spec: ServerSpec) -> ServerLogin | None:
        """Return the login to a server that is reached by URL, if there is one, or what is left of it.

        Raises: PmlError if that is not known.
        """
        ...

    def log(self, server: str, target_digest: str) -> ServerLog:
        """Return the log of the server under this target, whether or not there is one yet."""
        ...
