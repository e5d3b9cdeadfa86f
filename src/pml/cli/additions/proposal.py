"""Proposals: a package that a line names, pinned and locked, with the reach that it would have.

Where the catalog has the package in the version that was asked for, its lock and its reach are taken; else
the closure is looked up as the package registry has it now. Nothing is downloaded.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pml.cli.terminal.progress import InstallBar
from pml.core.errors import Conflict
from pml.core.packages.added import added_dependency
from pml.core.packages.capability import CapabilityMetadata, McpDependency
from pml.core.packages.install_line import Request
from pml.core.packages.offer import USUAL_REACH
from pml.core.packages.permissions import Access, Permissions, expected_in
from pml.core.ports.loader import CATALOG, Found, Plan
from pml.core.text import quote
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.cli.verbs.installs import Installs


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a person says of a server beside its line; `permissions` None: the catalog's, or the usual."""

    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    env_required: Sequence[str] = ()
    permissions: Permissions | None = None
    before: date | None = None


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A server that could be installed: exactly the plan that a person is asked about."""

    plan: Plan
    source: str
    description: str | None = None
    tools: Sequence[JsonObject] = ()

    @property
    def dependency(self) -> McpDependency:
        return self.plan.dependency


async def propose(installs: "Installs", name: str, request: Request, wish: Wish) -> Proposal:
    """Return what would be installed under `name` for `request`.

    Raises: Conflict for a name that means another package; NotFound, Invalid, IntegrityFailed, Unavailable.
    """
    found = _in_catalog(request, wish)
    check_name(installs, name, request)
    if found is None:
        dependency, source = await _looked_up(installs, name, request, wish), _SOURCES[request.ecosystem]
    else:
        dependency, source = _of_catalog(installs.place, name, found, request, wish), CATALOG
    return await propose_dependency(
        installs, dependency, None if found is None else found.metadata, source=source
    )


async def propose_dependency(
    installs: "Installs", dependency: McpDependency, metadata: CapabilityMetadata | None, *, source: str
) -> Proposal:
    """Return the plan of a server that is known; `metadata` tells more of it. Raises: as `propose`."""
    return Proposal(
        plan=await installs.plan(dependency),
        source=source,
        description=None if metadata is None else metadata.description,
        tools=() if metadata is None else metadata.tools,
    )


_SOURCES = {"npm": "the npm registry", "pypi": "the Python package index"}


def check_name(installs: "Installs", name: str, request: Request) -> None:
    """Refuse a name that means another package already. Raises: Conflict."""
    from pml.registry.catalog import Catalog

    installs.refuse_configured(name)
    found = Catalog().find(name)
    bundled = None if found is None else found.metadata.dependency(name)
    installed = installs.loader.installer.installed(name)
    for other, where in (
        (bundled, "the catalog has"),
        (None if installed is None else installed.dependency, "PML has installed"),
    ):
        if other is not None and (other.package.ecosystem, other.package.name) != _package(request):
            raise Conflict(
                f"{where} another server {quote(name)}: {other.package.spec}",
                hint="give it a name of its own with `--name`",
            )


def _package(request: Request) -> tuple[str, str]:
    return request.ecosystem, request.name


def _in_catalog(request: Request, wish: Wish) -> Found | None:
    """Return the catalog's entry of the package, where it is the version that was asked for."""
    from pml.registry.catalog import Catalog

    if wish.before is not None:
        return None
    for each in Catalog().bundled():
        for dependency in each.metadata.mcp_deps:
            package = dependency.package
            is_it = (package.ecosystem, package.name, package.tool) == (*_package(request), request.tool)
            if is_it and request.wanted in (None, package.version):
                return Catalog().find(dependency.name)
    return None


def _of_catalog(place: "Place", name: str, found: Found, request: Request, wish: Wish) -> McpDependency:
    [known] = found.metadata.mcp_deps
    args = request.args or known.args
    env = {**known.env, **wish.env}
    permissions = wish.permissions or _with_named(place, known.permissions, request.args, wish.env)
    required = dict.fromkeys((*known.env_required, *wish.env_required))
    return replace(
        known,
        name=name,
        args=args,
        env=env,
        env_required=tuple(each for each in required if each not in env),
        permissions=permissions,
        says_workspace=True,
    )


async def _looked_up(installs: "Installs", name: str, request: Request, wish: Wish) -> McpDependency:
    from pml.app import open_installer

    with InstallBar() as bar:
        lock = await open_installer(installs.place).look_up(
            request.ecosystem, request.name, request.wanted, before=wish.before, told=bar
        )
    return added_dependency(
        name,
        request,
        lock,
        permissions=wish.permissions or _with_named(installs.place, USUAL_REACH, request.args, wish.env),
        env=wish.env,
        env_required=wish.env_required,
    )


def _with_named(
    place: "Place", permissions: Permissions, args: Sequence[str], env: Mapping[str, str]
) -> Permissions:
    """Return the reach with the folders that the line names: a server of files is of no use without them."""
    texts = [part for text in (*args, *env.values()) for part in (text, text.partition("=")[2])]
    named = dict.fromkeys(folder for text in texts if (folder := _folder(place, text)) is not None)
    return replace(
        permissions, write=(*permissions.write, *(it for it in named if it not in permissions.write))
    )


def _folder(place: "Place", text: str) -> str | None:
    """Return the folder that an argument names, or the one of the file that it names."""
    if not text.startswith(("/", "~/")):
        return None
    path = os.path.realpath(os.path.expanduser(text))
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    is_too_much = place.home.is_relative_to(folder) or place.user_home.is_relative_to(folder)
    if is_too_much or not os.path.isdir(folder) or expected_in("write", folder) is not None:
        return None
    return folder


def reach(
    *,
    net: Sequence[str],
    workspace: str | None,
    read: Sequence[str],
    write: Sequence[str],
    run: Sequence[str],
) -> Permissions | None:
    """Return the reach that options say; None where they say nothing. Raises: Invalid."""
    from pml.core.errors import Invalid

    if not (net or workspace or read or write or run):
        return None
    for key, texts in (("net", [it for it in net if it not in ("all", "none")]), ("run", run)):
        for text in texts:
            if expected := expected_in(key, text):
                raise Invalid(f"`--{key} {text}` must be {expected}")
    folders = {key: tuple(map(_absolute, texts)) for key, texts in (("read", read), ("write", write))}
    for key, texts in folders.items():
        for text in texts:
            if expected := expected_in(key, text):
                raise Invalid(f"`--{key} {text}` must be {expected}")
    hosts = tuple(it for it in net if it not in ("all", "none"))
    return Permissions(
        net=hosts if hosts and "all" not in net else "none" not in net,
        workspace=Access(workspace or "none"),
        read=folders["read"],
        write=folders["write"],
        run=tuple(run),
    )


def _absolute(folder: str) -> str:
    return os.path.realpath(os.path.expanduser(folder))
