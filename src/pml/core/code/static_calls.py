"""Tools that code names in plain sight: `mcp.ns.action(…)`, `mcp["ns"]["action"](…)`. Nothing is run.

The list may hold a tool that is never called, but misses none that is called plainly. `dynamic` tells that
`mcp` is used in other ways too: handed on, aliased, with computed names. It is for a person to read
beforehand; what really is called is judged when it is called. Where TypeScript is not understood, all that
looks like a call is listed, in comments and strings as well.
"""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pml.core.code.python import parse_python
from pml.core.code.sandbox import Language
from pml.core.code.typescript import NOTHING, NotUnderstood, Token, tokens_of
from pml.core.errors import Invalid
from pml.core.names import FALLBACK_EXPORT, ToolName

MCP: Final = "mcp"
_EVASIONS: Final = frozenset(
    {"arguments", "eval", "Function", "globalThis"}
)  # ways to `mcp` without its name
_TYPES: Final = frozenset({"Mcp", "any", "unknown"})  # `mcp: Mcp` declares, `mcp: other` renames
_MEMBER: Final = r"""\s*+ (?: [?!]?\.\s*+([\w$]++) | [?!]?\.?\[\s*+["'`]([^"'`\\\n]++)["'`]\s*+\] )"""
_LOOSE: Final = re.compile(r"\bmcp" + _MEMBER + _MEMBER, re.VERBOSE)


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticCalls:
    """The tools in the order of their first appearance; `dynamic` if the code may call others too."""

    tools: tuple[ToolName, ...]
    dynamic: bool


def static_calls(code: str, language: Language) -> StaticCalls:
    """Return what can be told of the calls of `code` without running it. Total; linear in its length."""
    return _python_calls(code) if language is Language.PYTHON else _typescript_calls(code)


def _calls(names: Iterable[tuple[str, str]], *, dynamic: bool) -> StaticCalls:
    tools: list[ToolName] = []
    for namespace, action in dict.fromkeys(names):
        try:
            tools.append(ToolName(namespace=namespace, action=action))
        except Invalid:
            dynamic = True
    return StaticCalls(tools=tuple(tools), dynamic=dynamic)


def _python_calls(code: str) -> StaticCalls:
    tree = parse_python(code)
    if tree is None:
        return StaticCalls(tools=(), dynamic=True)
    nodes = [*ast.walk(tree)]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    named: list[tuple[int, int, str, str]] = []
    plain: set[int] = set()  # the uses of `mcp` that are part of a plain call
    for node in nodes:
        action = python_member(node)
        namespace = None if action is None else python_member(action[0])
        if action is None or namespace is None or not is_mcp(namespace[0]):
            continue
        root = namespace[0]
        named.append((root.lineno, root.col_offset, namespace[1], action[1]))
        if id(node) in called:
            plain.add(id(root))
    dynamic = any(is_mcp(node) and id(node) not in plain for node in nodes) or _is_renamed(tree, nodes)
    return _calls(((namespace, action) for _, _, namespace, action in sorted(named)), dynamic=dynamic)


def is_mcp(node: ast.AST) -> bool:
    """Tell whether `node` is `mcp`, or ends with it: `context.mcp`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == MCP
        case _:
            return False


def python_member(node: ast.AST) -> tuple[ast.expr, str] | None:
    """Return the object and the name, for `object.name` and `object["name"]`."""
    match node:
        case ast.Attribute(value=value, attr=name):
            return value, name
        case ast.Subscript(value=value, slice=ast.Constant(value=str() as name)):
            return value, name
        case _:
            return None


def _is_renamed(tree: ast.Module, nodes: Sequence[ast.AST]) -> bool:
    """Tell whether `mcp` may go by another name, or be something else: `def run(args, m)`, `import mcp`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == FALLBACK_EXPORT:
            parameters = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            if parameters[1:2] not in ([], [MCP]) or node.args.vararg or node.args.kwarg:
                return True
    return any(isinstance(node, ast.alias) and MCP in (node.name, node.asname) for node in nodes)


def _typescript_calls(code: str) -> StaticCalls:
    try:
        tokens = tokens_of(code)
    except NotUnderstood:
        return _calls(_loose_names(code), dynamic=True)
    names: list[tuple[str, str]] = []
    dynamic = False
    for index, token in enumerate(tokens):
        match token.kind, token.text:
            case "regex", text:  # or a division that was taken for one
                names += _loose_names(text)
            case "word", "mcp":
                name, opened = named_after(tokens, index)
                names += [] if name is None else [name]
                dynamic |= opened is None and (name is not None or not _is_declaration(tokens, index))
            case "word", text if text in _EVASIONS:
                dynamic = True
            case ("string", "mcp") | ("op", "\\"):  # a name with an escape can be any
                dynamic = True
            case _:
                pass
    return _calls(names, dynamic=dynamic)


def _loose_names(code: str) -> list[tuple[str, str]]:
    return [(found[1] or found[2], found[3] or found[4]) for found in _LOOSE.finditer(code)]


def _at(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else NOTHING


def named_after(tokens: Sequence[Token], index: int) -> tuple[tuple[str, str] | None, int | None]:
    """Return the two names after the `mcp` at `index`, if they are plain, and where the bracket of their
    call opens, if they are called.
    """
    names: list[str] = []
    index += 1
    for _ in range(2):
        found = _next_member(tokens, index)
        if found is None:
            return None, None
        name, index = found
        names.append(name)
    index += _at(tokens, index).is_op("?.", "!")
    return (names[0], names[1]), index if _at(tokens, index).is_op("(") else None


def _next_member(tokens: Sequence[Token], index: int) -> tuple[str, int] | None:
    """Return the name at `index`, for `.name`, `?.name`, `["name"]`, `?.["name"]`, and where it ends."""
    index += _at(tokens, index).is_op("!")
    first, second = _at(tokens, index), _at(tokens, index + 1)
    if first.is_op(".", "?.") and second.kind == "word":
        return second.text, index + 2
    index += first.is_op("?.")
    name = _at(tokens, index + 1)
    if _at(tokens, index).is_op("[") and name.kind == "string" and _at(tokens, index + 2).is_op("]"):
        return name.text, index + 3
    return None


def _is_declaration(tokens: Sequence[Token], index: int) -> bool:
    """Tell whether the `mcp` at `index` only says that there is one: `{ mcp }`, `mcp: Mcp`."""
    before, after = _at(tokens, index - 1), _at(tokens, index + 1)
    if after.is_op(":"):
        return _at(tokens, index + 2).text in _TYPES
    return tokens[index].within == "{" and before.is_op("{", ",") and after.is_op("}", ",")
