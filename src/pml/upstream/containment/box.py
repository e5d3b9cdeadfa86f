"""The box that holds a server process to what it may reach, on this machine and for this server.

The strongest that works is used and nothing switches it off. What cannot be contained is said to be so; a
server whose box cannot be made does not start.
"""

import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import Invalid, ServerFailed
from pml.core.packages.permissions import Containment, Permissions
from pml.core.servers.process_launch import Artefact, ProcessLaunch
from pml.core.servers.run import ContainedBy
from pml.core.text import quote, visible
from pml.upstream.containment import bubblewrap
from pml.upstream.containment.reach import (
    SYSTEM,
    SYSTEM_FILES,
    Reach,
    is_narrow,
    reach_of,
    within,
    within_any,
)
from pml.upstream.transport.process import Launch, find_program

_MODULES: Final = "node_modules"


def strays_of(artefact: Artefact | None) -> tuple[str, ...]:
    """Return the `node_modules` above the server's files, by the path of these as given and the real one."""
    if artefact is None or not os.path.isdir(os.path.join(artefact.path, _MODULES)):
        return ()
    # A runtime looks for modules above the path as given, or above the real one: both are searched.
    tree = os.path.normpath(artefact.path)
    above = dict.fromkeys((*_above(tree), *_above(os.path.realpath(tree))))
    paths = (os.path.join(folder, _MODULES) for folder in above)
    return tuple(path for path in paths if os.path.isdir(path) or os.path.islink(path))


def refuse_strays(server: str, strays: tuple[str, ...]) -> None:
    """Raises: ServerFailed if there is one.

    Landlock is not enough: it hides no link, and one in there may lead to what is within reach.
    """
    if strays:
        raise ServerFailed(
            f"server `{server}` cannot be started: code in {quote(strays[0])} could be loaded unproven",
            hint="move that folder away",
        )


def strays_to_mask(server: str, strays: tuple[str, ...], reach: Reach, *, hidden: str) -> tuple[str, ...]:
    """Return those of `strays` that a box would show, and that can be masked. Raises: ServerFailed."""
    outside = [path for path in strays if not within(path, hidden)]
    given = (*reach.read, *reach.write, *(link for link, _ in reach.links))
    seen = [path for path in outside if within_any(path, (*reach.folders, *SYSTEM))]
    # A mask over a folder that holds what the server was given would hide that too, and a link cannot be
    # mounted over: neither can be masked, so the server does not start.
    refuse_strays(
        server,
        (
            *(path for path in outside if any(within(each, path) for each in given)),
            *(path for path in seen if os.path.islink(path)),
        ),
    )
    return tuple(path for path in seen if os.path.realpath(path) == path)


