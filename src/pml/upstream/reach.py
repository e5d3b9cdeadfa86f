"""What a server with declared permissions reaches of the file system, as real paths that exist.

`PML_HOME` is never among it but for an installed server's own files, whatever is declared and wherever links
lead. How anything else is kept away from the server is not known here.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pml.core.permissions import Access, Permissions
from pml.core.servers import ServerSpec

CONFIG: Final = ".pml.json"

# What programs need of the system to run, to name hosts and to check certificates. No user's file is in it.
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SYSTEM_FILES: Final = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/mime.types", "/etc/gitconfig"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ca-certificates"),
    *("/etc/pki/tls", "/etc/pki/ca-trust", "/etc/crypto-policies"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """What is `own` belongs to an installed server; `links` lead from a given path to the real one."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    own_read: tuple[str, ...] = ()
    own_write: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        return (*self.read, *self.write, *self.own_read, *self.own_write)

    def has(self, path: str) -> bool:
        """Tell whether the server finds `path`, as written and where it leads."""
        seen = (*self.folders, *(given for given, _ in self.links), *SYSTEM)
        return all(within_any(each, seen) for each in (os.path.normpath(path), os.path.realpath(path)))


def is_narrow(spec: ServerSpec) -> bool:
    """Tell whether the server is held to declared permissions, not only kept from PML's own files."""
    return spec.artefact is not None or spec.permissions is not None


def reach_of(spec: ServerSpec, *, home: str, workspace: str) -> Reach:
    permissions = spec.permissions or Permissions()
    is_given = {permissions.workspace: (workspace,)}
    write = (*permissions.write, *is_given.get(Access.WRITE, ()))
    read = (*permissions.read, *is_given.get(Access.READ, ()))
    artefact = spec.artefact
    own_read = () if artefact is None else (artefact.path, *artefact.needs)
    own_write = () if artefact is None else (artefact.state,)
    kept_write = _sound(write, workspace=workspace, home=home, writable=write)
    kept_read = _sound(read, workspace=workspace, home=home, writable=write)
    return Reach(
        read=_real(kept_read),
        write=_real(kept_write),
        own_read=_real(own_read),
        own_write=_real(own_write),
        links=_links((*own_read, *own_write, *kept_read, *kept_write)),
    )


def within(path: str, folder: str) -> bool:
    """Tell whether `path` is `folder` or lies beneath it; both are absolute and normal."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def within_any(path: str, folders: Iterable[str]) -> bool:
    return any(within(path, folder) for folder in folders)


def _sound(declared: Iterable[str], *, workspace: str, home: str, writable: Iterable[str]) -> list[str]:
    """Return what of `declared` adds something, and leads neither into `home` nor out of the workspace.

    What lies beneath a writable folder is reached with it, and could be a link that the server itself made.
    """
    hidden, real_workspace = os.path.realpath(home), os.path.realpath(workspace)
    kept: list[str] = []
    for path in map(os.path.normpath, declared):
        real = os.path.realpath(path)
        is_added = not any(within(path, other) for other in map(os.path.normpath, writable) if other != path)
        leaves = within(path, workspace) and not within(real, real_workspace)
        if is_added and not leaves and not within(real, hidden) and os.path.exists(real):
            kept.append(path)
    return kept


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def _links(paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    named = ((os.path.normpath(path), os.path.realpath(path)) for path in paths)
    return tuple(dict.fromkeys((given, real) for given, real in named if given != real))
