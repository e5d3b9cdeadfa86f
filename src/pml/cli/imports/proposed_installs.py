"""Installs in place of commands that fetch a package each time: proposed for a preview, then carried out."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pml.cli.additions.added_entry import keep_server
from pml.cli.additions.proposal import Proposal, Wish, propose
from pml.cli.additions.trial import try_server
from pml.cli.imports.found import FoundServers
from pml.cli.terminal.output import complain
from pml.cli.verbs.installs import Installs, named_tool
from pml.core.errors import EnvMissing, PmlError, ToolDenied
from pml.core.imports.import_plan import ImportedServer, Outcome, install_variables, settled, unproven
from pml.core.packages.added import added_metadata
from pml.core.packages.install_facts import tell_install
from pml.core.packages.lock import Lock
from pml.core.text import visible
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class ProposedInstalls:
    """What would be installed, by the server's name."""

    installs: Installs
    proposals: dict[str, Proposal]

    def facts(self, name: str) -> JsonObject:
        """Return all that consent to the install of a server binds, but for values that its client sets."""
        proposal = self.proposals[name]
        facts = self.installs.facts(proposal.plan, source=proposal.source)
        hidden: JsonObject = dict.fromkeys(proposal.dependency.env, "…")
        told = facts["dependency"]
        return {"dependency": {**told, "env": hidden}} if isinstance(told, Mapping) else facts

    def rows(self, at: "datetime") -> dict[str, Sequence[tuple[str, str]]]:
        return {name: tell_install(self.facts(name), at=at) for name in self.proposals}

    def is_new(self, name: str) -> bool:
        """Tell whether nothing is installed under the name."""
        return self.installs.loader.installer.installed(name) is None

    async def take_away(self, names: Sequence[str]) -> None:
        """Remove what was installed before something else went wrong."""
        from pml.app import open_installer

        for name in names:
            with contextlib.suppress(PmlError):  # what went wrong first is told
                await open_installer(self.installs.place).remove(name)

    async def carry_out(self, name: str) -> None:
        """Install, try and keep one server; one that does not start yet is kept, and told of.

        Raises: what keeps it from being installed.
        """
        proposal = self.proposals[name]
        installed = await self.installs.carry_out(proposal.plan, why="imported")
        installer, workspace = self.installs.loader.installer, str(self.installs.place.workspace)
        manifest = None
        try:
            launch = installer.launch(installed, workspace=workspace)
            manifest = await try_server(self.installs.context, self.installs.place, launch)
        except EnvMissing:
            pass  # it is told which secrets are not there
        except PmlError as exc:
            complain(f"warning: {visible(name)} does not start yet: {visible(exc.message)}")
        await keep_server(self.installs, proposal, manifest, why="imported")


async def propose_installs(installs: Installs, found: FoundServers) -> tuple[FoundServers, ProposedInstalls]:
    """Look up what would be installed; what cannot be is taken as it is, or not, with the reason."""
    proposals: dict[str, Proposal] = {}
    planned: list[ImportedServer] = []
    for each in found.planned:
        if each.outcome is not Outcome.PROVEN or each.request is None:
            planned.append(each)
            continue
        env, required = install_variables(each.entry)
        try:
            wish = Wish(env=env, env_required=required)
            proposal = await propose(installs, each.name, each.request, wish)
            planned.append(await _judged(installs, each, proposal))
        except PmlError as exc:
            planned.append(unproven(each, exc.message))
            continue
        if planned[-1].outcome is Outcome.PROVEN:
            proposals[each.name] = proposal
    return replace(found, planned=planned), ProposedInstalls(installs=installs, proposals=proposals)


async def _judged(installs: Installs, each: ImportedServer, proposal: Proposal) -> ImportedServer:
    """Return the server as what it is now that its install is known."""
    from pml.registry.added_servers import AddedServers

    plan, name = proposal.plan, each.name
    there = AddedServers(installs.place.home).find(name)
    known = None if there is None else there.metadata.dependency(name)
    if known is not None:
        is_same = isinstance(known.lock, Lock) and known.terms(known.lock.digest) == plan.terms
        if is_same:
            return settled(each, Outcome.SAME, "was added already")
        return settled(each, Outcome.DIFFERENT, "was added already, in another version or with another reach")
    try:
        metadata = added_metadata(proposal.dependency, tools=proposal.tools, description=None)
        await installs.refuse(metadata, named_tool(name))
    except ToolDenied as exc:
        return settled(each, Outcome.REFUSED, f"a rule denies it: {exc.message}")
    if plan.age is not None and not plan.age.is_enough:
        return settled(
            each, Outcome.REFUSED, "is younger than `install.min_age_days`: `pml add` asks about it by itself"
        )
    return each
