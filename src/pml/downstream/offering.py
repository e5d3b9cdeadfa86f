"""The tools that a client sees: PML's own and, by their own names, those of its servers.

The order never depends on the connection. A server's input schemas pass as they are: the reserved argument is
advertised by `call` and `execute`, which is where an approval result tells a model to continue.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pml.core.memory import CONTINUE as CONTINUE
from pml.core.memory import OWN_NAMESPACE
from pml.core.signatures import signature
from pml.core.text import visible
from pml.core.values import Json, JsonObject, canonical
from pml.service.discovery import FOUND, Known, Tools, search

_CONTINUE_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "description": "Only to continue a call that needed approval, with the id from its result.",
    "properties": {
        "workflow_id": {"type": "string"},
        "approved": {"type": "boolean", "description": "false gives the call up"},
        "always": {"type": "boolean", "description": "never ask for this again; only if the user said so"},
        "message": {"type": "string", "description": "with approved: false, what the user wants instead"},
    },
    "required": ["workflow_id", "approved"],
}
_CONTINUE_BRIEFLY: Final[JsonObject] = {
    "type": "object",
    "description": "As in `call`.",
    "properties": {
        "workflow_id": {"type": "string"},
        "approved": {"type": "boolean"},
        "message": {"type": "string"},
    },
    "required": ["workflow_id", "approved"],
}
_OWN_RESULTS: Final[tuple[JsonObject, ...]] = ({"required": ["approval_required"]}, {"required": ["error"]})
# What means its place in the schema, which widening would move.
_ANCHORED: Final = re.compile(
    rb'"\$(?:id|anchor|dynamicAnchor|dynamicRef)":|"\$ref":"#(?!/(?:\$defs|definitions)/)'
)
_HEADER: Final = "x-mcp-header"
_NAMING: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"default", "const", "enum", "examples"})
_DISCOVER: Final[JsonObject] = {
    "name": "discover",
    "description": (
        "Find tools behind this gateway. `query`: words, or a glob such as `github:*`; empty lists all. "
        "`tools`: names whose full input schemas to return."
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
        "Call a tool that is not listed by its own name: `tool` as `namespace:action` (see `discover`), with "
        "its `arguments`. With only `continue_workflow` it continues any call that needed approval."
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
        "Run code that calls tools and returns one value: several calls, loops, and only the part of their "
        "results that matters. `mcp.namespace.action({...})` calls any tool (see `discover`; `await` it) and "
        "gives plain data; a refused call throws. There are no files, network or imports.\n"
        "TypeScript: top-level `await` and `return`, e.g. "
        "`const t = await mcp.time.get_current_time({timezone: 'UTC'}); return t`.\n"
        "Python: top-level `await`; `mcp.ns.action(path='x')`; the last expression is the result.\n"
        "`args` is in scope. A call that needs approval pauses the code there; continuing repeats nothing."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "language": {"type": "string", "enum": ["typescript", "python"], "default": "typescript"},
            "args": {"type": "object", "description": "what the code finds as `args`"},
            CONTINUE: _CONTINUE_BRIEFLY,
        },
    },
    "annotations": {"title": "Run code that calls tools"},
}


def tool_list(
    tools: Tools, waiting: Sequence[str], problems: Sequence[str], *, own: Sequence[Known] = ()
) -> list[JsonObject]:
    """Return what `tools/list` offers. `waiting` are servers whose file nobody has trusted yet."""
    listed = [_offered(known) for known in tools.by_wire.values() if known.listed]
    owned = [known.shape for known in own if known.listed]
    return [_with_notes(_DISCOVER, waiting, problems), _CALL, _EXECUTE, *owned, *listed]


def is_listed(tools: Tools, known: Known) -> bool:
    """Tell whether clients see the tool by its own name, which no other tool shares."""
    return known.listed and tools.by_wire.get(known.wire) is known


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
    found = search(tools, query)
    result: dict[str, Json] = {"tools": [_brief(tools, known, sent) for known in found[:FOUND]]}
    if len(found) > FOUND:
        result["more"] = len(found) - FOUND
    if tools.missing:
        result["servers_not_ready"] = tools.missing
    if waiting:
        result["servers_not_trusted"] = waiting
    if problems:
        result["problems"] = problems
    return result


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
    tool = str(known.tool)
    has_name = is_listed(tools, known) and known.wire in sent
    how: JsonObject = {"call": known.wire} if has_name else {"call": "call", "with": {"tool": tool}}
    installs: JsonObject = {} if known.installs is None else {"installs_after_approval": known.installs}
    described: JsonObject = {"description": known.shape.get("description", "")}
    is_own = known.tool.namespace == OWN_NAMESPACE  # code calls none of these
    code: JsonObject = {} if is_own else {"code": signature(known.tool, _for_code(known))}
    return {"tool": tool, **described, **how, **code, **installs}


def _for_code(known: Known) -> JsonObject:
    """Return the definition of which code gets the result: a capability may return anything."""
    return {"outputSchema": {}, **known.shape} if known.is_capability else known.shape


def _schemas(known: Known) -> JsonObject:
    keys = ("inputSchema", "outputSchema", "annotations")
    return {key: known.shape[key] for key in keys if key in known.shape}
