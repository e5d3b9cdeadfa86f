"""Python servers: closures of wheels by uv, installed into a folder that a bare interpreter starts from.

Only wheels with the lock's hashes are installed and nothing of a package runs. uv sees the settings of the
user, never those of a workspace, and a cache of its own that no other program can have written to.
"""

import asyncio
import base64
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import msgspec

from pml.core.errors import IntegrityFailed, Invalid, NotFound, PmlError, Unavailable
from pml.core.packages.capability import McpDependency
from pml.core.packages.integrity import Algorithm, integrity_of, parse_integrity
from pml.core.packages.lock import Lock, Locked, check_lock
from pml.core.packages.package import Ecosystem, Package, normal_name, same_version
from pml.core.ports.loader import Progress, Told
from pml.core.text import quote, visible
from pml.install.disk_failures import full_disk
from pml.install.downloads import download
from pml.install.ecosystems import Command, Entry, Room
from pml.install.environment import pypi_surroundings
from pml.install.package_managers import DISK_BYTES, Disk, Output, find_uv, run_tool
from pml.install.pypi import pylock
from pml.install.pypi import site as python_site
from pml.install.pypi.pip_settings import uv_settings
from pml.install.pypi.pylock import NO_SOURCE
from pml.install.tree.soundness import make_sound

_NETWORK_HINT: Final = (
    "check the network, the proxy, and the index that pip or uv is set to; nothing was installed"
)
_STRATEGY_HINT: Final = (
    "another of your indexes may have it; set UV_INDEX_STRATEGY=unsafe-best-match if you trust them all"
)
_MISMATCH: Final = re.compile(r"Hash mismatch for `([^`]+)`(.*)", re.DOTALL)
_SHA256: Final = re.compile(r"sha256:([0-9a-f]{64})")
_NO_WHEEL: Final = re.compile(r"(\S+) has no (?:usable wheels|(wheels with))")
_BROKEN: Final = re.compile(r"Failed to extract|wheel is invalid|[Ii]nvalid wheel|Failed to (?:read|unzip)")
_NETWORK: Final = re.compile(
    r"Failed to fetch|error sending request|Request failed|client error|dns error|certificate|timed out"
    r"|[Nn]etwork connectivity|HTTP status"
)
_OWN_NAME: Final = re.compile(r"(?m)^Name: *(\S+)")
_SERVER_NAME: Final = re.compile(r"mcp-name: *([A-Za-z0-9.-]+/[A-Za-z0-9._-]+)")
_MOST_SHOWN: Final = 3
_MOST_REASON: Final = 400  # why a closure cannot be met is told step by step, and the first steps matter


def failure(output: Output, *, package: str, task: str, at: Path) -> PmlError:
    """Return the error for a run of uv in `at` that failed at `task` for `package`, such as `name==1.2.3`."""
    text = " ".join(output.errors.split())
    if full := full_disk(text, task, at=at):
        return full
    if "Hash mismatch" in text:
        return _mismatch(text, package)
    if wheelless := _NO_WHEEL.search(text):
        where = " for this machine" if wheelless[2] else ""
        return Invalid(f"{quote(wheelless[1])} has no wheel{where}; {NO_SOURCE}")
    if _is_absent(text, package):
        hint = _STRATEGY_HINT if "unsafe-best-match" in text else None
        return NotFound(f"no such package or version {quote(package)} in the package index", hint=hint)
    if "URL dependenc" in text:
        return Invalid(f"{quote(package)} depends on a URL; only packages of an index are installed")
    reason = _reason(text)
    if _BROKEN.search(text):
        return Invalid(f"a wheel of {quote(package)} is broken: {reason}", hint="nothing was installed")
    if _NETWORK.search(text):
        return Unavailable(f"the package index cannot be reached to {task}: {reason}", hint=_NETWORK_HINT)
    if "No solution found" in text:
        return Invalid(f"the dependencies of {quote(package)} cannot be met: {reason}")
    return Unavailable(f"`uv` could not {task}: {reason}")


