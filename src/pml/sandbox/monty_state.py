"""What of a run is not in the interpreter: what the code asked for, the time it sees, and what it printed."""

import msgspec

from pml.core.sandbox import CodeCall, Conditions, Reply, Request, Sleep
from pml.core.values import loads_object
from pml.sandbox.monty_limits import MontyLimits
from pml.sandbox.monty_logs import MontyLogs


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
