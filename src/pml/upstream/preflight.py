"""Preflight of a server: what must hold before it is opened; of a process, also what is executed then.

An installed server is contained as was approved, has the values it requires, and its files are proven: that
last, so that little can change after. So are programs in the workspace that make up a configured one. Where
one of these fails nothing is spawned, and that is not a crash.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pml.core.config.merged import unset_text
from pml.core.errors import Changed, EnvMissing, Invalid, ServerFailed
from pml.core.packages.permissions import Containment, Permissions
from pml.core.ports.credentials import Credentials
from pml.core.ports.loader import Variables
from pml.core.ports.servers import Client
from pml.core.ports.store import Manifests
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.remote_target import RemoteTarget
from pml.core.servers.run import ContainedBy
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.agent_marks import SET
from pml.host.folders import absolute_only
from pml.upstream.board import RunBoard
from pml.upstream.containment import box
from pml.upstream.containment.box import contain, held
from pml.upstream.limits import Limits
from pml.upstream.transport.port import Prepared, ServerListener, Transport
from pml.upstream.transport.process import Launch, ServerProcess

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
    target: ProcessLaunch, environ: Mapping[str, str], *, values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return all that the server's process finds in its environment; `values` are those it requires."""
    passed = {name: value for name, value in environ.items() if _is_passed(name)}
    if target.artefact is not None:
        if sys.platform != "win32":
            kept = {name: passed[name] for name in passed if _is_passed_to_installed(name)}
            passed = {**kept, "PATH": _SYSTEM_PATH, "HOME": target.artefact.state}
        required = set(target.artefact.env_required)
        declared = {name: value for name, value in (values or {}).items() if name in required}
        return {**passed, **declared, **target.env, **SET}
    if "PATH" in passed:
        passed["PATH"] = absolute_only(passed["PATH"])
    return {**passed, **target.env, **SET}


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
    board: RunBoard
    environ: Mapping[str, str]
    limits: Limits
    prove: Callable[[ServerSpec], Awaitable[None]]
    variables: Variables
    env_workspace: Callable[[], str | None]
    containment: Containment | None  # None: whatever this machine has
    credentials: Credentials | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedProcess:
    """A process that may be spawned now: see `Prepared`."""

    server: str
    target: ProcessLaunch
    around: Surroundings
    containment: ContainedBy
    values: Mapping[str, str]

    def open(self, listener: ServerListener) -> ServerProcess:
        """Spawn it. Raises: ServerFailed, also if it cannot be contained as it should."""
        return ServerProcess(self._launch(), listener, self.around.limits)

    def _launch(self) -> Launch:
        target, around = self.target, self.around
        launch = Launch(
            server=self.server,
            command=target.command,
            args=target.args,
            cwd=target.cwd or around.workspace,
            environment=environment_of(target, around.environ, values=self.values),
        )
        return contain(
            launch,
            target,
            home=around.home,
            user_home=around.user_home,
            workspace=around.workspace,
            kind=self.containment.kind,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRemote:
    """An address that may be reached now: see `Prepared`."""

    server: str
    target: RemoteTarget
    around: Surroundings
    values: Mapping[str, str]

    @property
    def containment(self) -> ContainedBy | None:
        """Nothing here holds it."""
        return None

    def open(self, listener: ServerListener) -> Transport:
        """Open the way; the HTTP library is imported when it is needed."""
        from pml.upstream.remote.requests import RemoteRequests
        from pml.upstream.remote.streamable_http import RemoteServer

        limits = self.around.limits
        requests = RemoteRequests(self.server, self.target, self.around.credentials, limits)
        return RemoteServer(requests, listener, limits)


async def prepare(spec: ServerSpec, around: Surroundings) -> Prepared:
    """Return the server, fit to be opened.

    Raises: Changed if less would hold it than was approved; EnvMissing; ArtefactChanged; ServerFailed.
    """
    target = spec.target
    if target.unset:
        hint = "set it where PML is started, or give a default: `${NAME:-default}`"
        raise ServerFailed(unset_text(spec), hint=hint)
    stored = await _stored_values(spec, around)
    try:
        target = target.filled(stored)
    except Invalid as exc:
        raise ServerFailed(f"server `{spec.name}` cannot be reached: {exc.message}") from exc
    if isinstance(target, RemoteTarget):
        await around.prove(spec)
        return PreparedRemote(server=spec.name, target=target, around=around, values=stored)
    return await _prepare_process(spec, target, around, stored)


async def _stored_values(spec: ServerSpec, around: Surroundings) -> Mapping[str, str]:
    """Return the secrets that the server's entry names. Raises: EnvMissing."""
    names = spec.target.later
    if not names:
        return {}
    # in a thread: a keyring may wait for its user; no workspace's `.env`, which an agent may have written
    values = await asyncio.to_thread(around.variables.values, names, workspace=None)
    if missing := tuple(name for name in names if name not in values):
        raise EnvMissing(spec.name, missing)
    return values


async def _prepare_process(
    spec: ServerSpec, target: ProcessLaunch, around: Surroundings, stored: Mapping[str, str]
) -> PreparedProcess:
    artefact = target.artefact
    now = held(
        _kind(around),
        spec.name,
        target,
        home=around.home,
        user_home=around.user_home,
        workspace=around.workspace,
    )
    values = stored
    if artefact is not None:
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
        if missing := tuple(name for name in names if name not in values):
            raise EnvMissing(spec.name, missing)
    await around.prove(spec)
    return PreparedProcess(server=spec.name, target=target, around=around, containment=now, values=values)


def containment_of(permissions: Permissions, around: Surroundings) -> Containment:
    """Return what will hold an installed server with these permissions. Raises: as the box's."""
    return box.containment_of(
        _kind(around),
        permissions,
        home=around.home,
        user_home=around.user_home,
        workspace=around.workspace,
    )


def _kind(around: Surroundings) -> Containment:
    return box.available() if around.containment is None else around.containment
