"""Where concrete parts meet: reader of the environment, and maker of every `Context`.

Parts are imported where they are put together: `pml stdio` answers a handshake before it needs any of them.
"""

import contextlib
import functools
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pml.core.errors import Invalid, Unavailable
from pml.core.values import check

if TYPE_CHECKING:
    from pml.agents.claude_code.claude_run import ClaudeCode
    from pml.core.approvals.record import Decider, OwnerId
    from pml.core.code.sandbox import Sandbox
    from pml.core.ports.servers import Client, ServerHost
    from pml.core.ports.world import Clock, ConfigFiles
    from pml.core.servers.remote_target import RemoteTarget
    from pml.core.servers.spec import ServerSpec
    from pml.install.installer import DiskInstaller
    from pml.install.mcpb.installer import McpbInstaller
    from pml.oauth.credentials import OAuthCredentials
    from pml.oauth.open_logins import OpenLogins
    from pml.registry.client.sources import CatalogAndRegistry
    from pml.service.call import Loader
    from pml.service.context import Context
    from pml.service.sandboxes import Sandboxes
    from pml.service.sessions.persons import Surroundings
    from pml.settings.server_logins import DiskServerLogins
    from pml.settings.variables import DiskVariables
    from pml.upstream.cloud.client import CloudClient
    from pml.upstream.fleet import Fleet


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where PML runs: its home, the workspace, and the user's own home."""

    home: Path
    workspace: Path
    user_home: Path


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class RandomIds:
    def new(self) -> str:
        return str(uuid.uuid4())


class DiskConfigs:
    """The configuration files of every workspace that comes up, each read once until it changes."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._files: dict[str, ConfigFiles] = {}

    def of(self, workspace: str) -> "ConfigFiles":
        if workspace not in self._files:
            from pml.settings.config_files import WorkspaceFiles

            self._files[workspace] = WorkspaceFiles(
                pml_home=self._place.home,
                workspace=Path(workspace),
                user_home=self._place.user_home,
                environ=os.environ,
            )
        return self._files[workspace]


class LateCredentials:
    """The tokens for remote servers: what logs in is imported once a server is called. Is `Credentials`."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def authorization(self, server: str, target: "RemoteTarget") -> str | None:
        return await open_credentials(self._place).authorization(server, target)

    async def challenged(
        self, server: str, target: "RemoteTarget", *, status: int, challenge: str | None, sent: str | None
    ) -> str | None:
        opened = open_credentials(self._place)
        return await opened.challenged(server, target, status=status, challenge=challenge, sent=sent)


def find_place(workspace: str | None = None) -> Place:
    """Return where PML runs, from `--workspace` or the working directory. Raises: Invalid, Unavailable."""
    user_home = Path.home()
    given = os.environ.get("PML_HOME")
    if given is not None and not os.path.isabs(given):
        raise Invalid(f"PML_HOME must be an absolute path, not `{given}`")
    try:
        directory = Path(workspace) if workspace is not None else Path.cwd()
        real = directory.resolve(strict=True)
    except (OSError, RuntimeError) as exc:  # RuntimeError: links that lead in a circle, before Python 3.13
        reason = exc.strerror if isinstance(exc, OSError) else "links that lead in a circle"
        raise Unavailable(f"workspace `{workspace or '.'}`: {reason}", hint="give a directory") from exc
    if not real.is_dir():
        raise Invalid(f"workspace `{workspace}` is not a directory")
    check([str(real), given], what="the path of the workspace or of PML_HOME")
    return Place(home=Path(given) if given else user_home / ".pml", workspace=real, user_home=user_home)


def is_debugging() -> bool:
    """Tell whether `PML_LOG=debug` asks for everything on stderr."""
    return os.environ.get("PML_LOG") == "debug"


def surroundings(token_file: str | None) -> "Surroundings":
    """Return what the environment tells of whoever started this process."""
    from pml.agents.known import KNOWN
    from pml.core.sessions.agent_marks import find_mark
    from pml.service.sessions.persons import Surroundings

    return Surroundings(mark=find_mark(os.environ, KNOWN.marks), token_file=token_file)


