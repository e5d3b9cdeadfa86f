"""A lock: every package of a dependency's closure, by version and by the hashes of its artefacts.

A lock names no registry and no URL: where the bytes come from does not matter, what they are does. The
digest covers all that decides which bytes are installed; sizes, dates and scripts are facts for people.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import msgspec

from pml.core.digest import digest
from pml.core.errors import Invalid
from pml.core.packages.fields import Fields, shown
from pml.core.packages.integrity import parse_integrity
from pml.core.packages.package import Ecosystem, is_name, is_version, normal_name, same_version
from pml.core.text import has_hidden, quote
from pml.core.values import Json, JsonObject

MAX_PACKAGES: Final = 5_000

_MAX_HASHES: Final = 1_000  # one for each wheel of a package; the most known are about a hundred
_MAX_CHARS: Final = 1_000


class Locked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package. `key` tells it from the same package with other peers; `detail` is the installer's own.

    `integrity` are the artefacts that may be installed: one for npm, one per wheel for PyPI.
    """

    key: str
    name: str
    version: str
    integrity: tuple[str, ...]
    detail: JsonObject = {}
    has_scripts: bool = False


class Lock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The closure of `name`, sorted by key; `root` is the key of the package itself.

    `size` in bytes and `released_at` (RFC 3339) are None where the registry does not tell.
    """

    ecosystem: Ecosystem
    name: str
    version: str
    root: str
    packages: tuple[Locked, ...]
    size: int | None = None
    released_at: str | None = None

    @property
    def digest(self) -> str:
        """What an approval of this lock binds."""
        packages: list[Json] = [
            {
                "key": package.key,
                "name": package.name,
                "version": package.version,
                "integrity": sorted(package.integrity),
                "detail": package.detail,
            }
            for package in sorted(self.packages, key=lambda package: package.key)
        ]
        return digest({"ecosystem": self.ecosystem, "root": self.root, "packages": packages})

    @property
    def artefact(self) -> tuple[str, ...]:
        """The hashes of the package itself."""
        return next((package.integrity for package in self.packages if package.key == self.root), ())

    @property
    def with_scripts(self) -> tuple[str, ...]:
        """The packages that carry install scripts, which are never run."""
        return tuple(package.name for package in self.packages if package.has_scripts)


def check_lock(lock: Lock) -> Lock:
    """Return `lock` with each hash in its one spelling, if all of it can be verified. Raises: Invalid."""
    if not 1 <= len(lock.packages) <= MAX_PACKAGES:
        raise Invalid(f"the lock has {len(lock.packages):,} packages: expected 1 to {MAX_PACKAGES:,}")
    for one, other in pairwise(lock.packages):
        if one.key >= other.key:
            raise Invalid(
                f"the packages of the lock must be sorted by key, each once: "
                f"{quote(other.key)} comes after {quote(one.key)}"
            )
    root = next((package for package in lock.packages if package.key == lock.root), None)
    if root is None:
        raise Invalid(f"the lock has no package with the key {quote(lock.root)}, which is its `root`")
    if not _is_of(root.name, root.version, lock):
        raise Invalid(
            f"the lock is of {quote(f'{lock.name}@{lock.version}')}, "
            f"but its `root` is {quote(f'{root.name}@{root.version}')}"
        )
    packages = tuple(_checked(package, lock.ecosystem) for package in lock.packages)
    return msgspec.structs.replace(lock, packages=packages)


def check_lock_of(lock: Lock, *, ecosystem: Ecosystem, name: str, version: str) -> None:
    """Raise Invalid if `lock` is not one of this very package."""
    if lock.ecosystem is not ecosystem or not _is_of(name, version, lock):
        raise Invalid(
            f"the lock is of {quote(f'{lock.name}@{lock.version}')} from {lock.ecosystem}, "
            f"not of {quote(f'{name}@{version}')} from {ecosystem}"
        )


def parse_lock(value: Json, *, what: str) -> Lock:
    """Return the lock that `value`, which is `what`, describes, checked. Raises: Invalid."""
    if not isinstance(value, Mapping):
        raise Invalid(f"{what} must be an object, not {shown(value)}")
    return lock_in(Fields(what=what, value=value))


def lock_in(fields: Fields) -> Lock:
    """Return the lock that `fields` describe, checked. Raises: Invalid."""
    ecosystem = fields.choice("ecosystem", Ecosystem)
    if ecosystem is None:
        fields.missing("ecosystem", '`"npm"` or `"pypi"`')
    lock = Lock(
        ecosystem=ecosystem,
        name=_text(fields, "name"),
        version=_text(fields, "version"),
        root=_text(fields, "root"),
        packages=tuple(_locked(each) for each in fields.sections("packages", most=MAX_PACKAGES)),
        size=fields.count("size"),
        released_at=fields.text("released_at", most=_MAX_CHARS),
    )
    return fields.checked("", lambda: check_lock(lock))


def lock_json(lock: Lock) -> JsonObject:
    """Return `lock` as JSON: what `parse_lock` reads."""
    return msgspec.to_builtins(lock)


def _locked(fields: Fields) -> Locked:
    detail = fields.section("detail")
    return Locked(
        key=_text(fields, "key"),
        name=_text(fields, "name"),
        version=_text(fields, "version"),
        integrity=fields.texts("integrity", most=_MAX_HASHES, each=_MAX_CHARS),
        detail={} if detail is None else detail.value,
        has_scripts=fields.boolean("has_scripts") or False,
    )


def _text(fields: Fields, key: str) -> str:
    text = fields.text(key, most=_MAX_CHARS)
    if text is None:
        fields.missing(key, "a string")
    return text


def _checked(package: Locked, ecosystem: Ecosystem) -> Locked:
    title = quote(f"{package.name}@{package.version}")
    if has_hidden(package.key):
        raise Invalid(f"the key {quote(package.key)} of the lock has hidden characters")
    if not is_name(package.name, ecosystem) or not is_version(package.version, ecosystem):
        raise Invalid(f"{title} in the lock is not a package of {ecosystem} at one exact version")
    if not package.integrity:
        raise Invalid(f"{title} has no hash in the lock: it cannot be verified")
    hashes = {
        str(parse_integrity(text, what=f"the hash of {title} in the lock")) for text in package.integrity
    }
    return msgspec.structs.replace(package, integrity=tuple(sorted(hashes)))


def _is_of(name: str, version: str, lock: Lock) -> bool:
    return normal_name(name, lock.ecosystem) == normal_name(lock.name, lock.ecosystem) and same_version(
        version, lock.version, lock.ecosystem
    )
