"""Exports: which functions code offers by name, as far as its text tells: what a capability's tools can be.

`default` is the default export. Whether they are functions, and what they do, is not known here.
"""

import ast
from collections.abc import Sequence
from typing import Final

from pml.core.code.python import parse_python
from pml.core.code.sandbox import Language
from pml.core.code.typescript import NOTHING, NotUnderstood, Place, Token, places_of, tokens_of
from pml.core.names import FALLBACK_EXPORT

DEFAULT: Final = "default"
_BEFORE_NAME: Final = frozenset({"async", "function", "const", "let", "var", "class", "abstract"})

_NAMING: Final = frozenset({"function", "const", "let", "var"})


def exports_of(code: str, language: Language) -> frozenset[str] | None:
    """Return the names that `code` exports; None if it cannot be understood."""
    return _python_exports(code) if language is Language.PYTHON else _typescript_exports(code)


def export_for(action: str, exports: frozenset[str], language: Language) -> str | None:
    """Return the export that serves a tool: of its name, else `run`, else the default one."""
    names = (action, FALLBACK_EXPORT, *((DEFAULT,) if language is Language.TYPESCRIPT else ()))
    return next((name for name in names if name in exports), None)


def unexported(code: str, name: str) -> Place | None:
    """Return where TypeScript has a function `name`, or a constant, that it does not export."""
    try:
        tokens, places = places_of(code, name)
    except NotUnderstood:
        return None
    for index, place in places.items():
        before = _at(tokens, index - 1)
        before = _at(tokens, index - 2) if before.is_op("*") else before
        if tokens[index].within == "" and before.kind == "word" and before.text in _NAMING:
            return place
    return None


def _python_exports(code: str) -> frozenset[str] | None:
    tree = parse_python(code)
    if tree is None:
        return None
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    targets = (target for node in assigned for target in node.targets if isinstance(target, ast.Name))
    return frozenset({*(node.name for node in functions), *(target.id for target in targets)})


def _typescript_exports(code: str) -> frozenset[str] | None:
    try:
        tokens = tokens_of(code)
    except NotUnderstood:
        return None
    found: set[str] = set()
    for index, token in enumerate(tokens):
        if (token.kind, token.text, token.within) == ("word", "export", ""):
            found |= _exported(tokens, index + 1)
    return frozenset(found)


def _exported(tokens: Sequence[Token], index: int) -> set[str]:
    """Return what the `export` before `index` exports."""
    first = _at(tokens, index)
    if first.is_op("{"):
        return _listed(tokens, index + 1)
    if first.text == DEFAULT:
        return {DEFAULT}
    while _at(tokens, index).text in _BEFORE_NAME or _at(tokens, index).is_op("*"):
        index += 1
    is_value = first.text in _BEFORE_NAME and _at(tokens, index).kind == "word"
    return {_at(tokens, index).text} if is_value else set()


def _listed(tokens: Sequence[Token], index: int) -> set[str]:
    """Return the names of `{ a, b as c }`: the last word of each."""
    found: set[str] = set()
    last = ""
    while not (token := _at(tokens, index)).is_op("}", ""):
        if token.is_op(","):
            found.add(last)
        elif token.kind in {"word", "string"}:
            last = token.text
        index += 1
    return {name for name in {*found, last} if name}


def _at(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else NOTHING
