"""Stand-ins for the loader's ports: a catalog, a disk, and variables. Each keeps what happened, in order."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from pml.core.errors import ArtefactChanged, Changed, NotFound, PmlError
from pml.core.names import ToolName, parse_fqdn, tool_of
from pml.core.packages.capability import CapabilityMetadata, CapabilityType, McpDependency, Routing
from pml.core.packages.lock import Lock, Locked
from pml.core.packages.package import Ecosystem, Package
from pml.core.packages.permissions import NO_REACH, Permissions
from pml.core.ports.loader import Accepted, Found, Installed, Plan, Progress, Told
from pml.core.rules.ruleset import Source
from pml.core.servers.manifest import Manifest
from pml.core.servers.process_launch import Artefact, ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from tests.builders import NOW
from tests.fakes import FakeServers

INTEGRITY: Final = f"sha512-{'A' * 86}=="
OTHER_INTEGRITY: Final = f"sha512-{'B' * 86}=="
RELEASED: Final = "2026-01-02T03:04:05Z"
STEPS: Final = (
    Progress(done=0, total=2, message="downloading"),
    Progress(done=1, total=2, message="verifying"),
    Progress(done=2, total=None, message="done"),
)


def make_dependency(
    name: str = "memory",
    *,
    version: str = "1.2.3",
    integrity: str | None = INTEGRITY,
    env_required: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    args: tuple[str, ...] = (),
    permissions: Permissions | None = None,
    lock: Lock | str | None = None,
) -> McpDependency:
    package = Package(ecosystem=Ecosystem.NPM, name=f"@acme/{name}", version=version)
    return McpDependency(
        name=name,
        install=f"npx {package.spec}",
        package=package,
        integrity=integrity,
        env_required=env_required,
        env=env or {},
        args=args,
        permissions=permissions or NO_REACH,
        lock=lock,
    )


def make_lock(dependency: McpDependency, *, integrity: str = INTEGRITY) -> Lock:
    """Return the lock of a package with one dependency, which carries an install script."""
    package = dependency.package
    root = Locked(key=package.spec, name=package.name, version=package.version, integrity=(integrity,))
    other = Locked(
        key="zod@4.0.0", name="zod", version="4.0.0", integrity=(OTHER_INTEGRITY,), has_scripts=True
    )
    return Lock(
        ecosystem=package.ecosystem,
        name=package.name,
        version=package.version,
        root=root.key,
        packages=(root, other),
        size=3 << 20,
        released_at=RELEASED,
    )


class FakeSources:
    """A catalog, by namespace, and a registry, by tool.

    `looked_up` are the tools that were looked for, and where; `codes` the code of each capability, by FQDN;
    `read` those whose code was asked for.
    """

    def __init__(self) -> None:
        self.looked_up: list[tuple[str, str | None, str | None]] = []
        self.error: PmlError | None = None
        self.code_error: PmlError | None = None
        self.codes: dict[str, bytes] = {}
        self.read: list[str] = []
        self._found: dict[str, Found] = {}

    def offer(
        self,
        namespace: str,
        *dependencies: McpDependency,
        kind: CapabilityType = CapabilityType.SERVER,
        source: str = "catalog",
        tools: Sequence[str] = (),
    ) -> None:
        """Let `namespace` be what these dependencies make it, from now on."""
        fqdn = parse_fqdn(f"acme.tools.{namespace}")
        told = tuple({"name": name} for name in tools)
        metadata = CapabilityMetadata(fqdn=fqdn, type=kind, mcp_deps=dependencies, tools=told)
        self._found[namespace] = Found(metadata=metadata, source=source)

    def publish(
        self,
        fqdn: str,
        code: bytes | str | None = None,
        *dependencies: McpDependency,
        kind: CapabilityType = CapabilityType.DENO,
        routing: Routing = Routing.CLIENT,
        registry: str = "/registry",
        tools: Sequence[JsonObject] = (),
        description: str | None = None,
    ) -> Found:
        """Let the registry have this capability from now on; with an action, for that tool alone."""
        name = parse_fqdn(fqdn)
        metadata = CapabilityMetadata(
            fqdn=name,
            type=kind,
            routing=routing,
            mcp_deps=dependencies,
            tools=tuple(tools),
            description=description,
        )
        found = Found(metadata=metadata, source=registry)
        self._found[name.namespace if name.action is None else str(tool_of(name))] = found
        if code is not None:
            self.codes[fqdn] = code.encode() if isinstance(code, str) else code
        return found

    async def find(self, tool: ToolName, *, registries: Sequence[str], prefix: str | None) -> Found | None:
        self.looked_up.append((str(tool), registries[0] if registries else None, prefix))
        if self.error is not None:
            raise self.error
        return self._found.get(str(tool)) or self._found.get(tool.namespace or "")

    async def code(self, found: Found) -> bytes:
        fqdn = str(found.metadata.fqdn)
        self.read.append(fqdn)
        if self.code_error is not None:
            raise self.code_error
        if fqdn not in self.codes:
            raise NotFound(f"no code for `{fqdn}`")
        return self.codes[fqdn]

    def bundled(self) -> Sequence[Found]:
        return [self._found[name] for name in sorted(self._found) if self._found[name].source == "catalog"]

    def known(self, registries: Sequence[str]) -> Sequence[Found]:
        return [self._found[name] for name in sorted(self._found) if self._found[name].source in registries]


class FakeInstaller:
    """A disk without files. Reading it gives a new object each time, as a file that is read anew does."""

    def __init__(self) -> None:
        self.resolved: list[str] = []
        self.installed_plans: list[Plan] = []
        self.aged: list[str] = []  # the locks whose age was asked for
        self.youngest: datetime | None = NOW
        self.accepted_trees: list[tuple[str, str]] = []
        self.error: PmlError | None = None
        self.resolve_error: PmlError | None = None
        self.locks: dict[str, Lock] = {}
        self.after_resolve: Callable[[], None] = lambda: None
        self.before_accept: Callable[[], None] = lambda: None
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.begun = asyncio.Event()
        self.interrupted = 0
        self._installed: dict[str, Installed] = {}
        self._accepted: dict[str, Accepted] = {}
        self._changed: dict[str, ArtefactChanged] = {}
        self._one = asyncio.Lock()

    def installed(self, name: str) -> Installed | None:
        found = self._installed.get(name)
        return None if found is None else replace(found)

    def all_installed(self) -> Mapping[str, Installed]:
        return dict(self._installed)

    def accepted(self, name: str) -> Accepted | None:
        return self._accepted.get(name)

    def remove(self, name: str) -> None:
        del self._installed[name]

    def tamper(self, name: str, *files: str, tree: str) -> None:
        """Let these files of the server hash to `tree` from now on."""
        self._changed[name] = ArtefactChanged(name, files=files, tree=tree)

    async def resolve(self, dependency: McpDependency, *, told: Told) -> Lock:
        self.resolved.append(dependency.title)
        if self.resolve_error is not None:
            raise self.resolve_error
        self.after_resolve()
        if isinstance(dependency.lock, Lock):
            return dependency.lock
        return self.locks.get(dependency.name) or make_lock(dependency)

    async def youngest_at(self, lock: Lock) -> datetime | None:
        self.aged.append(lock.digest)
        return self.youngest

    async def install(self, plan: Plan, *, told: Told) -> Installed:
        name = plan.dependency.name
        self.begun.set()
        try:
            async with self._one:
                await self.may_finish.wait()
                if self.error is not None:
                    raise self.error
                there = self._installed.get(name)
                if there is None or (there.terms, there.containment) != (plan.terms, plan.containment):
                    for step in STEPS:
                        told(step)
                    self.installed_plans.append(plan)
                    self.place(plan)
                return self._installed[name]
        except asyncio.CancelledError:
            self.interrupted += 1
            raise

    def place(self, plan: Plan) -> None:
        """Make it the version in use without a word."""
        name = plan.dependency.name
        self._accepted[name] = Accepted(lock=plan.lock.digest, terms=plan.terms)
        self._installed[name] = Installed(
            dependency=replace(plan.dependency, lock=plan.lock.digest),
            lock=plan.lock.digest,
            terms=plan.terms,
            tree=f"tree of {plan.dependency.title}",
            path=f"/home/servers/{name}/{plan.dependency.version}",
            entry="main.js",
            runtime="deno",
            containment=plan.containment,
            installed_at=NOW,
        )

    def launch(self, installed: Installed, *, workspace: str) -> ServerSpec:
        dependency = installed.dependency
        return ServerSpec(
            name=dependency.name,
            target=ProcessLaunch(
                command="runtime",
                args=(installed.entry, *dependency.argv),
                cwd=workspace,
                permissions=dependency.permissions,
                artefact=Artefact(
                    version=dependency.version,
                    terms=installed.terms,
                    path=installed.path,
                    tree=installed.tree,
                    state=f"/home/state/{dependency.name}",
                    needs=(),
                    env_required=dependency.env_required,
                    containment=installed.containment,
                    is_accepted=installed.accepted,
                ),
            ),
            source=Source(file="/home/deps.json", line=1),
        )

    async def prove(self, spec: ServerSpec) -> None:
        changed = self._changed.get(spec.name)
        if changed is not None and spec.artefact is not None and spec.artefact.tree != changed.tree:
            raise changed

    async def accept(self, name: str, *, tree: str) -> Installed:
        self.before_accept()
        if self._changed[name].tree != tree:
            raise Changed(f"the files of `{name}` have changed again")
        self.accepted_trees.append((name, tree))
        self._installed[name] = replace(self._installed[name], tree=tree, accepted=True)
        return self._installed[name]


class FakeVariables:
    """Variables of the user, and those of a workspace's `.env`. `looked_up` tells whose `.env` counted."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.in_workspace: dict[str, str] = {}
        self.looked_up: list[tuple[tuple[str, ...], str | None]] = []

    def values(self, names: Sequence[str], *, workspace: str | None) -> Mapping[str, str]:
        self.looked_up.append((tuple(names), workspace))
        known = self.known if workspace is None else {**self.in_workspace, **self.known}
        return {name: known[name] for name in names if name in known}


class ProvenServers(FakeServers):
    """Servers whose files are proven before each start."""

    def __init__(self, installer: FakeInstaller) -> None:
        super().__init__()
        self.before_start: Callable[[], Awaitable[None]] | None = None
        self._installer = installer

    async def manifest(self, spec: ServerSpec) -> Manifest:
        if self.live(spec) is None and spec.artefact is not None:
            if self.before_start is not None:
                await self.before_start()
            await self._installer.prove(spec)
        return await super().manifest(spec)
