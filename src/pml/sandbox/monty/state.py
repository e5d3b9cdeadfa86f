"""State of a run outside the interpreter: what the code asked for, the time it sees, and what it printed."""

import msgspec

from pml.core.code.sandbox import CodeCall, Conditions, Reply, Request, Sleep
from pml.core.values import loads_object
from pml.sandbox.monty.limits import MontyLimits


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
