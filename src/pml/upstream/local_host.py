"""This machine as the host of servers: what runs on it, what would contain a server, and their logs."""

from collections.abc import Sequence
from pathlib import Path

from pml.core.ports.loader import Installer
from pml.core.ports.server_logins import ServerLogin, ServerLogins
from pml.core.servers.remote_target import RemoteTarget
from pml.core.servers.run import ContainedBy, ServerRun
from pml.core.servers.spec import ServerSpec
from pml.upstream.board import end_orphans, list_servers
from pml.upstream.containment.box import available, held
from pml.upstream.log import log_path
from pml.upstream.log_file import LogFile


class LocalHost:
    """The servers of all PML processes that share this home."""

    def __init__(self, home: Path, *, user_home: Path, installer: Installer, logins: ServerLogins) -> None:
        self._home = home
        self._user_home = user_home
        self._installer = installer
        self._logins = logins

    @property
    def installer(self) -> Installer:
        return self._installer

    def runs(self, workspace: str) -> Sequence[ServerRun]:
        end_orphans(self._home)  # listing forgets what they left, and then nobody would end it
        return [run for run in list_servers(self._home) if run.workspace == workspace]

    def containment(self, spec: ServerSpec, *, workspace: str) -> ContainedBy | None:
        """Raises: as `held`."""
        if isinstance(spec.target, RemoteTarget):
            return None
        return held(
            available(),
            spec.name,
            spec.target,
            home=self._home,
            user_home=self._user_home,
            workspace=workspace,
        )

    def login(self, spec: ServerSpec) -> ServerLogin | None:
        """Raises: Invalid, Unavailable."""
        target = spec.target
        return self._logins.facts(spec.name, target.url) if isinstance(target, RemoteTarget) else None

    def log(self, server: str, target_digest: str) -> LogFile:
        return LogFile(log_path(self._home, server, target_digest))
