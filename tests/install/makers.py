"""Dependencies, locks and an ecosystem without a network: it writes small trees, and counts how often."""

import asyncio
import os
import stat
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from pml.core.errors import Invalid
from pml.core.packages.capability import McpDependency, Package
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.lock import Ecosystem, Lock, Locked
from pml.core.packages.permissions import NO_REACH, Containment, Permissions
from pml.core.ports.loader import Installed, Plan, Progress, Told
from pml.install.ecosystems import Command, Entry, Room
from pml.install.installer import DiskInstaller
from tests.fakes import FakeClock

ARTEFACT = b"the package, packed"
FILES = {"index.js": b"console.log(1)", "node_modules/left/index.js": b"module.exports = 1", "bin/run": b"#!"}
ENTRY = "index.js"
RUNTIME = "runtime1"


def ignore(progress: Progress) -> None:
    """Be told how far an install is, and do nothing about it."""


def make_lock(*, artefact: bytes = ARTEFACT, version: str = "1.2.3", other: bytes = b"left") -> Lock:
    def locked(name: str, version: str, data: bytes) -> Locked:
        integrity = (str(integrity_of(data, Algorithm.SHA512)),)
        return Locked(key=f"{name}@{version}", name=name, version=version, integrity=integrity)

    return Lock(
        ecosystem=Ecosystem.NPM,
        name="server-memory",
        version=version,
        root=f"server-memory@{version}",
        packages=(locked("left", "1.0.0", other), locked("server-memory", version, artefact)),
    )


def make_dependency(
    *,
    name: str = "memory",
    version: str = "1.2.3",
    integrity: str | None = None,
    lock: Lock | str | None = None,
    env: Mapping[str, str] | None = None,
    args: tuple[str, ...] = (),
    permissions: Permissions | None = None,
    tool: str | None = None,
) -> McpDependency:
    return McpDependency(
        name=name,
        install=f"npx server-memory@{version}",
        package=Package(ecosystem=Ecosystem.NPM, name="server-memory", version=version, tool=tool),
        integrity=integrity,
        env_required=("MEMORY_KEY",),
        env=env or {},
        lock=lock,
        args=args,
        permissions=permissions or NO_REACH,
    )


def make_plan(
    dependency: McpDependency | None = None,
    lock: Lock | None = None,
    containment: Containment = Containment.BUBBLEWRAP,
) -> Plan:
    return Plan(dependency=dependency or make_dependency(), lock=lock or make_lock(), containment=containment)


class FakeEcosystem:
    """Fills folders with `files`; `log`, if given, gets one byte for each install, from any process."""

    def __init__(self, *, log: Path | None = None) -> None:
        self.lock = make_lock()
        self.files: dict[str, bytes] = dict(FILES)
        self.links: dict[str, str] = {}
        self.entry = ENTRY
        self.runtime = RUNTIME
        self.artefact = ARTEFACT
        self.error: BaseException | None = None
        self.resolved = 0
        self.installs = 0
        self.fetched = 0
        self.aged = 0
        self.youngest: datetime | None = None
        self.is_filling = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._log = log

    def server_names(self, lock: Lock, tree: Path) -> tuple[str, ...]:
        return ()

    async def resolve(self, package: Package, scratch: Path, *, told: Told) -> Lock:
        assert os.listdir(scratch) == []
        self.resolved += 1
        return self.lock

    async def install(self, lock: Lock, package: Package, scratch: Path, tree: Path, *, told: Told) -> Entry:
        assert os.listdir(scratch) == os.listdir(tree) == []
        self.installs += 1
        told(Progress(done=1, total=2, message="filling"))
        self._fill(scratch, tree)
        self.is_filling.set()
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return Entry(path=package.tool or self.entry, runtime=self.runtime)

    def _fill(self, scratch: Path, tree: Path) -> None:
        if self._log is not None:
            with open(self._log, "ab") as log:
                log.write(b".")
        (scratch / "cache").write_bytes(b"x")
        write_files(tree, self.files)
        for path, target in self.links.items():
            os.symlink(target, tree / path)

    async def youngest_at(self, lock: Lock, scratch: Path) -> datetime | None:
        self.aged += 1
        if self.error is not None:
            raise self.error
        return self.youngest

    async def fetch(self, lock: Lock, scratch: Path) -> bytes:
        self.fetched += 1
        return self.artefact

    def command(self, entry: Entry, dependency: McpDependency, room: Room) -> Command:
        if "," in room.workspace:
            raise Invalid("a comma")
        return Command(command="/opt/runtime", args=(f"{room.tree}/{entry.path}",), needs=("/opt/runtime",))

    def is_outdated(self, entry: Entry) -> bool:
        return entry.runtime != self.runtime


def write_files(tree: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
        (tree / path).chmod(0o755 if path.startswith("bin/") else 0o644)


def make_installer(
    home: Path, ecosystem: FakeEcosystem | None = None, clock: FakeClock | None = None
) -> DiskInstaller:
    ecosystem = ecosystem or FakeEcosystem()
    return DiskInstaller(home, {Ecosystem.NPM: ecosystem, Ecosystem.PYPI: ecosystem}, clock or FakeClock())


def with_detail(lock: Lock, **detail: str) -> Lock:
    """Return `lock` with another first package, so with another digest."""
    first, *rest = lock.packages
    return msgspec.structs.replace(lock, packages=(msgspec.structs.replace(first, detail=detail), *rest))


def left_behind(home: Path) -> list[str]:
    """Return all that an install that failed might have left."""
    servers = home / "servers"
    return sorted(str(path.relative_to(servers)) for path in servers.rglob("*") if path.name != ".staging")


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


async def prove(installer: DiskInstaller, installed: Installed) -> None:
    await installer.prove(installer.launch(installed, workspace="/repo"))


def overwrite(path: Path, content: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(content)
    path.chmod(0o400)


def link_away(tree: Path, folder: Path, replaced: str) -> Path:
    """Put a link in the place of `the tree` or of `its parent`; return what it leads to, within `folder`."""
    place = tree if replaced == "the tree" else tree.parent
    away = folder / "away"
    place.rename(away)
    (away / "closed").mkdir(mode=0o500)
    place.symlink_to(away)
    return away
