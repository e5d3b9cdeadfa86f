"""npm packages through Deno's installer: closures, trees that hold exactly a lock, and how they start.

Each run has a folder, a cache and an environment of its own. No script of a package is ever run.
Where trees lie in the end, and who allowed them, is not known here.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, cast

import msgspec

from pml.core.errors import IntegrityFailed, Invalid, NotFound, PmlError, Unavailable
from pml.core.packages.capability import McpDependency
from pml.core.packages.integrity import Algorithm, integrity_of, parse_integrity
from pml.core.packages.lock import Lock
from pml.core.packages.package import Ecosystem, Package, is_name
from pml.core.ports.loader import Progress, Told
from pml.core.text import quote, visible
from pml.core.values import Json, JsonObject, loads_object
from pml.install.disk_failures import full_disk
from pml.install.downloads import download
from pml.install.ecosystems import Command, Entry, Room
from pml.install.environment import npm_surroundings
from pml.install.npm.denolock import (
    check_npm_lock,
    found_version,
    origin_of,
    read_lock,
    tarballs_in,
    write_lock,
)
from pml.install.npm.few_connections import few_connections
from pml.install.npm.npmrc import authorization_for, network_of, read_npmrc, registry_for
from pml.install.npm.start import (
    NOTE,
    choose_program,
    note_of,
    package_folder,
    programs_of,
    read_manifest,
    runtime_of,
    start_command,
)
from pml.install.package_managers import DISK_BYTES, DISK_ENTRIES, Disk, Output, find_deno, run_tool
from pml.install.tree.soundness import make_sound
from pml.install.tree.tree_folders import to_the_end

NOT_THERE: Final = "Could not find npm package tarball at"
_TRY_AGAIN: Final = "check the network, the proxy and the registry in your `.npmrc`, then try again"
_LAST_WORDS_CHARS: Final = 500


def complaint(output: Output, title: str, *, at: Path) -> PmlError:
    """Return the error that Deno, asked for `title` (`name@1.2.3`) in the folder `at`, ended with."""
    if full := full_disk(output.errors, f"install {quote(title)}", at=at):
        return full
    for pattern, error in _COMPLAINTS:
        if found := pattern.search(output.errors):
            return error(found, title)
    if output.code < 0:
        return Unavailable(f"installing {quote(title)} was ended by signal {-output.code}")
    said = visible(output.last_words[-_LAST_WORDS_CHARS:])
    return Unavailable(f"{quote(title)} could not be installed: {said}", hint=_TRY_AGAIN)


def _missing(found: re.Match[str], title: str) -> PmlError:
    name = found[1]
    if name == title.rpartition("@")[0]:
        return NotFound(f"no such package or version {quote(title)} in the npm registry")
    return NotFound(f"no such package {quote(name)} in the npm registry, and {quote(title)} needs it")


def _other_bytes(found: re.Match[str], title: str) -> PmlError:
    expected, got = (text if "-" in text else f"sha512-{text}" for text in (found[2], found[3]))
    return IntegrityFailed(visible(found[1]), expected=visible(expected), got=visible(got))


def _outside(found: re.Match[str], title: str) -> PmlError:
    return Invalid(f"a package of {quote(title)} would write outside its folder: {quote(found[1])}")


def _link(found: re.Match[str], title: str) -> PmlError:
    return Invalid(f"a package of {quote(title)} brings a link: {quote(found[1].rpartition('/')[2])}")


def _elsewhere(found: re.Match[str], title: str) -> PmlError:
    return Invalid(
        f"{quote(title)} depends on {quote(found[1])}, which is not in the npm registry",
        hint="only packages of a registry have a hash that can be verified",
    )


def _refused(found: re.Match[str], title: str) -> PmlError:
    return Unavailable(
        f"the npm registry refuses {quote(title)}: status {found[1]}",
        hint="check the credentials in your `.npmrc`",
    )


def _unreached(found: re.Match[str], title: str) -> PmlError:
    return Unavailable(
        f"the npm registry did not give {quote(title)}: {visible(found[0][:200])}", hint=_TRY_AGAIN
    )


_Error = Callable[[re.Match[str], str], PmlError]
_COMPLAINTS: Final[tuple[tuple[re.Pattern[str], _Error], ...]] = (
    (re.compile(r"checksum did not match .* for (\S+)\.\s+Expected: (\S+)\s+Actual: (\S+)"), _other_bytes),
    (re.compile(r"Extracted path '(.*)' of npm tarball was not in output directory"), _outside),
    (re.compile(r"Ignoring npm tarball entry type \w+ for '(.*)'"), _link),
    (re.compile(r"specified a dependency outside of npm \((.*?)\)"), _elsewhere),
    (re.compile(r"parsing version requirement for dependency \"[^\"]*\": \"(.*)\""), _elsewhere),
    (re.compile(r"npm package '([^']*)' does not exist"), _missing),
    (re.compile(r"Could not find npm package '([^']*)' matching"), _missing),
    (re.compile(r"Could not find version '[^']*' for npm package '([^']*)'"), _missing),
    (re.compile(r"Bad response: (401|403)"), _refused),
    (re.compile(r"Bad response: \d+|client error \(.*|error sending request|error decoding.*"), _unreached),
)


_PROJECT: Final = "server"  # Deno names a folder of the tree after the project, so it is always the same
_OWN_ROOT: Final = b'{"workspace": []}'  # else Deno reads what folders above have, and may take part in it
_DROPPINGS: Final = frozenset({".deno.lock", ".setup-cache.bin", ".initialized", ".scripts-warned"})
_RANGE: Final = re.compile(r"[0-9A-Za-z.^~<>=|*+ -]{1,100}")  # neither an alias, nor a file or a URL
_OUTSIDE: Final = re.compile(
    r"(file|link|portal|workspace|git\S*|https?|ssh|github|gitlab|bitbucket):|[./]|~/"
)


class NpmLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Slow networks take minutes for a large closure; more than these is not a slow network but a trap."""

    resolve_s: float = 120.0
    install_s: float = 600.0
    fetch_s: float = 120.0
    disk_bytes: int = DISK_BYTES
    disk_entries: int = DISK_ENTRIES
    artefact_bytes: int = 256 * 1024**2


