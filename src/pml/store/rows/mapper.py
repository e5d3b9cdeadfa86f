"""A mapper between a struct and the columns of its table, by name.

A field is in the column of its own name unless the mapper is told another; a struct within a struct may have
columns of its own. Statements take their lists of columns from the mapper, so a row has its values in the
mapper's order, and a new field needs only its column.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import msgspec

from pml.store.rows.conversions import conversion_of
from pml.store.sqlite.database import Row, Value

T = TypeVar("T", bound=msgspec.Struct)


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
