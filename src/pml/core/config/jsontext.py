"""JSON text with positions: every value knows its line, column and source span; every refusal says where.

Stricter than most readers: a duplicate key, half a surrogate pair or a number no double holds is refused,
because two programs could read them differently. Knows nothing of configuration keys; `jsonedit` changes
text by the spans found here.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from pml.core.errors import ConfigInvalid
from pml.core.text import quote
from pml.core.values import Json

MAX_NESTING: Final = 64
BOM: Final = "\ufeff"

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_BLOCK_END: Final = re.compile(r"\*/")
_REPLACEMENT: Final = "\ufffd"
_NEWLINE: Final = re.compile(r"\r\n|\n|\r")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]*')
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")
_WORD: Final = re.compile(r"[+-]?[\w.+-]+")
_LITERALS: Final[Mapping[str, Json]] = {"true": True, "false": False, "null": None}
_NOT_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity", "+Infinity", "-NaN", "+NaN"})
_ESCAPES: Final = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One value and where it stands: `text[start:end]`; `line` and `column` count from 1."""

    value: Json
    line: int
    column: int
    start: int
    end: int
    keys: Mapping[str, "Node"] = field(default_factory=dict[str, "Node"])
    members: Mapping[str, "Node"] = field(default_factory=dict[str, "Node"])
    items: tuple["Node", ...] = ()


def parse(text: str, *, path: str) -> Node:
    """Return the value of `text`, which was read from `path`. A byte order mark is passed over.

    Raises: ConfigInvalid, with the line and column of what is wrong.
    """
    return _Reader(text, path).document()


def parse_relaxed(text: str, *, path: str) -> Node:
    """Return the value of `text` as editors read their settings: with comments and a comma at an end.

    Half of a surrogate pair is replaced: programs cut texts of theirs in two. Raises: ConfigInvalid.
    """
    return _Reader(text, path, is_relaxed=True).document()


