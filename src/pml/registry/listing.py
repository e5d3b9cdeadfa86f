"""All that is known of registries without a request: a folder's sound entries, else what the cache has of it.

Cheap to ask for often: a file that is as it was is not read again. What is not sound is not listed; whoever
looks it up by its name is told why.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from pml.core.errors import PmlError
from pml.core.loading import Found
from pml.core.text import visible
from pml.registry.cache import Cache
from pml.registry.entries import MAX_BYTES, SUFFIX, EntryName, Form, MetadataReader, entry_name
from pml.registry.files import read_plain
from pml.registry.lookups import Say

_Mark: TypeAlias = tuple[int, int, int]  # of a file: what changes when it is written or replaced


class _Entry(msgspec.Struct, frozen=True):
    """One of the entries of a file; of two about one capability the one with the higher `rank` counts."""

    found: Found
    rank: float


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
        return self._entry(body, key.name, key.registry, rank=answered.fetched_at.timestamp())

    def _entry(self, body: bytes, name: EntryName, source: str, *, rank: float) -> _Entry:
        return _Entry(Found(metadata=self._reader.read(body, name, source=source), source=source), rank)


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
