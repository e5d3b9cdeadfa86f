"""Servers of other clients on this machine, and what would become of each of them here."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from pml.core.config.file import FileKind
from pml.core.errors import ConfigInvalid, NotFound
from pml.core.imports.client_entries import texts_of
from pml.core.imports.client_files import ClientServer
from pml.core.imports.import_plan import ImportedServer, Present, plan_import
from pml.core.servers.expansion import Expander
from pml.core.text import quote
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.agents.server_lists import ServerLists
    from pml.app import Place
    from pml.core.ports.world import ConfigFiles


@dataclass(frozen=True, kw_only=True)
class FoundServers:
    """What would become of the servers of other clients; `file` is where entries would be written.

    `missing` are variables that a server needs and that are set nowhere, by its name.
    """

    planned: Sequence[ImportedServer]
    files: Sequence[Path]
    broken: Sequence[ConfigInvalid]
    which: FileKind
    file: str
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    @property
    def taken(self) -> list[ImportedServer]:
        return [each for each in self.planned if each.outcome.is_taken]


def find_servers(place: "Place", args: argparse.Namespace) -> FoundServers:
    """Raises: NotFound for a client or a server that is not there; ConfigInvalid for PML's own file."""
    from pml.agents.known import SERVER_FILES
    from pml.agents.server_lists import Machine, read_lists
    from pml.app import DiskConfigs, open_variables

    wanted = _client([each.client for each in SERVER_FILES], args.client)
    chosen = [each for each in SERVER_FILES if wanted in (None, each.client)]
    machine = Machine(environ=os.environ, home=place.user_home, workspace=place.workspace)
    lists = read_lists(chosen, machine)
    files = DiskConfigs(place).of(str(place.workspace))
    which = FileKind.WORKSPACE if args.workspace_file else FileKind.USER
    servers = [each for each in lists.servers if each.is_project or which is FileKind.USER]
    planned = plan_import(
        servers,
        present=_present(place, files, which),
        problem_of=lambda name, entry: entry_problem(files, name, entry),
        value_of=lambda name: open_variables(place).values([name], workspace=None).get(name),
        prove=which is FileKind.USER and not args.as_is,
    )
    loaded = files.read()
    return FoundServers(
        planned=_named(planned, args.names, lists),
        files=lists.files,
        broken=lists.broken,
        which=which,
        file=(loaded.user if which is FileKind.USER else loaded.workspace).path,
        missing=_missing(place, planned),
    )


def _client(known: Sequence[str], given: str | None) -> str | None:
    """Return the client that was meant. Raises: NotFound."""
    names = {name.lower().replace(" ", "-"): name for name in known}
    if given is None:
        return None
    found = names.get(given.lower().replace(" ", "-").replace("_", "-"))
    if found is None:
        near = get_close_matches(given.lower(), names, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
        raise NotFound(f"no client {quote(given)} is known", hint=hint)
    return found


def _named(
    planned: Sequence[ImportedServer], names: Sequence[str], lists: "ServerLists"
) -> list[ImportedServer]:
    """Return those that were asked for. Raises: NotFound for one that no client has."""
    if not names:
        return [*planned]
    there = {each.name for each in planned} | {each.server.name for each in planned}
    for name in names:
        if name not in there:
            near = get_close_matches(name, there, n=1)
            where = f"{len(lists.files)} files of clients" if lists.files else "any client's file"
            hint = f"did you mean `{near[0]}`?" if near else "`pml import --dry-run` shows all"
            raise NotFound(f"no server {quote(name)} in {where}", hint=hint)
    return [each for each in planned if each.name in names or each.server.name in names]


def _present(place: "Place", files: "ConfigFiles", which: FileKind) -> Present:
    """Raises: ConfigInvalid."""
    from pml.registry.added_servers import AddedServers

    loaded = files.read()
    other = loaded.workspace if which is FileKind.USER else loaded.user
    added = AddedServers(place.home).all() if which is FileKind.USER else ()
    names = frozenset(it.name for each in added for it in each.metadata.mcp_deps)
    others: dict[str, str] = {}
    if other.config is not None:
        others = dict.fromkeys([*other.config.servers, *other.config.unusable], f"in {other.path}")
    return Present(entries=files.servers(which), others=others, added=names)


def entry_problem(files: "ConfigFiles", name: str, entry: JsonObject) -> str | None:
    """Return why PML could not use the entry, in the words of whatever reads its file."""
    text = json.dumps({"mcpServers": {name: entry}})
    unusable = files.parse_workspace(text, name="entry").unusable.get(name)
    if unusable is None or unusable.is_switched_off:
        return None
    return unusable.why.removeprefix("is not used: ").removesuffix(" (entry:1)")


def _missing(place: "Place", planned: Sequence[ImportedServer]) -> dict[str, list[str]]:
    """Return which variables of each server are set nowhere; those taken out of it are not meant."""
    from pml.app import open_variables

    wanted = {each.name: _variables(each) for each in planned if each.outcome.is_taken}
    names = sorted({name for names in wanted.values() for name in names})
    known = open_variables(place).values(names, workspace=None)
    return {
        server: unset
        for server, names in wanted.items()
        if (unset := [each for each in names if each not in known])
    }


def _variables(planned: ImportedServer) -> list[str]:
    expander = Expander({})
    for text in texts_of(planned.entry):
        expander(text)
    own = {secret.name for secret in planned.secrets}
    return [name for name in expander.unset if name not in own]


def servers_of(planned: Sequence[ImportedServer]) -> list[ClientServer]:
    """Return every place in clients' files that says what was taken."""
    return [server for each in planned for server in (each.server, *each.also)]
