r"""TypeScript taken apart into tokens, in one pass: comments gone, strings and regular expressions whole.

It is scanned, not parsed: enough to tell code from text. Whether a `/` divides or begins a regular expression
is told from what is before it. What is not TypeScript, or not understood, is said to be so; no input takes
more than linear time. What the tokens mean is not known here.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""
      (?P<skip> \s++ | //[^\n\r\u2028\u2029]*+ | \A\#![^\n]*+ | /\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/ )
    | (?P<word> \#?(?!\d)[\w$]++ )
    | (?P<number> \.?\d(?:[\w.]|(?<=[eE])[+-])*+ )
    | (?P<string> "[^"\\\n\r]*+(?:\\(?:\r\n|[\s\S])[^"\\\n\r]*+)*+"
                | '[^'\\\n\r]*+(?:\\(?:\r\n|[\s\S])[^'\\\n\r]*+)*+' )
    | (?P<endless> ["'] | /\* )
    | (?P<op> => | \?\.(?!\d) | \?\?=? | \+\+ | -- | !==? | \.\.\. | [\s\S] )
    """,
    re.VERBOSE,
)
_TEMPLATE: Final = re.compile(r"[^`\\$]*+(?:(?:\\[\s\S]|\$(?!\{))[^`\\$]*+)*+")
_REGEX: Final = re.compile(r"/(?:[^/\\\[\n\r]|\\[^\n\r]|\[(?:[^\]\\\n\r]|\\[^\n\r])*+\])++/[\w$]*+")
_OPENER: Final = {")": "(", "]": "[", "}": "{"}
_HOLE: Final = "${"
# After these words a value comes, so that a `/` begins a regular expression.
_BEFORE_VALUE: Final = frozenset(
    "await case delete do else extends in instanceof new of return throw typeof void yield".split()
)
_BEFORE_BLOCK: Final = frozenset({"", ")", ";", "{", "}", "=>", "do", "else"})
_WITH_HEAD: Final = frozenset({"if", "while", "for", "with"})  # after whose `(…)` a statement comes


class Token(NamedTuple):
    """`kind` is word, number, string, template, regex or op. `within` is the innermost bracket around it.

    The text of a string is what it says. A template with holes, or a string with odd escapes, is `template`.
    """

    kind: str
    text: str
    within: str

    def is_op(self, *texts: str) -> bool:
        return self.kind == "op" and self.text in texts


NOTHING: Final = Token("op", "", "")


class NotUnderstood(Exception):
    """The code is not TypeScript, or the scan cannot follow it."""


def tokens_of(code: str) -> list[Token]:
    """Return the tokens of `code`. Raises: NotUnderstood."""
    return _Scan(code).run()


class _Scan:
    def __init__(self, code: str) -> None:
        self._code = code
        self._at = 0
        self._tokens: list[Token] = []
        self._open: list[tuple[str, bool]] = []  # each bracket, and whether a statement comes after its end
        self._after_value = False  # what comes next is an operator

    def run(self) -> list[Token]:
        while self._at < len(self._code):
            found = _TOKEN.match(self._code, self._at)
            if found is None or found.lastgroup == "endless":
                raise NotUnderstood
            text, kind = found[0], found.lastgroup
            if kind == "op" and text == "/" and not self._after_value:
                self._regex()
                continue
            self._at = found.end()
            match kind:
                case "word":
                    is_keyword = text in _BEFORE_VALUE and not self._last().is_op(".", "?.")
                    self._add("word", text, is_value=not is_keyword)
                case "number":
                    self._add("number", text, is_value=True)
                case "string":
                    self._string(text)
                case "op":
                    self._operator(text)
                case _:
                    pass
        if self._open:
            raise NotUnderstood
        return self._tokens

    def _add(self, kind: str, text: str, *, is_value: bool) -> None:
        self._tokens.append(Token(kind, text, self._open[-1][0] if self._open else ""))
        self._after_value = is_value

    def _last(self, back: int = 1) -> Token:
        return self._tokens[-back] if len(self._tokens) >= back else NOTHING

    def _string(self, text: str) -> None:
        said: str | None = text[1:-1]
        if "\\" in text:
            try:
                said = str(json.loads(text))
            except ValueError:
                said = None
        self._add("template" if said is None else "string", said or "", is_value=True)

    def _regex(self) -> None:
        found = _REGEX.match(self._code, self._at)
        if found is None:
            raise NotUnderstood
        self._at = found.end()
        self._add("regex", found[0], is_value=True)

    def _operator(self, text: str) -> None:
        match text:
            case "`":
                self._template(is_begin=True)
            case "(" | "[" | "{":
                opened = text, self._ends_statement(text)
                self._add("op", text, is_value=False)
                self._open.append(opened)
            case ")" | "]" | "}":
                self._close(text)
            case "++" | "--" | "!":  # before a value or after it: what comes next is the same as without
                self._add("op", text, is_value=self._after_value)
            case _:
                self._add("op", text, is_value=False)

    def _ends_statement(self, bracket: str) -> bool:
        """Tell whether a statement, not an operator, comes after the end of the `bracket` that opens here."""
        last, before = self._last(), self._last(2)
        if bracket == "(":
            head = before if last == Token("word", "await", last.within) else last
            return head.kind == "word" and head.text in _WITH_HEAD and not before.is_op(".", "?.")
        if bracket == "{":
            is_name = last.kind == "word" and last.text not in _BEFORE_VALUE
            return is_name or (last.kind in {"word", "op"} and last.text in _BEFORE_BLOCK)
        return False

    def _close(self, bracket: str) -> None:
        opener, ends_statement = self._open.pop() if self._open else ("", False)
        if opener == _HOLE and bracket == "}":
            self._template(is_begin=False)
        elif opener != _OPENER[bracket]:
            raise NotUnderstood
        else:
            self._add("op", bracket, is_value=not ends_statement)

    def _template(self, *, is_begin: bool) -> None:
        """Continue after the backtick that begins a template, or after one of its holes."""
        found = _TEMPLATE.match(self._code, self._at)
        end = self._at if found is None else found.end()
        text, follows = self._code[self._at : end], self._code[end : end + 1]
        if follows == "`":
            self._at = end + 1
            is_plain = is_begin and "\\" not in text
            self._add("string" if is_plain else "template", text, is_value=True)
        elif follows == "$":
            self._at = end + len(_HOLE)
            self._add("template", text, is_value=False)
            self._open.append((_HOLE, False))
        else:
            raise NotUnderstood


class Place(NamedTuple):
    """Both count from 1."""

    line: int
    column: int


def places_of(code: str, word: str) -> tuple[list[Token], Mapping[int, Place]]:
    """Return the tokens, and by their index the places of those that are `word`. Raises: NotUnderstood."""
    begun = f"{word}$at$"
    marked = re.compile(rf"{re.escape(begun)}(\d+)")
    plain = re.compile(rf"(?<![\w$]){re.escape(word)}(?![\w$])")
    placed = _placing(code)
    tokens: list[Token] = []
    places: dict[int, Place] = {}
    for token in tokens_of(plain.sub(lambda found: f"{begun}{found.start()}", code)):
        if token.kind == "word" and (found := marked.fullmatch(token.text)):
            places[len(tokens)] = placed(int(found[1]))
        tokens.append(token._replace(text=marked.sub(word, token.text)))
    return tokens, places


def _placing(code: str) -> Callable[[int], Place]:
    starts = [0, *(found.end() for found in re.finditer("\n", code))]

    def placed(offset: int) -> Place:
        line = bisect_right(starts, offset)
        return Place(line, offset - starts[line - 1] + 1)

    return placed
