"""Installs that a person asks for: planned, refused where rules or a file say so, carried out and on record.

`pml deps install`, `pml add` and `pml import` share it: what may be installed does not depend on the command.
Showing the facts and asking are theirs.
"""

import asyncio
from typing import TYPE_CHECKING

from pml.cli.terminal.output import complain
from pml.cli.terminal.progress import InstallBar
from pml.core.audit.entries import dependency_installed
from pml.core.errors import Conflict, IntegrityFailed
from pml.core.names import FALLBACK_EXPORT, ToolName
from pml.core.packages.install_facts import install_facts
from pml.core.packages.permissions import Containment, Permissions
from pml.core.ports.loader import Installed, Plan
from pml.core.rules.ruleset import Call, VerdictKind
from pml.core.text import quote
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.packages.capability import CapabilityMetadata, McpDependency
    from pml.service.call import Loader
    from pml.service.context import Context
    from pml.service.policy.policy import Policy


class Installs:
    """What may be installed in one workspace; `policy` is as of the last `refuse`."""

    def __init__(self, context: "Context", place: "Place", policy: "Policy") -> None:
        self.context = context
        self.place = place
        self.policy = policy
        self.loader = _loader(context, place)

    async def refuse(self, metadata: "CapabilityMetadata", tool: ToolName) -> None:
        """Refuse what files and rules, as they are now, do not let be installed.

        Raises: ConfigInvalid, Conflict, ToolDenied.
        """
        from pml.service.policy.policy import current_policy

        self.policy = await current_policy(self.context, str(self.place.workspace))
        for error in self.policy.broken:
            raise error
        self.refuse_configured(tool.namespace or "")
        await self._refuse_denied(metadata, tool)

    def refuse_configured(self, name: str) -> None:
        """Refuse a name that a file has already: what it configures is what runs. Raises: Conflict."""
        for config in (self.policy.loaded.user.config, self.policy.loaded.workspace.config):
            entry = None if config is None else config.servers.get(name) or config.unusable.get(name)
            if entry is not None:
                where = f"{entry.source.file}:{entry.source.line}"
                raise Conflict(
                    f"server {quote(name)} is configured in {where}, and runs as that says",
                    hint="remove it there to use the one of the catalog or the registry",
                )

    def refuse_unverified(self, dependency: "McpDependency") -> None:
        """Raises: IntegrityFailed."""
        if dependency.integrity is None and not self.policy.settings.allow_unverified:
            raise IntegrityFailed(
                dependency.title,
                expected="the integrity of its artefact",
                got="none",
                hint="`install.allow_unverified` in the user's config.json lets you decide",
            )

    async def _refuse_denied(self, metadata: "CapabilityMetadata", tool: ToolName) -> None:
        """Refuse a server of which a deny leaves no tool. Raises: ToolDenied."""
        from pml.service.policy.policy import judge, refuse_denied

        actions = [str(each.get("name")) for each in metadata.tools] or [tool.action]
        judged = [
            await judge(
                self.context,
                self.policy,
                Call(tool=f"{tool.namespace}:{action}", arguments={}),
                session=None,
            )
            for action in actions
        ]
        if all(each.kind is VerdictKind.DENY for each in judged):
            refuse_denied(judged[0], f"{tool.namespace}:*")

    async def plan(self, dependency: "McpDependency") -> Plan:
        """Return what installing it would bring. Raises: IntegrityFailed, Invalid, NotFound, Unavailable."""
        from pml.service.install.load import plan_install

        self.refuse_unverified(dependency)
        now = self.context.clock.now()
        with InstallBar() as bar:
            return await plan_install(self.loader, dependency, self.policy, now=now, told=bar)

    def facts(self, plan: Plan, *, source: str) -> JsonObject:
        """Return all that consent to the plan binds."""
        installer, name = self.loader.installer, plan.dependency.name
        return install_facts(
            plan, source=source, accepted=installer.accepted(name), before=installer.installed(name)
        )

    async def carry_out(self, plan: Plan, *, why: str) -> Installed:
        """Install what was agreed to, on record. Raises: as the installer."""
        dependency = plan.dependency
        self.refuse_unverified(dependency)
        with InstallBar() as bar:
            installed = await self.loader.installer.install(plan, told=bar)
        await self.context.store.audit.record(
            dependency_installed(
                dependency.name,
                dependency.version,
                integrity=dependency.integrity,
                lock=plan.lock.digest,
                why=why,
                at=self.context.clock.now(),
            )
        )
        return installed

    async def missing(self, dependency: "McpDependency") -> list[str]:
        """Return which of the variables that it requires are set nowhere."""
        workspace = str(self.place.workspace) if self.policy.trusted else None
        names = dependency.env_required
        known = await asyncio.to_thread(self.loader.variables.values, names, workspace=workspace)
        return [name for name in names if name not in known]


def named_tool(name: str) -> ToolName:
    """Return the tool that stands for a server by its own name."""
    return ToolName(namespace=name, action=FALLBACK_EXPORT)


def _loader(context: "Context", place: "Place") -> "Loader":
    from pml.app import open_installer, open_sources, open_variables
    from pml.service.call import Loader
    from pml.upstream.containment.box import available, containment_of

    def containment(permissions: Permissions) -> Containment:
        return containment_of(
            available(),
            permissions,
            home=place.home,
            user_home=place.user_home,
            workspace=str(place.workspace),
        )

    return Loader(
        sources=open_sources(place, context.clock, warn=complain),
        installer=open_installer(place),
        variables=open_variables(place),
        containment=containment,
    )
