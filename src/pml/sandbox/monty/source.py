"""Python code as the interpreter gets it, and the way back from its lines and columns to the code as given.

A few lines go before the code and a few after it, and three things in it are written otherwise: what it
returns at its top level, its last expression, and `mcp["ns"]`. No line is moved within the code. Code that
this Python cannot parse goes as it is: the interpreter knows more syntax, and says best what is wrong.
"""

import ast
import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from pml.core.code.python import parse_python

FALLBACK: Final = "run"

# Data leaves the interpreter as JSON text: as values, functions and cycles would arrive as mere strings.
# What is not data leaves as where it was found, its type, and why.
_PRELUDE: Final = """\
import json as __pml_json
async def __pml_result(value, dumps=__pml_json.dumps):
    while type(value).__name__ == "coroutine":
        value = await value
    try:
        return dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        why = str(error)
    where = ""
    deeper = "Circular" not in why and "recursion" not in why
    while deeper:
        deeper = False
        items = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, (list, tuple)):
            items = enumerate(value)
        for key, item in items:
            try:
                dumps(item, allow_nan=False)
            except (TypeError, ValueError) as error:
                why = str(error)
                where = where + "[" + repr(key) + "]"
                value = item
                deeper = True
                break
    return (where, type(value).__name__, why)
"""
_PRELUDE_LINES: Final = _PRELUDE.count("\n")
_OPEN: Final = "await __pml_result(("  # two brackets: a tuple may come without its own
_CLOSE: Final = "))"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Edit:
    """At `column` (from 0, in characters) of `line`, `removed` characters give way to `text`."""

    line: int
    column: int
    removed: int = 0
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonSource:
    """`text` is what is fed. From the byte `tail_at` on, nothing in it is the user's.

    `is_packed`: its outcome is the text of the result, or where that is not data; else the value itself.
    """

    text: str
    tail_at: int
    is_packed: bool
    lines: Sequence[str]
    edits: Sequence[_Edit] = ()

    def place(self, line: int, column: int) -> tuple[int, int] | None:
        """Return line and column, from 1, in the code as given; None where it is not the user's."""
        line -= _PRELUDE_LINES
        if not 1 <= line <= len(self.lines):
            return None
        shift = 0
        for edit in self.edits:
            if edit.line != line:
                continue
            start = edit.column + shift
            if column <= start:
                break
            if column <= start + len(edit.text):
                return line, edit.column + 1
            shift += len(edit.text) - edit.removed
        return line, column - shift


class NotAtTopLevel(Exception):
    """A `return` outside of any function, where functions are to be defined."""

    def __init__(self, line: int, column: int) -> None:
        super().__init__("`return` outside of a function")
        self.line = line
        self.column = column


def executed(code: str) -> PythonSource:
    """Return the source for code that runs itself: its last expression or its `return` is the result."""
    code, tree = _parsed(code)
    if tree is None:
        return _source(code, [], tail="", is_packed=False)
    lines = code.split("\n")
    values = [found.value for found in _returns(tree.body) if found.value is not None]
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        values.append(last.value)
    edits = [edit for value in values for edit in _around(lines, value)]
    return _source(code, [*edits, *_subscripts(lines, tree)], tail="", is_packed=True)


def exported(code: str, export: str) -> PythonSource:
    """Return the source that calls the function `export` of the code, else `run`. Raises: NotAtTopLevel."""
    code, tree = _parsed(code)
    edits: list[_Edit] = []
    if tree is not None:
        lines = code.split("\n")
        for found in _returns(tree.body):
            raise NotAtTopLevel(found.lineno, _characters(lines, found.lineno, found.col_offset) + 1)
        edits = list(_subscripts(lines, tree))
    lookup = f"__pml_entry = {FALLBACK}\n"
    if export != FALLBACK and export.isidentifier() and not keyword.iskeyword(export):
        lookup = f"try:\n    __pml_entry = {export}\nexcept NameError:\n    {lookup}"
    call = "await __pml_result(__pml_entry(__pml_args, __pml_mcp))\n"
    return _source(code, edits, tail=f"\n{lookup}{call}", is_packed=True)


