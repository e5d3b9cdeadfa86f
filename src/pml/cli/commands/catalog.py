"""`pml catalog`: the servers that PML knows by itself, and all that installing one would mean.

Reads the bundled files and what is installed, and starts no server. Only a search makes requests: to the
registries with the official API that the user's file, or a trusted workspace's, names.
"""

import argparse
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, console, local_time, print_json, print_table, say
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.approvals.record import instant
from pml.core.errors import NotFound, PmlError
from pml.core.packages.capability import Status
from pml.core.packages.install_facts import install_facts, tell_install
from pml.core.packages.lock import Lock
from pml.core.ports.loader import Found, Installed, Plan
from pml.core.servers.search import find_tools
from pml.core.text import quote, visible
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.packages.capability import McpDependency
    from pml.core.packages.permissions import Containment
    from pml.core.packages.server_json import Listed, ListedServer

EXAMPLES = """Well-known servers that come pinned with PML, each with the hashes of all that it needs.
None is installed before a call or `pml deps install` asks for it, and you agreed.

examples:
  pml catalog list                   what there is, and what of it is installed
  pml catalog show memory            its packages, permissions and tools, and how to call them
  pml catalog search time zone       by name, description or tool
  pml call time:get_current_time '{"timezone": "UTC"}'

exit codes: 0 ok, 1 failed, 2 usage, 5 no such server, or nothing found"""
_LIST: Final = """examples:
  pml catalog list
  pml catalog list --json | jq -r '.servers[] | select(.installed == null) | .name'"""
_SHOW: Final = """examples:
  pml catalog show memory
  pml catalog show git --json | jq '.tools[].inputSchema'"""
_SEARCH: Final = """examples:
  pml catalog search files           in the catalog, and in a `registry` that ends in /v0.1/servers
  pml catalog search 'read_*'        a glob over the names of tools"""
_SUMMARY: Final = 100


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    verbs.add("list", "list the servers of the catalog", list_catalog, epilog=_LIST)
    show = verbs.add("show", "show all that is known of a server", show_server, epilog=_SHOW)
    show.add_argument("name", metavar="NAME", help="the server")
    search = verbs.add("search", "find servers by words or by a glob", search_catalog, epilog=_SEARCH)
    search.add_argument("words", metavar="WORDS", nargs="+", help="what to look for")


run = run_verb


def list_catalog(args: argparse.Namespace) -> int:
    from pml.app import find_place
    from pml.registry.catalog import Catalog

    _print_servers(Catalog().bundled(), _installed(find_place(args.workspace)), as_json=args.json)
    return Exit.OK


async def search_catalog(args: argparse.Namespace) -> int:
    """Raises: NotFound."""
    from pml.app import find_place
    from pml.registry.catalog import Catalog

    query = " ".join(args.words)
    found = find_tools(query, [entry for each in Catalog().bundled() for entry in _searched(each)])
    servers = {server.metadata.fqdn: server for server in found}  # by the best of each, best first
    listed, where = await _search_registries(args, query)
    if not servers and not listed:
        raise NotFound(f"nothing in {where} fits {quote(query)}", hint="`pml catalog list` shows all of it")
    installed = _installed(find_place(args.workspace))
    if args.json:
        print_json({**_servers_json([*servers.values()], installed), "listed": [*map(listed_json, listed)]})
        return Exit.OK
    if servers:
        _print_servers([*servers.values()], installed, as_json=False)
    if listed:
        _print_listed(listed)
    return Exit.OK


