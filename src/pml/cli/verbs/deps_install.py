"""`pml deps install`: a person has servers installed before anything calls them, after seeing all the facts.

What the files configure themselves and what a rule denies is not installed. What was agreed to is one lock
and one set of variables, as for an install that a call asks for.
"""

import argparse
import asyncio
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pml.cli.commands.catalog import print_facts
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, complain_prose, print_json, say
from pml.cli.terminal.progress import InstallBar
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.core.approvals.record import instant
from pml.core.audit.entries import dependency_installed
from pml.core.errors import ArtefactChanged, Conflict, IntegrityFailed, NotFound, PmlError
from pml.core.names import FALLBACK_EXPORT, ToolName, parse_tool
from pml.core.packages.install_facts import install_facts, tell_install
from pml.core.packages.permissions import Containment, Permissions
from pml.core.ports.loader import Found, Installed, Plan
from pml.core.rules.ruleset import Call, VerdictKind
from pml.core.text import quote, visible
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.packages.capability import McpDependency
    from pml.service.call import Loader
    from pml.service.context import Context
    from pml.service.policy.policy import Policy

_SHOWN_FILES: Final = 20


async def install_servers(args: argparse.Namespace) -> int:
    """Raises: NotFound, Conflict, ToolDenied, IntegrityFailed, MayNotDecide, Unavailable."""
    from pml.app import find_place
    from pml.service.policy.policy import current_policy

    place = find_place(args.workspace)
    async with opened(args) as context:
        await guard(context, args)
        policy = await current_policy(context, str(place.workspace))
        for error in policy.broken:
            raise error
        installing = _Installing(context, place, policy, args)
        for name in args.names:
            await installing.install(name)
    if args.json:
        print_json(
            {
                "installed": installing.installed,
                "declined": installing.declined,
                "waiting": installing.waiting,
            }
        )
    if installing.waiting:
        return Exit.PENDING
    return Exit.DENIED if installing.declined else Exit.OK


def installed_json(installed: Installed) -> dict[str, Json]:
    """Return what is told of an installed server, also by `pml deps list`."""
    dependency = installed.dependency
    return {
        "name": dependency.name,
        "version": dependency.version,
        "install": dependency.install,
        "integrity": dependency.integrity,
        "proof": proof_of(installed),
        "lock": installed.lock,
        "tree": installed.tree,
        "containment": installed.containment.value,
        "env_required": dependency.env_required,
        "installed_at": instant(installed.installed_at),
        "path": installed.path,
    }


def proof_of(installed: Installed) -> str:
    """Return in a word what the files are known by."""
    if installed.accepted:
        return "accepted"
    return "unverified" if installed.dependency.integrity is None else "verified"


