"""How an installed server is started: its command, its own folder, and the variables it always gets.

No file of the server is read: a start is put together before its files are proven.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pml.core.loading import Installed
from pml.core.locks import Ecosystem
from pml.core.manifests import launch_digest
from pml.core.rules import Source
from pml.core.servers import Artefact, ServerSpec
from pml.host.private import private_directory
from pml.install.disk_failures import unavailable
from pml.install.ecosystems import EcosystemInstaller, Entry, Room

# Neither Deno nor Python may take code from, or leave code in, places that nobody proves.
_RUNTIME: Final[Mapping[Ecosystem, Mapping[str, str]]] = {
    Ecosystem.NPM: {"DENO_DIR": "${state}/deno", "DENO_NO_UPDATE_CHECK": "1"},
    Ecosystem.PYPI: {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"},
}


class Launches:
    """The specs of installed servers; for the same server and workspace always the same object."""

    def __init__(
        self, home: Path, ecosystems: Mapping[Ecosystem, EcosystemInstaller], *, recorded_in: Path
    ) -> None:
        self._states = home / "state"
        self._ecosystems = ecosystems
        self._source = Source(file=str(recorded_in), line=1)
        self._specs: dict[tuple[str, str], tuple[Installed, ServerSpec]] = {}

    def spec(self, installed: Installed, workspace: str) -> ServerSpec:
        """Return how `installed` is started in `workspace`; its own folder exists.

        Raises: Unavailable without its runtime; Invalid if it cannot be held to this workspace.
        """
        name = installed.dependency.name
        state = self._states / name
        try:
            private_directory(state)
        except OSError as exc:
            raise unavailable(f"start `{name}`", exc, at=str(state)) from exc
        found = self._specs.get((name, workspace))
        if found is None or found[0] != installed:
            room = Room(tree=installed.path, state=str(state), workspace=workspace)
            found = self._specs[name, workspace] = (installed, self._new(installed, room))
        return found[1]

    def digest(self, installed: Installed) -> str:
        """Return the digest of how `installed` is started, also where it cannot be."""
        spec = ServerSpec(
            name=installed.dependency.name,
            command=installed.entry,
            source=self._source,
            artefact=self._artefact(installed, needs=()),
        )
        return launch_digest(spec)

    def _new(self, installed: Installed, room: Room) -> ServerSpec:
        dependency = installed.dependency
        ecosystem = dependency.package.ecosystem
        entry = Entry(path=installed.entry, runtime=installed.runtime)
        command = self._ecosystems[ecosystem].command(entry, dependency, room)
        env = {**dependency.env, **_RUNTIME[ecosystem], "HOME": "${state}"}
        return ServerSpec(
            name=dependency.name,
            command=command.command,
            args=command.args,
            env={name: room.fill(value) for name, value in env.items()},
            permissions=dependency.permissions,
            source=self._source,
            artefact=self._artefact(installed, needs=command.needs),
        )

    def _artefact(self, installed: Installed, *, needs: tuple[str, ...]) -> Artefact:
        dependency = installed.dependency
        return Artefact(
            version=dependency.version,
            terms=installed.terms,
            path=installed.path,
            tree=installed.tree,
            state=str(self._states / dependency.name),
            needs=needs,
            env_required=dependency.env_required,
            containment=installed.containment,
            is_accepted=installed.accepted,
        )
