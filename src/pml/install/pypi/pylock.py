"""uv's lock file read as a `Lock`, and a `Lock` written as requirements that name every hash.

Only wheels from an index are accepted: anything else in a closure (sources, repositories, folders) is
refused. A lock may be somebody else's, so nothing of it is written that could be more than a requirement.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from pml.core.errors import Invalid
from pml.core.packages.integrity import Algorithm, parse_integrity
from pml.core.packages.lock import Lock, Locked, check_lock
from pml.core.packages.package import Ecosystem, Package, is_name, is_version, normal_name
from pml.core.text import quote, visible

NO_SOURCE: Final = "building from source would run its code"

_RANGE: Final = re.compile(r"(?:[=~!<>]=?=?[0-9A-Za-z.*+!]+)(?:,[=~!<>]=?=?[0-9A-Za-z.*+!]+)*", re.ASCII)
_MARKER: Final = re.compile(
    r"""(?:\s*(?:[()]|===?|!=|~=|[<>]=?|[a-z_]+|'[A-Za-z0-9_.+*! -]*'|"[A-Za-z0-9_.+*! -]*"))+\s*""", re.ASCII
)


class Wheel(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One wheel as uv found it; `url` is known here and kept nowhere."""

    url: str | None = None
    upload_time: datetime | None = None
    size: int | None = None
    hashes: Mapping[str, str] = {}


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str | None = None
    marker: str | None = None
    wheels: Sequence[Wheel] = ()
    vcs: Mapping[str, object] | None = None
    directory: Mapping[str, object] | None = None
    archive: Mapping[str, object] | None = None


class _Pylock(msgspec.Struct, frozen=True, kw_only=True):
    packages: Sequence[_Found] = ()


def requirement(name: str, version: str) -> str:
    """Return `name==version`, which names one package at one version. Raises: Invalid if it would not."""
    if not is_name(name, Ecosystem.PYPI):
        raise Invalid(f"{quote(name)} is not the name of a Python package")
    if not is_version(version, Ecosystem.PYPI):
        raise Invalid(
            f"{quote(version)} is not one version of {quote(name)}", hint="name it as `name==1.2.3`"
        )
    return f"{name}=={version}"


def wanted_requirement(name: str, wanted: str | None) -> str:
    """Return what asks for the version that is wanted: exactly one, a range, or None for the newest.

    Raises: Invalid for what would ask for more than that.
    """
    if wanted is not None and is_version(wanted, Ecosystem.PYPI):
        return requirement(name, wanted)
    if not is_name(name, Ecosystem.PYPI):
        raise Invalid(f"{quote(name)} is not the name of a Python package")
    if wanted in (None, "latest"):
        return name
    if not _RANGE.fullmatch(wanted or ""):
        raise Invalid(f"{quote(wanted or '')} is not a version of {quote(name)}, nor a range of them")
    return f"{name}{wanted}"


def found_version(content: bytes, name: str) -> str:
    """Return the version that uv found of the package. Raises: Invalid."""
    versions = {one.version for one in _read(content) if _normal(one.name) == _normal(name)}
    if len(versions) != 1 or (found := versions.pop()) is None:
        raise Invalid(f"uv found no one version of {quote(name)}")
    return found


def read_closure(content: bytes, package: Package) -> Lock:
    """Return the lock of `package` from uv's lock file. Raises: Invalid for what is not a hashed wheel."""
    found = _read(content)
    times = Counter(_normal(one.name) for one in found)
    packages = [_locked(one, is_forked=times[_normal(one.name)] > 1) for one in found]
    roots = [index for index, one in enumerate(packages) if one.name == _normal(package.name)]
    if len(roots) != 1:
        raise Invalid(f"the closure of {quote(package.name)} has it {len(roots)} times, expected once")
    sizes = [_largest(one.wheels) for one in found]
    lock = Lock(
        ecosystem=Ecosystem.PYPI,
        name=package.name,
        version=package.version,
        root=packages[roots[0]].key,
        packages=tuple(sorted(packages, key=lambda one: one.key)),
        size=None if None in sizes else sum(size or 0 for size in sizes),
        released_at=_released(found[roots[0]].wheels),
    )
    return check_lock(lock)