class _Reader:
    """One pass over one text; `_at` is the offset of the next character."""

    def __init__(self, text: str, path: str, *, is_relaxed: bool = False) -> None:
        self._text = text
        self._path = path
        self._is_relaxed = is_relaxed
        self._at = 1 if text.startswith(BOM) else 0
        self._line_starts = [self._at, *(found.end() for found in _NEWLINE.finditer(text))]

    def document(self) -> Node:
        if not self._next():
            self._refuse("the file is empty; expected a JSON value")
        root = self._value(depth=0)
        if self._next():
            self._refuse(f"expected the end of the file, found {self._found()}")
        return root

    def _value(self, *, depth: int) -> Node:
        match self._next():
            case "{":
                return self._object(depth=self._deeper(depth))
            case "[":
                return self._array(depth=self._deeper(depth))
            case '"':
                return self._string()
            case _:
                return self._word()

    def _deeper(self, depth: int) -> int:
        if depth == MAX_NESTING:
            self._refuse(f"nested deeper than {MAX_NESTING} levels")
        return depth + 1

    def _object(self, *, depth: int) -> Node:
        start = self._at
        keys: dict[str, Node] = {}
        members: dict[str, Node] = {}
        values: dict[str, Json] = {}
        self._at += 1
        more = self._next() != "}"
        while more:
            key, name = self._key()
            if name in keys:
                first = keys[name].line
                self._refuse(f"duplicate key {quote(name)}: it is already at line {first}", at=key.start)
            if self._next() != ":":
                self._refuse(f"expected `:` after the key {quote(name)}, found {self._found()}")
            self._at += 1
            keys[name] = key
            members[name] = self._value(depth=depth)
            values[name] = members[name].value
            more = self._comma("}", "object", start)
        self._at += 1
        return self._node(values, start, keys=keys, members=members)

    def _array(self, *, depth: int) -> Node:
        start = self._at
        items: list[Node] = []
        self._at += 1
        more = self._next() != "]"
        while more:
            items.append(self._value(depth=depth))
            more = self._comma("]", "array", start)
        self._at += 1
        return self._node([item.value for item in items], start, items=tuple(items))

    def _key(self) -> tuple[Node, str]:
        if self._next() != '"':
            self._refuse(f"expected a key in double quotes, found {self._found()}")
        key = self._string()
        return key, str(key.value)

    def _comma(self, closing: str, kind: str, opened: int) -> bool:
        """Pass the comma before another element, or stop at `closing`."""
        found = self._next()
        if found == closing:
            return False
        if not found:
            line, _ = self._position(opened)
            self._refuse(f"the {kind} opened at line {line} is never closed with `{closing}`")
        if found != ",":
            self._refuse(f"expected `,` or `{closing}`, found {self._found()}")
        comma = self._at
        self._at += 1
        if self._next() == closing and self._is_relaxed:
            return False
        if self._next() == closing:
            self._refuse(f"trailing comma: nothing follows it before `{closing}`", at=comma)
        return True

    def _string(self) -> Node:
        start = self._at
        self._at += 1
        pieces: list[str] = []
        while True:
            plain = _PLAIN.match(self._text, self._at)
            assert plain is not None
            pieces.append(plain[0])
            self._at = plain.end()
            match self._text[self._at : self._at + 1]:
                case '"':
                    self._at += 1
                    return self._node("".join(pieces), start)
                case "\\":
                    pieces.append(self._escape())
                case "" | "\n" | "\r":
                    self._refuse('the string is never closed with `"` on its line', at=start)
                case char if char >= "\ud800":
                    self._refuse(f"half of a surrogate pair (U+{ord(char):04X}) in a string")
                case char:
                    self._refuse(f"the control character U+{ord(char):04X} in a string must be escaped")

    def _escape(self) -> str:
        start = self._at
        letter = self._text[start + 1 : start + 2]
        if letter == "u":
            return self._unicode_escape(start)
        if letter not in _ESCAPES or not letter:
            self._refuse(f"{quote(self._text[start : start + 2])} is not an escape of JSON")
        self._at += 2
        return _ESCAPES[letter]

    def _unicode_escape(self, start: int) -> str:
        code = self._hex(start)
        self._at = start + 6
        if 0xD800 <= code < 0xDC00 and self._text.startswith("\\u", self._at):
            low = self._hex(self._at)
            if 0xDC00 <= low < 0xE000:
                self._at += 6
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        if 0xD800 <= code < 0xE000 and self._is_relaxed:
            return _REPLACEMENT
        if 0xD800 <= code < 0xE000:
            self._refuse(f"half of a surrogate pair (U+{code:04X}) in a string", at=start)
        return chr(code)

    def _hex(self, start: int) -> int:
        digits = _HEX.match(self._text, start + 2)
        if digits is None:
            self._refuse("`\\u` must be followed by four hexadecimal digits", at=start)
        return int(digits[0], 16)

    def _word(self) -> Node:
        """Read a number or a literal: all that does not open with a bracket or a quote."""
        start = self._at
        found = _WORD.match(self._text, start)
        if found is None:
            self._refuse(f"expected a value, found {self._found()}")
        word = found[0]
        if word in _LITERALS:
            self._at = found.end()
            return self._node(_LITERALS[word], start)
        if word in _NOT_NUMBERS:
            self._refuse(f"`{word}` is not a JSON number")
        number = _NUMBER.fullmatch(word)
        if number is None:
            looks_numeric = word[0] in "+-.0123456789"
            self._refuse(f"{quote(word)} is not a JSON {'number' if looks_numeric else 'value'}")
        value = float(word)
        if not math.isfinite(value):
            self._refuse(f"{quote(word)} is beyond the range of a double")
        self._at = found.end()
        whole = number[1] is None and number[2] is None
        return self._node(int(word) if whole else value, start)

    def _next(self) -> str:
        """Pass over blanks and return the next character, or nothing at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            assert blanks is not None
            self._at = blanks.end()
            if not self._text.startswith(("//", "/*", "#"), self._at):
                return self._text[self._at : self._at + 1]
            self._pass_comment()

    def _pass_comment(self) -> None:
        if not self._is_relaxed or self._text[self._at] == "#":
            self._refuse("JSON has no comments")
        is_block = self._text.startswith("/*", self._at)
        end = (_BLOCK_END if is_block else _NEWLINE).search(self._text, self._at + 2)
        if end is None and is_block:
            self._refuse("the comment is never closed with `*/`")
        self._at = len(self._text) if end is None else end.end()

    def _found(self) -> str:
        if self._at == len(self._text):
            return "the end of the file"
        word = _WORD.match(self._text, self._at)
        return quote(word[0] if word else self._text[self._at], limit=40)

    def _node(
        self,
        value: Json,
        start: int,
        *,
        keys: Mapping[str, Node] | None = None,
        members: Mapping[str, Node] | None = None,
        items: tuple[Node, ...] = (),
    ) -> Node:
        line, column = self._position(start)
        return Node(
            value=value,
            line=line,
            column=column,
            start=start,
            end=self._at,
            keys=keys or {},
            members=members or {},
            items=items,
        )

    def _position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def _refuse(self, problem: str, *, at: int | None = None) -> NoReturn:
        line, column = self._position(self._at if at is None else at)
        raise ConfigInvalid(self._path, line, column, problem)
