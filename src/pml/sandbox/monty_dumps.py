"""Executions of Python code as bytes that only this home can have written.

The interpreter trusts its snapshots, so nothing of a dump is parsed before its seal is checked. The key is
made when it is first needed; without it there is nothing to dump and nothing to load.
"""

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from pml.core.sandbox import Program
from pml.host.private import private_directory
from pml.host.replacing import create_file
from pml.sandbox.monty_state import RunState

_FORMAT: Final = 1  # of `MontyDump`; another one is not read
_KEY_BYTES: Final = 32
_SEAL_BYTES: Final = hashlib.sha256().digest_size
_PURPOSE: Final = b"pml python snapshot\0"  # nothing else that is signed with the key can pass for a dump


class MontyDump(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`program` is the digest of the program that it is an execution of."""

    format: int
    interpreter: str
    program: bytes
    state: RunState
    snapshot: bytes


class DumpSeal:
    """Seals dumps with the key of `home`, and opens what was sealed so."""

    def __init__(self, home: Path) -> None:
        self._path = home / "keys" / "snapshots.key"
        self._key: bytes | None = None

    def seal(self, program: Program, state: RunState, snapshot: bytes) -> bytes:
        """Raises: OSError, ValueError if there is no key to be had."""
        dump = MontyDump(
            format=_FORMAT,
            interpreter=_interpreter(),
            program=_digest(program),
            state=state,
            snapshot=snapshot,
        )
        body = msgspec.msgpack.encode(dump)
        return self._sealed(body) + body

    def open(self, program: Program, sealed: bytes) -> MontyDump | None:
        """Return what was sealed; None if it was not sealed here, or is of another program or interpreter."""
        seal, body = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
        try:
            if not hmac.compare_digest(seal, self._sealed(body)):
                return None
            dump = msgspec.msgpack.decode(body, type=MontyDump)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        expected = (_FORMAT, _interpreter(), _digest(program))
        return dump if (dump.format, dump.interpreter, dump.program) == expected else None

    def _sealed(self, body: bytes) -> bytes:
        if self._key is None:
            self._key = _key_at(self._path)
        return hmac.digest(self._key, _PURPOSE + body, "sha256")


def _key_at(path: Path) -> bytes:
    private_directory(path.parent)
    with suppress(FileExistsError):
        if not path.exists():
            create_file(path, secrets.token_bytes(_KEY_BYTES), mode=0o600)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe in its place would wait
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) or (os.name == "posix" and mode & 0o077):
            raise ValueError("the key of the snapshots is not a private file")
        key = file.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise ValueError("the key of the snapshots has a wrong length")
    return key


def _interpreter() -> str:
    from pydantic_monty import __version__

    return __version__


def _digest(program: Program) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(program)).digest()
