"""A sandbox without processes: programs are generators that yield the requests they make, reply by reply."""

from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from pml.core.code.sandbox import (
    CodeCall,
    Conditions,
    Ended,
    Ending,
    Execution,
    Program,
    Reply,
    Request,
    Turn,
)
from pml.core.values import JsonObject

Script = Callable[[Any], Generator[list[tuple[str, JsonObject]], Reply, Any]]


class FakeExecution:
    """One program at work. `at` are the instants that it has seen."""

    def __init__(self, script: Script, program: Program, conditions: Conditions) -> None:
        self.at = [conditions.at_ms]
        self.is_closed = False
        self._made = 0
        self._work = script(program.args)

    async def begin(self) -> Turn:
        return self._turn(lambda: next(self._work))

    async def deliver(self, reply: Reply) -> Turn:
        self.at.append(reply.at_ms)
        return self._turn(lambda: self._work.send(reply))

    async def dump(self) -> bytes | None:
        return None

    async def close(self) -> None:
        self.is_closed = True

    def _turn(self, go: Callable[[], list[tuple[str, JsonObject]]]) -> Turn:
        try:
            asked = go()
        except StopIteration as exc:
            return Turn(ended=Ended(how=Ending.RETURNED, value=msgspec.json.encode(exc.value)))
        except RuntimeError as exc:
            return Turn(ended=Ended(how=Ending.RAISED, message=str(exc), line=1, column=1))
        requests: list[Request] = []
        for tool, arguments in asked:
            namespace, _, action = tool.partition(":")
            call = CodeCall(number=self._made, namespace=namespace, action=action, arguments=arguments)
            requests.append(call)
            self._made += 1
        return Turn(requests=requests)


class FakeSandbox:
    """Runs the scripts it knows, by the code that names them. `opened` keeps every execution."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = dict(scripts)
        self.opened: list[FakeExecution] = []

    async def open(self, program: Program, conditions: Conditions) -> Execution:
        execution = FakeExecution(self.scripts[program.code], program, conditions)
        self.opened.append(execution)
        return execution

    async def load(self, program: Program, dump: bytes) -> Execution | None:
        return None

    async def close(self) -> None:
        for execution in self.opened:
            await execution.close()


def value(reply: Reply) -> Any:
    """Return what the code makes of a reply. Raises: RuntimeError, as code does that does not catch it."""
    if reply.fault is not None:
        raise RuntimeError(f"{reply.fault.code}: {reply.fault.message}")
    return msgspec.json.decode(reply.value)
