"""`PML_HOME/deps.json`: what is installed, and what was last consented to under each name.

A file that cannot be understood is located and never written over; keys of others are kept; a path outside
`PML_HOME/servers` is refused. Whether the files it names are there, or are right, is not known here.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias

import msgspec

from pml.core.config.jsontext import parse
from pml.core.config.section import Section
from pml.core.errors import Changed, ConfigInvalid
from pml.core.packages.capability import McpDependency, Package
from pml.core.packages.permissions import Containment, Permissions
from pml.core.ports.loader import Accepted, Installed
from pml.core.text import quote
from pml.core.values import Json
from pml.host.locks import locked
from pml.host.private import private_directory
from pml.host.replace import replace_file
from pml.install.disk_failures import unavailable
from pml.install.folder_names import RULE, check_new, is_name

FILE: Final = "deps.json"
SERVERS: Final = "servers"

_VERSION: Final = 1
_MAX_BYTES: Final = 16 * 1024 * 1024
_RACY_NS: Final = (
    2_000_000_000  # a file that changed this lately may change again within one tick of its clock
)

Change: TypeAlias = Callable[[dict[str, Json], dict[str, Json]], None]
"""Changes the entries and what was accepted, both by name."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The file as it was read; `accepted` is there also for what is no longer installed."""

    installed: Mapping[str, Installed]
    accepted: Mapping[str, Accepted]


class _Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """The dependency as approved; of its lock the digest is enough."""

    name: str
    install: str
    package: Package
    integrity: str | None = None
    env_required: tuple[str, ...] = ()
    env: dict[str, str] = {}
    lock: str | None = None
    args: tuple[str, ...] = ()
    permissions: Permissions = Permissions()


class _Seen(NamedTuple):
    signature: tuple[int, ...]
    ledger: Ledger


