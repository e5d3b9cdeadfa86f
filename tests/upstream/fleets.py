"""Fleets on the odd server, and stand-ins for the client and the store that remember what they were told."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pml.core.approvals.record import OwnerId
from pml.core.errors import ArtefactChanged, Unavailable
from pml.core.packages.permissions import Containment
from pml.core.ports.credentials import Credentials
from pml.core.rules.ruleset import Source
from pml.core.servers.manifest import Manifest
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from pml.upstream.board import list_servers
from pml.upstream.fleet import Fleet
from pml.upstream.limits import Limits

ODD: Final = Path(__file__).parent / "odd_server.py"
SOON_S: Final = 60.0  # bounds every wait; only a fault ever reaches it
LOOK_S: Final = 0.01


class FakeManifests:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Manifest] = {}
        self.puts = 0
        self.is_broken = False

    async def get(self, server: str, target_digest: str) -> Manifest | None:
        if self.is_broken:
            raise Unavailable("the store is gone")
        return self.kept.get((server, target_digest))

    async def put(self, manifest: Manifest) -> None:
        self.puts += 1
        self.kept[manifest.server, manifest.target_digest] = manifest


class FakeVariables:
    """Values of everywhere and, where it is trusted, of the workspace, once they are unlocked."""

    def __init__(self) -> None:
        self.unlocked = threading.Event()
        self.unlocked.set()
        self.everywhere: dict[str, str] = {}
        self.in_workspace: dict[str, str] = {}

    def values(self, names: Sequence[str], *, workspace: str | None) -> Mapping[str, str]:
        if not self.unlocked.wait(SOON_S):
            raise Unavailable("nobody unlocked the values")
        known = {**self.everywhere, **(self.in_workspace if workspace is not None else {})}
        return {name: known[name] for name in names if name in known}


class FakeClient:
    """A client that answers at once, unless `patience` holds its form open."""

    def __init__(self, *, can_elicit: bool = True, has_roots: bool = True) -> None:
        self.can_elicit = can_elicit
        self.has_roots = has_roots
        self.forms: list[tuple[str, JsonObject]] = []
        self.closed_forms = 0
        self.patience: asyncio.Event | None = None
        self.logs: list[tuple[str, JsonObject]] = []
        self.changes: list[tuple[str, str]] = []

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        self.forms.append((server, params))
        try:
            if self.patience is not None:
                await self.patience.wait()
        except asyncio.CancelledError:
            self.closed_forms += 1
            raise
        return {"action": "accept", "content": {"name": "Ana"}}

    async def roots(self) -> JsonObject:
        return {"roots": [{"uri": "file:///repo"}]}

    def logged(self, server: str, params: JsonObject) -> None:
        self.logs.append((server, params))

    def changed(self, server: str, kind: str) -> None:
        self.changes.append((server, kind))

    def heard(self, text: str) -> bool:
        return any(params.get("data") == text for _, params in self.logs)


class Harbour:
    """Makes fleets of one home, and closes them."""

    def __init__(self, home: Path, workspace: Path) -> None:
        self.home = home
        self.workspace = workspace
        self.client = FakeClient()
        self.manifests = FakeManifests()
        self.idle_s = 300.0
        self.variables = FakeVariables()
        self.is_trusted = False
        self.changed: ArtefactChanged | None = None
        self.proven: list[str] = []
        self._fleets: list[Fleet] = []

    def fleet(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        containment: Containment | None = None,
        credentials: Credentials | None = None,
    ) -> Fleet:
        fleet = Fleet(
            workspace=str(self.workspace),
            client=self.client,
            manifests=self.manifests,
            idle_s=lambda: self.idle_s,
            home=self.home,
            owner=OwnerId(f"owner-{len(self._fleets)}"),
            environ=os.environ if environ is None else environ,
            limits=limits,
            prove=self.prove,
            variables=self.variables,
            env_workspace=lambda: str(self.workspace) if self.is_trusted else None,
            containment=containment,
            credentials=credentials,
        )
        self._fleets.append(fleet)
        return fleet

    async def prove(self, spec: ServerSpec) -> None:
        self.proven.append(spec.name)
        if self.changed is not None:
            raise self.changed

    def pids(self) -> list[int]:
        return [posted.process.pid for posted in list_servers(self.home) if posted.process is not None]

    def log(self) -> str:
        return "".join(path.read_text("utf-8") for path in sorted((self.home / "logs").glob("*")))

    async def close(self) -> None:
        for fleet in self._fleets:
            await fleet.close()


def odd(
    *options: str,
    name: str = "odd",
    env: Mapping[str, str] | None = None,
    command: str = sys.executable,
    cwd: str | None = None,
    line: int = 1,
) -> ServerSpec:
    return ServerSpec(
        name=name,
        target=ProcessLaunch(command=command, args=(str(ODD), *options), env=env or {}, cwd=cwd),
        source=Source(file="/repo/.pml.json", line=line),
    )


async def use(
    fleet: Fleet,
    spec: ServerSpec,
    tool: str,
    *,
    seen: Manifest | None = None,
    on_progress: Callable[[JsonObject], None] | None = None,
    **arguments: Any,
) -> Any:
    """Call a tool and return the text of its result, read as JSON where it is that."""
    params: JsonObject = {"name": tool, "arguments": arguments}
    result = json.loads(await fleet.request(spec, "tools/call", params, seen=seen, on_progress=on_progress))
    text = result["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something outside has happened. Raises: TimeoutError."""
    async with asyncio.timeout(SOON_S):
        while True:
            if holds():
                return
            await asyncio.sleep(LOOK_S)


def runs(pid: int) -> bool:
    """Tell whether the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def all_beneath(pid: int) -> list[int]:
    """Return the process and all that it started, as this side of its box numbers them."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text("utf-8").rpartition(") ")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(path.name))
    found = [pid]
    for each in found:
        found.extend(parents.get(each, []))
    return found
