"""Where a JavaScript text imports something. Knows words, strings, comments and templates, but no grammar.

It is for the author's sake: code that deceives it finds that there is nothing to import.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[\w$\\]+)
    | (?P<template>`)
    | (?P<slash>/)
    | (?P<sign>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_REGEX: Final = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/")
_TEMPLATE_TEXT: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*", re.DOTALL)
_BEFORE_A_VALUE: Final = frozenset(
    {"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "await", "yield"}
)


def find_import(code: str) -> tuple[int, int] | None:
    """Return line and column, from 1, of the first `import` that loads something; None if there is none."""
    before = ""
    pending: int | None = None  # where a word `import` stood, until the sign after it tells what it is
    open_braces: list[bool] = []  # whether each ends a part of a template
    at = 0
    while at < len(code):
        found = _TOKEN.match(code, at)
        assert found is not None
        kind, token = found.lastgroup, found.group()
        if kind == "blank":
            at = found.end()
            continue
        if pending is not None:
            if token not in (".", ":", "=", ")", ",", "}", ";"):
                return _place(code, pending)
            pending = None
        at = found.end()
        if kind == "word" and token == "import" and before != ".":
            pending = found.start()
        elif kind == "slash" and _may_begin_value(before) and (regex := _REGEX.match(code, found.start())):
            at, token = regex.end(), "0"
        elif token == "{":
            open_braces.append(False)
        elif kind == "template" or (token == "}" and open_braces and open_braces.pop()):
            at, opens = _skip_template(code, at)
            if opens:
                open_braces.append(True)
            token = "{" if opens else "0"
        before = token
    return None


def _skip_template(code: str, at: int) -> tuple[int, bool]:
    """Return where the text of a template ends, and whether an expression begins there."""
    found = _TEMPLATE_TEXT.match(code, at)
    end = len(code) if found is None else found.end()
    return (end + 2, True) if code.startswith("${", end) else (end + 1, False)


def _may_begin_value(before: str) -> bool:
    return before == "" or before in _BEFORE_A_VALUE or not (before[-1].isalnum() or before[-1] in "_$)]}\"'")


def _place(code: str, at: int) -> tuple[int, int]:
    line_start = code.rfind("\n", 0, at) + 1
    return code.count("\n", 0, at) + 1, at - line_start + 1
