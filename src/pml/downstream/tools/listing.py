"""The tools that a client sees: PML's own and, by their own names, those of its servers.

The order never depends on the connection. A server's input schemas pass as they are: the reserved argument is
advertised by `call` and `execute`, which is where an approval result tells a model to continue.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pml.core.code.signatures import signature
from pml.core.own_tools import CONTINUE, OWN_NAMESPACE
from pml.core.text import visible
from pml.core.values import Json, JsonObject, canonical
from pml.service.calls.tool_names import is_listed
from pml.service.calls.tools import FOUND, Known, Tools, search

_CONTINUE_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "description": "With the id from the approval result.",
    "properties": {
        "workflow_id": {"type": "string"},
        "approved": {"type": "boolean", "description": "false gives it up"},
        "always": {"type": "boolean", "description": "never ask again; only if the user said so"},
        "message": {"type": "string", "description": "if not approved: what the user wants instead"},
    },
    "required": ["workflow_id", "approved"],
}
_CONTINUE_BRIEFLY: Final[JsonObject] = {
    "type": "object",
    "description": "As in `call`.",
    "properties": {
        "workflow_id": {"type": "string"},
        "approved": {"type": "boolean"},
    },
    "required": ["workflow_id", "approved"],
}
_OWN_RESULTS: Final[tuple[JsonObject, ...]] = ({"required": ["approval_required"]}, {"required": ["error"]})
# What means its place in the schema, which widening would move.
_ANCHORED: Final = re.compile(
    rb'"\$(?:id|anchor|dynamicAnchor|dynamicRef)":|"\$ref":"#(?!/(?:\$defs|definitions)/)'
)
NAMED: Final = 50  # names without a query; a model that needs more says what it looks for
_LINE: Final = 80
_NARROW: Final = "`query` (words, or a glob such as `server:*`) finds fewer and tells more of each"
_NARROW_WORDS: Final = "use other words, or a glob such as `server:*`"
_HEADER: Final = "x-mcp-header"
_NAMING: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"default", "const", "enum", "examples"})
_DISCOVER: Final[JsonObject] = {
    "name": "discover",
    "description": (
        "Find tools behind this gateway. `query`: words, or a glob such as `github:*`; without it, names "
        "only. `tools`: names to return all schemas of."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "tools": {"type": "array", "items": {"type": "string"}},
        },
    },
    "annotations": {"title": "Find tools", "readOnlyHint": True, "openWorldHint": False},
}
_CALL: Final[JsonObject] = {
    "name": "call",
    "description": (
        "Call a tool that is not listed by its own name: `tool` is `namespace:action` (see `discover`). "
        "With only `continue_workflow` it continues a call that needed approval."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool": {"type": "string"},
            "arguments": {"type": "object"},
            CONTINUE: _CONTINUE_SCHEMA,
        },
    },
    "annotations": {"title": "Call a tool"},
}


_EXECUTE: Final[JsonObject] = {
    "name": "execute",
    "description": (
        "Run code that calls tools and returns one value: several calls, loops, only what matters of "
        "results. `await mcp.namespace.action({...})` calls any tool (see `discover`) and gives plain data; "
        "a refused call throws. No files, network or imports.\n"
        "TypeScript: top-level `await` and `return`: `return await mcp.ns.read({path: 'x'})`.\n"
        "Python: top-level `await`; `mcp.ns.read(path='x')`; the last expression is the result.\n"
        "A call that needs approval pauses the code there; continuing repeats nothing."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "language": {"type": "string", "enum": ["typescript", "python"], "default": "typescript"},
            "args": {"type": "object", "description": "in scope as `args`"},
            CONTINUE: _CONTINUE_BRIEFLY,
        },
    },
    "annotations": {"title": "Run code"},
}


def tool_list(
    tools: Tools, waiting: Sequence[str], problems: Sequence[str], *, own: Sequence[Known] = ()
) -> list[JsonObject]:
    """Return what `tools/list` offers. `waiting` are servers whose file is not trusted yet."""
    listed = [_offered(known) for known in tools.by_wire.values() if known.listed]
    owned = [known.shape for known in own if known.listed]
    return [_with_notes(_DISCOVER, waiting, problems), _CALL, _EXECUTE, *owned, *listed]


def discovery(
    tools: Tools,
    query: str,
    names: Sequence[str],
    waiting: Sequence[str],
    problems: Sequence[str],
    *,
    sent: Collection[str],
) -> JsonObject:
    """Return what `discover` found. `sent` are the names that the client has: others go through `call`."""
    if names:
        wanted = [tools.by_name.get(name) or tools.by_wire.get(name) for name in names]
        found = [known for known in wanted if known is not None]
        shapes: list[Json] = [{**_brief(tools, known, sent), **_schemas(known)} for known in found]
        missing = [name for name, known in zip(names, wanted, strict=True) if known is None]
        return {"tools": shapes, **({"not_found": missing} if missing else {})}
    result = _found(tools, query, sent) if query.strip() else _all_names(tools, sent)
    if tools.missing:
        result["servers_not_ready"] = tools.missing
    if waiting:
        result["servers_not_trusted"] = waiting
    if problems:
        result["problems"] = problems
    return result


def _found(tools: Tools, query: str, sent: Collection[str]) -> dict[str, Json]:
    """Return the best of what fits the query, each with how it is called."""
    found = search(tools, query)
    best: dict[str, Json] = {"tools": [_brief(tools, known, sent) for known in found[:FOUND]]}
    return best if len(found) <= FOUND else {**best, "more": len(found) - FOUND, "narrow": _NARROW_WORDS}


def _all_names(tools: Tools, sent: Collection[str]) -> dict[str, Json]:
    """Return the names of all tools with a line each, up to a bound, and of which servers the rest are.

    What would have to be installed comes last.
    """
    known = sorted(search(tools, ""), key=lambda each: each.installs is not None)
    shown: list[Json] = [
        {"tool": str(each.tool), "description": _one_line(each), **_how(tools, each, sent)}
        for each in known[:NAMED]
    ]
    if len(known) <= NAMED:
        return {"tools": shown, **({"narrow": _NARROW} if known else {})}
    rest = Counter(str(each.tool.namespace) for each in known[NAMED:])
    return {"tools": shown, "more": len(known) - NAMED, "more_of": dict(rest), "narrow": _NARROW}


def _one_line(known: Known) -> str:
    line = " ".join(str(known.shape.get("description") or "").split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def _with_notes(tool: JsonObject, waiting: Sequence[str], problems: Sequence[str]) -> JsonObject:
    notes = [f"Tell the user: {visible(problem)}." for problem in problems]
    if waiting:
        names = ", ".join(waiting)
        notes.append(
            f"Servers that wait for the user to trust the workspace's .pml.json: {names}; calling this asks."
        )
    return {**tool, "description": " ".join([str(tool["description"]), *notes])} if notes else tool


def _offered(known: Known) -> JsonObject:
    own = _without_headers(known.shape.get("inputSchema"))
    schema: JsonObject = own if isinstance(own, Mapping) else {"type": "object"}
    output = _wider(known.shape.get("outputSchema"))
    shape = {key: value for key, value in known.shape.items() if key != "outputSchema"}
    return {
        **shape,
        **({} if output is None else {"outputSchema": output}),
        "name": known.wire,
        "description": str(known.shape.get("description") or ""),
        "inputSchema": schema,
    }


def _without_headers(schema: Json) -> Json:
    """Return the schema without what asks clients to repeat arguments in HTTP headers: PML reads none."""
    if isinstance(schema, list | tuple):
        return [_without_headers(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: {name: _without_headers(part) for name, part in value.items()}
        if key in _NAMING and isinstance(value, Mapping)
        else value
        if key in _VALUES
        else _without_headers(value)
        for key, value in schema.items()
        if key != _HEADER
    }


def _wider(schema: Json) -> JsonObject | None:
    """Return the output schema, opened for PML's own results; None if that would change what it says.

    Clients hold every result against it, even an error's: the model would never see the question.
    """
    if not isinstance(schema, Mapping) or _ANCHORED.search(canonical(schema)):
        return None
    shared = {key: value for key, value in schema.items() if key in ("$schema", "$defs", "definitions")}
    own = {key: value for key, value in schema.items() if key not in shared}
    return {**shared, "type": "object", "anyOf": [own, *_OWN_RESULTS]}


def _brief(tools: Tools, known: Known, sent: Collection[str]) -> JsonObject:
    tool, how = str(known.tool), _how(tools, known, sent)
    how = how if how["call"] == known.wire else {**how, "with": {"tool": tool}}
    installs: JsonObject = {} if known.installs is None else {"installs_after_approval": known.installs}
    described: JsonObject = {"description": known.shape.get("description", "")}
    is_own = known.tool.namespace == OWN_NAMESPACE  # code calls none of these
    code: JsonObject = {} if is_own else {"code": signature(known.tool, _for_code(known))}
    return {"tool": tool, **described, **how, **code, **installs}


def _how(tools: Tools, known: Known, sent: Collection[str]) -> JsonObject:
    """Return the tool by which this client calls it: its own name, or `call`."""
    has_name = is_listed(tools, known) and known.wire in sent
    return {"call": known.wire if has_name else "call"}


def _for_code(known: Known) -> JsonObject:
    """Return the definition of which code gets the result: a capability may return anything."""
    return {"outputSchema": {}, **known.shape} if known.is_capability else known.shape


def _schemas(known: Known) -> JsonObject:
    keys = ("inputSchema", "outputSchema", "annotations")
    return {key: known.shape[key] for key in keys if key in known.shape}