def read_wheel(content: bytes, name: str) -> Wheel:
    """Return the one wheel of `name` in a lock file that is for one platform. Raises: Invalid."""
    wheels = [wheel for one in _read(content) if _normal(one.name) == _normal(name) for wheel in one.wheels]
    if len(wheels) != 1:
        raise Invalid(f"{quote(name)} has {len(wheels)} wheels for this machine, expected one")
    return wheels[0]


def read_youngest(content: bytes, lock: Lock) -> datetime | None:
    """Return when the last wheel of `lock` was added, from a lock file for this machine alone.

    None if a package has no wheel there that `lock` names, or one whose time the index does not tell.
    """
    times: list[datetime] = []
    for one in _read(content):  # a package of `lock` that is not among them is not for this machine
        named = {each for its in lock.packages if its.name == _normal(one.name) for each in its.integrity}
        wheels = [wheel for wheel in one.wheels if _integrity(wheel, quote(one.name)) in named]
        added = [wheel.upload_time.astimezone(UTC) for wheel in wheels if wheel.upload_time is not None]
        if not wheels or len(added) < len(wheels):
            return None
        times += added
    return max(times, default=None)


def pinned(lock: Lock) -> str:
    """Return the lock as requirements without hashes, to look up what an index has. Raises: Invalid."""
    return "".join(f"{_pin(package)}\n" for package in lock.packages)


def requirements(lock: Lock) -> str:
    """Return the lock as a requirements file in which every line has its hashes. Raises: Invalid."""
    return "".join(_line(package) for package in lock.packages)


def _normal(name: str) -> str:
    return normal_name(name, Ecosystem.PYPI)


def _read(content: bytes) -> Sequence[_Found]:
    try:
        return msgspec.toml.decode(content, type=_Pylock).packages
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Invalid(f"the lock that `uv` wrote cannot be understood: {visible(str(exc))}") from exc


def _locked(found: _Found, *, is_forked: bool) -> Locked:
    named = quote(f"{found.name} {found.version or ''}".rstrip())
    if found.version is None or found.vcs or found.directory or found.archive:
        raise Invalid(f"{named} is not from a package index: only released wheels are installed")
    if not found.wheels:
        raise Invalid(f"{named} has no wheel; {NO_SOURCE}")
    key = requirement(_normal(found.name), found.version)
    return Locked(
        key=f"{key} ; {found.marker}" if is_forked and found.marker else key,
        name=_normal(found.name),
        version=found.version,
        integrity=tuple(sorted({_integrity(wheel, named) for wheel in found.wheels})),
        detail={"marker": found.marker} if found.marker else {},
    )


def _integrity(wheel: Wheel, named: str) -> str:
    sha256 = wheel.hashes.get("sha256")
    if sha256 is None:
        raise Invalid(f"{named} has a wheel without a sha256 hash")
    return str(parse_integrity(f"sha256-{sha256}", what=f"the hash of {named}"))


def _largest(wheels: Sequence[Wheel]) -> int | None:
    """Return the most that this package can weigh: which wheel it will be depends on the machine."""
    sizes = [wheel.size for wheel in wheels if wheel.size is not None]
    return max(sizes) if len(sizes) == len(wheels) else None


def _released(wheels: Sequence[Wheel]) -> str | None:
    """Return when the last of `wheels` was added: a wheel added late makes an old release a new one."""
    times = [wheel.upload_time for wheel in wheels if wheel.upload_time is not None]
    return max(times).astimezone(UTC).isoformat().replace("+00:00", "Z") if times else None


def _pin(package: Locked) -> str:
    marker = package.detail.get("marker", "")
    if not isinstance(marker, str) or (marker and not _MARKER.fullmatch(marker)):
        raise Invalid(f"the lock of {quote(package.name)} has the marker {quote(str(marker))}, which is none")
    return requirement(package.name, package.version) + (f" ; {' '.join(marker.split())}" if marker else "")


def _line(package: Locked) -> str:
    if not package.integrity:
        raise Invalid(f"the lock of {quote(package.name)} has no hash")
    hashes = [parse_integrity(text, what=f"the hash of {quote(package.name)}") for text in package.integrity]
    if any(one.algorithm is not Algorithm.SHA256 for one in hashes):
        raise Invalid(f"the lock of {quote(package.name)} has a hash that is not a sha256")
    return " ".join([_pin(package), *(f"--hash=sha256:{one.hex}" for one in hashes)]) + "\n"
