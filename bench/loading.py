"""What loading costs: first use and later starts beside `npx` and `uvx`, proving, and a registry's cache.

First use is from nothing installed to `initialize` answered, with empty caches on both sides. A later start
is what a call waits for when its server does not run: for PML that includes proving every file.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.caller import Wrong, running
from bench.table import Row, ms, print_table
from pml.core.approvals.record import OwnerId
from pml.core.errors import PmlError
from pml.core.names import parse_tool
from pml.core.packages.capability import McpDependency
from pml.core.packages.lock import Ecosystem
from pml.core.ports.loader import Installed, Plan
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from pml.install.installer import DiskInstaller
from pml.install.npm.installer import NpmInstaller
from pml.install.package_managers import find_uv
from pml.install.pypi.installer import PypiInstaller
from pml.registry.catalog import Catalog
from pml.registry.client.sources import RegistryClient
from pml.registry.cloud.registry_server import registry_app
from pml.registry.folder import RegistryFolder
from pml.upstream.containment.box import available
from pml.upstream.fleet import Fleet
from pml.web.http_server import listen, serve, url_of

SERVERS = ("memory", "filesystem", "time")
STARTS = 7
LOOKUPS = 200


class Now:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Alone:
    """A client that nothing is asked of."""

    can_elicit = False
    has_roots = False

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        return {"action": "cancel"}

    async def roots(self) -> JsonObject:
        return {"roots": []}

    def logged(self, server: str, params: JsonObject) -> None:
        pass

    def changed(self, server: str, kind: str) -> None:
        pass


class NoManifests:
    async def get(self, server: str, target_digest: str) -> Manifest | None:
        return None

    async def put(self, manifest: Manifest) -> None:
        pass


@dataclass(kw_only=True)
class Numbers:
    """Seconds, of one server."""

    first: float = 0.0
    peer_first: float | None = None
    starts: list[float] = field(default_factory=list[float])
    peer_starts: list[float] = field(default_factory=list[float])
    own_starts: list[float] = field(default_factory=list[float])
    proofs: list[float] = field(default_factory=list[float])


def rows(*, quick: bool = False) -> list[Row]:
    """Measure and return the rows; `quick` leaves out what needs package registries."""
    found: list[Row] = []
    for name in () if quick else SERVERS:
        with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory:
            try:
                numbers = asyncio.run(_measure(name, Path(directory)))
            except PmlError as exc:
                print(f"{name} could not be loaded: {exc.message}", file=sys.stderr)
                continue
            found += _rows(name, numbers)
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as directory:
        return [*found, asyncio.run(_cache_hit(Path(directory)))]


async def _measure(name: str, place: Path) -> Numbers:
    entry = Catalog().find(name)
    dependency = None if entry is None else entry.metadata.dependency(name)
    if dependency is None:
        raise SystemExit(f"the catalog has no {name}")
    workspace, home = place / "workspace", place / "pml"
    workspace.mkdir()
    installer = DiskInstaller(
        home, {Ecosystem.NPM: NpmInstaller(os.environ), Ecosystem.PYPI: PypiInstaller(os.environ)}, Now()
    )
    numbers = Numbers()
    began = time.perf_counter()
    installed = await _install(installer, dependency)
    await _start(installer, installed, home, workspace)
    numbers.first = time.perf_counter() - began
    peer = _peer(dependency, workspace)
    env = _peer_environment(place)
    if peer is not None:
        numbers.peer_first = _peer_start(peer, env, workspace)
    for _ in range(STARTS):
        numbers.starts.append(await _start(installer, installed, home, workspace))
        numbers.own_starts.append(await _start(installer, installed, home, workspace, proven=False))
        numbers.proofs.append(await _prove(installer, installed, workspace))
        if numbers.peer_first is not None and peer is not None:
            with suppress(Wrong):
                numbers.peer_starts.append(_peer_start(peer, env, workspace) or 0.0)
    return numbers


async def _install(installer: DiskInstaller, dependency: McpDependency) -> Installed:
    lock = await installer.resolve(dependency, told=lambda _: None)
    plan = Plan(dependency=dependency, lock=lock, containment=available())
    return await installer.install(plan, told=lambda _: None)


async def _start(
    installer: DiskInstaller, installed: Installed, home: Path, workspace: Path, *, proven: bool = True
) -> float:
    """Return how long it takes until the server has told what it offers."""

    async def unproven(spec: ServerSpec) -> None:
        pass

    fleet = Fleet(
        workspace=str(workspace),
        client=Alone(),
        manifests=NoManifests(),
        idle_s=lambda: 300.0,
        home=home,
        owner=OwnerId("bench"),
        environ=os.environ,
        prove=installer.prove if proven else unproven,
    )
    spec = installer.launch(installed, workspace=str(workspace))
    try:
        began = time.perf_counter()
        await fleet.manifest(spec)
        return time.perf_counter() - began
    finally:
        await fleet.close()


async def _prove(installer: DiskInstaller, installed: Installed, workspace: Path) -> float:
    spec = installer.launch(installed, workspace=str(workspace))
    began = time.perf_counter()
    await installer.prove(spec)
    return time.perf_counter() - began


def _peer(dependency: McpDependency, workspace: Path) -> list[str] | None:
    """Return the command that people give their clients for the same server; None if it cannot be had."""
    package = dependency.package
    args = [argument.replace("${workspace}", str(workspace)) for argument in dependency.argv]
    if package.ecosystem is Ecosystem.PYPI:
        return [find_uv(), "tool", "run", "--quiet", package.spec, *args]
    npx = shutil.which("npx")
    return None if npx is None else [npx, "--yes", package.spec, *args]


def _peer_environment(place: Path) -> Mapping[str, str]:
    """Return the machine's own, with caches that are empty at first."""
    return {**os.environ, "npm_config_cache": str(place / "npm"), "UV_CACHE_DIR": str(place / "uv")}