class NpmInstaller:
    """`environ` is the user's; what Deno gets of it is an allow-list."""

    def __init__(self, environ: Mapping[str, str], *, limits: NpmLimits | None = None) -> None:
        self._environ = environ
        self._limits = limits or NpmLimits()

    async def resolve(self, package: Package, scratch: Path, *, told: Told) -> Lock:
        """Return the closure as the registry has it now. Raises: NotFound, Invalid, Unavailable."""
        return await self.look_up(package.name, package.version, scratch, before=None, told=told)

    async def look_up(
        self, name: str, wanted: str | None, scratch: Path, *, before: date | None, told: Told
    ) -> Lock:
        """As `EcosystemInstaller.look_up`."""
        asked = wanted or ("latest" if before is None else "*")  # a tag knows of no day
        if not is_name(name, Ecosystem.NPM) or not _RANGE.fullmatch(asked):
            raise Invalid(f"{quote(asked)} is not a version of {quote(name)}, nor a range or tag")
        title = f"{name}@{asked}"
        told(Progress(done=0, total=None, message=f"looking up {title}"))
        options = () if before is None else (f"--minimum-dependency-age={before.isoformat()}",)
        project = await self._look_up({name: asked}, scratch, title=title, options=options)
        packuments = await asyncio.to_thread(_packuments, project.cache)
        written = project.read_lock()
        spelled, version = found_version(written, name)
        package = Package(ecosystem=Ecosystem.NPM, name=name, version=version)
        lock = read_lock(written, package, origin=project.origin, wanted=spelled)
        _check_dependencies(lock, packuments)
        released = _published_at(packuments.get(lock.name), lock.version)
        return msgspec.structs.replace(
            lock, released_at=None if released is None else released.isoformat(timespec="seconds")
        )

    async def install(self, lock: Lock, package: Package, scratch: Path, tree: Path, *, told: Told) -> Entry:
        """Fill `tree` with exactly what `lock` names; return the program that `package` means.

        Raises: IntegrityFailed, Invalid, Unavailable; `tree` is then worthless.
        """
        lock = check_npm_lock(lock)
        project = await self._download(lock, scratch, told=told)
        entry = await to_the_end(lambda _: _settle(project, lock, package, tree, self._disk(tree)))
        total = len(lock.packages)
        told(Progress(done=total, total=total, message=f"unpacked {lock.name}@{lock.version}"))
        return entry

    async def fetch(self, lock: Lock, scratch: Path) -> bytes:
        """Return the tarball of the package itself, which has the hash of `lock`.

        Raises: IntegrityFailed, Invalid, NotFound, Unavailable.
        """
        lock = check_npm_lock(lock)
        title = f"{lock.name}@{lock.version}"
        project = await self._look_up({lock.name: lock.version}, scratch, title=title)
        packuments = await asyncio.to_thread(_packuments, project.cache)
        url = _tarball(packuments.get(lock.name), lock.version)
        if url is None:
            raise Unavailable(f"the npm registry does not say where {quote(title)} is")
        origin = project.origin(lock.name)
        if not url.startswith("https:") if origin is None else origin_of(url) != origin:
            raise Invalid(f"{quote(title)} would come from another host than its registry, which is refused")
        body = await download(
            url,
            authorization=authorization_for(url, project.npmrc, self._environ),
            cap_bytes=self._limits.artefact_bytes,
            timeout_s=self._limits.fetch_s,
            ca_file=project.environment.get("DENO_CERT"),
        )
        expected = parse_integrity(lock.artefact[0], what=f"the hash of {quote(title)}")
        if not expected.matches(body):
            got = integrity_of(body, Algorithm.SHA512)
            raise IntegrityFailed(title, expected=str(expected), got=str(got))
        return body

    def server_names(self, lock: Lock, tree: Path) -> tuple[str, ...]:
        """As `EcosystemInstaller.server_names`: `mcpName` in package.json."""
        name = read_manifest(package_folder(tree, lock.name), lock.name).get("mcpName")
        return (name,) if isinstance(name, str) else ()

    async def youngest_at(self, lock: Lock, scratch: Path) -> datetime | None:
        """As `EcosystemInstaller.youngest_at`."""
        lock = check_npm_lock(lock)
        project = await self._look_up_all(lock, scratch)
        packuments = await asyncio.to_thread(_packuments, project.cache)
        times = [_published_at(packuments.get(each.name), each.version) for each in lock.packages]
        known = [at for at in times if at is not None]
        return max(known) if len(known) == len(times) else None

    def command(self, entry: Entry, dependency: McpDependency, room: Room) -> Command:
        """Return how the installed server is started. Raises: Invalid, Unavailable."""
        home = self._environ.get("HOME") or str(Path.home())
        return start_command(entry, dependency, room, path=self._environ.get("PATH", ""), user_home=home)

    def is_outdated(self, entry: Entry) -> bool:
        """Deno and node run what was installed for any of their versions."""
        return False

    async def _look_up(
        self, wanted: Mapping[str, str], scratch: Path, *, title: str, options: Sequence[str] = ()
    ) -> "_Project":
        project = _Project(scratch, self._environ)
        project.write(wanted)
        output = await self._run(project, ("--lockfile-only", *options), timeout_s=self._limits.resolve_s)
        if output.code != 0 or not project.lock.is_file():
            raise complaint(output, title, at=project.top)
        return project

    async def _download(self, lock: Lock, scratch: Path, *, told: Told) -> "_Project":
        title = f"{lock.name}@{lock.version}"
        project = _Project(scratch / "first", self._environ)
        output = await self._install(lock, project, tarballs={}, told=told)
        if output.code != 0 and NOT_THERE in output.errors:
            tarballs = await self._find_tarballs(lock, scratch / "found")
            project = _Project(scratch / "second", self._environ)
            output = await self._install(lock, project, tarballs=tarballs, told=told)
        # Deno leaves out a link and succeeds: the tree would not be what the package's hash stands for.
        if output.code != 0 or "Ignoring npm tarball entry" in output.errors:
            raise complaint(output, title, at=project.top)
        return project

    async def _install(
        self, lock: Lock, project: "_Project", *, tarballs: Mapping[str, str], told: Told
    ) -> Output:
        project.write({lock.name: lock.version})
        project.lock.write_bytes(write_lock(lock, tarballs=tarballs))
        counting = _counting(len(lock.packages), told)
        return await self._run(project, ("--frozen",), timeout_s=self._limits.install_s, told_line=counting)

    async def _find_tarballs(self, lock: Lock, scratch: Path) -> dict[str, str]:
        """Return where the packages are on a registry that keeps them elsewhere than npm's own does."""
        project = await self._look_up_all(lock, scratch)
        found = tarballs_in(project.read_lock())
        for title, url in found.items():
            if origin_of(url) != project.origin(title.rpartition("@")[0]):
                raise Invalid(f"{quote(title)} would come from another host than its registry")
        return found

    async def _look_up_all(self, lock: Lock, scratch: Path) -> "_Project":
        # Under names of our own, since a closure may hold two versions of one package.
        wanted = {
            f"p{number}": f"npm:{package.name}@{package.version}"
            for number, package in enumerate(lock.packages)
        }
        return await self._look_up(wanted, scratch, title=f"{lock.name}@{lock.version}")

    async def _run(
        self,
        project: "_Project",
        args: Sequence[str],
        *,
        timeout_s: float,
        told_line: Callable[[str], None] | None = None,
    ) -> Output:
        async with few_connections(project.environment) as through:
            return await run_tool(
                [find_deno(), "install", "--node-modules-dir=auto", *args],
                cwd=project.folder,
                env={**project.environment, **through},
                timeout_s=timeout_s,
                told_line=told_line,
                disk=self._disk(project.top),
            )

    def _disk(self, folder: Path) -> Disk:
        limits = self._limits
        return Disk(folders=(folder,), cap_bytes=limits.disk_bytes, cap_entries=limits.disk_entries)


