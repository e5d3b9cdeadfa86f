"""MCP bundles: fetched or read by their hash, unpacked, and started by Deno, by Python, or as a program.

A bundle brings its packages along, so its one hash proves all that runs. The runtimes are those of PML, not
what the bundle names, and they are held as for every other server.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import IntegrityFailed, Invalid, NotFound, Unavailable
from pml.core.packages.bundle import MANIFEST, BundleKind, BundleManifest, kind_of_lock, parse_manifest
from pml.core.packages.capability import McpDependency
from pml.core.packages.integrity import Algorithm, Integrity, integrity_of, parse_integrity
from pml.core.packages.lock import Lock
from pml.core.packages.package import Package
from pml.core.ports.loader import Progress, Told
from pml.core.text import quote
from pml.install.downloads import download
from pml.install.ecosystems import BINARY, Command, Entry, Room
from pml.install.environment import pypi_surroundings
from pml.install.mcpb.archive import Bounds, read_manifest, unpack
from pml.install.npm.start import DENO, NODE, NOTE, runtime_of, start_command
from pml.install.pypi.installer import base_python, runtime, runtime_folders
from pml.install.tree.soundness import make_sound
from pml.install.tree.tree_folders import to_the_end

STARTER: Final = "pml_start.py"
_FETCH_S: Final = 300.0
_LIBRARIES: Final = ("server/lib", "lib")  # where bundles of Python have their packages
_LIKE_NODE: Final = ("--unstable-detect-cjs",)  # a bundle was written for node: not all of it says its kind
_NOTE: Final = b'{"private": true}\n'
_STARTER: Final = '''\
"""Starts the bundle's server. Written when it was installed, and one of the files that are proven."""

import os
import sys
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, folder) for folder in {folders!r}]
sys.argv[0] = os.path.join(HERE, {entry!r})
if __name__ == "__main__":
    runpy.run_path(sys.argv[0], run_name="__main__")
