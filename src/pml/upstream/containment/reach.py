"""Reach of a server with declared permissions in the file system, as real paths that exist.

`PML_HOME` is never among it but for an installed server's own files, whatever is declared and wherever links
lead. How anything else is kept away from the server is not known here.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pml.core.packages.permissions import Access, Permissions
from pml.core.servers.process_launch import Artefact, ProcessLaunch
from pml.host.folders import expand_folder

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

_MOST_STEPS: Final = (
    4096  # no path has more parts; one whose links lead in a circle ends here, and leads nowhere
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


def is_narrow(target: ProcessLaunch) -> bool:
    """Tell whether the server is held to declared permissions, not only kept from PML's own files."""
    return target.artefact is not None or target.permissions is not None


def reach_of(
    permissions: Permissions, artefact: Artefact | None, *, home: str, user_home: str, workspace: str
) -> Reach:
    """Return the reach of a server, also before it is installed; `user_home` is what `~` stands for.

    Raises: Invalid for a declared folder that is relative.
    """
    is_given = {permissions.workspace: (workspace,)}
    write = (*_expanded(permissions.write, user_home), *is_given.get(Access.WRITE, ()))
    read = (*_expanded(permissions.read, user_home), *is_given.get(Access.READ, ()))
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


def _expanded(folders: Iterable[str], user_home: str) -> tuple[str, ...]:
    return tuple(expand_folder(folder, home=user_home) for folder in folders)


def _sound(
    declared: Iterable[str], *, workspace: str, home: str, writable: tuple[str, ...]
) -> tuple[str, ...]:
    """Return what of `declared` adds something, and leads neither into `home` nor out of the workspace.

    What lies beneath a writable folder is reached with it, and could be a link that the server itself made.
    """
    hidden, real_workspace = os.path.realpath(home), os.path.realpath(workspace)
    folders = tuple(map(os.path.normpath, writable))
    kept: list[str] = []
    for path in map(os.path.normpath, declared):
        real, others = os.path.realpath(path), tuple(folder for folder in folders if folder != path)
        where_servers_write = (real_workspace, *_real(others))
        is_led = any(within_any(link, where_servers_write) for link in _links_on_the_way(path))
        leaves = is_led and not within(real, real_workspace)
        if not within_any(path, others) and not leaves and not within(real, hidden) and os.path.exists(real):
            kept.append(path)
    return tuple(kept)


def _links_on_the_way(path: str) -> Iterator[str]:
    """Yield where each link lies that is followed to reach `path`, by its real place."""
    here, parts = "/", path.strip("/").split("/")
    for _ in range(_MOST_STEPS):
        if not parts:
            return
        step = os.path.normpath(os.path.join(here, parts.pop(0)))
        try:
            target = os.readlink(step)
        except OSError:  # it is not a link
            here = step
            continue
        yield step
        here = "/" if target.startswith("/") else here
        parts[:0] = filter(None, target.split("/"))


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def _links(paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    named = ((os.path.normpath(path), os.path.realpath(path)) for path in paths)
    return tuple(dict.fromkeys((given, real) for given, real in named if given != real))
