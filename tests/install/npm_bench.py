"""A user whose npm registry is one on loopback, and what is looked at after an install."""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pml.core.packages.lock import Lock
from pml.core.packages.package import Ecosystem, Package
from pml.core.ports.loader import Progress
from pml.install.ecosystems import Entry
from pml.install.npm.installer import NpmInstaller, NpmLimits
from tests.install.npm_registry import NpmRegistry

WAIT_S: Final = 60.0
QUICK: Final = NpmLimits(resolve_s=30, install_s=30, fetch_s=30)
SRV: Final = Package(ecosystem=Ecosystem.NPM, name="srv", version="1.0.0")
BIN: Final = {"srv": "index.js"}


class Bench:
    """An installer for a user whose `.npmrc` names the registry, with fresh folders for each step."""

    def __init__(self, home: Path, registry: NpmRegistry, folder: Path) -> None:
        self.registry = registry
        self.folder = folder
        self.told: list[Progress] = []
        self.home = home
        (home / ".npmrc").write_text(f"registry={registry.url}\n")

    def installer(self, limits: NpmLimits = QUICK, environ: Mapping[str, str] | None = None) -> NpmInstaller:
        kept = {"HOME": str(self.home), "PATH": os.environ["PATH"], **(environ or {})}
        return NpmInstaller(kept, limits=limits)

    def fresh(self, name: str) -> Path:
        path = self.folder / name / str(len(list(self.folder.glob("*/*"))))
        path.mkdir(parents=True)
        return path

    async def resolve(
        self, package: Package = SRV, *, limits: NpmLimits = QUICK, environ: Mapping[str, str] | None = None
    ) -> Lock:
        async with asyncio.timeout(WAIT_S):
            it = self.installer(limits, environ)
            return await it.resolve(package, self.fresh("scratch"), told=self.told.append)

    async def install(
        self, lock: Lock, limits: NpmLimits = QUICK, *, package: Package = SRV
    ) -> tuple[Path, Entry]:
        tree = self.fresh("tree")
        async with asyncio.timeout(WAIT_S):
            it = self.installer(limits)
            entry = await it.install(lock, package, self.fresh("scratch"), tree, told=self.told.append)
        return tree, entry


def listing(tree: Path) -> list[tuple[str, str, bool]]:
    """Return all that a hash of the tree is taken of."""
    found: list[tuple[str, str, bool]] = []
    for path in sorted(tree.rglob("*")):
        if path.is_symlink():
            content = "-> " + os.readlink(path)
        elif path.is_dir():
            content = "/"
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.append((str(path.relative_to(tree)), content, os.access(path, os.X_OK)))
    return found


def publish_two(registry: NpmRegistry) -> None:
    registry.publish("@some/dep", "2.1.0", scripts={"postinstall": "touch ran"})
    registry.publish("srv", bin=BIN, dependencies={"@some/dep": "^2.0.0"})
