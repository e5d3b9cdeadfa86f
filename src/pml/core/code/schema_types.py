"""JSON Schema as a TypeScript type, in one line: for people, models and a type checker, never to validate.

Any JSON gives a type. What is recursive, too deep or too long is `unknown`; formats and ranges are left out.
What the type is for is not known here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from pml.core.text import visible_json
from pml.core.values import Json, JsonObject

UNKNOWN: Final = "unknown"
_NEVER: Final = "never"
ANY_OBJECT: Final = "Record<string, unknown>"
_DEPTHS: Final = (8, 5, 3, 2, 1)  # the deepest that is short enough is taken
_MAX_NODES: Final = 400  # references can make a small schema endless
_MAX_PROPERTIES: Final = 60
_MAX_LITERALS: Final = 40
_MAX_LITERAL: Final = 80
_SAFE_INTEGER: Final = 2**53
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_PLAIN: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
}


def type_of(schema: Json, *, limit: int) -> str:
    """Return the type of values that fit `schema`, in at most `limit` characters. Total."""
    for depth in _DEPTHS:
        text = _Types(schema).of(schema, depth)
        if len(text) <= limit:
            return text
    return ANY_OBJECT if isinstance(schema, Mapping) and "properties" in schema else UNKNOWN


def property_name(name: str) -> str:
    """Return `name` as it is written before the `:` of a type."""
    return name if _IDENTIFIER.fullmatch(name) else visible_json(name, indent=None)


class _Types:
    """One attempt at a type of `root`, to which references lead."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._nodes = 0
        self._within: list[str] = []  # the references that are being followed

    def of(self, schema: Json, depth: int) -> str:
        self._nodes += 1
        if schema is False:
            return _NEVER
        if not isinstance(schema, Mapping) or self._nodes > _MAX_NODES:
            return UNKNOWN
        parts = [self._own(schema, depth), *(self._combined(schema, depth - 1) if depth > 0 else ())]
        text = _intersection(parts)
        return _union([text, "null"]) if schema.get("nullable") is True else text

    def _combined(self, schema: JsonObject, depth: int) -> list[str]:
        """Return the types that `schema` refers to and combines: all of them hold."""
        target = schema.get("$ref")
        parts = [self._referred(target, depth)] if isinstance(target, str) else []
        parts += [self.of(each, depth) for each in _items(schema.get("allOf"))]
        for key in ("anyOf", "oneOf"):
            if alternatives := _items(schema.get(key)):
                parts.append(_union(self.of(each, depth) for each in alternatives))
        return parts

    def _own(self, schema: JsonObject, depth: int) -> str:
        """Return the type without what `schema` refers to or combines."""
        if "const" in schema:
            return _literal(schema["const"])
        if values := _items(schema.get("enum")):
            return _union(
                _literal(value) if len(values) <= _MAX_LITERALS else _kind(value) for value in values
            )
        named = schema.get("type")
        kinds = [named] if isinstance(named, str) else [*_items(named)]
        if not kinds and _has_any(schema, "properties", "additionalProperties"):
            kinds = ["object"]
        if not kinds and _has_any(schema, "items", "prefixItems"):
            kinds = ["array"]
        return _union(self._of_kind(kind, schema, depth) for kind in kinds) if kinds else UNKNOWN

    def _of_kind(self, kind: Json, schema: JsonObject, depth: int) -> str:
        match kind:
            case "object":
                return self._object(schema, depth) if depth > 0 else ANY_OBJECT
            case "array":
                return self._array(schema, depth) if depth > 0 else f"{UNKNOWN}[]"
            case str():
                return _PLAIN.get(kind, UNKNOWN)
            case _:
                return UNKNOWN

    def _object(self, schema: JsonObject, depth: int) -> str:
        properties = schema.get("properties")
        known: JsonObject = properties if isinstance(properties, Mapping) else {}
        required = {name for name in _items(schema.get("required")) if isinstance(name, str)}
        others = schema.get("additionalProperties")
        names = [*dict.fromkeys([*known, *sorted(required)])]
        if not names:
            return self._record(others, depth)
        fields = [
            f"{property_name(name)}{'' if name in required else '?'}: {self.of(known.get(name), depth - 1)}"
            for name in names[:_MAX_PROPERTIES]
        ]
        if others is True or isinstance(others, Mapping) or len(names) > _MAX_PROPERTIES:
            fields.append(f"[key: string]: {UNKNOWN}")  # a narrower type would contradict the other fields
        return "{ " + "; ".join(fields) + " }"

    def _record(self, others: Json, depth: int) -> str:
        return f"Record<string, {self.of(others, depth - 1)}>"

    def _array(self, schema: JsonObject, depth: int) -> str:
        items = schema.get("items")
        first = _items(schema.get("prefixItems")) or _items(items)
        if not first:
            return _array_of(self.of(items, depth - 1))
        rest = schema.get("additionalItems") if _items(items) else items
        parts = [self.of(each, depth - 1) for each in first[:_MAX_PROPERTIES]]
        if rest is not False:
            parts.append(f"...{_array_of(self.of(rest, depth - 1))}")
        return f"[{', '.join(parts)}]"

    def _referred(self, target: str, depth: int) -> str:
        if target in self._within:
            return UNKNOWN
        self._within.append(target)
        text = self.of(_resolve(self._root, target), depth)
        self._within.pop()
        return text


def _items(value: Json) -> list[Json]:
    return [*value] if isinstance(value, list | tuple) else []


def _has_any(schema: JsonObject, *keys: str) -> bool:
    return any(key in schema for key in keys)


def _resolve(root: Json, target: str) -> Json:
    """Return what a reference into the same schema means; None for any other."""
    pointer, found = target.removeprefix("#"), root
    if pointer == target or (pointer and not pointer.startswith("/")):
        return None
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _literal(value: Json) -> str:
    is_exact = value is None or isinstance(value, bool | str)
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_exact = abs(value) < _SAFE_INTEGER
    if not is_exact or (isinstance(value, str) and len(value) > _MAX_LITERAL):
        return _kind(value)
    return visible_json(value, indent=None)


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return ANY_OBJECT
        case _:
            return f"{UNKNOWN}[]"


class _Joined(str):
    """A union or an intersection: it is put in parentheses where another operator follows."""

    __slots__ = ()


def _union(types: Iterable[str]) -> str:
    found = [*dict.fromkeys(types)]
    if UNKNOWN in found:
        return UNKNOWN
    some = [each for each in found if each != _NEVER]
    return _Joined(" | ".join(some)) if len(some) > 1 else some[0] if some else _NEVER


def _intersection(types: Iterable[str]) -> str:
    found = [each for each in dict.fromkeys(types) if each != UNKNOWN]
    if len(found) < 2:
        return found[0] if found else UNKNOWN
    return _Joined(" & ".join(_grouped(each) for each in found))


def _array_of(text: str) -> str:
    return f"{_grouped(text)}[]"


def _grouped(text: str) -> str:
    return f"({text})" if isinstance(text, _Joined) else text