def _reason(text: str) -> str:
    """Return what went wrong without what went well before."""
    told = text.partition("error: ")[2] or text or "it said nothing"
    first, *causes = re.split(r"\s*(?:cause|Caused by): ", told, flags=re.IGNORECASE)
    told = f"{first}: {causes[-1]}" if causes else first
    return visible(told if len(told) <= _MOST_REASON else f"{told[:_MOST_REASON]}…")


def _is_absent(text: str, package: str) -> bool:
    """Tell whether it is `package` itself that no index has, not one that it depends on."""
    name = re.escape(package.split("==")[0])
    return bool(re.search(rf"(?i)no version of {name}[\s=]|Because {name} was not found in", text))


def _mismatch(text: str, package: str) -> IntegrityFailed:
    found = _MISMATCH.search(text)
    title, rest = (found[1], found[2]) if found else (package, "")
    expected, _, computed = rest.partition("Computed:")
    return IntegrityFailed(
        visible(title.replace("==", "@")), expected=_spelled(expected), got=_spelled(computed)
    )


def _spelled(text: str) -> str:
    hashes = [str(parse_integrity(f"sha256-{one}", what="a hash")) for one in _SHA256.findall(text)]
    more = f" or {len(hashes) - _MOST_SHOWN} others" if len(hashes) > _MOST_SHOWN else ""
    return " or ".join(hashes[:_MOST_SHOWN]) + more if hashes else "another hash"


def base_python() -> str:
    """Return the real path of the interpreter."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def runtime() -> str:
    """Return what packages are installed for: `python3.11`. The minor version decides what of them runs."""
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def runtime_folders() -> tuple[str, ...]:
    """Return the files and folders that the interpreter is made of, none of them within another."""
    shared = sysconfig.get_config_var("LIBDIR") if sysconfig.get_config_var("Py_ENABLE_SHARED") else None
    places = [base_python(), sys.base_prefix, sys.base_exec_prefix, *([shared] if shared else [])]
    found = sorted({Path(os.path.realpath(place)) for place in places})
    return tuple(
        str(one) for one in found if not any(one.is_relative_to(other) for other in found if other != one)
    )


OLDEST_PYTHON: Final = "3.11"  # what PML itself runs on; a closure is for this one and all newer
_EVERYWHERE: Final = ("--universal", "--python-version", OLDEST_PYTHON)
# With every hash given, an index cannot be mistaken for another: any that has the bytes will do.
_ANY_INDEX: Final = ("--index-strategy", "unsafe-best-match")
_INDEXES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")
_INDEX_NAME: Final = re.compile(r"^[\w.-]+=(?=\w+://)")  # uv lets an index be named: `name=https://…`
_PHASES: Final = ("finding the packages", "downloading", "unpacking", "compiling")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step may take on a slow network, and how much may come of it."""

    resolve_s: float = 180
    install_s: float = 900
    compile_s: float = 300
    fetch_s: float = 300
    disk_bytes: int = DISK_BYTES
    wheel_bytes: int = 512 * 1024**2


