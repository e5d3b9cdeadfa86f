"""Text as a person must see it: nothing hidden, nothing cut, no value that forges an escape.

`visible` makes one line of any text; `visible_json` makes pretty JSON of any value; `pieces` leaves it to
others how a hidden character is drawn. A character is hidden when it draws nothing, draws a blank other than
the ASCII space, or moves the cursor or the reading direction; and a mark when it is piled on three others, so
that it is drawn over its neighbours.
This module does not know what the text is for, and does not judge look-alike letters.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from pml.core.values import Json

# Drawn as nothing or as a blank, although Unicode calls them letters, marks or symbols: `str.isprintable`
# passes them. Mostly the Default_Ignorable_Code_Point property, which the standard library does not offer.
_BLANK: Final = frozenset(
    chr(code)
    for codes in (
        (0x034F,),  # combining grapheme joiner
        (0x115F, 0x1160, 0x3164, 0xFFA0),  # Hangul fillers
        (0x17B4, 0x17B5),  # Khmer inherent vowels
        (0x180B, 0x180C, 0x180D, 0x180F),  # Mongolian variation selectors
        (0x2800,),  # Braille blank
        (0x16FE4,),  # Khitan filler
        (0x1D159,),  # musical null notehead
        range(0xFE00, 0xFE10),  # variation selectors
        range(0xE0100, 0xE01F0),  # variation selectors supplement
    )
    for code in codes
)
_SHORT: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\\": r"\\"}
# the newlines are the layout's; those in strings are escaped
_ESCAPABLE_IN_JSON: Final = re.compile(r"[^\n -~]+")
_LAYOUT: Final = frozenset("\t\n")  # every long text has them
_RTL: Final = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_SEEN_MARKS: Final = 3  # on one letter: no language writes more
_PILES: Final = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u06d6-\u06ed\u0e31\u0e34-\u0e3a"
    "\u0e47-\u0e4e\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4,}"
)


def has_hidden(text: str) -> bool:
    """Tell whether `text` has a character that a person would not see as it is."""
    return not _is_plain(text)


def visible(text: str) -> str:
    r"""Return `text` in one line with every hidden character as an escape: `\n`, `\t`, `\r` or `\u{202e}`.

    A backslash is always doubled, so an escape in the result is never a piece of the text, and different
    texts stay different.
    """
    if _is_plain(text):
        return text.replace("\\", r"\\")
    return "".join(
        "".join(map(_escape, run)) if is_hidden else run.replace("\\", r"\\")
        for is_hidden, run in _runs(text)
    )


def visible_json(value: Json, *, indent: int | None = 2) -> str:
    r"""Return `value` as JSON with every hidden character as a JSON escape, such as `\u202e`.

    `value` is one that `values.check` accepts. Reading the result back gives it again; letters of every
    script stay readable.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _ESCAPABLE_IN_JSON.sub(_escape_in_json, text)


def pieces(text: str) -> tuple[str | int, ...]:
    """Return `text` as runs that are seen as they are, and the code points of hidden characters between them.

    The runs and the characters, joined, are the text again.
    """
    if _is_plain(text):
        return (text,) if text else ()
    found: list[str | int] = []
    for is_hidden, run in _runs(text):
        found += map(ord, run) if is_hidden else [run]
    return tuple(found)


def count_hidden(value: Json) -> int:
    """Return how many hidden characters the texts and names in `value` have, but for tabs and line breaks."""
    return sum(map(_count_hidden, _texts(value)))


def has_rtl(value: Json) -> bool:
    """Tell whether a text or name in `value` has letters of a script that runs from right to left."""
    return any(_RTL.search(text) for text in _texts(value))


def quote(text: str, *, limit: int = 80) -> str:
    """Return `text` visible and in backticks, cut at `limit` characters: for messages, not for approvals."""
    cut = text if len(text) <= limit else text[:limit] + "…"
    return f"`{visible(cut)}`"


def _texts(value: Json) -> Iterator[str]:
    todo: list[Json] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            yield from item
            todo.extend(item.values())
        elif isinstance(item, list | tuple):
            todo.extend(item)


def _count_hidden(text: str) -> int:
    for layout in ("\r\n", *_LAYOUT):  # most texts are plain but for these, and quickly told so
        text = text.replace(layout, " ")
    if _is_plain(text):
        return 0
    piled = sum(len(pile[0]) - _SEEN_MARKS for pile in _PILES.finditer(text))
    return piled + sum(times for char, times in Counter(text).items() if _is_hidden(char))


def _is_plain(text: str) -> bool:
    if not text.isprintable():
        return False
    return text.isascii() or (_BLANK.isdisjoint(text) and _PILES.search(text) is None)


def _runs(text: str) -> Iterator[tuple[bool, str]]:
    """Yield long pieces of `text` that are all hidden, or all seen."""
    done = 0
    for pile in _PILES.finditer(text):
        seen = pile.start() + _SEEN_MARKS
        yield from _groups(text[done:seen])
        yield True, text[seen : pile.end()]
        done = pile.end()
    yield from _groups(text[done:])


def _groups(text: str) -> Iterator[tuple[bool, str]]:
    return ((is_hidden, "".join(chars)) for is_hidden, chars in groupby(text, _is_hidden))


def _is_hidden(char: str) -> bool:
    return not char.isprintable() or char in _BLANK


def _escape(char: str) -> str:
    return _SHORT.get(char) or f"\\u{{{ord(char):x}}}"


def _escape_in_json(found: re.Match[str]) -> str:
    if _is_plain(found[0]):
        return found[0]
    return "".join(json.dumps(run)[1:-1] if is_hidden else run for is_hidden, run in _runs(found[0]))


def entry_text(entry: Json) -> str:
    """Return a rule's entry as a person reads it and `pml rules` takes it."""
    return entry if isinstance(entry, str) and not has_hidden(entry) else visible_json(entry, indent=None)
