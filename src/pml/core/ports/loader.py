"""The ports of the loader: where capabilities are found, and what installs and proves their servers."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from pml.core.names import ToolName
from pml.core.packages.capability import CapabilityMetadata, McpDependency
from pml.core.packages.lock import Lock
from pml.core.packages.permissions import Containment
from pml.core.servers.spec import ServerSpec


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata and where it is from: `catalog`, or the registry's URL or folder."""

    metadata: CapabilityMetadata
    source: str


class Sources(Protocol):
    """Where capabilities are looked up: the bundled catalog, then the registries in their order."""

    async def find(self, tool: ToolName, *, registries: Sequence[str], prefix: str | None) -> Found | None:
        """Return what offers `tool`; a second look at the same makes no request.

        Raises: Invalid for metadata that is not sound; Unavailable if the registry cannot be asked.
        """
        ...

    async def code(self, found: Found) -> bytes:
        """Return the code of a capability, as its metadata or its first use has it.

        Raises: IntegrityFailed, Changed for other code; NotFound; Unavailable.
        """
        ...

    def bundled(self) -> Sequence[Found]:
        """Return the catalog, by name."""
        ...

    def known(self, registries: Sequence[str]) -> Sequence[Found]:
        """Return what is known of the registries without a request: a folder's entries, a URL's used ones."""
        ...


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an install is: `done` of `total` steps (None: nobody knows), and what it does now."""

    done: int
    total: int | None
    message: str


Told = Callable[[Progress], None]


class Age(msgspec.Struct, frozen=True, kw_only=True):
    """How old a closure must be, and when its youngest package was published; None: nobody tells.

    `is_enough` as of the hour in which it was looked at.
    """

    min_days: int
    youngest_at: datetime | None
    is_enough: bool


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly what was approved, or allowed by a rule, to be installed. `age` None: any age will do."""

    dependency: McpDependency
    lock: Lock
    containment: Containment
    age: Age | None = None

    @property
    def terms(self) -> str:
        return self.dependency.terms(self.lock.digest)


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A server in its place on disk. `tree` is the hash of all its files, as installed or as accepted since.

    `accepted`: a person accepted files that are not those of the lock. `entry` is the file that is started,
    and `runtime` what runs it: that is settled when it is installed, and reads no file of it later.
    """

    dependency: McpDependency
    lock: str
    terms: str
    tree: str
    path: str
    entry: str
    runtime: str
    containment: Containment
    installed_at: datetime
    accepted: bool = False


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody, or a rule at the very first, consented to install: a lock, and all the terms."""

    lock: str
    terms: str


class Installer(Protocol):
    """Installs servers beneath `PML_HOME` and proves what is there. Raises everywhere: Unavailable."""

    def installed(self, name: str) -> Installed | None:
        """Return the version in use. Raises: Invalid if `deps.json` cannot be understood."""
        ...

    def all_installed(self) -> Mapping[str, Installed]:
        """Return the versions in use, by name. Raises: as `installed`."""
        ...

    def accepted(self, name: str) -> Accepted | None:
        """Return what was last consented to under this name, also after its removal."""
        ...

    async def resolve(self, dependency: McpDependency, *, told: Told) -> Lock:
        """Return the lock: the given one, or the closure as the package registry has it now.

        A closure that was looked up lately is not looked up again.
        Raises: IntegrityFailed if it is not what the metadata says; Invalid for an entry without a hash.
        """
        ...

    async def youngest_at(self, lock: Lock) -> datetime | None:
        """Return when the youngest package of `lock` was published, as the package registry says.

        None where it does not tell that of every one; what the lock says of itself is not asked.
        """
        ...

    async def install(self, plan: Plan, *, told: Told) -> Installed:
        """Install it, once however many ask, and make it the version in use.

        Raises: IntegrityFailed, and nothing of it stays; Changed if the lock is not the plan's.
        """
        ...

    def launch(self, installed: Installed, *, workspace: str) -> ServerSpec:
        """Return how the server is started in `workspace`."""
        ...

    async def prove(self, spec: ServerSpec) -> None:
        """Return if the files of an installed server are those that were installed or accepted.

        Raises: ArtefactChanged with the files that are not.
        """
        ...

    async def accept(self, name: str, *, tree: str) -> Installed:
        """Take the files as they are now for those of the server. Raises: Changed if they hash otherwise."""
        ...


class Variables(Protocol):
    """The values of environment variables that servers declare: read anew each time, shown to nobody."""

    def values(self, names: Sequence[str], *, workspace: str | None) -> Mapping[str, str]:
        """Return those of `names` that are set; with `workspace`, its `.env` counts: it must be trusted."""
        ...
