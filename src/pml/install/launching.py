"""How an installed server is started: its command, its own folder, and the variables it always gets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pml.core.errors import Unavailable
from pml.core.loading import Installed
from pml.core.locks import Ecosystem
from pml.core.rules import Source
from pml.core.servers import Artefact, ServerSpec
from pml.host.private import private_directory
from pml.install.ecosystems import EcosystemInstaller, Room

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
        """Return how `installed` is started in `workspace`; its own folder exists. Raises: Unavailable."""
        name = installed.dependency.name
        state = self._states / name
        try:
            private_directory(state)
        except OSError as exc:
            raise Unavailable(f"cannot create `{state}`: {exc.strerror}") from exc
        found = self._specs.get((name, workspace))
        if found is None or found[0] != installed:
            room = Room(tree=installed.path, state=str(state), workspace=workspace)
            found = self._specs[name, workspace] = (installed, self._new(installed, room))
        return found[1]

    def _new(self, installed: Installed, room: Room) -> ServerSpec:
        dependency = installed.dependency
        ecosystem = dependency.package.ecosystem
        command = self._ecosystems[ecosystem].command(
            installed.entry, dependency, room, dependency.permissions
        )
        env = {**dependency.env, **_RUNTIME[ecosystem], "HOME": "${state}"}
        return ServerSpec(
            name=dependency.name,
            command=command.command,
            args=command.args,
            env={name: room.fill(value) for name, value in env.items()},
            permissions=dependency.permissions,
            source=self._source,
            artefact=Artefact(
                version=dependency.version,
                terms=installed.terms,
                path=installed.path,
                tree=installed.tree,
                state=room.state,
                needs=command.needs,
                env_required=dependency.env_required,
                containment=installed.containment,
                is_accepted=installed.accepted,
            ),
        )
