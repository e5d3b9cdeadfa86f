"""Proofs that a lock is what the metadata says: its closure by digest, its artefact by hash."""

from collections.abc import Sequence

import msgspec

from pml.core.errors import Changed, IntegrityFailed, Invalid
from pml.core.packages.capability import McpDependency
from pml.core.packages.integrity import Integrity, integrity_of, parse_integrity
from pml.core.packages.lock import Lock, check_lock, check_lock_of
from pml.core.packages.permissions import Containment
from pml.core.ports.loader import Plan
from pml.core.text import quote
from pml.install.ecosystems import BINARY, Entry


def check_named(dependency: McpDependency, lock: Lock) -> None:
    """Refuse a lock of another package. Raises: Invalid."""
    package = dependency.package
    check_lock_of(lock, ecosystem=package.ecosystem, name=package.name, version=package.version)


def check_given(dependency: McpDependency, lock: Lock) -> None:
    """Refuse a lock that is not the one the metadata gives, or leaves open what it names. Raises: Changed."""
    given = check_lock(dependency.lock).digest if isinstance(dependency.lock, Lock) else dependency.lock
    if given is not None and given != lock.digest:
        raise Changed(f"the lock of `{dependency.title}` is not the one its metadata gives", hint="try again")
    if given is None and dependency.integrity is not None and len(lock.artefact) > 1:
        raise Changed(
            f"the lock of `{dependency.title}` has more artefacts than the one its metadata names",
            hint="try again",
        )


def check_server_name(dependency: McpDependency, names: Sequence[str]) -> None:
    """Raise Invalid if the package does not say itself that it is the server that a registry lists.

    An entry of a registry may name anybody's package; only the package tells which entry is its own.
    """
    wanted = dependency.mcp_name
    if wanted is None or wanted in names:
        return
    says = f"says that it is {', '.join(quote(name) for name in names[:3])}" if names else "names no server"
    raise Invalid(
        f"the registry lists {quote(dependency.package.spec)} as {quote(wanted)}, but that package {says}",
        hint="nothing of it stays; if you want the package itself, name it: `pml add 'npx -y …'` or `uvx …`",
    )


def check_held(plan: Plan, entry: Entry) -> None:
    """Raise Invalid for a program of the machine's own kind that nothing would hold."""
    if entry.runtime == BINARY and plan.containment is Containment.NONE:
        raise Invalid(
            f"`{plan.dependency.title}` is a program whose source nobody here can read, and nothing on this "
            "machine holds it to what it may reach",
            hint="such bundles run only where PML can contain them: with bwrap or Landlock, on Linux",
        )


def named_artefact(dependency: McpDependency, lock: Lock) -> str | None:
    """Return the hash in the lock that is the metadata's `integrity`; None: the artefact must be hashed.

    Raises: IntegrityFailed if the lock has others of that algorithm.
    """
    if dependency.integrity is None:
        return None
    expected = parse_integrity(dependency.integrity, what="`integrity`")
    same = [named for named in _artefact(lock) if named.algorithm is expected.algorithm]
    if same and expected not in same:
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        raise _failed(dependency, expected, _like(dependency.integrity, same[0]) + more)
    return str(expected) if same else None


def check_artefact(dependency: McpDependency, lock: Lock, data: bytes) -> str:
    """Return which hash of the lock `data` has. Raises: IntegrityFailed if it is not the metadata's too."""
    named = _artefact(lock)
    found = next((each for each in named if each.matches(data)), None)
    if found is None:
        got = integrity_of(data, named[0].algorithm)
        raise IntegrityFailed(dependency.title, expected=str(named[0]), got=str(got))
    if dependency.integrity is not None:
        expected = parse_integrity(dependency.integrity, what="`integrity`")
        if not expected.matches(data):
            got = integrity_of(data, expected.algorithm)
            raise _failed(dependency, expected, _like(dependency.integrity, got))
    return str(found)


def with_one_artefact(lock: Lock, integrity: str) -> Lock:
    """Return `lock` with this as the only artefact of the package itself: no other of it can be installed."""
    packages = tuple(
        msgspec.structs.replace(package, integrity=(integrity,)) if package.key == lock.root else package
        for package in lock.packages
    )
    return msgspec.structs.replace(lock, packages=packages)


def _artefact(lock: Lock) -> list[Integrity]:
    return [parse_integrity(each, what="the hash in the lock") for each in lock.artefact]


def _failed(dependency: McpDependency, expected: Integrity, got: str) -> IntegrityFailed:
    return IntegrityFailed(dependency.title, expected=dependency.integrity or str(expected), got=got)


def _like(spelling: str, integrity: Integrity) -> str:
    """Return `integrity` in hex if `spelling` is in hex, so that a person can compare the two."""
    is_hex = len(spelling.partition("-")[2]) == len(integrity.hex)
    return f"{integrity.algorithm}-{integrity.hex}" if is_hex else str(integrity)
