"""Preflight of a server: what must hold before its process is spawned, and what is executed then.

An installed server is contained as was approved, has the values it requires, and its files are proven: that
last, so that little can change after. So are programs in the workspace that make up a configured one. Where
one of these fails nothing is spawned, and that is no crash.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pml.core.config.merged import unset_text
from pml.core.errors import Changed, EnvMissing, ServerFailed
from pml.core.packages.permissions import Containment
from pml.core.ports.loader import Variables
from pml.core.ports.servers import Client
from pml.core.ports.store import Manifests
from pml.core.servers.run import ContainedBy
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.agent_marks import SET
from pml.host.folders import absolute_only
from pml.upstream.board import Board
from pml.upstream.containment.box import contain, held
from pml.upstream.limits import Limits
from pml.upstream.transport.process import Launch

_PASSED: Final = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR"}
)
_PASSED_ON_WINDOWS: Final = frozenset(
    {
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROGRAMDATA"),
        *("PROGRAMFILES", "PROGRAMFILES(X86)", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP"),
        *("TMP", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)
# An installed server knows its place: nothing of the user's home or search path leads it elsewhere.
_PASSED_TO_INSTALLED: Final = frozenset({"LANG", "LANGUAGE", "TZ"})
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def environment_of(
    spec: ServerSpec, environ: Mapping[str, str], *, values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return all that the server's process finds in its environment; `values` are those it requires."""
    passed = {name: value for name, value in environ.items() if _is_passed(name)}
    if spec.artefact is not None:
        if sys.platform != "win32":
            kept = {name: passed[name] for name in passed if _is_passed_to_installed(name)}
            passed = {**kept, "PATH": _SYSTEM_PATH, "HOME": spec.artefact.state}
        required = set(spec.artefact.env_required)
        declared = {name: value for name, value in (values or {}).items() if name in required}
        return {**passed, **declared, **spec.env, **SET}
    if "PATH" in passed:
        passed["PATH"] = absolute_only(passed["PATH"])
    return {**passed, **spec.env, **SET}


def _is_passed(name: str) -> bool:
    if sys.platform == "win32":
        return name.upper() in _PASSED_ON_WINDOWS
    return name in _PASSED or name.startswith("LC_")


def _is_passed_to_installed(name: str) -> bool:
    return name in _PASSED_TO_INSTALLED or name.startswith("LC_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What every server of a gateway is given."""

    workspace: str
    client: Client
    manifests: Manifests
    idle_s: Callable[[], float]
    home: Path
    user_home: Path
    board: Board
    environ: Mapping[str, str]
    limits: Limits
    prove: Callable[[ServerSpec], Awaitable[None]]
    variables: Variables
    env_workspace: Callable[[], str | None]
    containment: Callable[[], Containment]


def what_holds(spec: ServerSpec, around: Surroundings) -> ContainedBy:
    """Return what will hold the server. Raises: ServerFailed if its permissions cannot be held to."""
    return held(
        around.containment(),
        spec,
        home=around.home,
        user_home=around.user_home,
        workspace=around.workspace,
    )


async def prepare(spec: ServerSpec, around: Surroundings, now: ContainedBy) -> Mapping[str, str]:
    """Return the values that the server requires; `now` is what will hold it.

    Raises: Changed if that is less than was approved; EnvMissing; ArtefactChanged; ServerFailed.
    """
    artefact = spec.artefact
    if spec.unset:
        hint = "set it where PML is started, or give a default: `${NAME:-default}`"
        raise ServerFailed(unset_text(spec), hint=hint)
    if artefact is None:
        await around.prove(spec)
        return {}
    if now.kind.is_weaker_than(artefact.containment):
        raise Changed(
            f"server `{spec.name}` was approved to run contained by {artefact.containment}, "
            f"and would be {now.words}",
            hint="`pml doctor` says why; or approve it as it would run now",
        )
    names = artefact.env_required
    workspace = around.env_workspace()
    # in a thread: a keyring may wait for its user
    values = await asyncio.to_thread(around.variables.values, names, workspace=workspace)
    missing = tuple(name for name in names if name not in values)
    if missing:
        raise EnvMissing(spec.name, missing)
    await around.prove(spec)
    return values


def launch_of(spec: ServerSpec, around: Surroundings, values: Mapping[str, str], kind: Containment) -> Launch:
    """Return what is executed. Raises: ServerFailed if it cannot be contained so."""
    launch = Launch(
        server=spec.name,
        command=spec.command,
        args=spec.args,
        cwd=spec.cwd or around.workspace,
        environment=environment_of(spec, around.environ, values=values),
    )
    return contain(
        launch,
        spec,
        home=around.home,
        user_home=around.user_home,
        workspace=around.workspace,
        kind=kind,
    )
