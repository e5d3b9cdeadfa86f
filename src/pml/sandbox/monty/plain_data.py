"""Values that leave the interpreter: plain JSON data, or a word on what is not and where.

Functions and coroutines arrive as the text that Python shows for them; among arguments such a text is taken
for what it stands for, so that a forgotten `await` does not become one.
"""

import math
import re
from typing import Any, Final, cast

import msgspec

from pml.core.errors import Invalid
from pml.core.text import quote, visible
from pml.core.values import MAX_DEPTH, Json, loads

_STAND_IN: Final = re.compile(
    r"<(?:function '[^']*' at 0x[0-9a-f]+|coroutine (?:object )?[\w.<>]+(?:\(\d+\))?|module '[\w.]+')>"
)
_MOST_BITS: Final = 14_000  # some 4,200 digits: Python does not read integers of more than 4,300
_PLAIN: Final = "plain data is dict, list, str, int, float, bool and None"
_MOST_LETTERS: Final = 200  # of a path or a reason that the code has made


class NoData(Exception):
    """A value cannot be written as JSON. `found(what)` says which part of `what` it is, and why."""

    def __init__(self, why: str, *, where: str = "") -> None:
        super().__init__(why)
        self._why = why
        self._path: list[str] = [where] if where else []

    def within(self, key: object) -> None:
        self._path.append(f"[{key!r}]")

    def found(self, what: str) -> str:
        path = "".join(reversed(self._path))
        shown = path if len(path) <= _MOST_LETTERS else f"{path[:_MOST_LETTERS]}…"
        return f"{what} at {visible(shown)} {self._why}" if path else f"{what} {self._why}"


def data_of(value: object, *, depth: int = 0) -> Json:
    """Return `value`, as it came from the interpreter, as JSON data. Raises: NoData."""
    match value:
        case None | bool():
            return value
        case str():
            return _text(value)
        case int():
            return _integer(value)
        case float():
            return _number(value)
        case list() | tuple():
            _check_depth(depth)
            return [_part(item, at, depth) for at, item in enumerate(cast(list[object], value))]
        case dict():
            _check_depth(depth)
            pairs = cast(dict[object, object], value)
            return {_key(key): _part(item, key, depth) for key, item in pairs.items()}
        case _:
            raise NoData(f"is of type {quote(_type_name(value))}: {_PLAIN}")


def packed_result(packed: object) -> bytes:
    """Return the result as JSON text, as the code packed it. Raises: NoData, Invalid."""
    match packed:
        case None:
            return b"null"
        case str():
            return msgspec.json.encode(loads(packed, what="the result"))
        case (str(where), str(kind), str(why)):
            raise _refusal(where[:_MOST_LETTERS], kind[:_MOST_LETTERS], why[:_MOST_LETTERS])
        case _:
            raise Invalid("the result was packed by something else")


def _refusal(where: str, kind: str, why: str) -> NoData:
    if why.startswith("Object of type"):
        why = f"is of type {quote(kind)}: {_PLAIN}"
    elif why.startswith("Out of range float"):
        why = "is not a finite number, and JSON has no other"
    elif why.startswith("Circular"):
        why = "contains itself"
    elif why.startswith("maximum recursion"):
        why = "is nested too deeply"
    else:
        why = f"is not data: {visible(why)}"
    return NoData(why, where=where)


def _part(item: object, key: object, depth: int) -> Json:
    try:
        return data_of(item, depth=depth + 1)
    except NoData as exc:
        exc.within(key)
        raise


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise NoData(f"is nested deeper than {MAX_DEPTH} levels")


def _text(value: str) -> str:
    if _STAND_IN.fullmatch(value):
        forgotten = "is an `await` missing?" if value.startswith("<coroutine") else _PLAIN
        raise NoData(f"is {quote(value)}: {forgotten}")
    return value


def _integer(value: int) -> int:
    if value.bit_length() <= _MOST_BITS:
        return value
    raise NoData("is an integer with thousands of digits: pass it as a string")


def _number(value: float) -> float:
    if math.isfinite(value):
        return value
    raise NoData(f"is {value}, which JSON does not have")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise NoData(f"has a key of type {quote(_type_name(key))}: keys are strings")


def _type_name(value: Any) -> str:
    """Return the name of a type as the code knows it: the interpreter sends its own as stand-ins."""
    name = getattr(value, "name", None)
    is_stand_in = type(value).__module__ == "pydantic_monty" and isinstance(name, str)
    return str(name) if is_stand_in else type(value).__name__
