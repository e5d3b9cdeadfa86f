"""Removing a server: its entry, what `pml add` keeps of it, its files and, if asked, its secrets."""

import argparse
import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.imports.preview import show_target
from pml.cli.terminal.output import complain, print_json, say
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.core.config.file import FileKind
from pml.core.errors import Invalid, NotFound
from pml.core.imports.client_entries import texts_of
from pml.core.servers.expansion import Expander
from pml.core.text import quote, visible
from pml.core.values import Json

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.ports.loader import Found, Installed
    from pml.service.context import Context


@dataclass(frozen=True, kw_only=True)
class _Removal:
    """All that would go."""

    name: str
    which: FileKind
    entry: Json = field(repr=False)
    added: "Found | None"
    is_added: bool
    installed: "Installed | None"
    secrets: Sequence[str]


async def remove_server(context: "Context", place: "Place", args: argparse.Namespace) -> int:
    """Raises: as `pml remove`."""
    removal = await asyncio.to_thread(_find, place, args)
    if not args.json:
        _show(removal)
    code = _agreed(args)
    done = code is Exit.OK and not args.dry_run
    if done:
        await guard(context, args)
        await remove_all(context, place, removal)
    if args.json:
        installed = removal.installed
        print_json(
            {
                "name": removal.name,
                "removed": done,
                "entry": removal.entry is not None,
                "added": removal.is_added,
                "installed": None if installed is None else installed.dependency.title,
                "secrets": [*removal.secrets],
            }
        )
    elif done:
        say(f"removed {visible(removal.name)}")
    return code


async def remove_all(context: "Context", place: "Place", removal: _Removal) -> None:
    """Remove the entry first: nothing starts from it any more. Raises: Changed, Unavailable."""
    from pml.app import person
    from pml.service.policy.server_entries import remove_servers

    name, workspace = removal.name, str(place.workspace)
    if removal.entry is not None:
        entries: Mapping[str, Json] = {name: removal.entry}
        await remove_servers(context, workspace, entries, which=removal.which, by=person(), why="removed")
    if removal.is_added:
        await remove_added(context, place, name)
    await forget_secrets(context, place, removal.secrets)


async def remove_added(context: "Context", place: "Place", name: str, *, files: bool = True) -> bool:
    """Remove what `pml add` keeps of a server, and its files; False if it was not added.

    Raises: Unavailable.
    """
    from pml.app import open_installer, person
    from pml.cli.commands.deps import remove_files
    from pml.core.audit.entries import server_changed
    from pml.registry.added_servers import AddedServers

    is_added = await asyncio.to_thread(AddedServers(place.home).remove, name)
    if is_added:
        now = context.clock.now()
        change = server_changed(name, "removed", "pml add", at=now, by=person(), why="removed")
        await context.store.audit.record(change)
    installed = open_installer(place).installed(name)
    if files and is_added and installed is not None:
        await remove_files(place, installed)
    return is_added


async def forget_secrets(context: "Context", place: "Place", names: Sequence[str]) -> None:
    """Remove stored secrets, on record; one that is gone already is passed over. Raises: Unavailable."""
    from pml.app import open_variables, person
    from pml.core.audit.entries import secret_changed

    for name in names:
        try:
            problem = await asyncio.to_thread(open_variables(place).secrets.remove, name)
        except NotFound:
            continue
        if problem is not None:
            complain(f"warning: {visible(problem)}")
        entry = secret_changed(name, "removed", at=context.clock.now(), by=person())
        await context.store.audit.record(entry)


def _find(place: "Place", args: argparse.Namespace) -> _Removal:
    """Raises: NotFound, ConfigInvalid."""
    from pml.app import DiskConfigs, open_installer
    from pml.registry.added_servers import AddedServers

    name = str(args.name)
    which = FileKind.WORKSPACE if args.workspace_file else FileKind.USER
    files = DiskConfigs(place).of(str(place.workspace))
    entries = files.servers(which)
    added = AddedServers(place.home)
    found, is_added = None, False
    if not args.workspace_file:
        is_added = added.is_there(name)
        with contextlib.suppress(Invalid):  # one whose file is broken can be removed too
            found = added.find(name)
    if name not in entries and not is_added:
        there = [*entries, *(it.name for each in added.all() for it in each.metadata.mcp_deps)]
        near = get_close_matches(name, there, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "`pml servers list` shows all there are"
        raise NotFound(f"no server {quote(name)} was added", hint=hint)
    removal = _Removal(
        name=name,
        which=which,
        entry=entries.get(name),
        added=found,
        is_added=is_added,
        installed=open_installer(place).installed(name) if is_added else None,
        secrets=(),
    )
    others = {key: each for key, each in entries.items() if key != name}
    secrets = _own_secrets(place, removal, others, added.all()) if args.secrets else []
    return _Removal(
        name=name,
        which=which,
        entry=removal.entry,
        added=found,
        is_added=is_added,
        installed=removal.installed,
        secrets=secrets,
    )


def _own_secrets(
    place: "Place", removal: _Removal, others: Mapping[str, Json], added: "Sequence[Found]"
) -> list[str]:
    """Return the stored secrets that this server names, and no other."""
    from pml.app import open_installer, open_variables

    wanted = _named(removal.entry)
    for dependency in () if removal.added is None else removal.added.metadata.mcp_deps:
        wanted |= set(dependency.env_required)
    kept: set[str] = set()
    for entry in others.values():
        kept |= _named(entry)
    needed = [it for each in added for it in each.metadata.mcp_deps]
    needed += [each.dependency for each in open_installer(place).all_installed().values()]
    for dependency in needed:
        if dependency.name != removal.name:
            kept |= set(dependency.env_required)
    return sorted(name for name in open_variables(place).secrets.names() if name in wanted - kept)


def _named(entry: Json) -> set[str]:
    expander = Expander({})
    for text in texts_of(entry):
        expander(text)
    return {*expander.names}


def _show(removal: _Removal) -> None:
    say(f"{visible(removal.name)} would be removed:")
    if isinstance(removal.entry, Mapping):
        show_target(removal.entry)
    for dependency in () if removal.added is None else removal.added.metadata.mcp_deps:
        say(f"    the server that was added: {visible(dependency.install)}")
    if removal.is_added and removal.added is None:
        say("    what was added under this name, whose file cannot be understood")
    if removal.installed is not None:
        say(f"    its files: {visible(removal.installed.path)}")
    for name in removal.secrets:
        say(f"    the secret {visible(name)}")


def _agreed(args: argparse.Namespace) -> Exit:
    if args.dry_run or args.yes:
        return Exit.OK
    if args.json or not is_interactive():
        complain("pml: nobody is there to answer; to remove it, add `--yes`")
        return Exit.PENDING
    if confirm("\nRemove it?"):
        return Exit.OK
    say("nothing was removed")
    return Exit.DENIED
