"""`pml deps install`: a person has servers installed before anything calls them, after seeing all the facts.

What the files configure themselves and what a rule denies is not installed. What was agreed to is one lock
and one set of variables, as for an install that a call asks for.
"""

import argparse
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pml.cli.commands.catalog import print_facts
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, complain_prose, print_json, say
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.cli.verbs.installs import Installs, named_tool
from pml.core.approvals.record import instant
from pml.core.errors import ArtefactChanged, NotFound, PmlError
from pml.core.names import ToolName, parse_tool
from pml.core.packages.install_facts import tell_install
from pml.core.ports.loader import Found, Installed, Plan
from pml.core.text import quote, visible
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.packages.capability import McpDependency
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
        self._installs = Installs(context, place, policy)
        self._context = context
        self._place = place
        self._args = args
        self._yes = bool(args.yes)
        self._as_json = bool(args.json)
        self._loader = self._installs.loader
        self.installed: list[JsonObject] = []
        self.declined: list[str] = []
        self.waiting: list[JsonObject] = []

    async def install(self, name: str) -> None:
        from pml.service.install.load import in_use

        is_tool = ":" in name
        tool = parse_tool(name) if is_tool else named_tool(name)
        found = await self._find(name, tool, is_tool=is_tool)
        await self._installs.refuse(found.metadata, tool)
        for dependency in found.metadata.mcp_deps:
            before = in_use(self._loader, dependency)
            if before is not None and await self._is_sound(before):
                self._tell(before, f"{before.dependency.title} is installed already")
            else:
                await self._install(found, tool, dependency)

    async def _find(self, name: str, tool: ToolName, *, is_tool: bool) -> Found:
        from pml.service.call import Attempt
        from pml.service.install.load import find

        self._installs.refuse_configured(tool.namespace or "")
        policy = self._installs.policy
        settings = policy.settings
        if not is_tool:  # a server by its own name, and no capability that is called like the stand-in action
            policy = replace(policy, settings=replace(settings, registry_prefix=None))
        found = await find(self._loader, policy, Attempt(tool=tool, arguments={}, offered=False))
        if found is None:
            where = "in the catalog" if not settings.registries else "in the catalog or in the registry"
            raise NotFound(f"no server {quote(name)} {where}", hint=self._where_to_look(name))
        return found

    def _where_to_look(self, name: str) -> str:
        """Return what to do about a name that nothing has."""
        policy = self._installs.policy
        config, settings = policy.loaded.workspace.config, policy.settings
        if config is not None and config.registries and not policy.trusted:
            path = visible(policy.loaded.workspace.path)
            return f"{path} names a registry and is not trusted: look at it with `pml trust`, then try again"
        sources = self._loader.sources
        known = [each.metadata for each in (*sources.bundled(), *sources.known(settings.registries))]
        names = {dependency.name for each in known for dependency in each.mcp_deps}
        near = get_close_matches(name.partition(":")[0], sorted(names), n=1)
        meant = f"did you mean `{near[0]}`? " if near else ""
        more = "" if settings.registries else "; `registry` in a configuration file names a place with more"
        return f"{meant}`pml catalog list` shows the catalog{more}; `mcpServers` starts other programs"

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
        plan = await self._installs.plan(dependency)
        if not await self._agrees(plan, source=found.source):
            return
        await guard(self._context, self._args)  # an agent may have come while the question was open
        await self._installs.refuse(found.metadata, tool)  # and so may a rule
        installed = await self._installs.carry_out(plan, why="by command")
        self._tell(installed, f"installed {dependency.title}")
        for name in await self._installs.missing(dependency):
            complain_prose(f"  it needs {visible(name)}, which is not set: pml secrets set {visible(name)}")

    async def _agrees(self, plan: Plan, *, source: str) -> bool:
        """Show the facts, and ask unless that was done by `--yes`."""
        asked = self._installs.facts(plan, source=source)
        title = plan.dependency.title
        if not self._as_json:
            print_facts(title, tell_install(asked, at=self._context.clock.now()))
        is_young = plan.age is not None and not plan.age.is_enough
        if self._yes and not is_young:
            return True
        if self._as_json or not is_interactive():
            complain(f"pml: {unanswered(title, is_young=is_young)}")
            self.waiting.append({**asked, "terms": plan.terms})
            return False
        word = "" if plan.dependency.integrity is not None else " UNVERIFIED"
        if confirm(f"\nInstall {visible(title)}{word}?"):
            return True
        say(f"{visible(title)} is not installed")
        self.declined.append(plan.dependency.name)
        return False

    def _tell(self, installed: Installed, words: str) -> None:
        self.installed.append(installed_json(installed))
        if not self._as_json:
            word = " UNVERIFIED" if proof_of(installed) == "unverified" else ""
            say(f"{visible(words)}{word}: {visible(installed.path)}")


def unanswered(title: str, *, is_young: bool) -> str:
    if is_young:
        return (
            f"{visible(title)} is younger than `install.min_age_days`, or its age is not known; `--yes` does "
            "not cover that: answer on a terminal"
        )
    return f"nobody is there to answer; to install {visible(title)}, add `--yes`"