def _above(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


_ABI_WITH_TCP: Final = 4  # of Landlock; it knows nothing of UDP
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """The strongest that works here, and why nothing stronger does."""

    kind: Containment
    reason: str | None


@functools.cache
def probe() -> Probed:
    """Return what works on this machine; it is tried once."""
    if sys.platform != "linux":
        return Probed(kind=Containment.NONE, reason="containing servers needs Linux")
    program = bubblewrap.find_bwrap()
    reason = "bwrap is not installed"
    if program is not None:
        trouble = bubblewrap.why_not(program)
        if trouble is None:
            return Probed(kind=Containment.BUBBLEWRAP, reason=None)
        reason = f"bwrap does not work here: {trouble.removeprefix('bwrap: ')}"
    if _landlock_abi() > 0:
        return Probed(kind=Containment.LANDLOCK, reason=reason)
    return Probed(kind=Containment.NONE, reason=f"{reason}, and this system has no Landlock")


def available() -> Containment:
    """Return the strongest containment that works on this machine."""
    return probe().kind


def containment_of(
    kind: Containment, permissions: Permissions, *, home: Path, user_home: Path, workspace: str
) -> Containment:
    """Return what will hold a server with these permissions, once installed, where `kind` is to be had.

    Raises: Invalid if they name a folder that is relative.
    """
    reach = reach_of(permissions, None, home=str(home), user_home=str(user_home), workspace=workspace)
    return kind if _shown_by(kind, reach, home=home) is None else Containment.NONE


def held(
    kind: Containment, server: str, target: ProcessLaunch, *, home: Path, user_home: Path, workspace: str
) -> ContainedBy:
    """Return what will hold this server where `kind` is to be had. Raises: as `contain`."""
    if is_narrow(target):
        reach = _reach(server, target, home=home, user_home=user_home, workspace=workspace)
        around = _shown_by(kind, reach, home=home)
        if around is not None:
            why = f"Landlock cannot hide PML_HOME inside {quote(around)}"
            return ContainedBy(kind=Containment.NONE, words=f"not contained: {why}")
    if kind is Containment.NONE:
        reason = probe().reason if probe().kind is kind else None
        return ContainedBy(kind=kind, words=f"not contained: {reason}" if reason else "not contained")
    what = _narrow_words(target, kind) if is_narrow(target) else _WIDE_WORDS[kind]
    return ContainedBy(kind=kind, words=f"contained by {kind}{what}")


def contain(
    launch: Launch,
    target: ProcessLaunch,
    *,
    home: Path,
    user_home: Path,
    workspace: str,
    kind: Containment,
    shown: str | None = None,
) -> Launch:
    """Return what is really executed; `kind` is that of `held`. Raises: ServerFailed.

    `shown` is a folder in `home` that a program without declared permissions may read all the same.
    """
    strays = strays_of(target.artefact)
    if kind is not Containment.BUBBLEWRAP:
        refuse_strays(launch.server, strays)
    if kind is Containment.NONE:
        return launch
    # What is checked and shown must be the file that is run, not a name that PATH finds again in the box.
    launch = replace(launch, command=find_program(launch))
    if not is_narrow(target):
        _check_seen(launch, home=home)
        if kind is Containment.LANDLOCK:
            read = () if shown is None else _real((shown,))
            return _landlocked(launch, read=read, write=(), hidden=os.path.realpath(home), net=True)
        box = bubblewrap.wide(home=str(home), workspace=workspace, shown=shown)
        return _boxed(launch, box)
    reach = _reach(launch.server, target, home=home, user_home=user_home, workspace=workspace)
    launch = replace(launch, cwd=_cwd(launch, target, reach))
    _check_reached(launch, target, reach)
    net = bool((target.permissions or Permissions()).net)
    if kind is Containment.LANDLOCK:
        read = (*SYSTEM, *SYSTEM_FILES, "/proc", *reach.read, *reach.own_read)
        write = (*_DEVICES, *reach.write, *reach.own_write)
        launch = replace(launch, environment={**launch.environment, **_own_tmp(reach)})
        return _landlocked(launch, read=_real(read), write=write, hidden=None, net=net)
    launch = replace(launch, environment={**launch.environment, "TMPDIR": "/tmp"})
    masked = strays_to_mask(launch.server, strays, reach, hidden=os.path.realpath(home))
    box = bubblewrap.narrow(reach, home=str(home), workspace=workspace, masked=masked, has_net=net)
    return _boxed(launch, box)


_WIDE_WORDS: Final = {
    Containment.BUBBLEWRAP: ": PML's own files hidden",
    Containment.LANDLOCK: ": PML's own files unreadable",
}


def _narrow_words(target: ProcessLaunch, kind: Containment) -> str:
    permissions = target.permissions or Permissions()
    runtime = os.path.basename(target.command) if target.artefact is not None else None
    if permissions.net is True:
        net = "any"
    elif permissions.net:  # a box is open or closed: only a runtime that knows hosts can hold it to them
        hosts = visible(", ".join(permissions.net))
        net = f"{hosts} (held by Deno only)" if runtime == "deno" else f"open (declared for {hosts})"
    elif kind is Containment.BUBBLEWRAP or _landlock_filters():
        net = "none"
    else:
        net = "no TCP" if _landlock_abi() >= _ABI_WITH_TCP else "not limited"
    more = ", run by node: not held by Deno" if runtime == "node" else ""
    return f" (network: {net}, workspace: {permissions.workspace}{more})"


def _reach(server: str, target: ProcessLaunch, *, home: Path, user_home: Path, workspace: str) -> Reach:
    permissions = target.permissions or Permissions()
    try:
        return reach_of(
            permissions, target.artefact, home=str(home), user_home=str(user_home), workspace=workspace
        )
    except Invalid as exc:
        raise ServerFailed(
            f"server `{server}` cannot be started: {exc.message}",
            hint="name folders by an absolute path, or one that begins with `~/`",
        ) from exc


def _landlock_abi() -> int:
    from pml.upstream.containment.landlock import (
        abi,  # late: most machines have bwrap, and ctypes is slow to import
    )

    return abi()


def _landlock_filters() -> bool:
    from pml.upstream.containment.landlock import can_filter

    return can_filter()


def _shown_by(kind: Containment, reach: Reach, *, home: Path) -> str | None:
    """Return the folder within reach that has PML_HOME in it, if `kind` cannot hide that."""
    if kind is not Containment.LANDLOCK:
        return None
    # Landlock only grants: what lies beneath a granted folder cannot be taken out of it.
    hidden = os.path.realpath(home)
    folders = (*reach.folders, *SYSTEM)
    return next((folder for folder in folders if within(hidden, os.path.realpath(folder))), None)


def _boxed(launch: Launch, box: bubblewrap.Box) -> Launch:
    program = bubblewrap.find_bwrap()
    if program is None:
        raise ServerFailed(
            f"server `{launch.server}` cannot be started: bwrap is gone", hint="install it again"
        )
    args = ("--chdir", launch.cwd, "--", launch.command, *launch.args)
    return replace(launch, command=program, box=box, args=args, cwd="/", is_boxed=True)


def _landlocked(
    launch: Launch, *, read: tuple[str, ...], write: tuple[str, ...], hidden: str | None, net: bool
) -> Launch:
    from pml.upstream.containment import landlock

    rules = landlock.Rules(read=list(read), write=list(write), hidden=hidden, net=net)
    # Isolated: no PYTHON variable and no site folder may bring in code before the rules are in force.
    launcher = ("-I", "-S", landlock.__file__, msgspec.json.encode(rules).decode(), "--")
    return replace(launch, command=sys.executable, args=(*launcher, launch.command, *launch.args))


def _real(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def _own_tmp(reach: Reach) -> dict[str, str]:
    """Return where temporary files go: beneath the server's own state, or nowhere; `/tmp` is everybody's."""
    if not reach.own_write:
        return {}
    folder = os.path.join(reach.own_write[0], "tmp")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise ServerFailed(f"{visible(folder)}: {exc.strerror}") from exc
    return {"TMPDIR": folder}


def _cwd(launch: Launch, target: ProcessLaunch, reach: Reach) -> str:
    if target.cwd is not None or reach.has(launch.cwd):
        return launch.cwd
    return reach.own_write[0] if reach.own_write else "/"


def _check_seen(launch: Launch, *, home: Path) -> None:
    hidden = os.path.realpath(home)
    for path in (launch.cwd, launch.command):
        if within(os.path.realpath(path), hidden):
            raise ServerFailed(
                f"server `{launch.server}` cannot be started: {quote(path)} is in PML_HOME",
                hint="no server sees what is there: move it elsewhere",
            )


def _check_reached(launch: Launch, target: ProcessLaunch, reach: Reach) -> None:
    for path in filter(None, (target.cwd, launch.command)):
        if not reach.has(path):
            raise ServerFailed(
                f"server `{launch.server}` cannot be started: its permissions do not reach {quote(path)}",
                hint="add its folder to `permissions.read`",
            )