class _Installing:
    """One command line: each server is found, shown, asked about and installed, one after another."""

    def __init__(
        self, context: "Context", place: "Place", policy: "Policy", args: argparse.Namespace
    ) -> None:
        self._context = context
        self._place = place
        self._policy = policy
        self._args = args
        self._yes = bool(args.yes)
        self._as_json = bool(args.json)
        self._loader = _loader(context, place)
        self.installed: list[JsonObject] = []
        self.declined: list[str] = []
        self.waiting: list[JsonObject] = []

    async def install(self, name: str) -> None:
        from pml.service.install.load import in_use

        is_tool = ":" in name
        tool = parse_tool(name) if is_tool else ToolName(namespace=name, action=FALLBACK_EXPORT)
        found = await self._find(name, tool, is_tool=is_tool)
        await self._refuse(found, tool)
        for dependency in found.metadata.mcp_deps:
            before = in_use(self._loader, dependency)
            if before is not None and await self._is_sound(before):
                self._tell(before, f"{before.dependency.title} is installed already")
            else:
                await self._install(found, tool, dependency)

    async def _find(self, name: str, tool: ToolName, *, is_tool: bool) -> Found:
        from pml.service.call import Attempt
        from pml.service.install.load import find

        _refuse_configured(self._policy, tool.namespace or "")
        settings = self._policy.settings
        policy = self._policy
        if not is_tool:  # a server by its own name, and no capability that is called like the stand-in action
            policy = replace(policy, settings=replace(settings, registry_prefix=None))
        found = await find(self._loader, policy, Attempt(tool=tool, arguments={}, offered=False))
        if found is None:
            where = "in the catalog" if not settings.registries else "in the catalog or in the registry"
            raise NotFound(f"no server {quote(name)} {where}", hint=self._where_to_look(name))
        return found

    def _where_to_look(self, name: str) -> str:
        """Return what to do about a name that nothing has."""
        config, settings = self._policy.loaded.workspace.config, self._policy.settings
        if config is not None and config.registries and not self._policy.trusted:
            path = visible(self._policy.loaded.workspace.path)
            return f"{path} names a registry and is not trusted: look at it with `pml trust`, then try again"
        sources = self._loader.sources
        known = [each.metadata for each in (*sources.bundled(), *sources.known(settings.registries))]
        names = {dependency.name for each in known for dependency in each.mcp_deps}
        near = get_close_matches(name.partition(":")[0], sorted(names), n=1)
        meant = f"did you mean `{near[0]}`? " if near else ""
        more = "" if settings.registries else "; `registry` in a configuration file names a place with more"
        return f"{meant}`pml catalog list` shows the catalog{more}; `mcpServers` starts other programs"

    async def _refuse(self, found: Found, tool: ToolName) -> None:
        """Refuse what the files as they are now do not let be installed. Raises: as `install_servers`."""
        from pml.service.policy.policy import current_policy

        self._policy = await current_policy(self._context, str(self._place.workspace))
        for error in self._policy.broken:
            raise error
        _refuse_configured(self._policy, tool.namespace or "")
        await self._refuse_denied(found, tool)

    def _refuse_unverified(self, dependency: "McpDependency") -> None:
        if dependency.integrity is None and not self._policy.settings.allow_unverified:
            raise IntegrityFailed(
                dependency.title,
                expected="the integrity of its artefact",
                got="none",
                hint="`install.allow_unverified` in the user's config.json lets you decide",
            )

    async def _refuse_denied(self, found: Found, tool: ToolName) -> None:
        """Refuse a server of which a deny leaves no tool. Raises: ToolDenied."""
        from pml.service.policy.policy import judge, refuse_denied

        actions = [str(each.get("name")) for each in found.metadata.tools] or [tool.action]
        judged = [
            await judge(
                self._context,
                self._policy,
                Call(tool=f"{tool.namespace}:{action}", arguments={}),
                session=None,
            )
            for action in actions
        ]
        if all(each.kind is VerdictKind.DENY for each in judged):
            refuse_denied(judged[0], f"{tool.namespace}:*")

    async def _is_sound(self, installed: Installed) -> bool:
        """Tell whether it can be started as it is, its files as they were, held as strongly as was agreed."""
        loader = self._loader
        try:
            if loader.containment(installed.dependency.permissions).is_weaker_than(installed.containment):
                return False
            await loader.installer.prove(
                loader.installer.launch(installed, workspace=str(self._place.workspace))
            )
        except ArtefactChanged as exc:
            complain_prose(f"the files of {installed.dependency.title} have changed since it was installed:")
            for file in exc.files[:_SHOWN_FILES]:
                complain(f"  {visible(file)}")
            if len(exc.files) > _SHOWN_FILES:
                complain(f"  and {len(exc.files) - _SHOWN_FILES} more")
            return False
        except PmlError as exc:
            complain(exc.message)
            return False
        return True

    async def _install(self, found: Found, tool: ToolName, dependency: "McpDependency") -> None:
        from pml.service.install.load import plan_install

        self._refuse_unverified(dependency)
        with InstallBar() as bar:
            now = self._context.clock.now()
            plan = await plan_install(self._loader, dependency, self._policy, now=now, told=bar)
        if not await self._agrees(plan, source=found.source):
            return
        await guard(self._context, self._args)  # an agent may have come while the question was open
        await self._refuse(found, tool)  # and so may a rule
        self._refuse_unverified(dependency)
        with InstallBar() as bar:
            installed = await self._loader.installer.install(plan, told=bar)
        await self._context.store.audit.record(
            dependency_installed(
                dependency.name,
                dependency.version,
                integrity=dependency.integrity,
                lock=plan.lock.digest,
                why="by command",
                at=self._context.clock.now(),
            )
        )
        self._tell(installed, f"installed {dependency.title}")
        await self._tell_missing(dependency)

    async def _agrees(self, plan: Plan, *, source: str) -> bool:
        """Show the facts, and ask unless that was done by `--yes`."""
        installer, name = self._loader.installer, plan.dependency.name
        accepted, before = installer.accepted(name), installer.installed(name)
        asked = install_facts(plan, source=source, accepted=accepted, before=before)
        title = plan.dependency.title
        if not self._as_json:
            print_facts(title, tell_install(asked, at=self._context.clock.now()))
        is_young = plan.age is not None and not plan.age.is_enough
        if self._yes and not is_young:
            return True
        if self._as_json or not is_interactive():
            complain(f"pml: {_unanswered(title, is_young=is_young)}")
            self.waiting.append({**asked, "terms": plan.terms})
            return False
        word = "" if plan.dependency.integrity is not None else " UNVERIFIED"
        if confirm(f"\nInstall {visible(title)}{word}?"):
            return True
        say(f"{visible(title)} is not installed")
        self.declined.append(name)
        return False

    def _tell(self, installed: Installed, words: str) -> None:
        self.installed.append(installed_json(installed))
        if not self._as_json:
            word = " UNVERIFIED" if proof_of(installed) == "unverified" else ""
            say(f"{visible(words)}{word}: {visible(installed.path)}")

    async def _tell_missing(self, dependency: "McpDependency") -> None:
        workspace = str(self._place.workspace) if self._policy.trusted else None
        names = dependency.env_required
        known = await asyncio.to_thread(self._loader.variables.values, names, workspace=workspace)
        for name in names:
            if name not in known:
                complain_prose(
                    f"  it needs {visible(name)}, which is not set: pml secrets set {visible(name)}"
                )


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


def _unanswered(title: str, *, is_young: bool) -> str:
    if is_young:
        return (
            f"{visible(title)} is younger than `install.min_age_days`, or its age is not known; `--yes` does "
            "not cover that: answer on a terminal"
        )
    return f"nobody is there to answer; to install {visible(title)}, add `--yes`"


def _refuse_configured(policy: "Policy", name: str) -> None:
    """Refuse a name that a file has already: what it configures is what runs. Raises: Conflict."""
    for config in (policy.loaded.user.config, policy.loaded.workspace.config):
        entry = None if config is None else config.servers.get(name) or config.unusable.get(name)
        if entry is not None:
            where = f"{entry.source.file}:{entry.source.line}"
            raise Conflict(
                f"server {quote(name)} is configured in {where}, and runs as that says",
                hint="remove it there to use the one of the catalog or the registry",
            )
