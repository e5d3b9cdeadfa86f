"""Deliveries to a webhook: which waiting questions it was told of, in a file; which hub tells it, by a lock.

The file is replaced whole, and one that cannot be read tells of none: a question is rather told twice.
"""

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pml.core.approvals.record import ApprovalId
from pml.host.disk import unavailable
from pml.host.locks import is_same_file, open_lock_file, try_lock
from pml.host.private import private_directory
from pml.host.replace import replace_file


class _File(msgspec.Struct, frozen=True):
    sent: list[str]


class Sent:
    """The questions that wait and were delivered, kept in a file that is replaced whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[ApprovalId, None] = {}
        self._is_saved = True

    def __contains__(self, approval_id: ApprovalId) -> bool:
        return approval_id in self._ids

    def add(self, approval_id: ApprovalId) -> None:
        self._ids[approval_id] = None
        self._is_saved = False

    def forget(self, approval_id: ApprovalId) -> None:
        if approval_id in self._ids:
            del self._ids[approval_id]
            self._is_saved = False

    async def load(self, waiting: Sequence[ApprovalId]) -> None:
        """Learn which of those that wait were delivered; a file that cannot be read tells of none."""
        kept: set[str] = set()
        with suppress(OSError, msgspec.MsgspecError):
            content = await asyncio.to_thread(self._path.read_bytes)
            kept = set(msgspec.json.decode(content, type=_File).sent)
        self._ids = {each: None for each in waiting if each in kept}
        self._is_saved = len(self._ids) == len(kept)

    async def save(self) -> None:
        """Raises: Unavailable."""
        if self._is_saved:
            return
        self._is_saved = True
        content = msgspec.json.encode(_File(sent=list(self._ids)))
        try:
            await asyncio.to_thread(replace_file, self._path, content, mode=0o600)
        except OSError as exc:
            self._is_saved = False
            raise unavailable(str(self._path), exc) from exc


def run_folder(home: str) -> Path:
    """Raises: Unavailable."""
    folder = Path(home) / "run"
    try:
        return private_directory(folder)
    except OSError as exc:
        raise unavailable(str(folder), exc) from exc


@contextmanager
def alone(path: Path) -> Generator[bool]:
    """Hold the lock for the block, if no other process does. Raises: Unavailable."""
    try:
        descriptor = open_lock_file(str(path), create=True)
    except OSError as exc:
        raise unavailable(str(path), exc) from exc
    try:
        yield try_lock(descriptor) and is_same_file(descriptor, str(path))
    finally:
        os.close(descriptor)