def _parsed(code: str) -> tuple[str, ast.Module | None]:
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    return code, parse_python(code)


def _source(code: str, edits: list[_Edit], *, tail: str, is_packed: bool) -> PythonSource:
    edits = sorted(edits, key=lambda edit: (edit.line, edit.column))
    lines = code.split("\n")
    edited = list(lines)
    for edit in reversed(edits):
        line = edited[edit.line - 1]
        edited[edit.line - 1] = line[: edit.column] + edit.text + line[edit.column + edit.removed :]
    text = _PRELUDE + "\n".join(edited)
    tail_at = len(text.encode(errors="replace"))
    return PythonSource(text=text + tail, tail_at=tail_at, is_packed=is_packed, lines=lines, edits=edits)


def _returns(body: Sequence[ast.stmt]) -> Iterator[ast.Return]:
    """Yield each `return` that is in no function."""
    for statement in body:
        if isinstance(statement, ast.Return):
            yield statement
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for _, field in ast.iter_fields(statement):
                if isinstance(field, list):
                    yield from _returns(list(_statements(cast(list[object], field))))


def _statements(items: Sequence[object]) -> Iterator[ast.stmt]:
    """Yield the statements in a list of them, of exception handlers, or of cases."""
    for item in items:
        if isinstance(item, ast.stmt):
            yield item
        elif isinstance(item, ast.ExceptHandler | ast.match_case):
            yield from item.body


def _around(lines: Sequence[str], value: ast.expr) -> tuple[_Edit, _Edit]:
    end_line, end_column = value.end_lineno or value.lineno, value.end_col_offset or 0
    return (
        _Edit(line=value.lineno, column=_characters(lines, value.lineno, value.col_offset), text=_OPEN),
        _Edit(line=end_line, column=_characters(lines, end_line, end_column), text=_CLOSE),
    )


def _subscripts(lines: Sequence[str], tree: ast.Module) -> Iterator[_Edit]:
    """Yield what makes `getattr(mcp, "ns")` of `mcp["ns"]`: the interpreter's objects know no subscripts."""
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.Name) and node.id == "mcp" and _is_stored(node) for node in nodes):
        return  # `mcp` is something else here
    for node in nodes:
        if isinstance(node, ast.Subscript) and not _is_stored(node) and _is_of_mcp(node.value):
            yield from _as_getattr(lines, node)


def _is_stored(node: ast.Name | ast.Subscript) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _is_of_mcp(node: ast.expr, *, depth: int = 0) -> bool:
    if isinstance(node, ast.Attribute | ast.Subscript) and depth == 0:
        return _is_of_mcp(node.value, depth=1)
    return isinstance(node, ast.Name) and node.id == "mcp"


def _as_getattr(lines: Sequence[str], node: ast.Subscript) -> Iterator[_Edit]:
    value, end_line = node.value, node.end_lineno or node.lineno
    line = value.end_lineno or value.lineno
    opening = lines[line - 1].find("[", _characters(lines, line, value.end_col_offset or 0))
    if opening < 0 or isinstance(node.slice, ast.Slice | ast.Tuple):
        return  # the bracket is on another line: the interpreter says that it cannot be subscripted
    yield _Edit(line=node.lineno, column=_characters(lines, node.lineno, node.col_offset), text="getattr(")
    yield _Edit(line=line, column=opening, removed=1, text=", ")
    closing = _characters(lines, end_line, node.end_col_offset or 0) - 1
    yield _Edit(line=end_line, column=closing, removed=1, text=")")


def _characters(lines: Sequence[str], line: int, offset: int) -> int:
    """Return the column in characters of a column in bytes, both from 0."""
    text = lines[line - 1]
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))