@contextlib.asynccontextmanager
async def open_context(place: Place) -> AsyncGenerator["Context"]:
    """Yield a context on the store of `place`; its locks and files are released at the end."""
    from pml.agents.known import KNOWN
    from pml.core.approvals.record import OwnerId
    from pml.host.processes import SystemProcesses
    from pml.service.context import Context
    from pml.store.owners import OwnerLocks
    from pml.store.sqlite.store import SqliteStore

    me = OwnerId(str(uuid.uuid4()))
    try:
        owners = OwnerLocks(place.home, me)
    except OSError as exc:
        from pml.host.disk import unavailable

        hint = "make PML_HOME a directory that this user can write"
        raise unavailable(str(place.home), exc, hint=hint) from exc
    with owners:
        store = await SqliteStore.open(place.home, me)
        try:
            yield Context(
                store=store,
                clock=SystemClock(),
                ids=RandomIds(),
                owners=owners,
                processes=SystemProcesses(),
                configs=DiskConfigs(place),
                clients=KNOWN,
                home=str(place.home),
            )
        finally:
            await store.close()


async def register_process(
    context: "Context", place: Place, stack: contextlib.AsyncExitStack, *, name: str
) -> None:
    """Register this process as an agent's: what its servers start beneath it decides nothing."""
    from pml.core.approvals.record import SessionId
    from pml.service.session_tree import start_session
    from pml.service.upkeep import end_session

    session = await start_session(
        context,
        session_id=SessionId(context.ids.new()),
        name=name,
        principal=name,
        workspace=str(place.workspace),
        process=context.processes.ancestors()[0],
        is_agent=True,
    )
    stack.push_async_callback(end_session, context, session)


def open_fleet(
    context: "Context", place: Place, client: "Client", *, owner: "OwnerId | None" = None
) -> "Fleet":
    """Return the servers of the workspace; whoever opens them closes them.

    `owner` tells them from those of other fleets in the same process.
    """
    from pml.service.policy.workspace_programs import prove_programs
    from pml.upstream.fleet import Fleet

    workspace = str(place.workspace)

    async def prove(spec: "ServerSpec") -> None:
        if spec.artefact is None:
            await prove_programs(context, workspace, spec)
        else:
            await open_installer(place).prove(spec)

    return Fleet(
        workspace=workspace,
        client=client,
        manifests=context.store.manifests,
        idle_s=lambda: float(context.policies[workspace].settings.idle_s),
        home=place.home,
        owner=owner or context.owners.me,
        environ=os.environ,
        prove=prove,
        variables=open_variables(place),
        env_workspace=lambda: workspace if context.policies[workspace].trusted else None,
        credentials=LateCredentials(place),
    )


def open_agents(place: Place, *, hub_url: Callable[[], str]) -> "ClaudeCode":
    """Return what launches Claude Code, contained, on a hub."""
    import shutil

    from pml.agents.claude_code.claude_run import ClaudeCode, Parts
    from pml.agents.claude_code.configs import config_root
    from pml.host.folders import absolute_only
    from pml.upstream.containment.agents import AgentBox

    parts = Parts(
        hub_url=hub_url,
        environ=os.environ,
        configs=config_root(place.home),
        find_claude=lambda: shutil.which("claude", path=absolute_only(os.environ.get("PATH", os.defpath))),
        starter=AgentBox(home=place.home, user_home=place.user_home),
    )
    return ClaudeCode(parts)


def open_loader(context: "Context", place: Place, fleet: "Fleet", *, warn: Callable[[str], None]) -> "Loader":
    """Return what finds, installs and proves the servers that no file configures."""
    from pml.service.call import Loader

    return Loader(
        sources=open_sources(place, context.clock, warn=warn),
        installer=open_installer(place),
        variables=open_variables(place),
        containment=fleet.containment_of,
    )


def open_workshop(place: Place) -> "Sandboxes":
    """Return where code runs; whoever opens it closes it. Nothing is started before there is code to run."""
    from pml.core.code.sandbox import Language
    from pml.service.sandboxes import Sandboxes

    return Sandboxes(
        sandboxes={
            Language.TYPESCRIPT: lambda: _open_deno(place),
            Language.PYTHON: lambda: _open_monty(place),
        }
    )


