"""State of a run outside the interpreter: what the code asked for, the time it sees, and what it printed.

With the interpreter's snapshot it is dumped as bytes that only this home can have written. The interpreter
trusts its snapshots, so nothing of a dump is parsed before its seal is checked. The key is made when it is
first needed; without it there is nothing to dump and nothing to load.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Final

import msgspec

from pml.core.code.sandbox import CodeCall, Conditions, Program, Reply, Request, Sleep
from pml.core.values import loads_object
from pml.host.keys import key_at
from pml.sandbox.monty.limits import MontyLimits

_FORMAT: Final = 1  # of `MontyDump`; another one is not read
_SEAL_BYTES: Final = hashlib.sha256().digest_size
_PURPOSE: Final = b"pml python snapshot\0"  # nothing else that is signed with the key can pass for a dump


class MontyLogs(msgspec.Struct, kw_only=True):
    """`lines` are all so far, `told` of them already in a turn; `rest` is a line that has no end yet."""

    most_bytes: int
    lines: list[str] = []
    told: int = 0
    rest: list[str] = []
    size: int = 0
    is_cut: bool = False

    def printed(self, text: str) -> None:
        if self.is_cut:
            return
        self.size += len(text.encode())
        if self.size > self.most_bytes:
            self.is_cut = True
            self._end_line()
            self.lines.append(f"… output is cut: more than {self.most_bytes:,} bytes were printed")
            return
        *ended, rest = text.split("\n")
        for line in ended:
            self.rest.append(line)
            self._end_line(even_empty=True)
        if rest:
            self.rest.append(rest)

    def new(self, *, is_end: bool) -> list[str]:
        """Return the lines that no turn has told, at the end also one that has no end."""
        if is_end:
            self._end_line()
        new = self.lines[self.told :]
        self.told = len(self.lines)
        return new

    def _end_line(self, *, even_empty: bool = False) -> None:
        if self.rest or even_empty:
            self.lines.append("".join(self.rest))
            self.rest = []


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request without a reply. `call_id` is the interpreter's; None while the code is in `time.sleep`.

    `call` is namespace, action and the arguments as JSON text; None for a sleep.
    """

    number: int
    call_id: int | None
    call: tuple[str, str, bytes] | None = None
    seconds: float = 0.0

    @property
    def request(self) -> Request:
        if self.call is None:
            return Sleep(number=self.number, seconds=self.seconds)
        namespace, action, arguments = self.call
        return CodeCall(
            number=self.number, namespace=namespace, action=action, arguments=loads_object(arguments)
        )


class RunState(msgspec.Struct, kw_only=True):
    """All that a dump holds beside the interpreter's own snapshot.

    `held` are replies that came while the code was in `time.sleep`, with their call ids; `faults` the codes
    of those that it was given; `paths` what it has read off `mcp`; `draws` how often it drew random bytes.
    """

    seed: bytes
    at_ms: int
    logs: MontyLogs
    draws: int = 0
    made: int = 0
    open: dict[int, OpenRequest] = {}
    held: list[tuple[int, Reply]] = []
    paths: list[tuple[str, ...]] = []
    faults: list[str] = []


def new_state(conditions: Conditions, limits: MontyLimits) -> RunState:
    logs = MontyLogs(most_bytes=limits.logs_bytes)
    return RunState(seed=conditions.seed, at_ms=conditions.at_ms, logs=logs)


def _interpreter() -> str:
    from pydantic_monty import __version__

    return __version__


def _digest(program: Program) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(program)).digest()


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