async def _search_registries(args: argparse.Namespace, query: str) -> "tuple[Sequence[Listed], str]":
    """Return what the registries list that fits, and where was looked; one that cannot be asked is told."""
    from pml.app import DiskConfigs, find_place, open_sources
    from pml.service.policy.policy import current_policy

    place = find_place(args.workspace)
    loaded = DiskConfigs(place).of(str(place.workspace)).read()
    configs = [each.config for each in (loaded.user, loaded.workspace) if each.config is not None]
    if not any(config.registries for config in configs):
        return [], "the catalog"
    async with opened(args) as context:
        registries = (await current_policy(context, str(place.workspace))).settings.registries
        sources = open_sources(place, context.clock, warn=complain)
        found: list[Listed] = []
        for registry in registries:
            try:
                found += await sources.search(query, registries=[registry])
            except PmlError as exc:
                complain(f"pml: {visible(exc.message)}")
    first = {each.server.name: each for each in reversed(found)}
    names = dict.fromkeys(each.server.name for each in found)
    return [first[name] for name in names], "the catalog or the registries" if registries else "the catalog"


def listed_json(listed: "Listed") -> JsonObject:
    """Return what a registry lists of a server, as `--json` has it."""
    server = listed.server
    return {
        "name": server.name,
        "version": server.version,
        "description": server.description,
        "status": server.status.value,
        "registry": listed.registry,
        "packages": [
            {"type": each.ecosystem.value, "identifier": each.identifier, "version": each.version}
            for each in server.packages
        ],
        "remotes": [{"type": each.kind, "url": each.url.value} for each in server.remotes],
        "refused": [{"what": each.what, "why": each.why} for each in server.refused],
    }


def _print_listed(listed: "Sequence[Listed]") -> None:
    rows = [
        (each.server.name, each.server.version, _kinds(each.server), each.server.description)
        for each in listed
    ]
    say("")
    print_table(("LISTED", "VERSION", "IS", "WHAT IT SAYS IT DOES"), rows)
    say("\n`pml add NAME` shows one whole and adds it. A list endorses nothing: anybody may be on it.")


def _kinds(server: "ListedServer") -> str:
    """Return in a few words what there is of it for PML."""
    kinds = [each.ecosystem.value for each in server.packages] + ["remote" for _ in server.remotes]
    told = ", ".join(dict.fromkeys(kinds)) or "refused"
    return told if server.status is Status.ACTIVE else f"{server.status.value.upper()}: {told}"


def show_server(args: argparse.Namespace) -> int:
    """Raises: NotFound."""
    from pml.app import find_place
    from pml.registry.catalog import Catalog
    from pml.upstream.containment.box import available, containment_of

    place, name = find_place(args.workspace), str(args.name)
    found = Catalog().find(name)
    dependency = None if found is None else found.metadata.dependency(name)
    if found is None or dependency is None or not isinstance(dependency.lock, Lock):
        names = [each.name for entry in Catalog().bundled() for each in entry.metadata.mcp_deps]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "`pml catalog list` shows all there are"
        raise NotFound(f"no server {quote(name)} in the catalog", hint=hint)
    installed = _installed(place).get(name)
    if args.json:
        print_json(_whole_json(found, dependency, dependency.lock, installed))
        return Exit.OK
    kind = containment_of(
        available(),
        dependency.permissions,
        home=place.home,
        user_home=place.user_home,
        workspace=str(place.workspace),
    )
    facts = _facts(found, dependency, dependency.lock, installed, kind)
    print_facts(dependency.title, facts)
    return Exit.OK


def print_facts(title: str, facts: Sequence[tuple[str, str]], *, to_stderr: bool = False) -> None:
    """Print a title and what is known of it; the values have passed `visible`."""
    from rich.text import Text

    out = console(to_stderr=to_stderr)
    out.print(Text(visible(title), style="bold"))
    for name, value in facts:
        first, *rest = value.split("\n")
        out.print(Text(f"  {name:<10}", style="dim").append(first, style="not dim"))
        for line in rest:
            out.print(Text(" " * 12 + line))


def _installed(place: "Place") -> Mapping[str, Installed]:
    from pml.app import open_installer

    return open_installer(place).all_installed()


