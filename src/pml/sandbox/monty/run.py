"""One run of Python code in a session of the interpreter, turn by turn.

All of it that must outlive the process is in `RunState` and the interpreter's own snapshot. A fault raises
`RuntimeError("CODE: message")` in the code: the interpreter's errors can carry nothing but a message. Calls
of this module block; no two may run at once.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec
from pydantic_monty import (
    ClassInstance,
    ClassType,
    ExternalSettledResult,
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyError,
    MontySession,
    NameLookupSnapshot,
)

from pml.core.code.sandbox import Ended, Ending, Program, Reply, Request, Turn
from pml.core.errors import Invalid
from pml.sandbox.monty.endings import ended_by, raised_by
from pml.sandbox.monty.limits import LimitReached, MontyLimits
from pml.sandbox.monty.plain_data import NoData, data_of, packed_result
from pml.sandbox.monty.source import FALLBACK, NotAtTopLevel, PythonSource, executed, exported
from pml.sandbox.monty.state import OpenRequest, RunState

Path = tuple[str, ...]

_MOST_LETTERS: Final = 256  # of a name; no tool has a longer one


class mcp:  # the code sees this name when it asks for the type
    """Stands for `mcp` and everything read off it."""


class Misused(Exception):
    """`mcp` was called otherwise than it can be; the message is for the code."""


class McpTree:
    """The objects that the code of one run has got."""

    def __init__(self, paths: Iterable[Sequence[str]], *, most: int) -> None:
        self._type = ClassType(mcp, id=_id_of(("type",) * 4))
        self._most = most
        self._paths: dict[UUID, Path] = {}
        self._objects: dict[UUID, ClassInstance] = {}
        for path in paths:
            self._object(tuple(path))

    @property
    def root(self) -> ClassInstance:
        return self._object(())

    @property
    def paths(self) -> list[Path]:
        return list(self._paths.values())

    def read(self, holder: UUID, name: str) -> ClassInstance | None:
        """Return what `name` is on the object `holder`; None if it has no such attribute."""
        path = self._paths.get(holder)
        if path is None or len(path) > 1 or len(name) > _MOST_LETTERS or name.startswith("__"):
            return None
        return self._object((*path, name))

    def called(self, holder: UUID, method: str) -> tuple[str, str]:
        """Return namespace and action of a call. Raises: Misused."""
        path = self._paths.get(holder, ())
        path = path if method == "__call__" else (*path, method)
        if len(path) != 2:
            raise Misused(f"`{'.'.join(('mcp', *path))}` cannot be called: call `mcp.namespace.action(...)`")
        return path[0], path[1]

    def _object(self, path: Path) -> ClassInstance:
        id = _id_of(path)
        if id not in self._objects:
            if len(self._objects) >= self._most:
                raise LimitReached(f"the code reads more than {self._most:,} names off `mcp`")
            self._paths[id] = path
            self._objects[id] = ClassInstance(mcp(), id=id, class_type=self._type)
        return self._objects[id]


def _id_of(path: Path) -> UUID:
    named = b"".join(len(name.encode()).to_bytes(4) + name.encode() for name in path)
    return UUID(bytes=hashlib.sha256(b"mcp" + named).digest()[:16])


def arguments_of(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call: keywords, or one dict. Raises: Misused."""
    if not args:
        return kwargs
    if len(args) == 1 and not kwargs and isinstance(args[0], dict):
        return cast(dict[str, Any], args[0])
    raise Misused("a tool takes keyword arguments, or one dict with them")


Snapshot: TypeAlias = FunctionSnapshot | NameLookupSnapshot | FutureSnapshot | MontyComplete

_LATER: Final[Any] = {"future": ...}
_NOTHING_MADE: Final = (Ending.LIMIT, Ending.BROKEN)  # a flood of calls comes to nothing but an error


