"""Tools that code can call here, as far as known without starting a server or making a request.

Configured and installed servers from what was kept of them, the catalog, and the registry's capabilities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pml.core.errors import NotFound
from pml.core.names import ToolName
from pml.core.text import quote, visible
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.packages.capability import McpDependency
    from pml.service.context import Context
    from pml.service.policy.policy import Policy

_ANY_RESULT: Final[JsonObject] = {}  # a capability returns what it likes


@dataclass(frozen=True, kw_only=True)
class Here:
    """The tools that are known, with their definitions; what a first call would install, by namespace.

    `silent` are configured servers whose tools are known only after their first start. `is_open`: a registry
    that is a URL may have more.
    """

    tools: Mapping[ToolName, JsonObject]
    installs: Mapping[str, "McpDependency"]
    silent: Sequence[str]
    is_open: bool

    @property
    def namespaces(self) -> list[str]:
        return sorted({tool.namespace for tool in self.tools if tool.namespace is not None})

    def of(self, namespaces: Sequence[str]) -> dict[ToolName, JsonObject]:
        """Return the tools of these servers. Raises: NotFound, with what may have been meant."""
        for name in namespaces:
            self._check(name)
        return {
            tool: shape for name in namespaces for tool, shape in self.tools.items() if tool.namespace == name
        }

    def near(self, name: str) -> str | None:
        """Return the namespace that `name` may have been meant to be."""
        names = [*self.namespaces, *self.silent]
        begun = [each for each in names if len(name) > 1 and each.startswith(name)]
        return next(iter([*get_close_matches(name, names, n=1), *begun]), None)

    def _check(self, name: str) -> None:
        if name in self.namespaces:
            return
        if name in self.silent:
            raise NotFound(
                f"the tools of {quote(name)} are not known before its first start",
                hint=f"call one of them once: `pml call {visible(name)}:TOOL '{{…}}'`",
            )
        near = self.near(name)
        hint = (
            f"did you mean `{visible(near)}`?"
            if near
            else f"there are {', '.join(map(visible, self.namespaces))}"
        )
        raise NotFound(f"no server {quote(name)} is known here", hint=hint)


async def look_around(context: "Context", place: "Place", policy: "Policy") -> Here:
    """Return what is known. Starts nothing."""
    from pml.app import open_fleet, open_loader
    from pml.cli.terminal.output import complain
    from pml.core.approvals.record import SessionId
    from pml.core.ports.records import Session
    from pml.service.call import Gate
    from pml.service.calls.absent_client import Nobody
    from pml.service.calls.tools import known_tools

    session = Session(
        id=SessionId("nobody"),
        name="nobody",
        principal="nobody",
        workspace=str(place.workspace),
        is_agent=False,
        started_at=context.clock.now(),
    )
    fleet = open_fleet(context, place, Nobody(session.workspace))
    try:
        loader = open_loader(context, place, fleet, warn=complain)
        known = await known_tools(
            Gate(context=context, session=session, servers=fleet, loader=loader), policy, problems={}
        )
    finally:
        await fleet.close()
    running = {manifest.server for manifest in known.manifests}
    waiting = {str(entry.tool.namespace) for entry in known.by_name.values() if entry.installs is not None}
    offered = {
        dependency.name: dependency
        for found in loader.sources.bundled()
        for dependency in found.metadata.mcp_deps
        if dependency.name in waiting
    }
    registries = policy.settings.registries
    return Here(
        tools={
            entry.tool: entry.shape
            if entry.installs is not None or entry.tool.namespace in running
            else {"outputSchema": _ANY_RESULT, **entry.shape}
            for entry in known.by_name.values()
        },
        installs=offered,
        silent=sorted(known.missing),
        is_open=any("://" in each for each in registries),
    )