class Deps:
    """The one file of a `PML_HOME`; reading it costs one `stat` while it does not change."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.path = home / FILE
        self.servers = home / SERVERS
        self._seen: _Seen | None = None

    def read(self) -> Ledger:
        """Return what the file says. Raises: ConfigInvalid where it is wrong; Unavailable."""
        try:
            status = os.stat(self.path)
            signature = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
            if self._seen is not None and self._seen.signature == signature:
                return self._seen.ledger
            content = self._content()
        except FileNotFoundError:
            return Ledger(installed={}, accepted={})
        except OSError as exc:
            raise unavailable(f"read `{FILE}`", exc, at=str(self.path)) from exc
        ledger = self._understood(content)[1]
        is_settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _RACY_NS
        self._seen = _Seen(signature, ledger) if is_settled else None
        return ledger

    def record(self, installed: Installed, *, last_check: Callable[[], None] = lambda: None) -> None:
        """Make `installed` the version in use of its name, unless `last_check` raises.

        Raises: as `read`; Invalid for a name that is another's on some system.
        """
        name, entry = installed.dependency.name, _entry(installed)
        consented: dict[str, Json] = {"lock": installed.lock, "terms": installed.terms}

        def change(entries: dict[str, Json], accepted: dict[str, Json]) -> None:
            check_new(name, entries)
            entries[name] = {**_object(entries.get(name)), **entry}
            accepted[name] = {**_object(accepted.get(name)), **consented}

        self._edit(change, last_check)

    def forget(self, name: str) -> None:
        """Remove `name`; what was consented to under it is remembered. Raises: as `read`."""

        def change(entries: dict[str, Json], accepted: dict[str, Json]) -> None:
            entries.pop(name, None)

        self._edit(change, lambda: None)

    def _edit(self, change: Change, last_check: Callable[[], None]) -> None:
        try:
            private_directory(self._home)
            with locked(self._home / "locks" / "deps.lock"):
                old = self._content() if os.path.lexists(self.path) else None
                top = {"version": _VERSION} if old is None else dict(self._understood(old)[0])
                entries, accepted = _object(top.get("installed")), _object(top.get("accepted"))
                change(entries, accepted)
                top |= {"installed": entries, "accepted": accepted}
                self._replace(old, json.dumps(top, indent=2, ensure_ascii=False).encode() + b"\n", last_check)
        except OSError as exc:
            raise unavailable(f"write `{FILE}`", exc, at=str(self.path)) from exc

    def _replace(self, old: bytes | None, new: bytes, last_check: Callable[[], None]) -> None:
        self._understood(new)

        def check() -> None:
            if (self._content() if os.path.lexists(self.path) else None) != old:
                raise Changed(f"another program changed `{self.path}` meanwhile", hint="try again")
            last_check()

        replace_file(self.path, new, mode=0o600, last_check=check)

    def _content(self) -> bytes:
        """Return the bytes of the file. Raises: ConfigInvalid, OSError."""
        with open(self.path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigInvalid(str(self.path), 1, 1, "the file is not a regular file")
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ConfigInvalid(
                str(self.path), 1, 1, f"the file is larger than {_MAX_BYTES // 1024 // 1024} MiB"
            )
        return content

    def _understood(self, content: bytes) -> tuple[dict[str, Json], Ledger]:
        """Return the whole object, and what it says. Raises: ConfigInvalid."""
        path = str(self.path)
        try:
            node = parse(content.decode(), path=path)
        except UnicodeDecodeError as exc:
            line = content.count(b"\n", 0, exc.start) + 1
            raise ConfigInvalid(path, line, 1, f"byte 0x{content[exc.start]:02x} is not UTF-8") from exc
        if not isinstance(node.value, dict):
            raise ConfigInvalid(path, node.line, node.column, "the file must be an object")
        return _object(node.value), _ledger(Section(path=path, node=node, notices=[]), self.servers)


def is_within(entry: str) -> bool:
    """Tell whether the relative path `entry` names something beneath the folder it begins in."""
    return bool(entry) and not os.path.isabs(entry) and os.path.normpath(entry) == entry and entry[:2] != ".."


def _ledger(top: Section, servers: Path) -> Ledger:
    version = top.get("version")
    if version is None or isinstance(version.value, bool) or not isinstance(version.value, int):
        top.refuse("version", version or top.node, f"must be {_VERSION}")
    if version.value != _VERSION:
        top.refuse(
            "version", version, f"is {version.value}, and this PML knows {_VERSION}", hint="use a newer PML"
        )
    entries = top.section("installed") or top.empty("installed")
    accepted = top.section("accepted") or top.empty("accepted")
    return Ledger(
        installed={
            name: _installed(name, entries.within(name, node), servers)
            for name, node in entries.node.members.items()
        },
        accepted={
            name: _accepted(accepted.within(name, node)) for name, node in accepted.node.members.items()
        },
    )


def _accepted(entry: Section) -> Accepted:
    return Accepted(lock=_text(entry, "lock"), terms=_text(entry, "terms"))


def _installed(name: str, entry: Section, servers: Path) -> Installed:
    if not is_name(name):
        entry.refuse("", entry.node, RULE)
    return Installed(
        dependency=_dependency(name, entry),
        lock=_text(entry, "lock"),
        terms=_text(entry, "terms"),
        tree=_text(entry, "tree"),
        path=_path(name, entry, servers),
        entry=_within(entry),
        runtime=_text(entry, "runtime"),
        containment=entry.choice("containment", Containment) or _lacks(entry, "containment"),
        installed_at=_instant(entry),
        accepted=entry.boolean("accepted") or False,
    )


def _dependency(name: str, entry: Section) -> McpDependency:
    section = entry.section("dependency") or _lacks(entry, "dependency")
    try:
        dependency = McpDependency(**msgspec.structs.asdict(msgspec.convert(section.node.value, _Dependency)))
    except msgspec.ValidationError as exc:
        section.refuse("", section.node, f"is not understood: {exc}")
    if dependency.name != name:
        section.refuse("name", section.node, f"must be {quote(name)}, not {quote(dependency.name)}")
    if dependency.version != _text(entry, "version"):
        section.refuse("version", section.node, "is another than the version beside it")
    return dependency


def _path(name: str, entry: Section, servers: Path) -> str:
    path = _text(entry, "path")
    if os.path.normpath(path) != path or Path(path).parent != servers / name:
        entry.refuse(
            "path",
            entry.node.members["path"],
            f"must be a folder in `{servers / name}`, not {quote(path)}",
            hint=f"if `PML_HOME` was moved, remove `{name}` from the file and install it again",
        )
    return path


def _within(entry: Section) -> str:
    path = _text(entry, "entry")
    if not is_within(path):
        entry.refuse("entry", entry.node.members["entry"], f"must lie beneath `path`, not at {quote(path)}")
    return path


def _instant(entry: Section) -> datetime:
    text = _text(entry, "installedAt")
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        entry.refuse("installedAt", entry.node.members["installedAt"], f"must be a time, not {quote(text)}")
    return instant


def _text(entry: Section, key: str) -> str:
    return entry.text(key) or _lacks(entry, key)


def _lacks(entry: Section, key: str) -> NoReturn:
    entry.refuse("", entry.node, f"has no `{key}`")


def _entry(installed: Installed) -> dict[str, Json]:
    dependency: Json = msgspec.to_builtins(installed.dependency)
    return {
        "version": installed.dependency.version,
        "integrity": installed.dependency.integrity,
        "installedAt": installed.installed_at.isoformat(),
        "installCommand": installed.dependency.install,
        "lock": installed.lock,
        "tree": installed.tree,
        "path": installed.path,
        "terms": installed.terms,
        "entry": installed.entry,
        "runtime": installed.runtime,
        "containment": installed.containment.value,
        "accepted": installed.accepted,
        "dependency": dependency,
    }


def _object(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, Mapping) else {}


def _open_without_waiting(path: str, flags: int) -> int:
    """Open so that a FIFO in the place of the file cannot hang us before we see that it is one."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
