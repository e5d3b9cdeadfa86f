"""Installs servers beneath `PML_HOME` and proves what is there: the port `Installer` on a disk.

Nothing is installed before `deps.json` says so, which is written last, so a failure, a cancellation or a kill
leaves either nothing or a whole install. How packages are fetched is the business of their ecosystem.
"""

import asyncio
import os
import random
import threading
from collections.abc import AsyncGenerator, Container, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import date, datetime
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import ArtefactChanged, Changed, IntegrityFailed, Invalid, NotFound, Unavailable
from pml.core.packages.capability import McpDependency
from pml.core.packages.lock import Ecosystem, Lock, check_lock
from pml.core.ports.loader import Accepted, Installed, Plan, Progress, Told
from pml.core.ports.world import Clock
from pml.core.rules.ruleset import Source
from pml.core.servers.process_launch import Artefact, ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.core.text import quote
from pml.host.locks import open_lock_file, try_lock
from pml.host.private import private_directory
from pml.install.deps import Deps, is_within
from pml.install.disk_failures import unavailable
from pml.install.ecosystems import EcosystemInstaller, Entry, Room
from pml.install.folder_names import check_name, check_new
from pml.install.proofs import (
    check_artefact,
    check_given,
    check_held,
    check_named,
    check_server_name,
    named_artefact,
    with_one_artefact,
)
from pml.install.recent_closures import ResolvedLocks
from pml.install.tree.hashes import Difference, hash_tree, keep_list, make_read_only
from pml.install.tree.tree_folders import InstalledTrees, Staging, to_the_end

