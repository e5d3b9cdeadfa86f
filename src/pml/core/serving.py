"""The ports between a gateway, the MCP servers behind it, and the client before it.

How a server is started and spoken to, and how a client is asked, is the adapters' business.
"""

from collections.abc import Callable
from typing import Protocol

from pml.core.manifests import Manifest
from pml.core.servers import ServerSpec
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
