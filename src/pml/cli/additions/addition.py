"""Adding a server: what its line names is shown whole, asked about once, tried, and then written.

Whatever fails before the end, or is interrupted, leaves no server behind that was not there before.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pml.cli.additions.added_entry import keep_server
from pml.cli.additions.line import (
    BundleLine,
    EntryLine,
    PackageLine,
    RegistryName,
    ShortName,
    answers_of,
    read_line,
    refuse_package_options,
    wish_of,
)
from pml.cli.additions.proposal import Proposal, Wish, propose, propose_dependency
from pml.cli.additions.trial import show_tools, try_server
from pml.cli.commands.catalog import print_facts
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.imports.found import entry_problem
from pml.cli.imports.preview import ELSEWHERE, show_target, target_json
from pml.cli.terminal.output import complain, print_json, say
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.cli.verbs.installs import Installs, named_tool
from pml.core.config.file import FileKind
from pml.core.errors import Conflict, Invalid, LoginRequired, NotFound, PmlError, ServerFailed
from pml.core.packages.added import added_metadata, default_name
from pml.core.packages.install_facts import tell_install
from pml.core.servers.expansion import Expander
from pml.core.servers.spec import ServerSpec, server_name_problem
from pml.core.text import quote, visible
from pml.core.values import Json, JsonObject, is_same

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.ports.loader import Installed
    from pml.core.servers.manifest import Manifest
    from pml.service.context import Context


_UNPROVEN: Final = "NOT PROVEN, NOT CONTAINED: it can do what you can"


async def add_server(context: "Context", place: "Place", args: argparse.Namespace) -> int:
    """Raises: as `pml add`."""
    from pml.service.policy.policy import current_policy

    line = read_line(args)
    policy = await current_policy(context, str(place.workspace))
    for error in policy.broken:
        raise error
    adding = _Adding(args=args, installs=Installs(context, place, policy))
    match line:
        case PackageLine(request=request):
            name = adding.named(default_name(request))
            proposal = await propose(adding.installs, name, request, wish_of(args))
            return await adding.add_package(proposal)
        case EntryLine(name=suggested, entry=entry):
            return await adding.add_entry(adding.named(suggested), entry)
        case RegistryName(name=full, version=version):
            return await adding.add_listed(full, version)
        case ShortName(name=short):
            return await adding.add_package(await adding.known(short))
        case BundleLine(path=path):
            from pml.cli.additions.listed_offer import bundle_server

            return await adding.add_package(await bundle_server(adding.installs, path, args))


@dataclass(frozen=True, kw_only=True)
class _Adding:
    """One command line."""

    args: argparse.Namespace
    installs: Installs

    @property
    def place(self) -> "Place":
        return self.installs.place

    @property
    def context(self) -> "Context":
        return self.installs.context

    def named(self, suggested: str) -> str:
        """Return the name that was given, or the one that suggests itself. Raises: Invalid."""
        name = str(self.args.name or suggested)
        if problem := server_name_problem(name):
            raise Invalid(f"{quote(name)} {problem}", hint="give another one with `--name`")
        return name

    async def known(self, short: str) -> Proposal:
        """Return the server that the catalog, or a registry, has by this name. Raises: NotFound, Conflict."""
        from pml.service.call import Attempt
        from pml.service.install.load import find

        name = self.named(short)
        if name != short:
            raise Invalid("a server of the catalog keeps its name", hint="give its package as a command")
        refuse_options(self.args)
        self.installs.refuse_configured(name)
        attempt = Attempt(tool=named_tool(name), arguments={}, offered=False)
        found = await find(self.installs.loader, self.installs.policy, attempt)
        dependency = None if found is None else found.metadata.dependency(name)
        if found is None or dependency is None:
            hint = "`pml catalog list` shows the catalog; a command in quotes adds anything else"
            raise NotFound(f"no server {quote(short)} in the catalog or in a registry", hint=hint)
        return await propose_dependency(self.installs, dependency, found.metadata, source=found.source)

    async def add_listed(self, full: str, version: str | None) -> int:
        """Add what a registry with the official API lists. Raises: NotFound, Invalid, Unavailable."""
        from pml.cli.additions.listed_offer import listed_server

        offer = await listed_server(self.installs, full, version, self.args, answers_of(self.args))
        if isinstance(offer, Proposal):
            return await self.add_package(offer)
        suggested, entry = offer
        return await self.add_entry(self.named(suggested), entry)

    async def add_package(self, proposal: Proposal) -> int:
        """Install the server, try it, and keep it."""
        name, plan = proposal.dependency.name, proposal.plan
        if self.args.workspace_file:
            raise Invalid(
                "an install is yours, and not a workspace's",
                hint="leave `--workspace-file` away; a URL or a program can stand in the workspace's file",
            )
        facts = self.installs.facts(plan, source=proposal.source)
        metadata = added_metadata(
            proposal.dependency,
            tools=[{"name": it} for it in proposal.tools],
            description=proposal.description,
        )
        await self.installs.refuse(metadata, named_tool(name))
        if self._is_same(proposal):
            return self._tell_there(name)
        if self.is_there(name):
            self.refuse(name)
        missing = await self.installs.missing(proposal.dependency)
        if not self.args.json:
            print_facts(plan.dependency.title, tell_install(facts, at=self.context.clock.now()))
            _tell_missing(missing)
        is_young = plan.age is not None and not plan.age.is_enough
        code = self._agreed(f"Add {visible(plan.dependency.title)}?", is_forced=is_young)
        if code is not Exit.OK or self.args.dry_run:
            return self._end(code, name, install=facts, missing=missing)
        await guard(self.context, self.args)  # an agent may have come while the question was open
        await self.installs.refuse(metadata, named_tool(name))  # and so may a rule
        manifest, path = await self._install(proposal, is_tried=not (missing or self.args.no_try))
        return self._end(code, name, install=facts, missing=missing, manifest=manifest, written=path)

    async def _install(self, proposal: Proposal, *, is_tried: bool) -> "tuple[Manifest | None, str]":
        installer, name = self.installs.loader.installer, proposal.dependency.name
        before = installer.installed(name)
        installed = await self.installs.carry_out(proposal.plan, why="added")
        try:
            manifest = await self._tried(installed) if is_tried else None
            return manifest, await keep_server(self.installs, proposal, manifest, why="added")
        except BaseException:
            if before is None:
                await asyncio.shield(self._take_away(name))
            raise

    async def _tried(self, installed: "Installed") -> "Manifest":
        launch = self.installs.loader.installer.launch(installed, workspace=str(self.place.workspace))
        try:
            return await try_server(self.context, self.place, launch)
        except ServerFailed as exc:
            needs = "it may need more reach (`--net`, `--write`, `--run`), arguments, or `--env NAME`"
            raise ServerFailed(
                f"it was not added: {exc.message}", hint=f"{needs}; `--no-try` adds it all the same"
            ) from exc

    async def _take_away(self, name: str) -> None:
        from pml.app import open_installer

        with contextlib.suppress(PmlError):  # what went wrong first is told
            await open_installer(self.place).remove(name)

    def is_there(self, name: str) -> bool:
        """Tell whether a server of this name was added before."""
        from pml.registry.added_servers import AddedServers

        return AddedServers(self.place.home).find(name) is not None

    def _is_same(self, proposal: Proposal) -> bool:
        from pml.core.packages.lock import Lock
        from pml.registry.added_servers import AddedServers

        found = AddedServers(self.place.home).find(proposal.dependency.name)
        known = None if found is None else found.metadata.dependency(proposal.dependency.name)
        if known is None or not isinstance(known.lock, Lock):
            return False
        return known.terms(known.lock.digest) == proposal.plan.terms

    def refuse(self, name: str) -> None:
        """Raises: Conflict."""
        raise Conflict(
            f"a server {quote(name)} was added already",
            hint=f"`pml remove {name}` removes it; or give this one another name with `--name`",
        )

    async def add_entry(self, name: str, entry: JsonObject) -> int:
        """Write an entry of `mcpServers`: a URL, or a program that nothing proves or contains."""
        from pml.app import DiskConfigs

        refuse_package_options(self.args, self.place)
        which = FileKind.WORKSPACE if self.args.workspace_file else FileKind.USER
        files = DiskConfigs(self.place).of(str(self.place.workspace))
        there = files.servers(which)
        if name in there and is_same(there[name], entry):
            return self._tell_there(name)
        self.installs.refuse_configured(name)
        if self.is_there(name):
            self.refuse(name)
        if problem := entry_problem(files, name, entry):
            raise Invalid(f"it cannot be added: {problem}")
        missing = await self._unset(entry)
        if not self.args.json:
            say(visible(name))
            show_target(entry, told=missing)
            say(f"    {ELSEWHERE if 'url' in entry else _UNPROVEN}")
            _tell_missing(missing)
        code = self._agreed(f"Add {visible(name)}?")
        if code is not Exit.OK or self.args.dry_run:
            return self._end(code, name, entry=entry, missing=missing)
        await guard(self.context, self.args)
        manifest, login = None, False
        if not (missing or self.args.no_try):
            manifest, login = await self._tried_entry(name, entry)
        path = await self._write(name, entry, which)
        return self._end(
            code, name, entry=entry, missing=missing, manifest=manifest, written=path, login=login
        )

    async def _unset(self, entry: JsonObject) -> list[str]:
        from pml.app import open_variables
        from pml.core.imports.client_entries import texts_of

        expander = Expander({})
        for text in texts_of(entry):
            expander(text)
        names = [*expander.unset]
        known = await asyncio.to_thread(open_variables(self.place).values, names, workspace=None)
        return [name for name in names if name not in known]

    async def _tried_entry(self, name: str, entry: JsonObject) -> "tuple[Manifest | None, bool]":
        """Return what the server offers, and whether it wants a login first. Raises: ServerFailed."""
        import json

        from pml.app import DiskConfigs

        files = DiskConfigs(self.place).of(str(self.place.workspace))
        text = json.dumps({"mcpServers": {name: entry}})
        spec: ServerSpec = files.parse_workspace(text, name="entry").servers[name]
        try:
            return await try_server(self.context, self.place, spec), False
        except LoginRequired:
            return None, True
        except ServerFailed as exc:
            hint = "`--no-try` adds it all the same"
            raise ServerFailed(f"it was not added: {exc.message}", hint=hint) from exc

    async def _write(self, name: str, entry: JsonObject, which: FileKind) -> str:
        from pml.app import person
        from pml.service.policy.server_entries import add_servers

        entries: Mapping[str, Json] = {name: entry}
        workspace = str(self.place.workspace)
        return await add_servers(self.context, workspace, entries, which=which, by=person(), why="added")

    def _agreed(self, question: str, *, is_forced: bool = False) -> Exit:
        """`is_forced`: `--yes` does not answer it."""
        if self.args.dry_run or (self.args.yes and not is_forced):
            return Exit.OK
        if self.args.json or not is_interactive():
            young = "; it is younger than `install.min_age_days`" if is_forced else ", or add `--yes`"
            complain(f"pml: nobody is there to answer; answer on a terminal{young}")
            return Exit.PENDING
        if confirm(f"\n{question}"):
            return Exit.OK
        say("nothing was added")
        return Exit.DENIED

    def _tell_there(self, name: str) -> Exit:
        if self.args.json:
            print_json({"name": name, "added": False, "there": True})
        else:
            say(f"{visible(name)} is there already")
        return Exit.OK

    def _end(
        self,
        code: Exit,
        name: str,
        *,
        install: JsonObject | None = None,
        entry: JsonObject | None = None,
        missing: Sequence[str] = (),
        manifest: "Manifest | None" = None,
        written: str | None = None,
        login: bool = False,
    ) -> Exit:
        """Tell what was done, as one object or in words."""
        if self.args.json:
            tools = None if manifest is None else [str(tool["name"]) for tool in manifest.tools]
            target = {} if entry is None else target_json(entry)
            print_json(
                {
                    "name": name,
                    "added": written is not None,
                    "there": False,
                    **target,
                    "install": None if install is None else install["dependency"],
                    "missing": [*missing],
                    "login": login,
                    "tools": tools,
                    "file": written,
                }
            )
            return code
        if written is None:
            return code
        if manifest is not None:
            show_tools(manifest)
        say(f"added {visible(name)}: {visible(written)}")
        if login:
            say(f"  it wants a login: pml login {visible(name)}")
        for each in missing:
            say(f"  it starts when {visible(each)} is set: pml secrets set {visible(each)}")
        return code


def refuse_options(args: argparse.Namespace) -> None:
    """Refuse what would make another server of one of the catalog. Raises: Invalid."""
    if wish_of(args) != Wish():
        raise Invalid(
            "a server of the catalog is taken as it is",
            hint="give its package as a command, such as 'npx -y NAME', with a `--name` of its own",
        )


def _tell_missing(missing: Sequence[str]) -> None:
    for name in missing:
        say(f"    needs {visible(name)}, which is not set: pml secrets set {visible(name)}")
