"""Bodies of the API, each read as its shape; what does not fit is told with what there is, and what must be.

The words are ours: a message names members and kinds of values as JSON has them, never Python's.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import inspect

from pml.core.errors import Invalid
from pml.core.text import quote
from pml.core.values import JsonObject

Shape = TypeVar("Shape", bound=msgspec.Struct)

_KINDS: Final[Mapping[type[inspect.Type], tuple[str, ...]]] = {
    inspect.NoneType: ("null",),
    inspect.BoolType: ("true", "false"),
    inspect.IntType: ("a whole number",),
    inspect.StrType: ("a text",),
    inspect.DictType: ("an object",),
}


def read_shape(given: JsonObject, shape: type[Shape], *, what: str) -> Shape:
    """Return `given` as `shape`, which names every member that there may be. Raises: Invalid."""
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as exc:
        raise _misfit(given, shape, what) from exc


def _misfit(given: JsonObject, shape: type[Shape], what: str) -> Invalid:
    """Return what is wrong first."""
    fields = msgspec.structs.fields(shape)
    known = {field.name for field in fields}
    hint = f"there are: {', '.join(field.name for field in fields)}"
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        return Invalid(f"{what}: there is no {quote(unknown)} here", hint=hint)
    for field in fields:
        if field.name in given and not _fits(given[field.name], field.type):
            wanted = _wanted(inspect.type_info(field.type))
            return Invalid(f"{what}: `{field.name}` must be {_either(wanted)}")
    missing = [f"`{field.name}`" for field in fields if field.required and field.name not in given]
    return Invalid(f"{what}: {' and '.join(missing)} must be given", hint=hint)


def _fits(value: object, kind: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _wanted(kind: inspect.Type) -> list[str]:
    match kind:
        case inspect.EnumType():
            return [str(each.value) for each in kind.cls]
        case inspect.UnionType():
            return [word for each in kind.types for word in _wanted(each)]
        case inspect.ListType() | inspect.VarTupleType():
            return [
                "a list of objects" if isinstance(kind.item_type, inspect.DictType) else "a list of texts"
            ]
        case _:
            return [*_KINDS[type(kind)]]