class PypiInstaller:
    def __init__(self, environ: Mapping[str, str], *, limits: Limits | None = None) -> None:
        self._environ = environ
        self._limits = limits or Limits()

    async def resolve(self, package: Package, scratch: Path, *, told: Told) -> Lock:
        told(Progress(done=0, total=1, message=f"looking up {package.spec}"))
        content = await self._lock_file(package, scratch, _EVERYWHERE)
        lock = pylock.read_closure(content, package)
        told(Progress(done=1, total=1, message=f"looked up {package.spec}"))
        return lock

    async def install(self, lock: Lock, package: Package, scratch: Path, tree: Path, *, told: Told) -> Entry:
        lock = check_lock(lock)
        site = tree / python_site.SITE
        await self._fill(lock, scratch, site, told)
        await self._check_installed(lock, scratch, site)
        root = next(one for one in lock.packages if one.key == lock.root)
        scripts = await asyncio.to_thread(_arrange, tree, root.name)
        script = python_site.choose_script(scripts, package=package.name, tool=package.tool)
        _tell(told, 3)
        await self._compile(lock, scratch, tree)
        await asyncio.to_thread(make_sound, tree)
        told(Progress(done=len(_PHASES), total=len(_PHASES), message="done"))
        return Entry(path=f"{python_site.STARTERS}/{script}.py", runtime=runtime())

    async def fetch(self, lock: Lock, scratch: Path) -> bytes:
        lock = check_lock(lock)
        package = Package(ecosystem=lock.ecosystem, name=lock.name, version=lock.version)
        content = await self._lock_file(package, scratch, ("--no-deps",))
        wheel = pylock.read_wheel(content, lock.name)
        data = await self._download(wheel)
        got = str(integrity_of(data, Algorithm.SHA256))
        if got not in lock.artefact:
            raise IntegrityFailed(f"{lock.name}@{lock.version}", expected=" or ".join(lock.artefact), got=got)
        return data

    def server_names(self, lock: Lock, tree: Path) -> tuple[str, ...]:
        """As `EcosystemInstaller.server_names`: `mcp-name: …` in the README, which its metadata has."""
        site = tree / python_site.SITE
        for path in site.glob("*.dist-info/METADATA"):
            text = path.read_text(encoding="utf-8", errors="replace")
            named = _OWN_NAME.search(text)
            if named and normal_name(named[1], lock.ecosystem) == normal_name(lock.name, lock.ecosystem):
                return tuple(_SERVER_NAME.findall(text))
        return ()

    async def youngest_at(self, lock: Lock, scratch: Path) -> datetime | None:
        """As `EcosystemInstaller.youngest_at`."""
        lock = check_lock(lock)
        options = ("--no-deps", *_ANY_INDEX)  # only wheels that the lock names are used
        content = await self._compiled(pylock.pinned(lock), scratch, options, title=lock.name)
        return pylock.read_youngest(content, lock)

    def command(self, entry: Entry, dependency: McpDependency, room: Room) -> Command:
        """Return how the installed server is started. Raises: Unavailable if it is for another Python."""
        if self.is_outdated(entry):
            raise Unavailable(
                f"server `{dependency.name}` was installed for {visible(entry.runtime)}, and PML runs on "
                f"{runtime()} now",
                hint=f"`pml deps install {dependency.name}` installs it for {runtime()}",
            )
        given = tuple(room.fill(argument) for argument in dependency.argv)
        return Command(
            command=base_python(),
            # No variable or site folder of the user's adds code to the tree, and none is written into it: its
            # hash is compared before every start.
            args=("-I", "-S", "-B", os.path.join(room.tree, entry.path), *given),
            needs=runtime_folders(),
        )

    def is_outdated(self, entry: Entry) -> bool:
        """Tell whether it was installed for another Python than PML runs on."""
        return entry.runtime != runtime()

    async def _lock_file(self, package: Package, scratch: Path, options: tuple[str, ...]) -> bytes:
        """Return the lock file that uv writes for `package`. Raises: NotFound, Invalid, Unavailable."""
        pinned = pylock.requirement(package.name, package.version)
        return await self._compiled(f"{pinned}\n", scratch, options, title=pinned)

    async def _compiled(self, listed: str, scratch: Path, options: tuple[str, ...], *, title: str) -> bytes:
        asked, written = scratch / "asked.txt", scratch / "pylock.toml"
        asked.write_text(listed, encoding="utf-8")
        output = await self._uv(
            ("pip", "compile", *options, "--no-build", "--no-sources", "--format", "pylock.toml"),
            ("--quiet", "--output-file", str(written), str(asked)),
            scratch=scratch,
            timeout_s=self._limits.resolve_s,
            disk=self._disk(scratch),
        )
        if output.code != 0:
            raise failure(output, package=title, task=f"look up {quote(title)}", at=scratch)
        return written.read_bytes()

    async def _fill(self, lock: Lock, scratch: Path, site: Path, told: Told) -> None:
        """Have uv install the wheels of `lock` into `site`. Raises: IntegrityFailed, Invalid, Unavailable."""
        pinned = pylock.requirement(lock.name, lock.version)
        listed = scratch / "locked.txt"
        listed.write_text(pylock.requirements(lock), encoding="utf-8")
        _tell(told, 0)
        output = await self._uv(
            ("pip", "sync", "--target", str(site), "--require-hashes", "--no-build", "--no-sources"),
            ("--link-mode", "copy", *_ANY_INDEX, "--no-compile"),
            (str(listed),),
            scratch=scratch,
            timeout_s=self._limits.install_s,
            disk=self._disk(scratch, site),
            told=told,
        )
        if output.code == 0:
            return
        error = failure(output, package=pinned, task=f"install {quote(pinned)}", at=scratch)
        if isinstance(error, IntegrityFailed) and await self._is_another(error.got, lock, scratch):
            raise Invalid(
                f"the wheel of {quote(pinned)} that is named is not for this machine: {error.message}",
                hint="nothing was installed; its metadata must name a wheel for this machine, or a lock",
            ) from error
        raise error

    async def _is_another(self, got: str, lock: Lock, scratch: Path) -> bool:
        """Tell whether uv took another wheel of the package than the lock names, which the index has too."""
        package = Package(ecosystem=lock.ecosystem, name=lock.name, version=lock.version)
        try:
            content = await self._lock_file(package, scratch, ("--no-deps", *_EVERYWHERE))
            there = set(pylock.read_closure(content, package).artefact)
        except PmlError:
            return False
        return got in there.difference(lock.artefact) and not there.isdisjoint(lock.artefact)

    async def _compile(self, lock: Lock, scratch: Path, tree: Path) -> None:
        """Compile the files, which runs none of them. Raises: Unavailable."""
        output = await run_tool(
            [base_python(), *python_site.compile_arguments(tree)],
            cwd=scratch,
            env={name: self._environ[name] for name in ("SYSTEMROOT",) if name in self._environ},
            timeout_s=self._limits.compile_s,
            disk=self._disk(scratch, tree),
        )
        said = output.stdout.decode(errors="replace") + output.errors
        if full := full_disk(said, f"install {quote(lock.name)}", at=tree):
            raise full
        if output.code not in (0, 1):  # 1: some file is not Python, as templates and old test data are
            raise Unavailable(
                f"the files of {quote(lock.name)} cannot be compiled: {visible(output.last_words)}"
            )

    async def _check_installed(self, lock: Lock, scratch: Path, site: Path) -> None:
        """Refuse what the lock does not name, although uv was given nothing else to install."""
        output = await self._uv(
            ("pip", "list", "--target", str(site), "--format", "json", "--quiet"),
            scratch=scratch,
            timeout_s=self._limits.resolve_s,
        )
        if output.code != 0:
            raise failure(output, package=lock.name, task="list what was installed", at=scratch)
        found = msgspec.json.decode(output.stdout, type=list[_Listed])
        for one in found:
            if not any(one.is_of(package) for package in lock.packages):
                raise Invalid(f"{quote(f'{one.name}=={one.version}')} was installed, not being in the lock")
        if not any(
            one.is_of(package) for one in found for package in lock.packages if package.key == lock.root
        ):
            raise Invalid(f"{quote(lock.name)} itself was not installed: it is not for this machine")

    async def _uv(
        self,
        *arguments: tuple[str, ...],
        scratch: Path,
        timeout_s: float,
        disk: Disk | None = None,
        told: Told | None = None,
    ) -> Output:
        (scratch / "uv.toml").touch()  # where uv finds one it looks no further up, so no workspace's applies
        words = [word for group in arguments for word in group]
        fixed = ("--cache-dir", str(scratch / "cache"), "--python", base_python(), "--no-python-downloads")
        return await run_tool(
            [find_uv(), *words, *fixed, "--no-progress", "--color", "never"],
            cwd=scratch,
            env=self._surroundings(),
            timeout_s=timeout_s,
            told_line=None if told is None else lambda line: _hear(line, told),
            disk=disk,
        )

    def _surroundings(self) -> dict[str, str]:
        kept = pypi_surroundings(self._environ)
        own = {name: value for name, value in kept.items() if not name.startswith("PIP_")}
        tries = {name: self._environ[name] for name in ("UV_HTTP_RETRIES",) if name in self._environ}
        return {**own, **tries, **uv_settings(self._environ)}

    def _disk(self, *folders: Path) -> Disk:
        return Disk(folders=folders, cap_bytes=self._limits.disk_bytes)

    async def _download(self, wheel: pylock.Wheel) -> bytes:
        address = urlsplit(wheel.url or "")
        if address.scheme == "file":
            path = Path(url2pathname(address.path))
            return await asyncio.to_thread(_read_capped, path, self._limits.wheel_bytes)
        if address.scheme not in ("http", "https"):
            raise Invalid(f"a wheel cannot be downloaded from {quote(wheel.url or 'nowhere')}")
        return await download(
            address.geturl(),
            authorization=self._authorization(address.geturl()),
            cap_bytes=self._limits.wheel_bytes,
            timeout_s=self._limits.fetch_s,
            ca_file=self._surroundings().get("SSL_CERT_FILE"),
        )

    def _authorization(self, url: str) -> str | None:
        """Return what the user gave for the index on the host of `url`, as the header that host wants."""
        settings = self._surroundings()
        for index in " ".join(settings.get(name, "") for name in _INDEXES).split():
            named, _, host = urlsplit(_INDEX_NAME.sub("", index)).netloc.rpartition("@")
            if named and host == urlsplit(url).netloc:
                return f"Basic {base64.b64encode(unquote(named).encode()).decode()}"
        return None


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An installed distribution, as uv lists it."""

    name: str
    version: str

    def is_of(self, package: Locked) -> bool:
        same_name = normal_name(self.name, Ecosystem.PYPI) == normal_name(package.name, Ecosystem.PYPI)
        return same_name and same_version(self.version, package.version, Ecosystem.PYPI)


def _arrange(tree: Path, name: str) -> list[str]:
    """Leave in `tree` what is proven and started; return the programs of package `name`. Raises: Invalid."""
    site = tree / python_site.SITE
    python_site.tidy(site)
    scripts = python_site.console_scripts(python_site.distribution(site, name))
    if not scripts:
        raise Invalid(f"{quote(name)} has no program, so it is not a server")
    python_site.write_starters(tree, scripts)
    return sorted(scripts)


def _tell(told: Told, phase: int, detail: str = "") -> None:
    told(Progress(done=phase, total=len(_PHASES), message=f"{_PHASES[phase]}{detail}"))


def _hear(line: str, told: Told) -> None:
    """Tell the phase that a line of uv shows; what it says beyond that is not relied on."""
    word, _, rest = line.strip().partition(" ")
    if word in ("Resolved", "Downloading", "Downloaded"):
        _tell(told, 1, f" {visible(rest.split()[0])}" if word == "Downloading" and rest else "")
    elif word == "Prepared":
        _tell(told, 2)


def _read_capped(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as exc:
        raise Unavailable(f"{quote(str(path))} cannot be read: {(exc.strerror or '').lower()}") from exc
    if len(data) > most:
        raise Invalid(f"{quote(str(path))} has more than {most:,} bytes")
    return data
