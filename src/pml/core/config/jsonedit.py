"""Edits of JSON text that leave everything else as it was: order, blanks, line ends, spelling of numbers.

A new element looks like its neighbours: on its own line where they are, inline where they are. Containers
that have to be created go at the end of their parent, with the indentation of the file. Knows nothing of
files or of configuration keys.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pml.core.config.jsontext import Node, parse, parse_relaxed
from pml.core.errors import ConfigInvalid
from pml.core.text import quote, visible_json
from pml.core.values import Json, kind_of

_DEFAULT_INDENT: Final = "  "
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*(\r\n|\n|\r))+")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_INDENT: Final = re.compile(r"[ \t]*")


def append_item(text: str, pointer: Sequence[str], value: Json, *, path: str) -> str:
    """Return `text` with `value` at the end of the array at `pointer`; what is missing on the way is created.

    Raises: ConfigInvalid if `text` is not JSON, or something on the way is of another kind.
    """
    root = parse(text, path=path)
    parent, node = None, root
    for depth, key in enumerate(pointer):
        if not isinstance(node.value, dict):
            _refuse(path, node, pointer[:depth], "an object")
        if key not in node.members:
            return _insert(text, _Place.of(text, root, parent, node), pointer[depth:], value)
        parent, node = node, node.members[key]
    if not isinstance(node.value, list):
        _refuse(path, node, pointer, "an array")
    return _insert(text, _Place.of(text, root, parent, node), (), value)


def set_value(text: str, pointer: Sequence[str], value: Json, *, path: str) -> str:
    """Return `text` with `value` at `pointer`, a way of member names; what is missing on it is created.

    Raises: ConfigInvalid if `text` is not JSON, or something on the way is not an object.
    """
    root = parse(text, path=path)
    parent, node = None, root
    for depth, key in enumerate(pointer):
        if not isinstance(node.value, dict):
            _refuse(path, node, pointer[:depth], "an object")
        if key not in node.members:
            place = _Place.of(text, root, parent, node)
            new = _member(place, pointer[depth:], visible_json(value, indent=None), place.indent)
            return text[: place.start] + place.before + new + place.after + text[place.end :]
        parent, node = node, node.members[key]
    return text[: node.start] + visible_json(value, indent=None) + text[node.end :]


def remove_item(text: str, pointer: Sequence[str], index: int, *, path: str) -> str:
    """Return `text` without element `index` of the array at `pointer`.

    Raises: ConfigInvalid if `text` is not JSON; LookupError if there is no such array or element.
    """
    _, array, _ = _item(text, pointer, index, path=path)
    start, end = _cut(array, index)
    return text[:start] + text[end:]


def replace_item(text: str, pointer: Sequence[str], index: int, value: Json, *, path: str) -> str:
    """Return `text` with `value` in the place of element `index` of the array at `pointer`.

    Raises: as `remove_item`.
    """
    _, _, item = _item(text, pointer, index, path=path)
    return text[: item.start] + visible_json(value, indent=None) + text[item.end :]


def set_member(text: str, pointer: Sequence[str], index: int, key: str, value: Json, *, path: str) -> str:
    """Return `text` with member `key` of the object that is element `index` of an array set to `value`.

    Raises: as `remove_item`.
    """
    root, array, item = _item(text, pointer, index, path=path)
    new = visible_json(value, indent=None)
    if key in item.members:
        old = item.members[key]
        return text[: old.start] + new + text[old.end :]
    place = _Place.of(text, root, array, item)
    member = visible_json(key, indent=None) + place.colon + new
    return text[: place.start] + place.before + member + place.after + text[place.end :]


def remove_member(text: str, pointer: Sequence[str], index: int, key: str, *, path: str) -> str:
    """Return `text` without member `key` of the object that is element `index` of an array.

    Raises: as `remove_item`; ValueError if there is no such member.
    """
    _, _, item = _item(text, pointer, index, path=path)
    start, end = _cut(item, [*item.keys].index(key))
    return text[:start] + text[end:]


def without_members(text: str, pointers: Sequence[Sequence[str]], *, path: str) -> str:
    """Return `text` without the members at `pointers`; it may have comments. One that is not there is gone.

    Raises: ConfigInvalid if `text` cannot be read.
    """
    for pointer in pointers:
        node: Node | None = parse_relaxed(text, path=path)
        for key in pointer[:-1]:
            node = None if node is None else node.members.get(key)
        if node is not None and pointer[-1] in node.members:
            start, end = _cut(node, [*node.keys].index(pointer[-1]))
            text = text[:start] + text[end:]
    return text


def _item(text: str, pointer: Sequence[str], index: int, *, path: str) -> tuple[Node, Node, Node]:
    """Return the whole file, the array at `pointer`, and its element."""
    root = array = parse(text, path=path)
    for key in pointer:
        array = array.members[key]
    return root, array, array.items[index]


def _cut(node: Node, index: int) -> tuple[int, int]:
    """Return what goes with element `index` of a container: with it, one of the commas beside it."""
    spans = _spans(node)
    if len(spans) == 1:
        return node.start + 1, node.end - 1
    if index == 0:
        return spans[0][0], spans[1][0]
    return spans[index - 1][1], spans[index][1]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where a new element goes, and how its surroundings are written."""

    start: int
    end: int
    before: str
    after: str
    colon: str
    indent: str | None  # of the new element's line; None where it stands inline
    unit: str
    line_end: str

    @classmethod
    def of(cls, text: str, root: Node, parent: Node | None, node: Node) -> "_Place":
        """Return the place at the end of the container `node`, which stands in `parent`."""
        line_end = found[0] if (found := _LINE_END.search(text)) else "\n"
        unit = _line_indent(text, _spans(root)[0][0]) if _is_tall(text, root) else ""
        unit = unit or _DEFAULT_INDENT
        spans = _spans(node)
        if spans:
            start = end = spans[-1][1]
            before, after = _separator(text, node), ""
            indent = _line_indent(text, spans[-1][0]) if _is_tall(text, node) else None
        else:
            start, end = node.start + 1, node.end - 1
            outer = _line_indent(text, node.start)
            tall = parent is None or _is_tall(text, parent)
            indent = outer + unit if tall else None
            before, after = (line_end + outer + unit, line_end + outer) if tall else ("", "")
        colon = _colon(text, node if node.members else parent)
        return cls(
            start=start,
            end=end,
            before=before,
            after=after,
            colon=colon,
            indent=indent,
            unit=unit,
            line_end=line_end,
        )


