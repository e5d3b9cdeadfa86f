"""Imports in a JavaScript text. Knows words, strings, comments and templates, but no grammar.

It is for the author's sake: code that deceives it finds that there is nothing to import. It takes a time in
proportion to the text, whatever the text is.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<blank>\s++|//[^\n]*+)
    | (?P<comment>/\*)
    | (?P<text>"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')
    | (?P<word>[\w$\\]++)
    | (?P<sign>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_REGEX: Final = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.){0,100}+\]){1,200}+/")
_TEMPLATE_TEXT: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*+", re.DOTALL)
_BEFORE_A_VALUE: Final = frozenset(
    {"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "await", "yield"}
)
_NO_IMPORT: Final = frozenset(".:=),};")  # after the word: `import.meta`, a key, or a name


def find_import(code: str) -> tuple[int, int] | None:
    """Return line and column, from 1, of the first `import` that loads something; None if there is none.

    `code` was parsed by somebody who knows the grammar, and found to be correct.
    """
    if "import" not in code:
        return None
    before, at = "", 0
    suspect: int | None = None  # where the word stands, until what follows tells what it is
    braces: list[bool] = []  # whether each that is open belongs to a template
    while at < len(code):
        kind, token, start, at = _next(code, at, before)
        if kind == "blank":
            continue
        if kind == "lost":
            return None
        if suspect is not None and token not in _NO_IMPORT:
            return _place(code, suspect)
        suspect = start if token == "import" and before not in (".", "#") else None
        if token == "{":
            braces.append(False)
        elif token == "`" or (token == "}" and braces and braces.pop()):
            at, is_open = _skip_template(code, at)
            if is_open:
                braces.append(True)
            token = "{" if is_open else "0"
        before = token
    return None


def _next(code: str, at: int, before: str) -> tuple[str, str, int, int]:
    """Return the kind, the text, the start and the end of what stands at `at`."""
    found = _TOKEN.match(code, at)
    if found is None:
        return "lost", "", at, len(code)
    kind, token, end = found.lastgroup or "sign", found.group(), found.end()
    if kind == "comment":
        close = code.find("*/", end)
        return ("blank", token, at, close + 2) if close >= 0 else ("lost", token, at, end)
    if token in ("'", '"'):  # a string without an end
        return "lost", token, at, end
    if token == "/" and _may_begin_value(before) and (regex := _REGEX.match(code, at)):
        return "sign", "0", at, regex.end()
    return kind, token, at, end


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
