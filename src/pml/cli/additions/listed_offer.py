"""Servers that a registry with the official API lists, made into a proposal or an entry by URL.

What the registry asks for is asked on the terminal, or said with `--set`; a secret is only named.
"""

import argparse
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec.structs import replace

from pml.cli.additions.line import answers_of, wish_of
from pml.cli.additions.proposal import Proposal, Wish, propose_dependency
from pml.cli.terminal.output import complain, say
from pml.cli.terminal.progress import InstallBar
from pml.cli.terminal.prompts import ask_for, is_interactive
from pml.core.errors import Conflict, Invalid
from pml.core.imports.import_plan import import_name
from pml.core.packages.bundle import NO_WORKSPACE, bundle_dependency
from pml.core.packages.capability import Status
from pml.core.packages.offer import (
    USUAL_REACH,
    Missing,
    dependency_of,
    entry_of,
    metadata_of,
    suggested_name,
)
from pml.core.packages.package import Ecosystem
from pml.core.ports.loader import Progress
from pml.core.text import quote, visible
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.cli.verbs.installs import Installs
    from pml.core.packages.server_json import ListedPackage, ListedServer
    from pml.install.mcpb.installer import Bundle
    from pml.registry.client.sources import CatalogAndRegistry


_T = TypeVar("_T")


async def listed_server(
    installs: "Installs", full: str, version: str | None, args: argparse.Namespace, answers: Mapping[str, str]
) -> Proposal | tuple[str, JsonObject]:
    """Return what would be installed, or the name and entry of a server that is reached by URL.

    Raises: NotFound, Conflict, Invalid, Unavailable.
    """
    from pml.app import open_bundles

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
    package = server.packages[0] if server.packages else None
    if package is not None and package.ecosystem is Ecosystem.MCPB:
        bundle = await open_bundles().read(package.identifier, expected=package.sha256)
        return await _bundle(installs, bundle, name, args, listed.registry, status=server.status)
    if package is not None:
        return await _package(installs, server, package, name, args, answers, listed.registry)
    if server.remotes:
        remote = server.remotes[0]
        entry, secrets = _answered(lambda given: entry_of(server, remote, answers=given), answers)
        for secret in secrets:
            say(f"    {visible(secret)} is a secret: pml secrets set {visible(secret)}")
        return name, entry
    raise Invalid(f"{quote(full)} offers nothing that PML can start or reach")


async def bundle_server(installs: "Installs", path: str, args: argparse.Namespace) -> Proposal:
    """Return what the file of an MCP bundle would install. Raises: Invalid, NotFound, Unavailable."""
    from pml.app import open_bundles

    whole = _whole(path)
    with InstallBar() as bar:
        bar(Progress(done=0, total=None, message=f"reading {path}"))
        bundle = await open_bundles().read(whole)
    return await _bundle(installs, bundle, str(args.name or import_name(bundle.manifest.name)), args, whole)


def _whole(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


async def _bundle(
    installs: "Installs",
    bundle: "Bundle",
    name: str,
    args: argparse.Namespace,
    source: str,
    *,
    status: Status | None = None,
) -> Proposal:
    wish = wish_of(args)
    _refuse_resolving(wish)
    installs.refuse_configured(name)
    manifest = bundle.manifest
    dependency = _answered(
        lambda given: bundle_dependency(
            manifest,
            origin=bundle.origin,
            integrity=bundle.integrity,
            size=bundle.size,
            name=name,
            permissions=wish.permissions or NO_WORKSPACE,
            answers=given,
            secrets=wish.env_required,
            status=status,
        ),
        answers_of(args),
    )
    proposal = await propose_dependency(installs, dependency, None, source=source)
    return dataclasses.replace(proposal, description=manifest.description or None)


def _refuse_resolving(wish: Wish) -> None:
    """Refuse what has no meaning for a server that says itself what it is made of. Raises: Invalid."""
    if wish.env or wish.before is not None:
        hint = "`--set KEY=VALUE` answers what it asks for"
        raise Invalid("`--env NAME=VALUE` and `--before` are for a package that a command names", hint=hint)


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
    _refuse_resolving(wish)
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