'''


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that was read: its manifest, the hash of its file, and how long that is."""

    origin: str
    manifest: BundleManifest
    integrity: Integrity
    size: int


class McpbInstaller:
    """`environ` is the user's: of it only what a download needs is used."""

    def __init__(
        self, environ: Mapping[str, str], *, bounds: Bounds | None = None, platform: str = sys.platform
    ) -> None:
        self._environ = environ
        self._bounds = bounds or Bounds()
        self._platform = platform

    async def read(self, origin: str, *, expected: Integrity | None = None) -> Bundle:
        """Return the bundle at `origin`, a URL or the whole path of a file; nothing of it is unpacked.

        Raises: IntegrityFailed if it has not the `expected` hash; Invalid, NotFound, Unavailable.
        """
        data = await self._data(origin)
        if expected is not None:
            _check(data, [str(expected)], title=origin)
        what = quote(origin)
        text = await asyncio.to_thread(read_manifest, data, what=what)
        manifest = parse_manifest(text, what=f"{MANIFEST} of {what}", platform=self._platform)
        integrity = integrity_of(data, Algorithm.SHA256)
        return Bundle(origin=origin, manifest=manifest, integrity=integrity, size=len(data))

    async def resolve(self, package: Package, scratch: Path, *, told: Told) -> Lock:
        """As `EcosystemInstaller.resolve`; a bundle has no registry that would know its hash."""
        raise Invalid(
            f"{quote(package.spec)} is an MCP bundle without a lock, and only its hash says which",
            hint=f"`pml add {package.origin}` reads the file and pins it",
        )

    async def install(self, lock: Lock, package: Package, scratch: Path, tree: Path, *, told: Told) -> Entry:
        """As `EcosystemInstaller.install`."""
        kind = kind_of_lock(lock)
        title = f"{lock.name}@{lock.version}"
        told(Progress(done=0, total=2, message=f"fetching {title}"))
        data = await self._data(package.origin or "")
        _check(data, lock.artefact, title=title)
        told(Progress(done=1, total=2, message=f"unpacking {title}"))
        entry = await to_the_end(lambda _: self._settle(data, tree, kind, title))
        told(Progress(done=2, total=2, message=f"unpacked {title}"))
        return entry

    async def fetch(self, lock: Lock, scratch: Path) -> bytes:
        """As `EcosystemInstaller.fetch`."""
        raise Invalid(f"{quote(lock.name)} is an MCP bundle: name its hash as `sha256-…`")

    def server_names(self, lock: Lock, tree: Path) -> tuple[str, ...]:
        """As `EcosystemInstaller.server_names`; a registry names a bundle by its hash, so none is needed."""
        return ()

    async def youngest_at(self, lock: Lock, scratch: Path) -> datetime | None:
        """As `EcosystemInstaller.youngest_at`: a file does not tell when it was published."""
        return None

    def command(self, entry: Entry, dependency: McpDependency, room: Room) -> Command:
        """As `EcosystemInstaller.command`."""
        path, home = self._environ.get("PATH", ""), self._environ.get("HOME") or str(Path.home())
        if entry.runtime in (DENO, NODE):
            return start_command(entry, dependency, room, path=path, user_home=home, own_flags=_LIKE_NODE)
        program = os.path.join(room.tree, entry.path)
        given = tuple(room.fill(argument) for argument in dependency.argv)
        if entry.runtime == BINARY:
            return Command(command=program, args=given, needs=())
        if self.is_outdated(entry):
            raise Unavailable(
                f"server `{dependency.name}` was installed for {quote(entry.runtime)}, not for {runtime()}",
                hint="add it again",
            )
        return Command(
            command=base_python(), args=("-I", "-S", "-B", program, *given), needs=runtime_folders()
        )

    def is_outdated(self, entry: Entry) -> bool:
        """Tell whether it was installed for another Python than PML runs on."""
        return entry.runtime not in (DENO, NODE, BINARY, runtime())

    async def _data(self, origin: str) -> bytes:
        if origin.startswith("https://"):
            return await download(
                origin,
                authorization=None,
                cap_bytes=self._bounds.packed_bytes,
                timeout_s=_FETCH_S,
                ca_file=pypi_surroundings(self._environ).get("SSL_CERT_FILE"),
            )
        return await asyncio.to_thread(_read_file, origin, self._bounds.packed_bytes)

    def _settle(self, data: bytes, tree: Path, kind: BundleKind, title: str) -> Entry:
        """Unpack the bundle, make it sound, and return what is started of it."""
        unpack(data, tree, what=quote(title), bounds=self._bounds)
        make_sound(tree)
        text = (tree / MANIFEST).read_bytes()
        manifest = parse_manifest(text, what=f"{MANIFEST} of {quote(title)}", platform=self._platform)
        if manifest.kind is not kind:
            raise Invalid(f"{quote(title)} is of kind {quote(manifest.kind)}, but {quote(kind)} was approved")
        entry = tree / manifest.entry
        if not entry.is_file() or not entry.resolve().is_relative_to(tree.resolve()):
            raise Invalid(f"{quote(title)} has no file {quote(manifest.entry)} to start")
        match kind:
            case BundleKind.NODE:
                if not (tree / NOTE).exists():
                    (tree / NOTE).write_bytes(_NOTE)
                return Entry(path=manifest.entry, runtime=runtime_of(tree))
            case BundleKind.PYTHON:
                return _python_entry(tree, manifest)
            case BundleKind.BINARY:
                entry.chmod(0o755)
                return Entry(path=manifest.entry, runtime=BINARY)


def _python_entry(tree: Path, manifest: BundleManifest) -> Entry:
    starter = tree / STARTER
    if starter.exists():
        raise Invalid(f"the bundle has a file `{STARTER}`, which is PML's own")
    own = os.path.dirname(manifest.entry)
    folders = list(dict.fromkeys((own, *manifest.imports, *_LIBRARIES)))
    starter.write_text(_STARTER.format(folders=folders, entry=manifest.entry), encoding="utf-8")
    return Entry(path=STARTER, runtime=runtime())


def _check(data: bytes, expected: tuple[str, ...] | list[str], *, title: str) -> None:
    """Raise IntegrityFailed if `data` has none of the hashes."""
    hashes = [parse_integrity(each, what=f"the hash of {quote(title)}") for each in expected]
    if not any(each.matches(data) for each in hashes):
        got = integrity_of(data, hashes[0].algorithm)
        raise IntegrityFailed(title, expected=str(hashes[0]), got=str(got))


def _read_file(path: str, limit: int) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError as exc:
        raise NotFound(f"there is no file {quote(path)}") from exc
    except OSError as exc:
        raise Unavailable(f"cannot read {quote(path)}: {exc.strerror}") from exc
    if len(data) > limit:
        raise Invalid(f"{quote(path)} has more than {limit:,} bytes")
    return data
