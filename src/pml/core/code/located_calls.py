"""The plain calls in code, each with its place, the arguments it names, and whether its result is dropped.

For the author of the code, who is told what it calls wrongly, and where. Code that cannot be parsed has none.
Which calls are judged is not decided by this list.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pml.core.code.python import parse_python
from pml.core.code.sandbox import Language
from pml.core.code.static_calls import MCP, is_mcp, named_after, python_member
from pml.core.code.typescript import NOTHING, NotUnderstood, Place, Token, places_of
from pml.core.errors import Invalid
from pml.core.names import ToolName

# What can stand before a statement: after any other word a new one begins, since no `;` is needed.
_NO_STATEMENT_AFTER: Final = frozenset(
    "as async await case default delete extends in instanceof is keyof new of return satisfies throw typeof "
    "void yield".split()
)
_GOES_ON: Final = frozenset({"as", "in", "instanceof", "of", "satisfies"})
_OPENING: Final = ("(", "[", "{")
_CLOSING: Final = (")", "]", "}")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")  # as Python counts lines


@dataclass(frozen=True, kw_only=True, slots=True)
class LocatedCall:
    """`mcp.ns.action(…)`. `given` are the names of its arguments; None where the text does not tell them.

    `is_dropped`: it is a statement by itself, without `await`.
    """

    tool: ToolName
    place: Place
    is_dropped: bool
    given: frozenset[str] | None = None


def located_calls(code: str, language: Language) -> list[LocatedCall]:
    """Return the calls whose tool is written out, as they come in `code`. Total."""
    found = _python(code) if language is Language.PYTHON else _typescript(code)
    return sorted(found, key=lambda call: call.place)


def _python(code: str) -> Iterator[LocatedCall]:
    tree = parse_python(code)
    if tree is None:
        return
    nodes, lines = [*ast.walk(tree)], _LINE_END.split(code)
    dropped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if not isinstance(node, ast.Call) or (tool := _python_tool(node.func)) is None:
            continue
        before = lines[node.lineno - 1].encode(errors="replace")[: node.col_offset]
        column = len(before.decode(errors="replace")) + 1
        yield LocatedCall(
            tool=tool,
            place=Place(node.lineno, column),
            is_dropped=id(node) in dropped,
            given=_given(node),
        )


def _python_tool(node: ast.expr) -> ToolName | None:
    action = python_member(node)
    namespace = None if action is None else python_member(action[0])
    if action is None or namespace is None or not is_mcp(namespace[0]):
        return None
    return _tool(namespace[1], action[1])


def _given(call: ast.Call) -> frozenset[str] | None:
    """Return the names of `f(a=1)` and of `f({"a": 1})`."""
    match call:
        case ast.Call(args=[], keywords=keywords):
            names = [keyword.arg for keyword in keywords]
        case ast.Call(args=[ast.Dict(keys=keys)], keywords=[]):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
        case _:
            return None
    plain = [name for name in names if isinstance(name, str)]
    return frozenset(plain) if len(plain) == len(names) else None


def _typescript(code: str) -> Iterator[LocatedCall]:
    try:
        tokens, places = places_of(code, MCP)
    except NotUnderstood:
        return
    for index, place in places.items():
        names, opened = named_after(tokens, index)
        tool = None if names is None else _tool(*names)
        if tool is not None and opened is not None:
            is_dropped = _begins_statement(tokens, index) and _ends_statement(tokens, opened)
            yield LocatedCall(tool=tool, place=place, is_dropped=is_dropped)


def _begins_statement(tokens: Sequence[Token], index: int) -> bool:
    """Tell whether nothing of a statement comes before the `mcp` at `index`, but for `ctx.`."""
    if tokens[index].within not in ("", "{"):
        return False
    while _at(tokens, index - 1).is_op(".", "?.") and _at(tokens, index - 2).kind == "word":
        index -= 2
    before = _at(tokens, index - 1)
    if before.kind == "op":
        return before.text in ("", ";", "{", "}", ")", "]")
    return before.text not in _NO_STATEMENT_AFTER


def _ends_statement(tokens: Sequence[Token], opened: int) -> bool:
    """Tell whether nothing of the statement comes after the call whose bracket opens at `opened`."""
    depth, index = 0, opened
    while index < len(tokens):
        depth += tokens[index].is_op(*_OPENING) - tokens[index].is_op(*_CLOSING)
        index += 1
        if depth == 0:
            break
    after = _at(tokens, index)
    if after.kind == "op":
        return after.text in ("", ";", "}")
    return after.kind != "template" and after.text not in _GOES_ON


def _at(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else NOTHING


def _tool(namespace: str, action: str) -> ToolName | None:
    try:
        return ToolName(namespace=namespace, action=action)
    except Invalid:
        return None
