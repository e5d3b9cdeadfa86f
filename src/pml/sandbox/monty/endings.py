"""Endings of Python code, from what the interpreter raised: the kind, the words, the place in the code."""

from collections.abc import Collection
from typing import Final

from pydantic_monty import (
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySyntaxError,
)

from pml.core.code.sandbox import Ended, Ending, Fault
from pml.sandbox.monty.source import PythonSource

_MOST_LETTERS: Final = 4_096  # of a message: an error may carry megabytes
_NOT_PARSED: Final = "The monty syntax parser does not yet support "
_OVER_MEMORY: Final = "memory limit exceeded"
_OVER_TIME: Final = ("turn time limit exceeded", "feed time limit exceeded", "time limit exceeded")
_OVER_RECURSION: Final = "maximum recursion depth exceeded"


def raised_by(fault: Fault) -> str:
    """Return the message of the RuntimeError that the code gets for `fault`."""
    return f"{fault.code}: {fault.message}"


def ended_by(
    error: MontyError, source: PythonSource, *, faults: Collection[str], over_time: str, over_memory: str
) -> Ended:
    """Return how the code ended. `faults` are the codes of those it was given."""
    match error:
        case MontySyntaxError():
            return _at(error, source, how=Ending.SYNTAX, message=error.display("msg"))
        case MontyRuntimeError():
            return _raised(error, source, faults, over_time=over_time, over_memory=over_memory)
        case MontyCrashedError() if error.timed_out:
            return Ended(how=Ending.LIMIT, message=over_time)
        case _:
            return Ended(how=Ending.BROKEN, message="the Python sandbox died")


def _raised(
    error: MontyRuntimeError,
    source: PythonSource,
    faults: Collection[str],
    *,
    over_time: str,
    over_memory: str,
) -> Ended:
    message = error.display("msg")
    match error.exception():
        case NotImplementedError() if message.startswith(_NOT_PARSED):
            what = message.removeprefix(_NOT_PARSED)
            return _at(error, source, how=Ending.SYNTAX, message=f"{what}: not available in this Python")
        case MemoryError() if message.startswith(_OVER_MEMORY):
            return _at(error, source, how=Ending.LIMIT, message=over_memory)
        case TimeoutError() if message.startswith(_OVER_TIME):
            return _at(error, source, how=Ending.LIMIT, message=over_time)
        case RecursionError() if message.startswith(_OVER_RECURSION):
            return _at(
                error,
                source,
                how=Ending.LIMIT,
                message="the functions of the code call each other too deeply",
            )
        case RuntimeError() if (code := message.partition(": ")[0]) in faults:
            told = message.removeprefix(f"{code}: ")
            return _at(error, source, how=Ending.RAISED, message=told, code=code)
        case _:
            return _at(error, source, how=Ending.RAISED, message=error.display("type-msg"))


def _at(
    error: MontySyntaxError | MontyRuntimeError,
    source: PythonSource,
    *,
    how: Ending,
    message: str,
    code: str | None = None,
) -> Ended:
    line, column = _place(error, source)
    message = message if len(message) <= _MOST_LETTERS else f"{message[:_MOST_LETTERS]}…"
    return Ended(how=how, message=message, line=line, column=column, code=code)


def _place(
    error: MontySyntaxError | MontyRuntimeError, source: PythonSource
) -> tuple[int, int] | tuple[None, None]:
    """Return the innermost place that is in the user's code; what `exec` was given is not."""
    for frame in reversed(error.traceback()):
        if frame.filename != "<string>" and (place := source.place(frame.line, frame.column)) is not None:
            return place
    return None, None
