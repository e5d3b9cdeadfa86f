"""Which tools there are: those of every server that may be started, from what runs or from what was kept.

Only a configured server of which nothing is known is started for a list, and only if its file counts; what
the catalog offers is known without being installed.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pml.core.errors import Invalid, PmlError, Unavailable
from pml.core.names import ToolName, wire_of
from pml.core.rules.globs import Glob
from pml.core.servers.manifest import Manifest
from pml.core.servers.search import find_tools
from pml.core.values import JsonObject
from pml.service.call import Gate, Loader, ServerTarget, find_server
from pml.service.code.capabilities import capability_manifest
from pml.service.policy.policy import Policy, is_denied_whole

FOUND: Final = 25  # more than this tells a model nothing; it should ask for less


@dataclass(frozen=True, kw_only=True)
class Known:
    """A tool that some server offers; `listed` if clients see it as `wire`.

    `installs` is what a first call of it would install, after consent.
    """

    tool: ToolName
    wire: str
    shape: JsonObject
    listed: bool
    installs: str | None = None
    is_capability: bool = False


@dataclass(frozen=True, kw_only=True)
class Tools:
    """All that is known, and the servers of which nothing is, with the reason."""

    by_wire: Mapping[str, Known]
    by_name: Mapping[str, Known]
    manifests: Sequence[Manifest]
    missing: Mapping[str, str]


async def known_tools(gate: Gate, policy: Policy, *, problems: Mapping[str, str]) -> Tools:
    """Return the tools of every startable server, as far as they are known. Starts nothing."""
    manifests: list[Manifest] = []
    missing: dict[str, str] = {}
    for name in sorted(policy.settings.servers):
        launch = find_server(gate, policy, name)
        manifest = None if launch is None else await _known(gate, launch)
        if manifest is None and not _is_denied(gate, policy, name):
            missing[name] = problems.get(name, "starting")
        elif manifest is not None:
            manifests.append(manifest)
    known = [entry for manifest in manifests for entry in _entries(manifest, policy)]
    for manifest, installs in await _loadable(gate, policy):
        known += [entry for entry in _entries(manifest, policy, installs=installs)]
        manifests += [manifest] if installs is None else []
    taken = {entry.tool for entry in known}
    known += [entry for entry in _capabilities(gate, policy) if entry.tool not in taken]
    return Tools(
        by_wire=wire_table(known),
        by_name={str(entry.tool): entry for entry in known},
        manifests=manifests,
        missing=missing,
    )


async def learn_servers(gate: Gate, policy: Policy) -> dict[str, str]:
    """Start the servers of which nothing is known and return what went wrong, by name."""

    async def learn(launch: ServerTarget) -> str | None:
        try:
            await gate.servers.manifest(launch.spec)
        except PmlError as exc:
            return exc.message
        return None

    unknown = [launch for launch in _startable(gate, policy) if await _known(gate, launch) is None]
    outcomes = await asyncio.gather(*(learn(launch) for launch in unknown))
    return {
        launch.spec.name: said for launch, said in zip(unknown, outcomes, strict=True) if said is not None
    }


async def prespawn(gate: Gate, policy: Policy) -> None:
    """Start the servers that `prespawn` names; one that fails is told of when it is needed."""
    globs = [Glob(text) for text in policy.settings.prespawn]
    chosen = [
        launch for launch in _startable(gate, policy) if any(glob.matches(launch.spec.name) for glob in globs)
    ]
    await asyncio.gather(*(gate.servers.manifest(launch.spec) for launch in chosen), return_exceptions=True)


def search(tools: Tools, query: str) -> list[Known]:
    """Return the tools that `query` (words or a glob) fits, best first."""
    return find_tools(
        query,
        (
            (str(known.tool), str(known.shape.get("description", "")), known)
            for known in tools.by_name.values()
        ),
    )


def _startable(gate: Gate, policy: Policy) -> list[ServerTarget]:
    """Return the servers that may be started: configured where it counts, and not denied as a whole."""
    found = (find_server(gate, policy, name) for name in sorted(policy.settings.servers))
    return [
        launch for launch in found if launch is not None and not _is_denied(gate, policy, launch.spec.name)
    ]


def _is_denied(gate: Gate, policy: Policy, name: str) -> bool:
    return is_denied_whole(policy, name, now=gate.context.clock.now())


async def _known(gate: Gate, launch: ServerTarget) -> Manifest | None:
    live = gate.servers.live(launch.spec)
    return live or await gate.context.store.manifests.get(launch.spec.name, launch.digest)


async def _loadable(gate: Gate, policy: Policy) -> list[tuple[Manifest, str | None]]:
    """Return what servers offer that no file configures: installed ones, and those of the catalog."""
    if gate.loader is None:
        return []
    found: dict[str, tuple[Manifest, str | None]] = {}
    for bundled in gate.loader.sources.bundled():
        for dependency in bundled.metadata.mcp_deps:
            tools = tuple(bundled.metadata.tools)
            manifest = Manifest(server=dependency.name, target_digest="", capabilities={}, tools=tools)
            found[dependency.name] = manifest, dependency.title
    for name, launch in _installed(gate, gate.loader):
        manifest = await _known(gate, launch)
        if manifest is not None:
            found[name] = manifest, None
    config = policy.loaded.workspace.config
    taken = {*policy.settings.servers, *policy.settings.unusable, *(() if config is None else config.servers)}
    return [
        entry
        for name, entry in sorted(found.items())
        if name not in taken and not _is_denied(gate, policy, name)
    ]


def _capabilities(gate: Gate, policy: Policy) -> list[Known]:
    """Return what is known of the registry's capabilities without asking it."""
    if gate.loader is None:
        return []
    servers = {*policy.settings.servers, *policy.settings.unusable}
    listed = gate.loader.sources.known(policy.settings.registries)
    offers = [capability_manifest(it) for it in listed if it.metadata.fqdn.namespace not in servers]
    named = [offer for offer in offers if offer is not None and not _is_denied(gate, policy, offer.server)]
    found = [entry for offer in named for entry in _entries(offer, policy)]
    return [replace(entry, is_capability=True) for entry in found]


