"""Executions of Python code as bytes that only this home can have written.

The interpreter trusts its snapshots, so nothing of a dump is parsed before its seal is checked. The key is
made when it is first needed; without it there is nothing to dump and nothing to load.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Final

import msgspec

from pml.core.code.sandbox import Program
from pml.host.keys import key_at
from pml.sandbox.monty.state import RunState

_FORMAT: Final = 1  # of `MontyDump`; another one is not read
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
            self._key = key_at(self._path)
        return hmac.digest(self._key, _PURPOSE + body, "sha256")


def _interpreter() -> str:
    from pydantic_monty import __version__

    return __version__


def _digest(program: Program) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(program)).digest()
