"""The lock of a dependency: given, kept from a look lately, or looked up; and which artefact in it is meant.

A hash that the metadata names binds the bytes: of several wheels of a package only the named one stays in a
lock that was looked up. A lock that was published stays as it is, since its digest was published with it.
"""

from collections.abc import Mapping
from contextlib import suppress

from pml.core.capability import McpDependency
from pml.core.errors import IntegrityFailed
from pml.core.loading import Told
from pml.core.locks import Ecosystem, Lock, check_lock
from pml.install.ecosystems import EcosystemInstaller
from pml.install.proofs import check_artefact, check_named, named_artefact, with_one_artefact
from pml.install.resolved import ResolvedLocks
from pml.install.staging import Staging, to_the_end


class Closures:
    def __init__(
        self,
        ecosystems: Mapping[Ecosystem, EcosystemInstaller],
        staging: Staging,
        resolved: ResolvedLocks,
    ) -> None:
        self._ecosystems = ecosystems
        self._staging = staging
        self._resolved = resolved
        self._proven: dict[tuple[str, str], str] = {}

    async def resolve(self, dependency: McpDependency, *, told: Told) -> Lock:
        """Return the lock. Raises: IntegrityFailed, Invalid, NotFound, Unavailable, OSError."""
        if isinstance(dependency.lock, Lock):
            lock = check_lock(dependency.lock)
            check_named(dependency, lock)
            await self.find_artefact(dependency, lock)
            return lock
        kept = self._resolved.find(dependency.package)
        if kept is not None:
            with suppress(IntegrityFailed):  # the registry may have more by now
                return await self._fitted(dependency, dependency.lock, kept)
        ecosystem = self._ecosystems[dependency.package.ecosystem]
        async with self._staging.room() as room:
            found = check_lock(await ecosystem.resolve(dependency.package, room, told=told))
        check_named(dependency, found)
        self._resolved.keep(dependency.package, found)
        return await self._fitted(dependency, dependency.lock, found)

    async def find_artefact(self, dependency: McpDependency, lock: Lock) -> str | None:
        """Return which hash of the lock is the artefact that the metadata names; None: it names none.

        Raises: IntegrityFailed if there is no such.
        """
        if (integrity := dependency.integrity) is None:
            return None
        found = named_artefact(dependency, lock) or self._proven.get((lock.digest, integrity))
        if found is None:
            async with self._staging.room() as room:
                data = await self._ecosystems[lock.ecosystem].fetch(lock, room)
            found = await to_the_end(lambda _: check_artefact(dependency, lock, data))
            self._proven[lock.digest, integrity] = found
        return found

    async def _fitted(self, dependency: McpDependency, wanted: str | None, closure: Lock) -> Lock:
        """Return the closure with the one artefact that is named, or whole if `wanted` is the digest of that.

        Raises: IntegrityFailed.
        """
        artefact = await self.find_artefact(dependency, closure)
        bound = closure if artefact is None else with_one_artefact(closure, artefact)
        if artefact is not None and dependency.integrity is not None:
            self._proven[bound.digest, dependency.integrity] = artefact
        if wanted in (None, bound.digest):
            return bound
        if wanted != closure.digest:
            raise IntegrityFailed(dependency.title, expected=wanted or "", got=closure.digest)
        return closure
