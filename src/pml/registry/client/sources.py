"""Sources of servers that no file configures: the bundled catalog, then the configured registry.

A registry is a URL or a folder. Its answer is used only if it is sound and about what was asked for, and code
is verified. What a folder has now applies; while the whole folder is not there, what was used of it does, as
of a URL that is out of reach. What is done with it, and whether a rule or a person allows that, is not known
here.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec

from pml.core.errors import IntegrityFailed, Invalid, NotFound, PmlError, Unavailable
from pml.core.names import ToolName
from pml.core.packages.capability import CapabilityMetadata
from pml.core.packages.integrity import integrity_of, parse_integrity
from pml.core.packages.server_json import Listed
from pml.core.ports.loader import Found
from pml.core.ports.world import Clock
from pml.core.text import quote, visible
from pml.registry.catalog import SOURCE, Catalog
from pml.registry.client.addresses import registry_url
from pml.registry.client.cache import Cache, Key
from pml.registry.client.code_pins import CodePins
from pml.registry.client.lookups import ABSENT_S, FRESH_S, Lookups, Question, Say
from pml.registry.client.official import (
    MAX_PAGES,
    OfficialRegistry,
    is_official,
    kept_server,
    official_base,
)
from pml.registry.client.web import Patience
from pml.registry.entry_forms import (
    MAX_BYTES,
    SUFFIX,
    EntryName,
    Form,
    MetadataReader,
    code_form,
    entry_name,
    is_entry,
    names_of,
)
from pml.registry.folder import FolderGone, RegistryFolder
from pml.registry.plain_files import read_plain

_Mark: TypeAlias = tuple[int, int, int]  # of a file: what changes when it is written or replaced


class _Entry(msgspec.Struct, frozen=True):
    """One of the entries of a file; of two about one capability the one with the higher `rank` applies."""

    found: Found
    rank: float


NO_OFFICIAL: Final = "`registry` must name one whose address ends in `/v0.1/servers`; there is no default"


class Listing:
    """Lists folders, and what `cache` holds. One for a process."""

    def __init__(self, cache: Cache, *, debug: Say) -> None:
        self._cache = cache
        self._debug = debug
        self._reader = MetadataReader()
        self._files: dict[Path, dict[str, tuple[_Mark, _Entry | None]]] = {}

    def folder(self, path: Path) -> Sequence[Found]:
        """Return the sound entries of a registry folder, by name; none where it cannot be read."""
        return _ranked(self._entries(path, lambda stem: self._in_folder(path, stem)))

    def kept(self, registry: str) -> Sequence[Found]:
        """Return what the registry, by its URL or folder, is known to have had, by name."""
        entries = self._entries(self._cache.place, self._in_cache)
        return _ranked([entry for entry in entries if entry.found.source == registry])

    def _entries(self, folder: Path, read: Callable[[str], _Entry | None]) -> list[_Entry]:
        """Return what `read` makes of each file, or made of it when it was as it is now."""
        before, now = self._files.get(folder, {}), dict[str, tuple[_Mark, _Entry | None]]()
        for stem, mark in _marks(folder):
            kept = before.get(stem)
            now[stem] = kept if kept is not None and kept[0] == mark else (mark, self._read(stem, read))
        self._files[folder] = now
        return [entry for _, entry in now.values() if entry is not None]

    def _read(self, stem: str, read: Callable[[str], _Entry | None]) -> _Entry | None:
        try:
            return read(stem)
        except PmlError as exc:
            self._debug(f"registry: not listed: {visible(stem)}: {visible(exc.message)}")
            return None

    def _in_folder(self, folder: Path, stem: str) -> _Entry | None:
        name = entry_name(stem)
        path = folder / f"{name}{SUFFIX[Form.METADATA]}"
        body = read_plain(path, limit=MAX_BYTES[Form.METADATA])
        return None if body is None else self._entry(body, name, str(folder), rank="." in name)

    def _in_cache(self, stem: str) -> _Entry | None:
        looked = self._cache.look(stem)
        if looked is None or looked[0].key.form is not Form.METADATA:
            return None
        answered, body = looked
        key = answered.key
        if not is_entry(key.name):
            listed = kept_server(key, body)
            return None if listed is None else _Entry(listed, answered.fetched_at.timestamp())
        return self._entry(body, key.name, key.registry, rank=answered.fetched_at.timestamp())

    def _entry(self, body: bytes, name: EntryName, source: str, *, rank: float) -> _Entry:
        return _Entry(Found(metadata=self._reader.read(body, name, source=source), source=source), rank)


T = TypeVar("T")


class RegistryClient:
    """One for a process. `warn` and `debug` get lines for people; both are safe to print."""

    def __init__(
        self, home: Path, *, clock: Clock, warn: Say, debug: Say, patience: Patience | None = None
    ) -> None:
        self._clock = clock
        self._pins = CodePins(home)
        self._lookups = Lookups(home, clock=clock, warn=warn, debug=debug, patience=patience or Patience())
        self._listing = Listing(self._lookups.cache, debug=debug)
        self._reader = MetadataReader()
        self.official = OfficialRegistry(self._lookups)

    async def find(self, tool: ToolName, *, registry: str, prefix: str | None) -> Found | None:
        """Return what offers `tool`, by the first of its names that the registry has; None if it has none.

        Raises: Invalid for an answer that is not sound; Unavailable if the registry cannot be asked.
        """
        if is_official(registry):
            return await self.official.find(tool, registry=registry, prefix=prefix)
        names, spelt = names_of(tool, prefix), _spelt(registry)
        for index, name in enumerate(names):
            others = names[index + 1 :]
            try:
                metadata = await self._metadata(name, spelt, others=others)
            except Unavailable:
                if not self._is_known(spelt, others):
                    raise
                continue  # misses are not kept between processes: out of reach, what is known must do
            if metadata is not None:
                return Found(metadata=metadata, source=registry)
        return None

    async def code(self, found: Found) -> bytes:
        """Return the code of a capability, as its metadata or its first use has it.

        Raises: IntegrityFailed, Changed for other code; NotFound; Invalid for a server; Unavailable.
        """
        fqdn, registry = str(found.metadata.fqdn), _spelt(found.source)
        form = code_form(found.metadata)
        if form is None:
            raise Invalid(f"{quote(fqdn)} is a server and has no code of its own")
        code = await self._code(found.metadata, registry, form)
        if code is None:
            raise NotFound(
                f"registry {quote(registry)} has no {form.value} for {quote(fqdn)}",
                hint="tell its publisher",
            )
        if found.metadata.code_integrity is None and not self._pins.has(registry=registry, fqdn=fqdn):
            self._pins.add(registry=registry, fqdn=fqdn, code=code, pinned_at=self._clock.now())
        return code

    def known(self, registry: str) -> Sequence[Found]:
        """Return what is known of the registry without a request, by name. Raises: Invalid for its URL."""
        spelt = _spelt(registry)
        if _is_folder(spelt) and RegistryFolder(Path(spelt)).is_there():
            return self._listing.folder(Path(spelt))
        kept = self._listing.kept(official_base(spelt) if is_official(spelt) else spelt)
        return tuple(Found(metadata=each.metadata, source=registry) for each in kept)

    async def _metadata(
        self, name: EntryName, registry: str, *, others: Sequence[EntryName]
    ) -> CapabilityMetadata | None:
        def read(body: bytes) -> CapabilityMetadata:
            return self._reader.read(body, name, source=registry)

        key = _metadata_key(registry, name)
        if _is_folder(registry):
            return self._from_folder(key, read)

        def absent_s() -> float:
            """Return how long a miss is believed: as long as a hit, where a hit on another name stands in."""
            return FRESH_S if self._is_known(registry, others) else ABSENT_S

        question = Question(key=key, url=_entry_url(key), read=read, absent_s=absent_s)
        return await self._lookups.answer(question)

    def _from_folder(self, key: Key, read: Callable[[bytes], T]) -> T | None:
        """Return what the folder has now, and keep it; while it is not there, what was kept last."""
        try:
            body = RegistryFolder(Path(key.registry)).read(key.name, key.form)
        except FolderGone as exc:
            return self._lookups.recall(key, read, failure=exc)
        value = None if body is None else read(body)
        self._lookups.keep(key, body)
        return value

    def _is_known(self, registry: str, names: Sequence[EntryName]) -> bool:
        """Tell whether the registry is known to have had one of these entries."""
        return any(self._lookups.has(_metadata_key(registry, name)) for name in names)

    async def _code(self, metadata: CapabilityMetadata, registry: str, form: Form) -> bytes | None:
        name = EntryName(str(metadata.fqdn))
        key = Key(registry=registry, name=name, form=form)
        is_settled = metadata.code_integrity is not None
        if not is_settled and not self._pins.has(registry=registry, fqdn=name):
            self._lookups.forget(key)  # its pin was removed for the sake of other code than what is kept

        def read(body: bytes) -> bytes:
            return self._verified(body, metadata, registry)

        if _is_folder(registry):
            return self._from_folder(key, read)
        question = Question(
            key=key,
            url=_entry_url(key) if metadata.code_url is None else _code_url(registry, metadata.code_url),
            read=read,
            is_settled=is_settled,
        )
        try:
            return await self._lookups.answer(question)
        except IntegrityFailed:
            self._doubt(key, metadata)
            raise

    def _verified(self, code: bytes, metadata: CapabilityMetadata, registry: str) -> bytes:
        """Return `code` if it is what the metadata, and a pin if there is one, says.

        A hash that was added since proves nothing: it comes from where the code comes from.
        Raises: IntegrityFailed, Changed.
        """
        fqdn = str(metadata.fqdn)
        if metadata.code_integrity is not None:
            integrity = parse_integrity(metadata.code_integrity, what=f"`code_integrity` of {quote(fqdn)}")
            if not integrity.matches(code):
                got = integrity_of(code, integrity.algorithm)
                raise IntegrityFailed(
                    fqdn,
                    expected=str(integrity),
                    got=str(got),
                    hint="its code is not what was published; nothing of it was run",
                )
        self._pins.check(registry=registry, fqdn=fqdn, code=code)
        return code

    def _doubt(self, key: Key, metadata: CapabilityMetadata) -> None:
        """Have the metadata asked for anew: code and hash may both have been published since."""
        for name in (str(metadata.fqdn), metadata.fqdn.namespace, metadata.fqdn.action):
            if name is not None:
                self._lookups.forget(_metadata_key(key.registry, EntryName(name)))


class CatalogAndRegistry:
    """The port `Sources`. `warn` and `debug` get lines for people."""

    def __init__(self, home: Path, *, clock: Clock, warn: Say, debug: Say) -> None:
        self._catalog = Catalog()
        self._registry = RegistryClient(home, clock=clock, warn=warn, debug=debug)

    async def find(self, tool: ToolName, *, registries: Sequence[str], prefix: str | None) -> Found | None:
        """As `Sources.find`. One that cannot be asked ends it: a later one might have another server."""
        found = None if tool.namespace is None else self._catalog.find(tool.namespace)
        if found is not None or tool.namespace is None:
            return found
        for registry in registries:
            found = await self._registry.find(tool, registry=registry, prefix=prefix)
            if found is not None:
                return found
        return None

    async def code(self, found: Found) -> bytes:
        """As `Sources.code`."""
        if found.source == SOURCE:
            raise NotFound(f"{quote(str(found.metadata.fqdn))} is of the bundled catalog and has no code")
        return await self._registry.code(found)

    def bundled(self) -> Sequence[Found]:
        """As `Sources.bundled`."""
        return self._catalog.bundled()

    def known(self, registries: Sequence[str]) -> Sequence[Found]:
        """As `Sources.known`; of two by one name the one of the earlier registry."""
        found: dict[str, Found] = {}
        for registry in registries:
            for each in self._registry.known(registry):
                found.setdefault(str(each.metadata.fqdn), each)
        return tuple(found[name] for name in sorted(found))

    async def listed(self, name: str, *, registries: Sequence[str], version: str | None = None) -> Listed:
        """Return the server with a name like `io.github.user/server`, of the first registry that has it.

        Raises: NotFound; Invalid for an answer that is not sound; Unavailable.
        """
        asked = [each for each in registries if is_official(each)]
        for registry in asked:
            found = await self._registry.official.server(name, registry=registry, version=version or "latest")
            if found is not None:
                return Listed(server=found, registry=registry)
        at = f" at version {quote(version)}" if version else ""
        raise NotFound(f"no registry lists {quote(name)}{at}", hint=None if asked else NO_OFFICIAL)

    async def search(self, query: str, *, registries: Sequence[str]) -> Sequence[Listed]:
        """Return what the registries list that fits `query`, from at most a few pages of each.

        Raises: Invalid, Unavailable.
        """
        found: dict[str, Listed] = {}
        for registry in (each for each in registries if is_official(each)):
            cursor: str | None = None
            for _ in range(MAX_PAGES):
                page = await self._registry.official.search(query, registry=registry, cursor=cursor)
                for server in page.servers:
                    found.setdefault(server.name, Listed(server=server, registry=registry))
                cursor = page.cursor
                if cursor is None:
                    break
        return tuple(found.values())


def _marks(folder: Path) -> list[tuple[str, _Mark]]:
    """Return the metadata files of `folder` by their stems, and how each is now."""
    suffix, marks = SUFFIX[Form.METADATA], list[tuple[str, _Mark]]()
    try:
        files = os.listdir(folder)
    except OSError:  # nothing is known of what cannot be read
        return []
    for file in files:
        if file.endswith(suffix):
            with suppress(OSError):  # it was removed just now
                facts = os.lstat(folder / file)
                marks.append((file.removesuffix(suffix), (facts.st_mtime_ns, facts.st_size, facts.st_ino)))
    return marks


def _ranked(entries: Sequence[_Entry]) -> Sequence[Found]:
    best: dict[str, _Entry] = {}
    for entry in entries:
        name = str(entry.found.metadata.fqdn)
        if name not in best or entry.rank > best[name].rank:
            best[name] = entry
    return tuple(best[name].found for name in sorted(best))


def _metadata_key(registry: str, name: EntryName) -> Key:
    return Key(registry=registry, name=name, form=Form.METADATA)


def _is_folder(registry: str) -> bool:
    return "://" not in registry


def _spelt(registry: str) -> str:
    """Return the one spelling that answers and pins are kept under. Raises: Invalid."""
    return registry if _is_folder(registry) else registry_url(registry)


def _entry_url(key: Key) -> str:
    return f"{key.registry}/mcp/{key.name}"


def _code_url(registry: str, given: str) -> str:
    return given if "://" in given else f"{registry}/{given.lstrip('/')}"