# Neither Deno nor Python may take code from, or leave code in, places that are never proven.
_RUNTIME: Final[Mapping[Ecosystem, Mapping[str, str]]] = {
    Ecosystem.NPM: {"DENO_DIR": "${state}/deno", "DENO_NO_UPDATE_CHECK": "1"},
    Ecosystem.MCPB: {"DENO_DIR": "${state}/deno", "DENO_NO_UPDATE_CHECK": "1", "PYTHONNOUSERSITE": "1"},
    Ecosystem.PYPI: {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"},
}


class Launches:
    """The specs of installed servers; for the same server and workspace always the same object."""

    def __init__(
        self, home: Path, ecosystems: Mapping[Ecosystem, EcosystemInstaller], *, recorded_in: Path
    ) -> None:
        self._states = home / "state"
        self._ecosystems = ecosystems
        self._source = Source(file=str(recorded_in), line=1)
        self._specs: dict[tuple[str, str], tuple[Installed, ServerSpec]] = {}

    def spec(self, installed: Installed, workspace: str) -> ServerSpec:
        """Return how `installed` is started in `workspace`; its own folder exists.

        Raises: Unavailable without its runtime; Invalid if it cannot be held to this workspace.
        """
        name = installed.dependency.name
        state = self._states / name
        try:
            private_directory(state)
        except OSError as exc:
            raise unavailable(f"start `{name}`", exc, at=str(state)) from exc
        found = self._specs.get((name, workspace))
        if found is None or found[0] != installed:
            room = Room(tree=installed.path, state=str(state), workspace=workspace)
            found = self._specs[name, workspace] = (installed, self._new(installed, room))
        return found[1]

    def digest(self, installed: Installed) -> str:
        """Return the digest of how `installed` is started, also where it cannot be."""
        return ProcessLaunch(command=installed.entry, artefact=self._artefact(installed, needs=())).digest()

    def _new(self, installed: Installed, room: Room) -> ServerSpec:
        dependency = installed.dependency
        ecosystem = dependency.package.ecosystem
        entry = Entry(path=installed.entry, runtime=installed.runtime)
        command = self._ecosystems[ecosystem].command(entry, dependency, room)
        env = {**dependency.env, **_RUNTIME[ecosystem], "HOME": "${state}"}
        launch = ProcessLaunch(
            command=command.command,
            args=command.args,
            env={name: room.fill(value) for name, value in env.items()},
            permissions=dependency.permissions,
            artefact=self._artefact(installed, needs=command.needs),
        )
        return ServerSpec(name=dependency.name, target=launch, source=self._source)

    def _artefact(self, installed: Installed, *, needs: tuple[str, ...]) -> Artefact:
        dependency = installed.dependency
        return Artefact(
            version=dependency.version,
            terms=installed.terms,
            path=installed.path,
            tree=installed.tree,
            state=str(self._states / dependency.name),
            needs=needs,
            env_required=dependency.env_required,
            containment=installed.containment,
            is_accepted=installed.accepted,
        )


class Closures:
    """Locks of packages: given whole, kept from an earlier look, or resolved by the ecosystem now."""

    def __init__(
        self,
        ecosystems: Mapping[Ecosystem, EcosystemInstaller],
        staging: Staging,
        resolved: ResolvedLocks,
    ) -> None:
        self._ecosystems = ecosystems
        self._staging = staging
        self._resolved = resolved
        # By lock digest and integrity: an artefact is fetched and hashed once, not for every judgement.
        self._proven: dict[tuple[str, str], str] = {}

    async def resolve(self, dependency: McpDependency, *, told: Told) -> Lock:
        """Return the lock. Raises: IntegrityFailed, Invalid, NotFound, Unavailable, OSError."""
        # A whole lock needs no registry. Its author may be anybody, so it must be about this very package.
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
        # A package may have several artefacts. Metadata that names one by its hash narrows the lock to it.
        bound = closure if artefact is None else with_one_artefact(closure, artefact)
        if artefact is not None and dependency.integrity is not None:
            self._proven[bound.digest, dependency.integrity] = artefact
        if wanted in (None, bound.digest):
            return bound
        # The digest may be of the whole closure; any other one means that the closure has changed.
        if wanted != closure.digest:
            raise IntegrityFailed(dependency.title, expected=wanted or "", got=closure.digest)
        return closure


_WAIT_S: Final = 1800.0  # longer than the slowest install that another process may be busy with
_RETRY_S: Final = (0.01, 0.05)  # jittered, so that waiting processes do not march in step


class _GivenUp(Exception):
    """The caller no longer waits for the install."""


class DiskInstaller:
    def __init__(self, home: Path, ecosystems: Mapping[Ecosystem, EcosystemInstaller], clock: Clock) -> None:
        self._home = Path(os.path.realpath(home))  # else one place would have as many names as links to it
        self._ecosystems = ecosystems
        self._clock = clock
        self._deps = Deps(self._home)
        self._shelf = InstalledTrees(self._deps.servers)
        self._staging = Staging(self._deps.servers / ".staging")
        self._resolved = ResolvedLocks(self._home, clock)
        self._closures = Closures(ecosystems, self._staging, self._resolved)
        self._youngest: dict[str, datetime] = {}
        self._launches = Launches(self._home, ecosystems, recorded_in=self._deps.path)

    def installed(self, name: str) -> Installed | None:
        """Return the version in use. Raises: Invalid if `deps.json` cannot be understood."""
        return self._deps.read().installed.get(name)

    def all_installed(self) -> Mapping[str, Installed]:
        """Return the versions in use, by name. Raises: Invalid."""
        return self._deps.read().installed

    def accepted(self, name: str) -> Accepted | None:
        """Return what was last consented to under this name, also after its removal. Raises: Invalid."""
        return self._deps.read().accepted.get(name)

    async def resolve(self, dependency: McpDependency, *, told: Told) -> Lock:
        """Return the lock: the given one, or the closure as the package registry has it now or had it lately.

        Unless a lock or its digest is given, of the package itself it has the one artefact that is named.
        Raises: IntegrityFailed if it is not what the metadata says; Invalid for an entry without a hash.
        """
        check_new(dependency.name, self.all_installed())
        with self._failures(f"install `{dependency.title}`"):
            return await self._closures.resolve(dependency, told=told)

    async def look_up(
        self, ecosystem: Ecosystem, name: str, wanted: str | None, *, before: date | None, told: Told
    ) -> Lock:
        """Return the closure of a package whose version may be left open, as the package registry has it now.

        `before`: nothing of it was published on that day or later. Raises: NotFound, Invalid, Unavailable.
        """
        with self._failures(f"look up {quote(name)}"):
            async with self._staging.room() as room:
                found = await self._ecosystems[ecosystem].look_up(
                    name, wanted, room, before=before, told=told
                )
            return check_lock(found)

    async def youngest_at(self, lock: Lock) -> datetime | None:
        """Return when the youngest package of `lock` was published; None where that cannot be known.

        It is asked of the package registry: a lock says of itself what its author likes.
        """
        known = self._youngest.get(lock.digest)
        if known is None:
            with self._failures(f"look up the age of {quote(lock.name)}"):
                known = await self._look_up_age(lock)
        if known is not None:
            self._youngest[lock.digest] = known  # a call is judged again and again until it is decided
        return known

    async def _look_up_age(self, lock: Lock) -> datetime | None:
        with suppress(NotFound, Invalid, Unavailable):
            async with self._staging.room() as room:
                return await self._ecosystems[lock.ecosystem].youngest_at(lock, room)
        return None

    async def install(self, plan: Plan, *, told: Told) -> Installed:
        """Install it, once however many ask, and make it the version in use.

        Raises: IntegrityFailed, and nothing of it stays; Changed if the lock is not the plan's.
        """
        dependency, lock = plan.dependency, check_lock(plan.lock)
        check_new(dependency.name, self.all_installed())
        check_named(dependency, lock)
        check_given(dependency, lock)
        with self._failures(f"install `{dependency.title}`"):
            async with self._alone(dependency.name, told):
                # Looked at under the lock: another process may have installed it while this one waited.
                found = await to_the_end(lambda _: self._proven_already(plan))
                if found is not None and (found.terms, found.containment) == (plan.terms, plan.containment):
                    return found
                await self._closures.find_artefact(dependency, lock)
                if found is not None:  # the same bytes under new terms: nothing is fetched again
                    check_held(plan, Entry(path=found.entry, runtime=found.runtime))
                    await self._check_name(dependency, lock, Path(found.path))
                    return await to_the_end(lambda _: self._move_terms(found, plan))
                await to_the_end(lambda _: self._staging.sweep())
                return await self._build(plan, lock, told)

    def launch(self, installed: Installed, *, workspace: str) -> ServerSpec:
        """Return how the server is started in `workspace`; for equal arguments the same object.

        Reads no file of it. Raises: Unavailable, Invalid: this server cannot be started, others can.
        """
        return self._launches.spec(installed, workspace)

    def target_digest(self, installed: Installed) -> str:
        """Return the digest of how the server is started, also of one that cannot be."""
        return self._launches.digest(installed)

    async def prove(self, spec: ServerSpec) -> None:
        """Return if the files of an installed server are those that were installed or accepted.

        Raises: ArtefactChanged with the files that are not; Changed if another one is in use now.
        """
        if (artefact := spec.artefact) is None:
            return
        found = self.installed(spec.name)
        # What was approved must still be the version in use: an update in between has terms of its own.
        launched = (artefact.terms, artefact.tree, artefact.path)
        if found is None or (found.terms, found.tree, found.path) != launched:
            raise Changed(
                f"server `{spec.name}` is no longer the one that was installed", hint="call it again"
            )
        difference = await to_the_end(lambda _: self._shelf.verify(found))
        if difference is not None:
            raise ArtefactChanged(spec.name, files=difference.files, tree=difference.tree)

    async def accept(self, name: str, *, tree: str) -> Installed:
        """Take the files as they are now for those of the server.

        Raises: Changed if they hash otherwise; Invalid for what no package may bring, or without a folder.
        """
        with self._failures(f"accept the files of {quote(name)}"):
            async with self._alone(name):
                return await to_the_end(lambda _: self._accept(name, tree))

    async def remove(self, name: str, keep_in_use: Container[str] = ()) -> Sequence[str]:
        """Remove what is installed under `name`; its state stays. Raises: NotFound.

        Trees whose path is in `keep_in_use` stay until `gc`, and are returned.
        """
        with self._failures(f"remove {quote(name)}"):
            async with self._alone(name):
                return await to_the_end(lambda _: self._remove(name, keep_in_use))

    async def gc(self, keep_in_use: Container[str] = ()) -> int:
        """Remove trees that neither are installed nor have their path in `keep_in_use`, and what was left.

        Returns how many bytes that frees. Raises: Invalid, and no tree is removed.
        """
        freed = 0
        with self._failures("remove old files"):
            await self.sweep()
            for name in self._shelf.names():
                async with self._alone(name):
                    freed += await to_the_end(lambda _, name=name: self._clear(name, keep_in_use))
        return freed

    async def sweep(self) -> None:
        """Remove what installs that were killed left, and closures that are too old to use."""
        await to_the_end(lambda _: self._staging.sweep())
        await to_the_end(lambda _: self._resolved.remove_old())

    async def verify_all(self) -> Mapping[str, Difference | None]:
        """Read every file of everything installed; return by name what is not as it was installed."""
        found = self.all_installed()
        return {
            name: await to_the_end(lambda _, each=each: self._shelf.verify(each, read_all=True))
            for name, each in found.items()
        }

    def _proven_already(self, plan: Plan) -> Installed | None:
        """Return what is installed, if it is what the plan would bring and its files are proven."""
        found = self.installed(plan.dependency.name)
        if found is None or found.lock != plan.lock.digest or (found.accepted and found.terms != plan.terms):
            return None
        package, entry = plan.dependency.package, Entry(path=found.entry, runtime=found.runtime)
        if found.dependency.package.tool != package.tool:
            return None  # another program of it is started, and only an install chooses one
        if self._ecosystems[package.ecosystem].is_outdated(entry):
            return None
        return None if self._shelf.verify(found) else found

    def _move_terms(self, found: Installed, plan: Plan) -> Installed:
        """Let the files that are there be held to what was approved now."""
        moved = msgspec.structs.replace(
            found, dependency=_kept(plan), terms=plan.terms, containment=plan.containment
        )
        self._deps.record(moved)
        return moved

    async def _build(self, plan: Plan, lock: Lock, told: Told) -> Installed:
        async with self._staging.room() as room:
            scratch, tree = private_directory(room / "scratch"), private_directory(room / "tree")
            ecosystem, package = self._ecosystems[lock.ecosystem], plan.dependency.package
            entry = await ecosystem.install(lock, package, scratch, tree, told=told)
            check_held(plan, entry)
            await self._check_name(plan.dependency, lock, tree)
            return await to_the_end(lambda given_up: self._commit(plan, tree, entry, given_up))

    async def _check_name(self, dependency: McpDependency, lock: Lock, tree: Path) -> None:
        """Raise Invalid if the files are not those of the server that a registry lists."""
        if dependency.mcp_name is not None:
            ecosystem = self._ecosystems[lock.ecosystem]
            names = await to_the_end(lambda _: ecosystem.server_names(lock, tree))
            check_server_name(dependency, names)

    def _commit(self, plan: Plan, tree: Path, entry: Entry, given_up: threading.Event) -> Installed:
        """Give the tree its place, then let `deps.json` say so: only that makes it installed."""
        title = plan.dependency.title
        if not is_within(entry.path) or not (tree / entry.path).is_file():
            raise Invalid(f"`{title}` has no file {quote(entry.path)} to start")
        # Read-only before it is hashed: what is hashed here is what every later start is compared with.
        make_read_only(tree)
        hashed = hash_tree(tree)
        place = self._shelf.place(plan.dependency.name, plan.dependency.version, tree, hashed)
        installed = Installed(
            dependency=_kept(plan),
            lock=plan.lock.digest,
            terms=plan.terms,
            tree=hashed.digest,
            path=str(place),
            entry=entry.path,
            runtime=entry.runtime,
            containment=plan.containment,
            installed_at=self._clock.now(),
        )

        # Asked within the edit of `deps.json`: later, a caller that gave up would find it installed.
        def check_wanted() -> None:
            if given_up.is_set():
                raise _GivenUp

        try:
            self._deps.record(installed, last_check=check_wanted)
        except BaseException:
            if not tree.exists() and self.installed(plan.dependency.name) != installed:
                self._shelf.discard(place)  # only what was placed just now: an equal one was there before
            raise
        return installed

    def _accept(self, name: str, tree: str) -> Installed:
        found = self.installed(name)
        if found is None:
            raise NotFound(f"{quote(name)} is not installed")
        difference = self._shelf.verify(found, read_all=True)
        if difference is None:
            return found
        if not difference.tree:
            raise Invalid(
                f"the files of `{name}` cannot be accepted: {difference.files[0]}",
                hint=f"reinstall it with `pml deps install {name}`",
            )
        place = Path(found.path)
        if difference.tree != tree or (hashed := hash_tree(place)).digest != tree:
            raise Changed(f"the files of `{name}` have changed again", hint="look at them once more")
        accepted = msgspec.structs.replace(found, tree=tree, accepted=True)
        self._deps.record(accepted)
        keep_list(place, hashed)  # after the record: a list that is not the record's is made anew
        return accepted

    def _remove(self, name: str, keep_in_use: Container[str]) -> Sequence[str]:
        if self.installed(name) is None:
            raise NotFound(f"{quote(name)} is not installed")
        self._deps.forget(name)
        kept = [path for path in self._shelf.paths(name) if path in keep_in_use]
        self._shelf.clear(name, keep=kept)
        return kept

    def _clear(self, name: str, keep_in_use: Container[str]) -> int:
        found = self.installed(name)
        in_use = [path for path in self._shelf.paths(name) if path in keep_in_use]
        return self._shelf.clear(name, keep=[*in_use, found.path] if found else in_use)

    @asynccontextmanager
    async def _alone(self, name: str, told: Told = lambda _: None) -> AsyncGenerator[None]:
        """Be the only one, in any process, that changes what stands under `name`. Raises: Unavailable."""
        check_name(name)
        folder = private_directory(self._home / "locks")
        lock = open_lock_file(str(folder / f"install-{name}.lock"), create=True)
        try:
            waiting = False
            deadline = asyncio.get_running_loop().time() + _WAIT_S
            while not try_lock(lock):
                if not waiting:
                    told(Progress(done=0, total=None, message=f"waiting for another install of {name}"))
                    waiting = True
                if asyncio.get_running_loop().time() > deadline:
                    raise Unavailable(
                        f"another process has been installing `{name}` for {_WAIT_S:g} s",
                        hint="end that process, then try again",
                    )
                await asyncio.sleep(random.uniform(*_RETRY_S))
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _failures(self, what: str) -> Generator[None]:
        try:
            yield
        except OSError as exc:
            raise unavailable(what, exc, at=str(self._home)) from exc


def _kept(plan: Plan) -> McpDependency:
    """Return the dependency as it is recorded: of its lock the digest, and what it sees of the workspace."""
    return msgspec.structs.replace(plan.dependency, lock=plan.lock.digest, says_workspace=True)
