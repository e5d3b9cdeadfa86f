"""What the tests and a person in another terminal do to a workspace: look at it, trust it, decide."""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.commands import Ran, run_process
from tests.e2e.installed import Server, gateway

QUESTION_S: Final = 90.0  # only ever reached when nothing is asked at all

# What `memory:create_entities`, the tool that asks, is called with; `Workspace.remembered` tells if it ran.
ENTITY: Final = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
ASKED: Final[Mapping[str, object]] = {"entities": [ENTITY]}


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A directory, the home PML keeps its store in, and the file of the memory server.

    `network` are the variables by which its gateway reaches package registries.
    """

    path: Path
    home: Path
    notes: Path
    network: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def gateway(self) -> Server:
        return gateway(self.path, settings=self.network)

    @property
    def servers(self) -> list[str]:
        """The names of the servers that were installed, and whatever else an install left."""
        place = self.home / ".pml" / "servers"
        if not place.exists():
            return []
        left = (place / ".staging").iterdir() if (place / ".staging").exists() else ()
        return sorted({path.name for path in (*place.iterdir(), *left)} - {".staging"})

    @property
    def settings(self) -> Any:
        return json.loads((self.path / ".pml.json").read_text())

    @property
    def remembered(self) -> list[str]:
        """The names that the memory server has stored: one for each time the asked tool ran."""
        if not self.notes.exists():
            return []
        return [json.loads(line)["name"] for line in self.notes.read_text().splitlines()]

    def pml(self, *argv: str) -> Ran:
        """Run `pml` in a process of its own, as in another terminal."""
        return run_process(*argv, "--workspace", str(self.path))

    def configure(self, settings: Mapping[str, object]) -> None:
        """Write the user's own file, which may hold what a workspace's may not."""
        place = self.home / ".pml"
        place.mkdir(mode=0o700, exist_ok=True)
        (place / "config.json").write_text(json.dumps(settings))

    def permit(self, **permissions: object) -> None:
        """Give the workspace's file other rules, which a person trusts."""
        file = self.path / ".pml.json"
        file.write_text(json.dumps({**self.settings, "permissions": permissions}, indent=2) + "\n")
        self.trust()

    def trust(self) -> None:
        ran = self.pml("trust", "--yes")
        assert ran.code == 0, ran.err

    def pending(self) -> list[dict[str, Any]]:
        return self.pml("approvals", "list", "--json").json["approvals"]

    def wait_for_question(self) -> None:
        end = time.monotonic() + QUESTION_S
        while not self.pending():
            assert time.monotonic() < end, "nothing was asked"

    def allow(self) -> None:
        """Allow the one thing that is asked."""
        [approval] = self.pending()
        ran = self.pml("approvals", "allow", approval["id"])
        assert ran.code == 0, ran.err

    def deny(self, message: str) -> None:
        """Deny the one thing that is asked, with these words."""
        [approval] = self.pending()
        ran = self.pml("approvals", "deny", approval["id"], "--message", message)
        assert ran.code == 0, ran.err


def take_time(workspace: Workspace, installed: Path) -> None:
    """Have the server `time` installed there too, as it is in the home `installed`."""
    home = workspace.home / ".pml"
    home.mkdir(mode=0o700)
    shutil.copytree(installed / "servers", home / "servers", symlinks=True)
    recorded = (installed / "deps.json").read_text()
    (home / "deps.json").write_text(recorded.replace(str(installed), str(home)))