def _open_deno(place: Place) -> "Sandbox":
    from pml.install.package_managers import find_deno
    from pml.sandbox.deno.sandbox import DenoSandbox
    from pml.upstream.containment.bubblewrap import find_bwrap

    return DenoSandbox(deno=find_deno, bwrap=find_bwrap, cache=place.home / "cache" / "code")


def _open_monty(place: Place) -> "Sandbox":
    from pml.sandbox.monty.sandbox import MontySandbox

    return MontySandbox(place.home)


def open_cloud_client() -> "CloudClient":
    """Return what calls tools in the cloud; whoever opens it closes it."""
    from pml.upstream.cloud.client import CloudClient

    return CloudClient()


def open_sources(place: Place, clock: "Clock", *, warn: Callable[[str], None]) -> "CatalogAndRegistry":
    """Return where servers that no file configures are looked up."""
    from pml.registry.client.sources import CatalogAndRegistry

    def debug(line: str) -> None:
        if is_debugging():
            print(f"pml: {line}", file=sys.stderr)

    return CatalogAndRegistry(place.home, clock=clock, warn=warn, debug=debug)


@functools.cache
def open_installer(place: Place) -> "DiskInstaller":
    """Return what installs servers in the home of `place`, and proves them."""
    from pml.core.packages.lock import Ecosystem
    from pml.install.ecosystems import EcosystemInstaller
    from pml.install.installer import DiskInstaller
    from pml.install.mcpb.installer import McpbInstaller
    from pml.install.npm.installer import NpmInstaller
    from pml.install.pypi.installer import PypiInstaller

    ecosystems: dict[Ecosystem, EcosystemInstaller] = {
        Ecosystem.NPM: NpmInstaller(os.environ),
        Ecosystem.PYPI: PypiInstaller(os.environ),
        Ecosystem.MCPB: McpbInstaller(os.environ),
    }
    return DiskInstaller(place.home, ecosystems, SystemClock())


def open_bundles() -> "McpbInstaller":
    """Return what reads MCP bundles before a person is asked about them."""
    from pml.install.mcpb.installer import McpbInstaller

    return McpbInstaller(os.environ)


def open_server_host(place: Place) -> "ServerHost":
    """Return this machine as the host of the servers of every PML process."""
    from pml.upstream.local_host import LocalHost

    return LocalHost(
        place.home,
        user_home=place.user_home,
        installer=open_installer(place),
        logins=open_server_logins(place),
    )


@functools.cache
def open_variables(place: Place, *, but: frozenset[str] = frozenset()) -> "DiskVariables":
    """Return where the values of variables come from; of those in `but`, not from the environment."""
    from pml.settings.variables import DiskVariables

    environ = {name: value for name, value in os.environ.items() if name not in but} if but else os.environ
    return DiskVariables(place.home, environ)


@functools.cache
def open_server_logins(place: Place) -> "DiskServerLogins":
    """Return the logins to remote servers that the home of `place` has."""
    from pml.settings.keyrings import SystemKeyring
    from pml.settings.server_logins import DiskServerLogins

    return DiskServerLogins(place.home, SystemKeyring(place.home, os.environ))


@functools.cache
def open_credentials(place: Place) -> "OAuthCredentials":
    """Return the tokens for requests to remote servers, refreshed as they end."""
    from pml.oauth.credentials import OAuthCredentials

    return OAuthCredentials(open_server_logins(place), place.home, now=SystemClock().now)


def open_logins(place: Place) -> "OpenLogins":
    """Return what logs in to remote servers; whoever opens it closes it."""
    from pml.oauth.open_logins import OpenLogins

    return OpenLogins(open_server_logins(place), now=SystemClock().now)


def principal(place: Place) -> str:
    """Return who asks over stdio or from a script: the user of the system, in this workspace."""
    return f"{user_name()}@{place.workspace}"


def person() -> "Decider":
    """Return the person at this terminal."""
    from pml.core.approvals.record import Channel, Decider, DeciderKind

    return Decider(kind=DeciderKind.PERSON, id=user_name(), channel=Channel.TERMINAL)


def user_name() -> str:
    import getpass

    try:
        name = getpass.getuser()
        name.encode()
        return name
    except (KeyError, OSError, UnicodeEncodeError):  # a user number without a usable name, as in containers
        return f"uid-{os.getuid()}" if sys.platform != "win32" else "user"
