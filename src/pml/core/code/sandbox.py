"""The port of the sandboxes: code that runs turn by turn, with nothing but `mcp`.

A turn is all that the code does until it waits for something: the calls that it has made by then, or its
end. One reply is delivered at a time, so that the same replies in the same order make the same run, in any
process. Who may call what, and what is kept of it, is not known here.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from pml.core.values import Json, JsonObject


class Language(StrEnum):
    TYPESCRIPT = "typescript"
    PYTHON = "python"


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is to run. `export` is the function that is meant, None for the code of `execute` itself."""

    language: Language
    code: str
    args: Json
    export: str | None = None


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What the code takes for chance and time: the seed of all its randomness, and when it began.

    Time stands still during a turn; every reply brings a new instant.
    """

    seed: bytes  # 32 random bytes
    at_ms: int  # since 1970


class CodeCall(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """The code calls `mcp.namespace.action(arguments)`. Requests are numbered from 0 as they are made."""

    number: int
    namespace: str
    action: str
    arguments: JsonObject


class Sleep(msgspec.Struct, frozen=True, kw_only=True, tag="sleep"):
    """The code waits for time to pass."""

    number: int
    seconds: float


Request = CodeCall | Sleep


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call failed, as the code sees it: an error that it can catch, with this `code` and `message`."""

    code: str
    message: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request: `value` is JSON text. `at_ms` is the time that the code sees from now on."""

    number: int
    value: bytes = b"null"
    fault: Fault | None = None
    at_ms: int


class Ending(StrEnum):
    RETURNED = "returned"
    RAISED = "raised"  # the code's own error
    SYNTAX = "syntax"  # it could not be understood
    MISSING = "missing"  # it has no such function
    VALUE = "value"  # its result is not data: a function, a cycle
    LIMIT = "limit"  # time, memory, calls, or sizes
    BROKEN = "broken"  # the sandbox died, or what it said made no sense


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the code ended. `value` is JSON text; `line` and `column` count from 1, in the code as given.

    `code` is that of the fault it did not catch, if it was one.
    """

    how: Ending
    value: bytes = b"null"
    message: str = ""
    line: int | None = None
    column: int | None = None
    code: str | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the code did: the requests it made, the lines it printed, and how it ended, if it did."""

    requests: Sequence[Request] = ()
    logs: Sequence[str] = ()
    ended: Ended | None = None


class Execution(Protocol):
    """Code at work. After a turn with `ended`, or `close`, nothing of it is left."""

    async def begin(self) -> Turn:
        """Run the first turn. Loaded from a dump, it tells all logs so far and the requests still open."""
        ...

    async def deliver(self, reply: Reply) -> Turn:
        """Give the code what it waits for, and run on until it waits again."""
        ...

    async def dump(self) -> bytes | None:
        """Return all of it, to be loaded later, between two turns; None if its sandbox cannot."""
        ...

    async def close(self) -> None:
        """End it, whatever it is doing."""
        ...


class Sandbox(Protocol):
    """Runs code of one language. Raises everywhere: Unavailable if it cannot be had on this machine."""

    async def open(self, program: Program, conditions: Conditions) -> Execution: ...

    async def load(self, program: Program, dump: bytes) -> Execution | None:
        """Return the execution as it was dumped; None if this interpreter cannot continue it."""
        ...

    async def close(self) -> None:
        """End everything that runs, and all that is kept ready."""
        ...