def _searched(found: Found) -> list[tuple[str, str, Found]]:
    """Return what a search looks at: the server and each of its tools."""
    metadata = found.metadata
    about = metadata.description or ""
    name = metadata.fqdn.action or metadata.fqdn.namespace
    tools = [
        (f"{name}:{tool.get('name')}", str(tool.get("description", "")), found) for tool in metadata.tools
    ]
    return [(name, about, found), *tools]


def _print_servers(found: Sequence[Found], installed: Mapping[str, Installed], *, as_json: bool) -> None:
    pairs = [(each, dependency) for each in found for dependency in each.metadata.mcp_deps]
    if as_json:
        print_json(_servers_json(found, installed))
        return
    rows = [
        (
            dependency.name,
            dependency.version,
            _standing(dependency, installed.get(dependency.name)),
            ", ".join(dependency.env_required) or "-",
            each.metadata.description or "",
        )
        for each, dependency in pairs
    ]
    print_table(("SERVER", "VERSION", "INSTALLED", "NEEDS", "WHAT IT DOES"), rows)


def _servers_json(found: Sequence[Found], installed: Mapping[str, Installed]) -> dict[str, Json]:
    pairs = [(each, dependency) for each in found for dependency in each.metadata.mcp_deps]
    return {"servers": [_server_json(each, one, installed.get(one.name)) for each, one in pairs]}


def _standing(dependency: "McpDependency", installed: Installed | None) -> str:
    if installed is None:
        return "no"
    return "yes" if installed.lock == _digest(dependency) else f"another: {installed.dependency.version}"


def _digest(dependency: "McpDependency") -> str | None:
    return dependency.lock.digest if isinstance(dependency.lock, Lock) else dependency.lock


def _server_json(found: Found, dependency: "McpDependency", installed: Installed | None) -> JsonObject:
    standing: Json = None
    if installed is not None:
        standing = {
            "version": installed.dependency.version,
            "installed_at": instant(installed.installed_at),
            "is_this": installed.lock == _digest(dependency),
        }
    return {
        "name": dependency.name,
        "version": dependency.version,
        "description": found.metadata.description,
        "env_required": dependency.env_required,
        "installed": standing,
    }


def _whole_json(
    found: Found, dependency: "McpDependency", lock: Lock, installed: Installed | None
) -> JsonObject:
    from pml.core.packages.capability import dependency_json

    described = {**dependency_json(dependency), "lock": lock.digest}
    return {
        **_server_json(found, dependency, installed),
        "fqdn": str(found.metadata.fqdn),
        **{key: value for key, value in described.items() if key != "type"},
        "size": lock.size,
        "released_at": lock.released_at,
        "scripts": lock.with_scripts,
        "packages": [{"name": each.name, "version": each.version} for each in lock.packages],
        "tools": found.metadata.tools,
    }


def _facts(
    found: Found,
    dependency: "McpDependency",
    lock: Lock,
    installed: Installed | None,
    containment: "Containment",
) -> list[tuple[str, str]]:
    plan = Plan(dependency=dependency, lock=lock, containment=containment)
    told = tell_install(install_facts(plan, source=found.source, accepted=None))
    since = "" if installed is None else f" since {local_time(installed.installed_at)}"
    packages = "\n".join(visible(f"{each.name} {each.version}") for each in lock.packages)
    tools = "\n".join(_tool_line(tool) for tool in found.metadata.tools)
    first = str(found.metadata.tools[0].get("name")) if found.metadata.tools else "TOOL"
    return [
        ("does", visible(found.metadata.description or "")),
        ("installed", visible(_standing(dependency, installed)) + since),
        *told,
        ("packages", packages),
        ("tools", tools),
        ("call", visible(f"pml call {dependency.name}:{first} '{{…}}'")),
    ]


def _tool_line(tool: JsonObject) -> str:
    about = " ".join(str(tool.get("description", "")).split())
    short = about if len(about) <= _SUMMARY else f"{about[:_SUMMARY]}…"
    return f"{visible(str(tool.get('name')))}: {visible(short)}"
