"""Deno's lock file as a lock of ours, and back: what decides the install is kept, its origin is not.

A lock may have been written by a stranger, so whatever is not understood on either way is refused.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from pml.core.errors import Invalid
from pml.core.packages.integrity import Algorithm, parse_integrity
from pml.core.packages.lock import Lock, Locked, check_lock
from pml.core.packages.package import Ecosystem, Package
from pml.core.text import quote
from pml.core.values import Json, JsonObject, loads_object

VERSION: Final = "5"
_LISTS: Final = ("dependencies", "optionalDependencies", "optionalPeers", "os", "cpu", "libc")
_FLAGS: Final = ("bin",)
_FACTS: Final = ("integrity", "scripts", "deprecated", "tarball")
_SECTIONS: Final = frozenset({"version", "specifiers", "npm", "workspace"})
_WORD: Final = re.compile(r"[A-Za-z0-9@!_~][A-Za-z0-9@._+/~^!-]*")
_MAX_CHARS: Final = 1000
_KEY: Final = re.compile(r"((?:@[^@/]+/)?[^@/_][^@/]*)@([^@/_]+)(_[^/]*)?")


def read_lock(
    text: bytes, package: Package, *, origin: Callable[[str], str | None], wanted: str | None = None
) -> Lock:
    """Return the closure of `package` as Deno wrote it down; `wanted` is how its version was asked for.

    `origin` tells the registry of a package: scheme, host and port; a tarball from elsewhere is refused.
    Raises: Invalid, naming the package that cannot be verified.
    """
    whole = loads_object(text, what="the lock that Deno wrote")
    if whole.get("version") != VERSION or not whole.keys() <= _SECTIONS:
        raise Invalid(
            f"{quote(package.spec)} needs packages from elsewhere than npm, which are not installed"
        )
    root = _root(_object(whole.get("specifiers")), package, wanted or package.version)
    entries = _object(whole.get("npm"))
    packages = [_locked(key, _object(entry), origin) for key, entry in sorted(entries.items())]
    lock = Lock(
        ecosystem=Ecosystem.NPM,
        name=package.name,
        version=package.version,
        root=root,
        packages=tuple(packages),
    )
    return check_npm_lock(lock)


def found_version(text: bytes, name: str) -> tuple[str, str]:
    """Return how Deno spells what was asked for of `name`, and the version that it found. Raises: Invalid."""
    whole = loads_object(text, what="the lock that Deno wrote")
    asked = f"npm:{name}@"
    for spelled, found in _object(whole.get("specifiers")).items():
        if spelled.startswith(asked) and isinstance(found, str):
            return spelled.removeprefix(asked), found.partition("_")[0]  # what follows tells of its peers
    raise Invalid(f"the registry gave something else for {quote(name)}")


def check_npm_lock(lock: Lock) -> Lock:
    """Return `lock` if Deno can install it and nothing else. Raises: Invalid."""
    checked = check_lock(lock)
    if checked.ecosystem is not Ecosystem.NPM:
        raise Invalid(f"the lock of {quote(lock.name)} is not one of npm packages")
    for package in checked.packages:
        _check(package)
    return checked


def write_lock(lock: Lock, *, tarballs: Mapping[str, str]) -> bytes:
    """Return Deno's lock file for `lock`. `tarballs` are by `name@version`, where Deno cannot guess them.

    Raises: Invalid.
    """
    checked = check_npm_lock(lock)
    spec = f"npm:{lock.name}@{lock.version}"
    packages: dict[str, Json] = {}
    for package in checked.packages:
        tarball = tarballs.get(f"{package.name}@{package.version}")
        packages[package.key] = {
            "integrity": package.integrity[0],
            **package.detail,
            **({"tarball": tarball} if tarball is not None else {}),
        }
    whole: Json = {
        "version": VERSION,
        "specifiers": {spec: lock.root.removeprefix(f"{lock.name}@")},
        "npm": packages,
        "workspace": {"packageJson": {"dependencies": [spec]}},
    }
    return msgspec.json.encode(whole)


def tarballs_in(text: bytes) -> dict[str, str]:
    """Return where the packages of Deno's lock file are, by `name@version`, as far as it says so."""
    entries = _object(loads_object(text, what="the lock that Deno wrote").get("npm"))
    found: dict[str, str] = {}
    for key, entry in entries.items():
        if isinstance(tarball := _object(entry).get("tarball"), str):
            name, version = split_key(key)
            found[f"{name}@{version}"] = tarball
    return found


def split_key(key: str) -> tuple[str, str]:
    """Return name and version of `name@1.2.3_peer@4.5.6`. Raises: Invalid."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise Invalid(f"the key {quote(key)} of the lock is not `name@version`")
    return found[1], found[2]


def origin_of(url: str) -> str:
    """Return scheme, host and port of `url`: what two URLs of one registry have in common."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


def _root(specifiers: JsonObject, package: Package, wanted: str) -> str:
    asked = f"npm:{package.name}@{wanted}"
    found = specifiers.get(asked)
    if set(specifiers) != {asked} or not isinstance(found, str):
        raise Invalid(f"the registry gave something else for {quote(package.spec)}")
    return f"{package.name}@{found}"


def _locked(key: str, entry: JsonObject, origin: Callable[[str], str | None]) -> Locked:
    name, version = split_key(key)
    title = quote(f"{name}@{version}")
    known = {*_LISTS, *_FLAGS, *_FACTS}
    if odd := sorted(entry.keys() - known):
        raise Invalid(f"{title} in the lock that Deno wrote has {quote(odd[0])}, which is not understood")
    tarball = entry.get("tarball")
    if tarball is not None and (not isinstance(tarball, str) or origin_of(tarball) != origin(name)):
        raise Invalid(f"{title} would come from another host than its registry, which is refused")
    integrity = entry.get("integrity")
    return Locked(
        key=key,
        name=name,
        version=version,
        integrity=(integrity,) if isinstance(integrity, str) else (),
        detail={member: value for member, value in entry.items() if member not in _FACTS},
        has_scripts=entry.get("scripts") is True,
    )


def _check(package: Locked) -> None:
    title = quote(f"{package.name}@{package.version}")
    if split_key(package.key) != (package.name, package.version) or not _is_plain(package.key):
        raise Invalid(f"the key {quote(package.key)} in the lock is not one of {title}")
    hashes = [parse_integrity(text, what=f"the hash of {title}") for text in package.integrity]
    if len(hashes) != 1 or hashes[0].algorithm is not Algorithm.SHA512:
        raise Invalid(f"{title} must have exactly one hash in the lock, a sha512")
    for member, value in package.detail.items():
        if member in _FLAGS:
            is_sound = isinstance(value, bool)
        else:
            is_sound = member in _LISTS and isinstance(value, list | tuple) and _are_plain(value)
        if not is_sound:
            raise Invalid(f"{title} in the lock has {quote(member)}, which is not as Deno writes it")


def _are_plain(values: Iterable[Json]) -> bool:
    return all(isinstance(value, str) and _is_plain(value) for value in values)


def _is_plain(word: str) -> bool:
    """Tell whether `word` can become a part of a path and lead nowhere."""
    bare = word.replace("@npm:", "@", 1)  # `alias@npm:name@1.2.3`; any other scheme leads out of the registry
    return _WORD.fullmatch(bare) is not None and ".." not in bare and len(bare) <= _MAX_CHARS


def _object(value: Json) -> JsonObject:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Invalid("the lock that Deno wrote is not as expected")
    return cast(JsonObject, value)