def _peer_start(command: list[str], env: Mapping[str, str], workspace: Path) -> float | None:
    began = time.perf_counter()
    try:
        with running(command, env, workspace) as caller:
            caller.initialize()
            return time.perf_counter() - began
    except Wrong as exc:
        print(f"{command[0]}: {exc}", file=sys.stderr)
        return None


def _rows(name: str, numbers: Numbers) -> list[Row]:
    tool = "uvx" if name == "time" else "npx"
    ours, own, proof = median(numbers.starts), median(numbers.own_starts), median(numbers.proofs)
    found: list[Row] = []
    if numbers.peer_first is not None:
        ratio = f"{numbers.first / numbers.peer_first:.1f}x"
        peer = f"{tool}: {numbers.peer_first:.2f} s"
        found.append((f"first use of {name}, empty caches", f"{numbers.first:.2f} s", peer, ratio, "stated"))
    if numbers.peer_starts:
        peer_start = median(numbers.peer_starts)
        ratio = f"1/{peer_start / ours:.1f}"
        found.append(
            (f"start of {name}, installed", ms(ours), f"{tool}, cached: {ms(peer_start)}", ratio, "≤ 1/3")
        )
    share = f"{proof / own:.0%}"
    return [
        *found,
        (f"verify before start of {name}", ms(proof), f"its own start: {ms(own)}", share, "≤ 25 %"),
    ]


async def _cache_hit(place: Path) -> Row:
    """Measure a look at an entry that was fetched before, by a process that has not seen it yet."""
    folder = place / "registry"
    folder.mkdir()
    (folder / "acme.tools.notes.json").write_text(json.dumps(_ENTRY))
    async with _served(folder) as url:
        asked = await _look(place / "other", url)
        await _look(place / "pml", url)
        hit = median([await _look(place / "pml", url) for _ in range(LOOKUPS)])
    ratio = f"1/{asked / hit:.0f}"
    return ("registry: an entry from the cache", ms(hit), f"asked on loopback: {ms(asked)}", ratio, "≤ 1 ms")


async def _look(home: Path, registry: str) -> float:
    client = RegistryClient(home, clock=Now(), warn=lambda _: None, debug=lambda _: None)
    began = time.perf_counter()
    await client.find(parse_tool("notes:add"), registry=registry, prefix=None)
    return time.perf_counter() - began


@asynccontextmanager
async def _served(folder: Path) -> AsyncGenerator[str]:
    app = registry_app(RegistryFolder(folder), only_local=True, debug=lambda _: None)
    listening = listen("127.0.0.1", 0)
    serving = asyncio.create_task(serve(app, listening))
    try:
        yield url_of(listening)
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


_ENTRY = {
    "fqdn": "acme.tools.notes",
    "type": "server",
    "routing": "client",
    "tools": ["add", "list"],
    "mcp_deps": [
        {
            "name": "notes",
            "type": "stdio",
            "install": "npx notes-server@1.4.2",
            "version": "1.4.2",
            "integrity": "sha256-" + "0" * 64,
        }
    ],
}


if __name__ == "__main__":
    print_table(rows(quick="--quick" in sys.argv[1:]))
