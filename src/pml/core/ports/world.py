"""Ports of the world around the use cases: clock, ids, processes, and the two configuration files."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from pml.core.approvals.record import OwnerId
from pml.core.config.file import ConfigFile, FileKind
from pml.core.errors import ConfigInvalid
from pml.core.rules.path_lookups import Tree
from pml.core.rules.ruleset import Effect
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.process import Process
from pml.core.values import Json


class Clock(Protocol):
    def now(self) -> datetime:
        """Return this instant, aware, in UTC."""
        ...


class Ids(Protocol):
    def new(self) -> str:
        """Return a fresh UUID."""
        ...


class Owners(Protocol):
    """Which processes on this store are alive, told by lock files that end with their process."""

    @property
    def me(self) -> OwnerId: ...

    def alive(self, owner: OwnerId) -> bool: ...

    def alive_others(self) -> Sequence[str]:
        """Return the names of all others that are alive."""
        ...


class Processes(Protocol):
    def running(self, process: Process) -> bool: ...

    def ancestors(self) -> list[Process]:
        """Return this process and all above it, nearest first."""
        ...

    def client(self) -> Process:
        """Return the process that had this one started: the nearest above it that is no mere launcher."""
        ...

    def feeds(self, process: Process) -> bool:
        """Tell whether `process` holds the other end of this one's standard input, or could."""
        ...

    def leader(self) -> Process:
        """Return the process that the terminal or job lasts as long as: its shell, as a rule."""
        ...

    def is_detached(self) -> bool:
        """Tell whether this process has no terminal and nobody above it but the system itself."""
        ...


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration file as it is now: absent (no digest), sound (a config) or broken (an error).

    `text` is what the digest is of, None where it is not a text.
    """

    path: str
    digest: str | None = None
    text: str | None = None
    config: ConfigFile | None = None
    error: ConfigInvalid | None = None


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    user: FileState
    workspace: FileState


class ConfigFiles(Protocol):
    """The user's file and one workspace's."""

    @property
    def paths(self) -> Tree: ...

    def programs(self, spec: ServerSpec) -> Mapping[str, str]:
        """Return the hash of each program of the server in the workspace, and what else is pinned."""
        ...

    def read(self) -> Loaded:
        """Return both files; the same object as before while neither has changed."""
        ...

    def parse_workspace(self, text: str, *, name: str) -> ConfigFile:
        """Return what another content of the workspace's file says. Raises: ConfigInvalid, with `name`."""
        ...

    def create(
        self, which: FileKind, *, before_replace: Callable[[str | None, str, str], None] | None = None
    ) -> bool:
        """Create the file with the defaults; False when there is one. Raises: as `add_rule`."""
        ...

    def set_user_value(self, pointer: Sequence[str], value: Json) -> None:
        """Set one value of the user's file, everything else as it was. May wait for another writer.

        Raises: ConfigInvalid, Changed, Unavailable; then nothing is written.
        """
        ...

    def add_rule(
        self,
        which: FileKind,
        effect: Effect,
        entry: Json,
        *,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> bool:
        """Append `entry` to its list; False when it stands there already. May wait for another writer.

        `before_replace` gets the digests of the old content (None: no file) and of the new, and the new.
        Raises: ConfigInvalid for a broken file, which stays as it is; Unavailable.
        """
        ...

    def remove_rule(
        self,
        which: FileKind,
        effect: Effect,
        entry: Json,
        *,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> int:
        """Remove the entries equal to `entry`, or with that id, and return how many there were."""
        ...

    def switch_rule(
        self,
        which: FileKind,
        effect: Effect,
        entry: Json,
        *,
        enabled: bool,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> int:
        """Disable or enable the entries that are `entry`, but for that, or have that id; return how many."""
        ...

    def add_servers(
        self,
        which: FileKind,
        entries: Mapping[str, Json],
        *,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> None:
        """Add entries to `mcpServers`. Raises: Conflict if a name has another entry; as `add_rule`."""
        ...

    def remove_servers(
        self,
        which: FileKind,
        entries: Mapping[str, Json],
        *,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> tuple[str, ...]:
        """Remove those of `mcpServers` that are exactly so, and return their names."""
        ...

    def servers(self, which: FileKind) -> Mapping[str, Json]:
        """Return `mcpServers` as it is written, usable or not. Raises: ConfigInvalid, Unavailable."""
        ...


class Configs(Protocol):
    def of(self, workspace: str) -> ConfigFiles: ...
