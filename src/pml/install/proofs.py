"""Whether a lock is what the metadata says: its closure by digest, its artefact by hash, in any spelling."""

from pml.core.capability import McpDependency
from pml.core.errors import Changed, IntegrityFailed
from pml.core.integrity import Integrity, integrity_of, parse_integrity
from pml.core.locks import Lock, check_lock, check_lock_of


def check_named(dependency: McpDependency, lock: Lock) -> None:
    """Refuse a lock of another package. Raises: Invalid."""
    package = dependency.package
    check_lock_of(lock, ecosystem=package.ecosystem, name=package.name, version=package.version)


def check_given(dependency: McpDependency, lock: Lock) -> None:
    """Refuse a lock that is not the one the metadata gives. Raises: Changed."""
    given = check_lock(dependency.lock).digest if isinstance(dependency.lock, Lock) else dependency.lock
    if given is not None and given != lock.digest:
        raise Changed(f"the lock of `{dependency.title}` is not the one its metadata gives", hint="try again")


def is_proven_by_lock(dependency: McpDependency, lock: Lock) -> bool:
    """Tell whether the lock settles it; if not, the artefact must be hashed. Raises: IntegrityFailed."""
    if dependency.integrity is None:
        return True
    expected = parse_integrity(dependency.integrity, what="`integrity`")
    same = [named for named in _artefact(lock) if named.algorithm is expected.algorithm]
    if same and expected not in same:
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        raise _failed(dependency, expected, _like(dependency.integrity, same[0]) + more)
    return bool(same)


def check_artefact(dependency: McpDependency, lock: Lock, data: bytes) -> None:
    """Refuse what is not both the lock's artefact and the metadata's. Raises: IntegrityFailed."""
    named = _artefact(lock)
    if not any(each.matches(data) for each in named):
        got = integrity_of(data, named[0].algorithm)
        raise IntegrityFailed(dependency.title, expected=str(named[0]), got=str(got))
    if dependency.integrity is not None:
        expected = parse_integrity(dependency.integrity, what="`integrity`")
        if not expected.matches(data):
            got = integrity_of(data, expected.algorithm)
            raise _failed(dependency, expected, _like(dependency.integrity, got))


def _artefact(lock: Lock) -> list[Integrity]:
    return [parse_integrity(each, what="the hash in the lock") for each in lock.artefact]


def _failed(dependency: McpDependency, expected: Integrity, got: str) -> IntegrityFailed:
    return IntegrityFailed(dependency.title, expected=dependency.integrity or str(expected), got=got)


def _like(spelling: str, integrity: Integrity) -> str:
    """Return `integrity` in hex if `spelling` is in hex, so that a person can compare the two."""
    is_hex = len(spelling.partition("-")[2]) == len(integrity.hex)
    return f"{integrity.algorithm}-{integrity.hex}" if is_hex else str(integrity)
