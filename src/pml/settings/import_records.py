"""Records of imports in `PML_HOME/imports.json`: what each has added, so that it can be taken back.

Of secrets it has the names only. It is replaced whole under a lock, and never written when it cannot be
understood.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from pml.core.errors import Invalid
from pml.core.text import quote
from pml.host.disk import unavailable
from pml.host.locks import LOCK_TIMEOUT_S, locked
from pml.host.private import private_directory
from pml.host.replace import replace_file
from pml.settings.watched_file import read_bytes

IMPORTS_FILE: Final = "imports.json"
_MAX_KEPT: Final = 20


class ReplacedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A client's file that entries were taken out of: the digest of what it is now, and its copy.

    `was` is the digest of the copy, which lies where others may write.
    """

    path: str
    backup: str
    digest: str
    was: str


class ImportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One import: the entries it wrote to `file`, the servers that it added, the secrets that it stored.

    `installed` are those of `added` whose files were not there before.
    """

    at: datetime
    file: str
    workspace: str
    is_workspace_file: bool
    entries: Mapping[str, Any]
    added: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    replaced: tuple[ReplacedFile, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    imports: tuple[ImportRecord, ...]


class ImportRecords:
    """The records of one `PML_HOME`, the newest last. Raises everywhere: Invalid, Unavailable."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / IMPORTS_FILE

    def last(self) -> ImportRecord | None:
        found = self._read()
        return found[-1] if found else None

    def add(self, record: ImportRecord) -> None:
        """Keep the record, durably."""
        self._change(lambda records: (*records, record)[-_MAX_KEPT:])

    def forget(self, record: ImportRecord) -> None:
        self._change(lambda records: tuple(each for each in records if each != record))

    def _read(self) -> tuple[ImportRecord, ...]:
        found = read_bytes(self._path)
        if found is None:
            return ()
        try:
            return msgspec.json.decode(found[0], type=_File).imports
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise Invalid(
                f"{quote(str(self._path))} is not as PML writes it, and is left alone",
                hint="move it away: it is only needed for `pml import --undo`",
            ) from exc

    def _change(self, change: Callable[[tuple[ImportRecord, ...]], tuple[ImportRecord, ...]]) -> None:
        try:
            lock = private_directory(self._home) / "locks" / "imports.lock"
            with locked(lock, timeout_s=LOCK_TIMEOUT_S):
                content = msgspec.json.format(msgspec.json.encode(_File(1, change(self._read()))), indent=2)
                replace_file(self._path, content + b"\n", mode=0o600)
        except OSError as exc:
            raise unavailable(f"cannot write {quote(str(self._path))}", exc) from exc