class _Project:
    """A folder that Deno takes for a project of one package, with a cache of its own."""

    def __init__(self, top: Path, environ: Mapping[str, str]) -> None:
        self.top = top
        self.folder = top / _PROJECT
        self.cache = top / "cache"
        self.lock = self.folder / "deno.lock"
        self.npmrc = read_npmrc(environ)
        self.environment = {
            **npm_surroundings(environ, npmrc=self.npmrc),
            **network_of(self.npmrc, environ),
            **{"DENO_DIR": str(self.cache), "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"},
        }

    def write(self, wanted: Mapping[str, str]) -> None:
        self.folder.mkdir(mode=0o700, parents=True)
        package: Json = {"private": True, "dependencies": dict(wanted)}
        (self.folder / "package.json").write_bytes(msgspec.json.encode(package))
        (self.folder / "deno.json").write_bytes(_OWN_ROOT)
        with open(self.folder / ".npmrc", "w", opener=_open_private) as file:
            file.write(self.npmrc)

    def origin(self, name: str) -> str | None:
        """Return the origin of the registry of package `name`; None: npm's own."""
        registry = registry_for(name, self.npmrc, self.environment)
        return None if registry is None else origin_of(registry)

    def read_lock(self) -> bytes:
        return self.lock.read_bytes()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _counting(total: int, told: Told) -> Callable[[str], None]:
    """Return what turns the lines of Deno into progress; their URLs are left out."""
    done = 0

    def tell(line: str) -> None:
        nonlocal done
        if line.startswith("Download "):
            done = min(done + 1, total)
            told(Progress(done=done, total=total, message="downloading packages"))

    return tell


