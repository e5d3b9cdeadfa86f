"""JSON as PML takes it in and writes it down: strict on the way in, canonical on the way out.

What two parsers could read differently is refused here (duplicate keys, lone surrogates, NaN, endless
nesting), so the call that was judged is the call that runs. Config files, which need line and column,
have their own reader in `jsontext`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

import msgspec

from pml.core.errors import Invalid

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, "Json"]

MAX_DEPTH: Final = 256
MAX_BYTES: Final = 16 * 1024 * 1024
_SOUND: Final = frozenset({int, bool, type(None)})  # what can always be stored and shown exactly


def loads(text: str | bytes, *, what: str = "JSON", max_bytes: int = MAX_BYTES) -> Json:
    """Return the value of `text`. Raises: Invalid, naming `what` and the reason."""
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
    if size > max_bytes:
        raise Invalid(f"{what} has {size:,} bytes, more than {max_bytes:,}")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text  # json would guess UTF-16 and UTF-32 too
        value = cast(Json, json.loads(decoded, object_pairs_hook=_object, parse_constant=_constant))
    except json.JSONDecodeError as exc:
        raise Invalid(
            f"{what} is not JSON: line {exc.lineno}, column {exc.colno}: {exc.msg.lower()}"
        ) from exc
    except UnicodeDecodeError as exc:
        raise Invalid(f"{what} is not UTF-8: byte {exc.start}") from exc
    except ValueError as exc:  # Python bounds the digits of an int that it reads
        raise Invalid(f"{what} has a number with too many digits") from exc
    except RecursionError as exc:
        raise Invalid(f"{what} is nested deeper than {MAX_DEPTH} levels") from exc
    except _Refused as exc:
        raise Invalid(f"{what} {exc}") from exc
    check(value, what=what)
    return value


def loads_object(text: str | bytes, *, what: str = "JSON") -> JsonObject:
    """As `loads`, for a value that must be an object. Raises: Invalid."""
    value = loads(text, what=what)
    if not isinstance(value, Mapping):
        raise Invalid(f"{what} must be a JSON object, not {kind_of(value)}")
    return value


def check(value: Json, *, what: str = "JSON") -> None:
    """Raise Invalid if `value` cannot be stored and shown exactly."""
    level: list[Json] = [value]
    depth = 0
    while level:
        depth += 1
        below: list[Json] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item, what)
            elif isinstance(item, float):
                if not math.isfinite(item):  # would be written down as null: another call than the judged one
                    raise Invalid(f"{what} has a number beyond the range of a double")
            elif isinstance(item, (list, tuple)):
                _check_depth(depth, what)
                below += [child for child in item if type(child) not in _SOUND]
            elif isinstance(item, Mapping):
                _check_depth(depth, what)
                for key in item:
                    _check_text(key, what)
                below += [child for child in item.values() if type(child) not in _SOUND]
        level = below


def canonical(value: Json) -> bytes:
    """Return the one spelling of `value` that digests are taken of: sorted keys, no blanks, UTF-8."""
    return msgspec.json.encode(value, order="sorted")


def is_same(one: Json, other: Json) -> bool:
    """Tell whether both are the same in JSON, where `1` is neither `true` nor `1.0`."""
    return canonical(one) == canonical(other)


def kind_of(value: Json) -> str:
    """Return JSON's word for the kind of `value`."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


class _Refused(Exception):
    """A reason found inside the parser."""


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"has the key {key!r} twice in one object")
            seen.add(key)
    return found


def _constant(name: str) -> Json:
    raise _Refused(f"has {name}, which is not a JSON number")


def _check_text(text: str, what: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise Invalid(f"{what} has half of a surrogate pair (U+{ord(text[exc.start]):04X})") from exc


def _check_depth(depth: int, what: str) -> None:
    if depth > MAX_DEPTH:
        raise Invalid(f"{what} is nested deeper than {MAX_DEPTH} levels")
