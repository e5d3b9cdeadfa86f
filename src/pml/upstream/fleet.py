"""The MCP servers of one gateway, by name: the `Servers` port on real servers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from pml.core.approvals.record import OwnerId
from pml.core.errors import Changed, ServerFailed
from pml.core.packages.permissions import Containment, Permissions
from pml.core.ports.credentials import Credentials
from pml.core.ports.loader import Variables
from pml.core.ports.servers import Client
from pml.core.ports.store import Manifests
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from pml.upstream.board import RunBoard, end_orphans
from pml.upstream.limits import Limits
from pml.upstream.preflight import Surroundings, containment_of
from pml.upstream.server import Server


class Fleet:
    """Servers that are started on demand; a name whose configuration changed is another server."""

    def __init__(
        self,
        *,
        workspace: str,
        client: Client,
        manifests: Manifests,
        idle_s: Callable[[], float],
        home: Path,
        owner: OwnerId,
        environ: Mapping[str, str],
        limits: Limits | None = None,
        prove: Callable[[ServerSpec], Awaitable[None]] | None = None,
        variables: Variables | None = None,
        env_workspace: Callable[[], str | None] = lambda: None,
        containment: Containment | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`env_workspace` is the workspace if it is trusted; without `prove` nothing installed runs."""
        self._around = Surroundings(
            workspace=workspace,
            client=client,
            manifests=manifests,
            idle_s=idle_s,
            home=home,
            user_home=Path(environ.get("HOME") or Path.home()),
            board=RunBoard(home, workspace=workspace, owner=owner),
            environ=environ,
            limits=limits or Limits(),
            prove=prove or _refuse,
            variables=variables or _NoVariables(),
            env_workspace=env_workspace,
            containment=containment,
            credentials=credentials,
        )
        self._servers: dict[str, Server] = {}
        self._is_closed = False
        end_orphans(home)

    def containment_of(self, permissions: Permissions) -> Containment:
        """Return what will hold an installed server with these permissions. Raises: as `containment_of`."""
        return containment_of(permissions, self._around)

    def live(self, spec: ServerSpec) -> Manifest | None:
        """As `Servers.live`."""
        server = self._running(spec)
        return server.live if server is not None else None

    async def manifest(self, spec: ServerSpec) -> Manifest:
        """As `Servers.manifest`."""
        server = self._server(spec)
        return server.live or await server.ready()

    async def request(
        self,
        spec: ServerSpec,
        method: str,
        params: JsonObject,
        *,
        seen: Manifest | None = None,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> bytes:
        """As `Servers.request`."""
        server = self._running(spec)
        if server is None and seen is not None:
            raise Changed(f"server `{spec.name}` does not run as it was proven")
        return await (server or self._server(spec)).request(
            method, params, seen=seen, on_progress=on_progress
        )

    async def close(self) -> None:
        """Stop every server and all that they started, also if the caller is cancelled meanwhile."""
        self._is_closed = True
        closing = asyncio.gather(
            *(
                server.close(f"server `{name}` was stopped: the gateway ends")
                for name, server in self._servers.items()
            )
        )
        is_cancelled = False
        while not closing.done():
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            raise asyncio.CancelledError

    def _server(self, spec: ServerSpec) -> Server:
        if (server := self._running(spec)) is not None:
            return server
        if self._is_closed:
            raise ServerFailed(f"server `{spec.name}` is not started: the gateway ends")
        before = self._servers.get(spec.name)
        server = Server(spec, spec.target_digest, self._around, after=before)
        self._servers[spec.name] = server
        return server

    def _running(self, spec: ServerSpec) -> Server | None:
        """Return the server of this name if its target is that of `spec`."""
        server = self._servers.get(spec.name)
        if server is None or server.spec is spec:
            return server
        if server.target_digest != spec.target_digest:
            return None
        # Read anew from an edited file, and started alike: it goes on running.
        server.spec = spec
        return server


class _NoVariables:
    def values(self, names: Sequence[str], *, workspace: str | None) -> Mapping[str, str]:
        return {}


async def _refuse(spec: ServerSpec) -> None:
    if spec.artefact is None:
        return
    raise ServerFailed(f"server `{spec.name}` is not started: nobody proves its files here")
