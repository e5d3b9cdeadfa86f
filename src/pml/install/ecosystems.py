"""The part of an install that each ecosystem does: closures, filling a folder, and how its servers start.

Where folders lie, who may install, and what is done with a failure is not known here.
"""

import re
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec

from pml.core.packages.capability import McpDependency, Package
from pml.core.packages.lock import Lock
from pml.core.ports.loader import Told

BINARY: Final = "binary"  # a runtime of none: the file is a program

_PLACE: Final = re.compile(r"\$\{(workspace|state|tree)\}")


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is started; `needs` are the files and folders outside its tree that its runtime is."""

    command: str
    args: tuple[str, ...]
    needs: tuple[str, ...]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The file that is started, relative to the tree, and its runtime: `deno`, `python3.11`, `binary` …"""

    path: str
    runtime: str


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server runs: its proven tree, its own state, the workspace."""

    tree: str
    state: str
    workspace: str

    def fill(self, text: str) -> str:
        """Return `text` with its places filled, in one pass: a folder's name is never read as a place."""
        places = {"workspace": self.workspace, "state": self.state, "tree": self.tree}
        return _PLACE.sub(lambda found: places[found[1]], text)


class EcosystemInstaller(Protocol):
    async def resolve(self, package: Package, scratch: Path, *, told: Told) -> Lock:
        """Return the closure as the package registry has it now; nothing of it is downloaded.

        `scratch` is an empty private folder, removed afterwards. Raises: NotFound, Invalid, Unavailable.
        """
        ...

    async def install(self, lock: Lock, package: Package, scratch: Path, tree: Path, *, told: Told) -> Entry:
        """Fill the empty folder `tree` with exactly what `lock` names; return what `package` starts of it.

        Downloads go into a cache within `scratch`. No script of a package is run.
        Raises: IntegrityFailed, Invalid, Unavailable; `tree` is then worthless.
        """
        ...

    async def fetch(self, lock: Lock, scratch: Path) -> bytes:
        """Return the artefact of the package itself, to be hashed otherwise than its registry does."""
        ...

    def server_names(self, lock: Lock, tree: Path) -> tuple[str, ...]:
        """Return which servers of the official registry the package in `tree` says that it is."""
        ...

    async def youngest_at(self, lock: Lock, scratch: Path) -> datetime | None:
        """Return when the last package of `lock` was published; None where the registry does not tell of all.

        Raises: NotFound, Invalid, Unavailable.
        """
        ...

    def command(self, entry: Entry, dependency: McpDependency, room: Room) -> Command:
        """Return how the installed server is started, held to its permissions as far as its runtime can.

        Reads no file of the tree: it is not proven yet. Raises: Invalid, Unavailable.
        """
        ...

    def is_outdated(self, entry: Entry) -> bool:
        """Tell whether only a new install brings it to the runtime that is here now."""
        ...
