"""A mapper between a struct and the columns of its table, by name.

A field is in the column of its own name unless the mapper is told another; a struct within a struct may have
columns of its own. Statements take their lists of columns from the mapper, so a row has its values in the
mapper's order, and a new field needs only its column.

Each type of a field is converted in one way: instants are whole microseconds since 1970 (UTC), JSON is text,
an enum is its wire word, several words of an enum are joined by commas. None is NULL wherever a type allows
it; in `Json` it is the text `null`. A type that is not known here is refused when its mapper is made, so
nothing is stored that cannot be read back.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Generic, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

import msgspec

from pml.core.ports.records import PausedCall
from pml.core.values import Json, JsonObject
from pml.store.sqlite.database import Row, Value

T = TypeVar("T", bound=msgspec.Struct)
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


class _Column(NamedTuple):
    """A field that is one column; `or_null`: None is NULL and not converted."""

    field: str
    name: str
    write: Callable[[Any], Value] | None
    read: Callable[[Any], Any] | None
    or_null: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def written(self, value: Any) -> Iterable[tuple[str, Value]]:
        if self.write is None or (value is None and self.or_null):
            return ((self.name, value),)
        return ((self.name, self.write(value)),)


class _Group(NamedTuple):
    """A field whose struct has columns of its own; `or_null`: None is NULL in all of them."""

    field: str
    mapper: "Mapper[Any]"
    or_null: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.mapper.names

    def written(self, value: Any) -> Iterable[tuple[str, Value]]:
        return zip(self.names, repeat(None) if value is None else self.mapper.values(value), strict=False)


class Mapper(Generic[T]):
    """The columns of `kind`: `columns` and `marks` are its lists for SELECT and INSERT statements.

    `named` tells of the fields that are not in a column of their name: the name of the column, or the mapper
    of the struct that the field holds, whose columns stand in its place.
    """

    def __init__(self, kind: type[T], /, **named: "str | Mapper[Any]") -> None:
        # the annotations as written: msgspec's own reader of them fails at `Json`, which names itself
        hints = {field: kind.__annotations__[field] for field in kind.__struct_fields__}
        if unknown := named.keys() - hints.keys():
            raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
        self.kind = kind
        self.parts = [_part(field, hint, named.get(field, field)) for field, hint in hints.items()]
        self._fields: Callable[[T], tuple[Any, ...]] = attrgetter(*hints)
        self.names: tuple[str, ...] = tuple(name for part in self.parts for name in part.names)
        self.columns = ", ".join(self.names)
        self.marks = ", ".join(f":{name}" for name in self.names)

    # Both are compiled, as dataclasses are: they run for every row, and a loop takes up to twice as long.

    @cached_property
    def values(self) -> Callable[[T], tuple[Value, ...]]:
        """A function that returns what the columns hold for a record, in the order of `columns`."""
        source = _Source()
        return eval(f"lambda record: ({', '.join(source.written(self, 'record'))},)", source.scope)

    @cached_property
    def read(self) -> Callable[[Row], T]:
        """A function that returns the record of a row that was selected with `columns`.

        It raises: ValueError, TypeError, OverflowError.
        """
        source = _Source()
        return eval(f"lambda row: {source.built(self)}", source.scope)

    def changes(self, before: T, after: T) -> Mapping[str, Value]:
        """Return what the columns hold for `after`, by name, whose fields are not the same object in both."""
        fields = zip(self.parts, self._fields(before), self._fields(after), strict=True)
        return {
            name: value for part, old, new in fields if new is not old for name, value in part.written(new)
        }


def _part(field: str, hint: Any, named: str | Mapper[Any]) -> _Column | _Group:
    if isinstance(named, Mapper):
        return _Group(field, named, NoneType in get_args(hint))
    (write, read), or_null = conversion_of(hint)
    return _Column(field, named, write, read, or_null)


class _Source:
    """The source of a mapper's functions, and in `scope` what it refers to."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self._columns_read = 0

    def written(self, mapper: Mapper[Any], record: str) -> list[str]:
        """Return an expression for each column, of the struct that the expression `record` yields."""
        expressions: list[str] = []
        for part in mapper.parts:
            value = f"{record}.{part.field}"
            if isinstance(part, _Column):
                expressions.append(self._converted(value, part.write, or_null=part.or_null))
            else:
                within = self.written(part.mapper, value)
                expressions += [_unless_null(value, each) for each in within] if part.or_null else within
        return expressions

    def built(self, mapper: Mapper[Any]) -> str:
        """Return an expression for the struct of the next columns of `row`."""
        fields: list[str] = []
        for part in mapper.parts:
            value = f"row[{self._columns_read}]"
            if isinstance(part, _Column):
                self._columns_read += 1
                built = self._converted(value, part.read, or_null=part.or_null)
            else:
                built = self.built(part.mapper)
                built = _unless_null(value, built) if part.or_null else built
            fields.append(f"{part.field}={built}")
        return f"{self._refer(mapper.kind)}({', '.join(fields)})"

    def _converted(self, value: str, convert: Callable[[Any], Any] | None, *, or_null: bool) -> str:
        if convert is None:
            return value
        converted = f"{self._refer(convert)}({value})"
        return _unless_null(value, converted) if or_null else converted

    def _refer(self, thing: object) -> str:
        name = f"_{len(self.scope)}"
        self.scope[name] = thing
        return name


def _unless_null(value: str, expression: str) -> str:
    return f"(None if {value} is None else {expression})"
