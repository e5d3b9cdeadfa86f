"""Cache of what registries answered: one index file per entry, and beside it the body under its hash.

A body is hashed again whenever it is read; what is not as it was stored is ignored and removed,
and so is what was not used for long. Misses stay in memory: names that do not exist have no end. A cache that
cannot be written is not a failure: the next lookup asks again. How long an answer is fresh is not known here.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from pml.core.errors import PmlError
from pml.host.private import private_directory
from pml.host.replace import replace_file
from pml.registry.entry_forms import MAX_BYTES, EntryName, Form
from pml.registry.plain_files import read_plain

UNUSED_S: Final = 30 * 86400.0  # a project laid aside for a holiday finds its answers again
MAX_ENTRIES: Final = 1000  # many times what one person's workspaces use
MAX_MISSES: Final = 1000
_MAX_INDEX: Final = 16 * 1024
_USED_S: Final = 86400.0  # a use is noted once a day
_WRITING_S: Final = 60.0  # a body is written before its index


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One form of one entry of one registry."""

    registry: str
    name: EntryName
    form: Form

    @property
    def file(self) -> str:
        """A file name that fits every system and belongs to this key alone."""
        return hashlib.sha256(f"{self.registry}\n{self.name}\n{self.form}".encode()).hexdigest()


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer. `sha256` is the hash of the body; None: the registry has no such entry."""

    key: Key
    fetched_at: datetime
    etag: str | None
    sha256: str | None


class Cache:
    """The cache beneath `home`; its files are in `place`."""

    def __init__(self, home: Path, *, debug: Callable[[str], None]) -> None:
        self._home = home
        self.place = home / "cache" / "registry"
        self._debug = debug
        self._misses: dict[Key, Answered] = {}
        self._is_pruned = False

    def load(self, key: Key) -> tuple[Answered, bytes] | None:
        """Return the last answer and its body, which is empty where there is no entry; None if unknown."""
        miss = self._misses.get(key)
        if miss is not None:
            return miss, b""
        loaded = self._loaded(key.file)
        if isinstance(loaded, str):
            return self._drop(key, loaded)
        if loaded is not None:
            self._note_use(key)
        return loaded

    def look(self, stem: str) -> tuple[Answered, bytes] | None:
        """Return what is kept under this file name, without marking it as used; None if not sound."""
        loaded = self._loaded(stem)
        return None if isinstance(loaded, str) else loaded

    def store(self, answered: Answered, body: bytes) -> None:
        """Keep an answer in the place of the one before it."""
        key = answered.key
        if answered.sha256 is None:
            self._keep_miss(answered)
            return
        self._misses.pop(key, None)
        kept = self._body(key, answered.sha256)
        try:
            private_directory(self.place)
            replace_file(kept, body, mode=0o600)
            replace_file(self._index(key), msgspec.json.encode(answered), mode=0o600)
            _unlink(*(path for path in self._bodies(key.file) if path != kept))
            self._prune()
        except OSError as exc:
            self._debug(f"registry cache: cannot keep {key.name}: {exc.strerror}")

    def renew(self, answered: Answered) -> None:
        """Keep an answer whose body is stored already."""
        try:
            replace_file(self._index(answered.key), msgspec.json.encode(answered), mode=0o600)
        except OSError as exc:
            self._debug(f"registry cache: cannot keep {answered.key.name}: {exc.strerror}")

    def forget(self, key: Key) -> None:
        """Remove what is kept for `key`."""
        self._misses.pop(key, None)
        self._remove(key.file)

    def _loaded(self, stem: str) -> tuple[Answered, bytes] | str | None:
        """Return the answer and its body, None if there is none, or why it is ignored."""
        index = self._read(self.place / f"{stem}.json", limit=_MAX_INDEX)
        if index is None:
            return None
        try:
            answered = msgspec.json.decode(index, type=Answered)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "its index cannot be read"
        key = answered.key
        if key.file != stem or answered.fetched_at.tzinfo is None:
            return "its index is another entry's"
        if answered.sha256 is None or not _is_hash(answered.sha256):
            return "its index cannot be read"
        body = self._read(self._body(key, answered.sha256), limit=MAX_BYTES[key.form])
        if body is None or hashlib.sha256(body).hexdigest() != answered.sha256:
            return "its body is not the one that was stored"
        return answered, body

    def _drop(self, key: Key, why: str) -> None:
        self._debug(f"registry cache: dropped {key.name}: {why}")
        self.forget(key)

    def _read(self, path: Path, *, limit: int) -> bytes | None:
        try:
            return read_plain(path, limit=limit)
        except PmlError as exc:
            self._debug(f"registry cache: {exc.message}")
            return None

    def _keep_miss(self, answered: Answered) -> None:
        self.forget(answered.key)
        self._misses[answered.key] = answered
        if len(self._misses) > MAX_MISSES:
            del self._misses[next(iter(self._misses))]

    def _note_use(self, key: Key) -> None:
        with suppress(OSError):  # one that cannot be noted is asked for again some day
            if _age_s(self._index(key)) > _USED_S:
                os.utime(self._index(key))

    def _prune(self) -> None:
        """Remove what was not used for long, and the oldest beyond the most that are kept; once a process."""
        if self._is_pruned:
            return
        self._is_pruned = True
        used = sorted(self._ages(".json"))
        for age_s, stem in [*used[MAX_ENTRIES:], *(each for each in used if each[0] > UNUSED_S)]:
            self._debug(f"registry cache: removed what was not used for {age_s / 86400:.0f} days")
            self._remove(stem)
        known = {stem for _, stem in used}
        for age_s, stem in self._ages(".body"):
            if stem not in known and age_s > _WRITING_S:
                self._remove(stem)

    def _ages(self, suffix: str) -> Iterator[tuple[float, str]]:
        for path in self.place.glob(f"*{suffix}"):
            with suppress(OSError):  # another process removes as well
                yield _age_s(path), path.name.partition(".")[0]

    def _remove(self, stem: str) -> None:
        """Remove the index first: a body without one is ignored."""
        _unlink(self.place / f"{stem}.json", *self._bodies(stem))

    def _bodies(self, stem: str) -> Iterator[Path]:
        return self.place.glob(f"{stem}.*.body")

    def _index(self, key: Key) -> Path:
        return self.place / f"{key.file}.json"

    def _body(self, key: Key, sha256: str) -> Path:
        return self.place / f"{key.file}.{sha256}.body"


def _unlink(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):  # gone already, or it does no harm
            path.unlink()


def _age_s(path: Path) -> float:
    return time.time() - path.lstat().st_mtime


def _is_hash(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")
