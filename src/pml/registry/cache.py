"""What registries answered, on disk: one index file per entry, and beside it the body under its hash.

A body is hashed again whenever it is read; what is not as it was stored counts for nothing and is removed.
A cache that cannot be written is no failure: the next lookup asks again. What an answer means, and how long
it is fresh, is not known here.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from pml.core.errors import PmlError
from pml.host.private import private_directory
from pml.registry.entries import MAX_BYTES, EntryName, Form
from pml.registry.files import read_plain, write_whole

_MAX_INDEX = 16 * 1024


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
    """The cache beneath `home`."""

    def __init__(self, home: Path, *, debug: Callable[[str], None]) -> None:
        self._home = home
        self._place = home / "cache" / "registry"
        self._debug = debug

    def load(self, key: Key) -> tuple[Answered, bytes] | None:
        """Return the last answer and its body, which is empty where there is no entry; None if unknown."""
        index = self._read(self._index(key), limit=_MAX_INDEX)
        if index is None:
            return None
        try:
            answered = msgspec.json.decode(index, type=Answered)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._drop(key, "its index cannot be read")
        if answered.key != key or answered.fetched_at.tzinfo is None:
            return self._drop(key, "its index is another entry's")
        if answered.sha256 is None:
            return answered, b""
        if not _is_hash(answered.sha256):
            return self._drop(key, "its index cannot be read")
        body = self._read(self._body(key, answered.sha256), limit=MAX_BYTES[key.form])
        if body is None or hashlib.sha256(body).hexdigest() != answered.sha256:
            return self._drop(key, "its body is not the one that was stored")
        return answered, body

    def store(self, answered: Answered, body: bytes) -> None:
        """Keep an answer in the place of the one before it."""
        key = answered.key
        try:
            private_directory(self._place)
            if answered.sha256 is not None:
                write_whole(self._body(key, answered.sha256), body, mode=0o600)
            write_whole(self._index(key), msgspec.json.encode(answered), mode=0o600)
            self._remove_bodies(key, but=answered.sha256)
        except OSError as exc:
            self._debug(f"registry cache: cannot keep {key.name}: {exc.strerror}")

    def renew(self, answered: Answered) -> None:
        """Keep an answer whose body is stored already."""
        try:
            write_whole(self._index(answered.key), msgspec.json.encode(answered), mode=0o600)
        except OSError as exc:
            self._debug(f"registry cache: cannot keep {answered.key.name}: {exc.strerror}")

    def forget(self, key: Key) -> None:
        """Remove what is kept for `key`."""
        with suppress(OSError):
            self._index(key).unlink()
        self._remove_bodies(key, but=None)

    def _drop(self, key: Key, why: str) -> None:
        self._debug(f"registry cache: dropped {key.name}: {why}")
        self.forget(key)

    def _read(self, path: Path, *, limit: int) -> bytes | None:
        try:
            return read_plain(path, limit=limit)
        except PmlError as exc:
            self._debug(f"registry cache: {exc.message}")
            return None

    def _remove_bodies(self, key: Key, *, but: str | None) -> None:
        for path in self._place.glob(f"{key.file}.*.body"):
            if but is None or path != self._body(key, but):
                with suppress(OSError):
                    path.unlink()

    def _index(self, key: Key) -> Path:
        return self._place / f"{key.file}.json"

    def _body(self, key: Key, sha256: str) -> Path:
        return self._place / f"{key.file}.{sha256}.body"


def _is_hash(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")
