"""Conversions between the type of a field and what a column holds, each declared once.

Instants are whole microseconds since 1970 (UTC), JSON is text, an enum is its wire word, several words of an
enum are joined by commas. None is NULL wherever a type allows it; in `Json` it is the text `null`. A type
that is not known here is refused when its mapper is made, so nothing is stored that cannot be read back.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, NewType, Union, get_args, get_origin

import msgspec

from pml.core.ports.records import PausedCall
from pml.core.values import Json, JsonObject

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_encode: Final = msgspec.json.Encoder().encode


class Conversion(NamedTuple):
    """How a value is written to a column and read from it; None where it stays as it is."""

    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None


def micros(at: datetime) -> int:
    """Return the instant as a column holds it."""
    return (at - EPOCH) // _MICROSECOND


def _at_micros(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def spell(value: Json) -> str:
    """Return `value` as JSON that reads back exactly, key order included."""
    return _encode(value).decode()


def _spell_struct(value: msgspec.Struct) -> str:
    return _encode(value).decode()


def _read_paused_call(text: str) -> PausedCall:
    return PausedCall(**json.loads(text))


def _read_tuple(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _spell_set(texts: frozenset[str]) -> str:
    return spell(sorted(texts))


def _read_set(text: str) -> frozenset[str]:
    return frozenset(json.loads(text))


# JSON of others is read by `json`: msgspec rounds integers of more than 64 bits.
_JSON: Final = Conversion(spell, json.loads)
_BY_TYPE: Final[dict[Any, Conversion]] = {
    str: Conversion(),
    int: Conversion(),
    float: Conversion(),
    bytes: Conversion(),
    bool: Conversion(int, bool),
    datetime: Conversion(micros, _at_micros),
    JsonObject: _JSON,
    PausedCall: Conversion(_spell_struct, _read_paused_call),  # it holds JSON of others
    tuple[str, ...]: Conversion(spell, _read_tuple),
    frozenset[str]: Conversion(_spell_set, _read_set),
}


def conversion_of(hint: Any) -> tuple[Conversion, bool]:
    """Return the conversion for the annotation `hint`, and whether None is NULL. Raises: TypeError."""
    if hint == Json:
        return _JSON, False
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [member for member in members if member is not NoneType]
    conversion = (_of_kind(kinds[0]) if len(kinds) == 1 else None) or _of_structs(kinds, hint)
    if conversion is None:
        raise TypeError(f"no column can hold {hint}")
    return conversion, len(kinds) < len(members)


def _of_kind(kind: Any) -> Conversion | None:
    kind = kind.__supertype__ if isinstance(kind, NewType) else kind
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if get_origin(kind) is frozenset:
        return _of_words(get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return Conversion(read=kind)
    return None


def _of_words(kind: Callable[[str], str]) -> Conversion:
    def write(words: frozenset[str]) -> str:
        return ",".join(sorted(words))

    def read(text: str) -> frozenset[str]:
        return frozenset(map(kind, text.split(",")))

    return Conversion(write, read)


def _of_structs(kinds: list[Any], hint: Any) -> Conversion | None:
    """Return the conversion of one struct, or of a tagged union of several."""
    if not all(isinstance(kind, type) and issubclass(kind, msgspec.Struct) for kind in kinds):
        return None
    return Conversion(_spell_struct, msgspec.json.Decoder(hint).decode)