def _settle(project: _Project, lock: Lock, package: Package, tree: Path, disk: Disk) -> Entry:
    """Move what Deno installed into `tree`, if it is sound and the package asked for; return its program."""
    modules = project.folder / "node_modules"
    if not modules.is_dir():
        raise Unavailable("Deno installed nothing")
    shutil.rmtree(project.cache)  # files of the tree may have a second name in it
    _clean(modules / ".deno")
    shutil.move(modules, tree / "node_modules")
    make_sound(tree)
    disk.check()
    manifest = read_manifest(package_folder(tree, lock.name), lock.name)
    # The lock proves which bytes these are; only the manifest says that they are this package.
    if (manifest.get("name"), manifest.get("version")) != (lock.name, lock.version):
        title = quote(f"{lock.name}@{lock.version}")
        raise Invalid(f"what the registry has as {title} says that it is another package")
    program = choose_program(programs_of(tree, lock.name), package)
    (tree / NOTE).write_bytes(note_of(lock.name, lock.version))
    return Entry(path=program, runtime=runtime_of(tree))


def _clean(store: Path) -> None:
    """Remove what differs from one install of a lock to the next."""
    for folder in (store, *(entry for entry in store.iterdir() if entry.is_dir())):
        for name in _DROPPINGS:
            (folder / name).unlink(missing_ok=True)
    own = store / f"{_PROJECT}@0.0.0"
    if own.is_dir() and not any(own.iterdir()):
        own.rmdir()


def _packuments(cache: Path) -> dict[str, JsonObject]:
    """Return what the registry said of each package, by name, as Deno keeps it."""
    found: dict[str, JsonObject] = {}
    for path in (cache / "npm").rglob("registry.json"):
        packument = loads_object(path.read_bytes(), what="what the npm registry said")
        found[str(packument.get("name"))] = packument
    return found


def _version_of(packument: JsonObject | None, version: str) -> JsonObject:
    return _object(_object((packument or {}).get("versions")).get(version))


def _check_dependencies(lock: Lock, packuments: Mapping[str, JsonObject]) -> None:
    """Refuse what Deno would leave out silently: dependencies that are in no registry."""
    for package in lock.packages:
        said = _version_of(packuments.get(package.name), package.version)
        for name, wanted in _object(said.get("dependencies")).items():
            if _OUTSIDE.match(str(wanted)):
                raise Invalid(
                    f"{quote(f'{package.name}@{package.version}')} depends on {quote(name)} from "
                    f"{quote(str(wanted))}, which is not in the npm registry",
                    hint="only packages of a registry have a hash that can be verified",
                )


def _published_at(packument: JsonObject | None, version: str) -> datetime | None:
    released = _object((packument or {}).get("time")).get(version)
    try:
        at = datetime.fromisoformat(str(released))
    except ValueError:
        return None
    return None if at.tzinfo is None else at.astimezone(UTC)


def _tarball(packument: JsonObject | None, version: str) -> str | None:
    url = _object(_version_of(packument, version).get("dist")).get("tarball")
    return url if isinstance(url, str) else None


def _object(value: Json) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, Mapping) else {}