def _installed(gate: Gate, loader: Loader) -> list[tuple[str, ServerTarget]]:
    """Return how installed servers are started; what one of them lacks is told when it is called."""
    launches: list[tuple[str, ServerTarget]] = []
    with contextlib.suppress(Invalid, Unavailable):  # every call of an installed server tells
        for name, installed in loader.installer.all_installed().items():
            with contextlib.suppress(PmlError):
                spec = loader.installer.launch(installed, workspace=gate.session.workspace)
                launches.append((name, ServerTarget(spec=spec, digest=spec.target_digest)))
    return launches


def _entries(manifest: Manifest, policy: Policy, *, installs: str | None = None) -> list[Known]:
    lists = (policy.settings.expose, policy.settings.expose_within)
    is_configured = manifest.server in policy.settings.servers
    exposing = [[Glob(text) for text in given] for given in lists if given is not None]
    entries: list[Known] = []
    for shape in manifest.tools:
        try:
            tool = ToolName(namespace=manifest.server, action=str(shape.get("name")))
        except Invalid:
            continue
        named = all(any(_exposes(glob, tool) for glob in globs) for globs in exposing)
        listed = named and (is_configured or policy.settings.expose is not None)
        entries.append(Known(tool=tool, wire=wire_of(tool), shape=shape, listed=listed, installs=installs))
    return entries


def _exposes(glob: Glob, tool: ToolName) -> bool:
    return glob.matches(str(tool)) or glob.matches(tool.action)


def wire_table(known: Sequence[Known]) -> dict[str, Known]:
    """Return the table of wire names; two tools that would share one have none, and are reached by `call`."""
    table: dict[str, Known] = {}
    shared: set[str] = set()
    for entry in known:
        if entry.wire in table:
            shared.add(entry.wire)
        table[entry.wire] = entry
    return {wire: entry for wire, entry in sorted(table.items()) if wire not in shared}