class _Stop(Exception):
    """The run is over, whatever the interpreter would do next."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.message)
        self.ended = ended


class MontyRun:
    """The code at work in `session`, which is the caller's to end."""

    def __init__(self, session: MontySession, program: Program, state: RunState, limits: MontyLimits) -> None:
        self._session = session
        self._program = program
        self._state = state
        self._limits = limits
        self._tree = McpTree(state.paths, most=limits.names)
        self._source: PythonSource | None = None
        self._waiting: FunctionSnapshot | FutureSnapshot | None = None
        self._new: list[Request] = []
        self._turn_ends = 0.0
        self._turn_bytes = 0

    def begin(self) -> Turn:
        """Run the first turn."""
        return self._turn(self._start)

    def restore(self, snapshot: bytes) -> Turn:
        """Take the run up from where it waited; tell all its logs and open requests. Raises: ValueError."""
        self._source = self._sourced()
        try:
            found = self._session.load_snapshot(snapshot, print_callback=self._printed)
        except MontyError as exc:
            raise ValueError("the interpreter does not take the snapshot") from exc
        if not isinstance(found, FunctionSnapshot | FutureSnapshot):
            raise ValueError("the snapshot is of code that does not wait")
        self._waiting = found
        requests = tuple(one.request for one in self._state.open.values())
        return Turn(requests=requests, logs=tuple(self._state.logs.lines))

    def deliver(self, reply: Reply) -> Turn:
        """Settle one request and run on. Raises: Invalid if it is not open."""
        settled = self._state.open.pop(reply.number, None)
        waiting = self._waiting
        if settled is None or waiting is None:
            raise Invalid(f"request {reply.number} of the code is not open")
        self._state.at_ms = reply.at_ms
        if isinstance(waiting, FunctionSnapshot):
            if settled.call_id is not None:
                self._state.held.append((settled.call_id, reply))
                return Turn()
            return self._turn(lambda: waiting.resume(self._answer(reply)))
        call_id = cast(int, settled.call_id)
        return self._turn(lambda: self._settled(waiting, call_id, reply))

    def dump(self) -> tuple[bytes, RunState] | None:
        """Return the interpreter's snapshot and the rest; None if the code does not wait."""
        if self._waiting is None:
            return None
        self._state.paths = self._tree.paths
        return self._waiting.dump(), self._state

    def _start(self) -> Snapshot:
        if len(self._program.code.encode(errors="replace")) > self._limits.code_bytes:
            raise LimitReached(f"the code has more than {self._limits.code_bytes:,} bytes")
        self._source = self._sourced()
        prefix = "" if self._program.export is None else "__pml_"
        inputs: dict[str, Any] = {f"{prefix}args": self._program.args, f"{prefix}mcp": self._tree.root}
        return self._session.feed_start(self._source.text, inputs=inputs, print_callback=self._printed)

    def _sourced(self) -> PythonSource:
        code, export = self._program.code, self._program.export
        try:
            return executed(code) if export is None else exported(code, export)
        except NotAtTopLevel as exc:
            told = Ended(how=Ending.SYNTAX, message=str(exc), line=exc.line, column=exc.column)
            raise _Stop(told) from exc

    def _turn(self, step: Callable[[], Snapshot]) -> Turn:
        self._waiting = None
        self._turn_ends = time.monotonic() + self._limits.turn_s
        self._turn_bytes = 0
        ended = self._run(step)
        requests, self._new = tuple(self._new), []
        if ended is not None and ended.how in _NOTHING_MADE:
            requests = ()
        logs = tuple(self._state.logs.new(is_end=ended is not None))
        return Turn(requests=requests, logs=logs, ended=ended)

    def _run(self, step: Callable[[], Snapshot]) -> Ended | None:
        """Run until the code waits (None) or ends."""
        try:
            snapshot = step()
            while not isinstance(snapshot, MontyComplete):
                following = self._follow(snapshot)
                if following is None:
                    return None
                snapshot = following
                if time.monotonic() > self._turn_ends:
                    raise LimitReached(self._over_time)
            return self._returned(snapshot.output)
        except _Stop as stop:
            return stop.ended
        except LimitReached as exc:
            return Ended(how=Ending.LIMIT, message=str(exc))
        except MontyError as exc:
            assert self._source is not None  # nothing is fed without
            memory = f"the code needs more than {self._limits.memory_bytes / 1024 / 1024:,.0f} MB of memory"
            faults = self._state.faults
            return ended_by(exc, self._source, faults=faults, over_time=self._over_time, over_memory=memory)

    @property
    def _over_time(self) -> str:
        return f"the code runs longer than {self._limits.turn_s:g} s without waiting"

    def _returned(self, output: object) -> Ended:
        assert self._source is not None
        try:
            if self._source.is_packed:
                value = packed_result(output)
            else:
                value = msgspec.json.encode(data_of(output))
        except NoData as exc:
            return Ended(how=Ending.VALUE, message=exc.found("the result"))
        except Invalid as exc:
            return Ended(how=Ending.VALUE, message=exc.message)
        if len(value) > self._limits.result_bytes:
            told = f"the result has {len(value):,} bytes, more than {self._limits.result_bytes:,}"
            return Ended(how=Ending.LIMIT, message=told)
        return Ended(how=Ending.RETURNED, value=value)

    def _follow(self, snapshot: FunctionSnapshot | NameLookupSnapshot | FutureSnapshot) -> Snapshot | None:
        """Answer what the interpreter asks; None if only a reply can."""
        match snapshot:
            case NameLookupSnapshot():
                return self._looked_up(snapshot)
            case FunctionSnapshot() if snapshot.is_os_function:
                return self._system(snapshot)
            case FunctionSnapshot():
                return self._called(snapshot)
            case FutureSnapshot():
                if self._state.held:
                    return self._settled(snapshot, *self._state.held.pop(0))
                self._waiting = snapshot
                return None

    def _looked_up(self, snapshot: NameLookupSnapshot) -> Snapshot:
        name = snapshot.variable_name
        if snapshot.object_id is None:
            self._check_found(name, at=snapshot.position.start)
            return snapshot.resume()
        found = self._tree.read(snapshot.object_id, name)
        return snapshot.resume() if found is None else snapshot.resume(value=found)

    def _check_found(self, name: str, *, at: int) -> None:
        assert self._source is not None
        if name == FALLBACK and at >= self._source.tail_at:
            told = f"Method {self._program.export} not found in capability"
            raise _Stop(Ended(how=Ending.MISSING, message=told))

    def _called(self, snapshot: FunctionSnapshot) -> Snapshot:
        name = str(snapshot.function_name)
        if snapshot.object_id is None:
            return _raise(snapshot, "NameError", f"name '{name}' is not defined")
        try:
            namespace, action = self._tree.called(snapshot.object_id, name)
            arguments = data_of(arguments_of(snapshot.args, snapshot.kwargs))
        except Misused as exc:
            return _raise(snapshot, "TypeError", str(exc))
        except NoData as exc:
            return _raise(snapshot, "TypeError", exc.found("the argument"))
        text = msgspec.json.encode(arguments)
        self._turn_bytes += len(text)
        if self._turn_bytes > self._limits.arguments_bytes:
            raise LimitReached(
                f"the calls of the code carry more than {self._limits.arguments_bytes:,} bytes at once"
            )
        call = (namespace, action, text)
        self._made(OpenRequest(number=self._numbered(), call_id=snapshot.call_id, call=call))
        return snapshot.resume(_LATER)

    def _numbered(self) -> int:
        if len(self._state.open) >= self._limits.open_requests:
            raise LimitReached(f"the code has more than {self._limits.open_requests:,} calls open")
        if self._state.made >= self._limits.requests:
            raise LimitReached(f"the code makes more than {self._limits.requests:,} calls")
        self._state.made += 1
        return self._state.made - 1

    def _made(self, made: OpenRequest) -> None:
        self._new.append(made.request)
        self._state.open[made.number] = made

    def _system(self, snapshot: FunctionSnapshot) -> Snapshot | None:
        """Answer for the clock, for chance and for waiting. There is nothing else of a system."""
        at = datetime.fromtimestamp(self._state.at_ms / 1000, UTC)
        match snapshot.function_name:
            case "time.time":
                return snapshot.resume({"return_value": self._state.at_ms / 1000})
            case "datetime.now":
                zone = snapshot.args[0] if snapshot.args else None
                now = at.astimezone(zone) if isinstance(zone, tzinfo) else at.replace(tzinfo=None)
                return snapshot.resume({"return_value": now})
            case "date.today":
                return snapshot.resume({"return_value": at.date()})
            case "time.sleep" | "asyncio.sleep":
                return self._slept(snapshot, is_async=snapshot.function_name == "asyncio.sleep")
            case "os.urandom":
                return self._drawn(snapshot, cast(int, snapshot.args[0]))
            case "import":
                name = str(snapshot.args[0])
                told = f"No module named '{name}': it is not available in this Python"
                return _raise(snapshot, "ModuleNotFoundError", told)
            case _:
                return snapshot.resume_not_handled()

    def _slept(self, snapshot: FunctionSnapshot, *, is_async: bool) -> Snapshot | None:
        seconds = float(snapshot.args[0])
        if math.isnan(seconds) or (seconds < 0 and not is_async):
            return _raise(snapshot, "ValueError", "sleep length must be a number that is not negative")
        if seconds <= 0:
            return snapshot.resume({"return_value": None})
        if seconds > self._limits.sleep_s:
            raise LimitReached(f"the code sleeps longer than {self._limits.sleep_s:g} s")
        call_id = snapshot.call_id if is_async else None
        self._made(OpenRequest(number=self._numbered(), call_id=call_id, seconds=seconds))
        if is_async:
            return snapshot.resume(_LATER)
        self._waiting = snapshot
        return None

    def _drawn(self, snapshot: FunctionSnapshot, size: int) -> Snapshot:
        if not 0 <= size <= self._limits.random_bytes:
            told = f"os.urandom gives at most {self._limits.random_bytes:,} bytes at once"
            return _raise(snapshot, "ValueError", told)
        self._state.draws += 1
        drawn = hashlib.shake_256(self._state.seed + self._state.draws.to_bytes(8)).digest(size)
        return snapshot.resume({"return_value": drawn})

    def _settled(self, snapshot: FutureSnapshot, call_id: int, reply: Reply) -> Snapshot:
        if call_id not in snapshot.pending_call_ids:  # nothing waits for it any more
            return snapshot
        return snapshot.resume({call_id: self._answer(reply)})

    def _answer(self, reply: Reply) -> ExternalSettledResult:
        if reply.fault is None:
            return {"return_value": msgspec.json.decode(reply.value)}
        if reply.fault.code not in self._state.faults:
            self._state.faults.append(reply.fault.code)
        return {"exc_type": "RuntimeError", "message": raised_by(reply.fault)}

    def _printed(self, _stream: str, text: str) -> None:
        self._state.logs.printed(text)


def _raise(snapshot: FunctionSnapshot, kind: Any, message: str) -> Snapshot:
    return snapshot.resume({"exc_type": kind, "message": message})
