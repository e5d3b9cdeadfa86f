"""The audit chain that this process writes, and the heads that are kept outside the database.

A chain is a file in `PML_HOME/audit` whose lock its writer holds; a later process takes over a chain
that nobody holds. A chain whose database end contradicts the kept head is never written again: its
state is evidence, and `pml audit verify` tells of it.
"""

import os
import re
import sys
from pathlib import Path
from typing import Final

from pml.core.audit.chain import GENESIS, Head
from pml.core.errors import Unavailable
from pml.host.locks import open_lock_file, try_lock
from pml.host.private import private_directory
from pml.store.sqlite.database import Database
from pml.store.sqlite.queries import queries

_HEAD_BYTES: Final = 128
_HEAD: Final = re.compile(rb"([0-9]{1,18}) ([0-9a-f]*) *\n")


class Chain:
    """A chain held by this process: its name and its end."""

    def __init__(self, name: str, fd: int, head: Head) -> None:
        self.name = name
        self.head = head
        self._fd = fd

    def keep(self, head: Head) -> None:
        """Write down outside the database where the chain ends now; called after each commit."""
        if head == self.head:
            return
        self.head = head
        _write(self._fd, head)

    def close(self) -> None:
        os.close(self._fd)


def take_chain(home: Path, database: Database) -> Chain:
    """Return the first sound chain that no process holds, or a new one. Call inside a transaction."""
    directory = private_directory(home / "audit")
    number = 0
    while True:
        number += 1
        name = f"{number:04d}"
        fd = open_lock_file(str(directory / name), create=True)
        try:
            end = _sound_end(name, fd, database) if try_lock(fd) else None
        except BaseException:
            os.close(fd)  # left open it would stay locked, and the next try would begin another chain
            raise
        if end is not None:
            return Chain(name, fd, end)
        os.close(fd)


def heads_kept(home: Path) -> list[Head]:
    """Return the heads kept outside the database, by chain. Raises: Unavailable if one cannot be read."""
    directory = home / "audit"
    if not directory.exists():
        return []
    try:
        names = sorted(name for name in os.listdir(directory) if name.isdecimal())
        found = [_read(name, (directory / name).read_bytes()[:_HEAD_BYTES]) for name in names]
    except OSError as exc:
        raise Unavailable(
            f"{exc.filename or directory}: {exc.strerror}",
            hint="it keeps where the audit log ends; make it readable for this user",
        ) from exc
    return [head for head in found if head is not None]


def _sound_end(name: str, fd: int, database: Database) -> Head | None:
    """Return where the chain ends in the database if the kept head agrees, else None."""
    kept = _read(name, os.read(fd, _HEAD_BYTES))
    rows = database.run(queries()["chain_end"], (name,))
    if not rows:
        if kept is not None and kept.n > 0:
            return None
        fresh = Head(chain=name, n=0, hash=GENESIS)
        _write(fd, fresh)
        return fresh
    if kept is None:
        return None
    if kept.n > 0 and database.run(queries()["chain_hash"], (name, kept.n)) != [(kept.hash,)]:
        return None
    return Head(chain=name, n=rows[0][0], hash=rows[0][1])


def _write(fd: int, head: Head) -> None:
    text = f"{head.n} {head.hash}".ljust(_HEAD_BYTES - 1).encode() + b"\n"
    if sys.platform == "win32":
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, text)
    else:
        os.pwrite(fd, text, 0)


def _read(name: str, text: bytes) -> Head | None:
    """Return the head that was written down, or None if `text` is not one."""
    found = _HEAD.fullmatch(text)
    return None if found is None else Head(chain=name, n=int(found[1]), hash=found[2].decode())