def _insert(text: str, place: _Place, keys: Sequence[str], value: Json) -> str:
    new = _element(place, keys, value, place.indent)
    return text[: place.start] + place.before + new + place.after + text[place.end :]


def _member(place: _Place, keys: Sequence[str], value: str, indent: str | None) -> str:
    """Spell the member `keys[0]`, with an object for each of the others but the last."""
    head = visible_json(keys[0], indent=None) + place.colon
    if len(keys) == 1:
        return head + value
    inner = None if indent is None else indent + place.unit
    within = _member(place, keys[1:], value, inner)
    if indent is None or inner is None:
        return f"{head}{{{within}}}"
    return f"{head}{{{place.line_end}{inner}{within}{place.line_end}{indent}}}"


def _element(place: _Place, keys: Sequence[str], value: Json, indent: str | None) -> str:
    """Spell `value`, within the members and the array that `keys` ask for."""
    if not keys:
        return visible_json(value, indent=None)
    inner = None if indent is None else indent + place.unit
    within = _element(place, keys[1:], value, inner)
    opening, closing = "{}" if len(keys) > 1 else "[]"
    head = visible_json(keys[0], indent=None) + place.colon
    if indent is None or inner is None:
        return f"{head}{opening}{within}{closing}"
    return f"{head}{opening}{place.line_end}{inner}{within}{place.line_end}{indent}{closing}"


def _spans(node: Node) -> list[tuple[int, int]]:
    """Return start and end of each element of a container; a member begins with its key."""
    if node.members:
        return [(key.start, node.members[name].end) for name, key in node.keys.items()]
    return [(item.start, item.end) for item in node.items]


def _gap(text: str, node: Node) -> str:
    """Return what stands before the last element, back to the element before it or the bracket."""
    spans = _spans(node)
    return text[spans[-2][1] if len(spans) > 1 else node.start + 1 : spans[-1][0]]


def _is_tall(text: str, node: Node) -> bool:
    """Tell whether the last element of `node` stands on a line of its own."""
    return bool(_spans(node)) and _LINE_END.search(_gap(text, node)) is not None


def _separator(text: str, node: Node) -> str:
    gap = _BLANK_LINES.sub(r"\1", _gap(text, node))
    if "," in gap:
        return gap
    return "," + gap if _is_tall(text, node) else ", "


def _colon(text: str, node: Node | None) -> str:
    if node is None or not node.members:
        return ": "
    name, key = list(node.keys.items())[-1]
    gap = text[key.end : node.members[name].start]
    return ": " if _LINE_END.search(gap) else gap


def _line_indent(text: str, offset: int) -> str:
    """Return the blanks that begin the line of `offset`."""
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    found = _INDENT.match(text, start)
    return found[0] if found else ""


def _refuse(path: str, node: Node, pointer: Sequence[str], expected: str) -> NoReturn:
    name = quote(".".join(pointer)) if pointer else "the file"
    raise ConfigInvalid(path, node.line, node.column, f"{name} must be {expected}, not {kind_of(node.value)}")
