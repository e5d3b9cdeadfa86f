"""Servers that a registry with the official API lists, made into a proposal or an entry by URL.

What the registry asks for is asked on the terminal, or said with `--set`; a secret is only named.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec.structs import replace

from pml.cli.additions.line import wish_of
from pml.cli.additions.proposal import Proposal, propose_dependency
from pml.cli.terminal.output import complain, say
from pml.cli.terminal.progress import InstallBar
from pml.cli.terminal.prompts import ask_for, is_interactive
from pml.core.errors import Conflict, Invalid
from pml.core.packages.capability import Status
from pml.core.packages.offer import (
    USUAL_REACH,
    Missing,
    dependency_of,
    entry_of,
    metadata_of,
    suggested_name,
)
from pml.core.text import quote, visible
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.cli.verbs.installs import Installs
    from pml.core.packages.server_json import ListedPackage, ListedServer
    from pml.registry.client.sources import CatalogAndRegistry


_T = TypeVar("_T")


async def listed_server(
    installs: "Installs", full: str, version: str | None, args: argparse.Namespace, answers: Mapping[str, str]
) -> Proposal | tuple[str, JsonObject]:
    """Return what would be installed, or the name and entry of a server that is reached by URL.

    Raises: NotFound, Conflict, Invalid, Unavailable.
    """
    sources = cast("CatalogAndRegistry", installs.loader.sources)
    listed = await sources.listed(full, registries=installs.policy.settings.registries, version=version)
    server = listed.server
    if server.status is Status.DELETED:
        raise Conflict(
            f"{quote(full)} was deleted from {quote(listed.registry)}", hint="look for another one"
        )
    if server.status is Status.DEPRECATED:
        complain(f"warning: {visible(full)} is deprecated in its registry")
    for refused in server.refused:
        complain(f"not taken: {visible(refused.what)}: {visible(refused.why)}")
    name = str(args.name or suggested_name(server))
    if server.packages:
        return await _package(installs, server, server.packages[0], name, args, answers, listed.registry)
    if server.remotes:
        remote = server.remotes[0]
        entry, secrets = _answered(lambda given: entry_of(server, remote, answers=given), answers)
        for secret in secrets:
            say(f"    {visible(secret)} is a secret: pml secrets set {visible(secret)}")
        return name, entry
    raise Invalid(f"{quote(full)} offers nothing that PML can start or reach")


async def _package(
    installs: "Installs",
    server: "ListedServer",
    package: "ListedPackage",
    name: str,
    args: argparse.Namespace,
    answers: Mapping[str, str],
    registry: str,
) -> Proposal:
    wish = wish_of(args)
    if wish.env or wish.before is not None:
        raise Invalid(
            "`--env NAME=VALUE` and `--before` are not for a server of a registry", hint="use `--set`"
        )
    installs.refuse_configured(name)
    draft = _answered(
        lambda given: dependency_of(
            server,
            package,
            name=name,
            answers=given,
            secrets=wish.env_required,
            permissions=wish.permissions or USUAL_REACH,
        ),
        answers,
    )
    with InstallBar() as bar:
        lock = await installs.loader.installer.resolve(draft, told=bar)
    dependency = replace(draft, lock=lock, integrity=lock.artefact[0])
    return await propose_dependency(installs, dependency, metadata_of(server, dependency), source=registry)


def _answered(make: Callable[[Mapping[str, str]], _T], answers: Mapping[str, str]) -> _T:
    """Return what is made of the answers; the rest is asked for on a terminal. Raises: Missing."""
    given = dict(answers)
    while True:
        try:
            return make(given)
        except Missing as exc:
            if not is_interactive() or any(each.key in given for each in exc.inputs):
                raise
            for each in exc.inputs:
                about = f" ({visible(each.description)})" if each.description else ""
                given[each.key] = ask_for(f"{visible(each.key)}{about}")
