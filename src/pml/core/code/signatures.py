"""Signatures of tools in TypeScript: a line for the author of code, declarations for type checkers.

Made from the tool's own words, which are anybody's: nothing in them breaks out of its place, and no
definition fails. Without an `outputSchema` a result is its text. Which tools there are is not known here.
"""

from collections.abc import Mapping
from typing import Final

from pml.core.code.schema_types import ANY_OBJECT, UNKNOWN, property_name, type_of
from pml.core.names import ToolName, code_of
from pml.core.text import visible
from pml.core.values import Json, JsonObject

DECLARATIONS_HEAD: Final = "// Made by `pml capability types`, and written anew by it: do not edit."
_LINE_TYPE: Final = 1_500  # characters of each type: a line that a model reads whole
MAX_DECLARED: Final = 20_000
_MAX_DOC_LINES: Final = 40
_MAX_DOC_LINE: Final = 300
_CONTRACT: Final = """\
/** What a capability gets beside its arguments: `export async function run(args, { mcp }: Context)`. */
export interface Context {
  mcp: Mcp;
}

declare global {
  /** What a call that failed throws: `code` tells why, such as `user_denied`. */
  class ToolError extends Error {
    readonly code: string;
  }
}
"""


def signature(tool: ToolName, definition: JsonObject) -> str:
    """Return how `tool` is called, in one line: `mcp.fs.read(args: { path: string }): Promise<string>`.

    Raises: Invalid for a client's own tool.
    """
    return code_of(tool) + _shape(definition, limit=_LINE_TYPE)


def declarations(tools: Mapping[ToolName, JsonObject]) -> str:
    """Return the text of a `.d.ts`: `Context`, and `Mcp` with all of `tools` and what is said of them."""
    by_namespace: dict[str, list[str]] = {}
    for tool, definition in tools.items():
        if tool.namespace is not None:
            lines = [
                *_doc(definition),
                property_name(tool.action) + _shape(definition, limit=MAX_DECLARED) + ";",
            ]
            by_namespace.setdefault(tool.namespace, []).extend(f"    {line}\n" for line in lines)
    members = "".join(
        f"  {property_name(namespace)}: {{\n{''.join(lines)}  }};\n"
        for namespace, lines in by_namespace.items()
    )
    return f"{DECLARATIONS_HEAD}\n\n{_CONTRACT}\nexport interface Mcp {{\n{members}}}\n"


def _shape(definition: JsonObject, *, limit: int) -> str:
    """Return what follows the name: arguments and result."""
    wanted, given = definition.get("inputSchema"), definition.get("outputSchema")
    arguments = type_of(wanted, limit=limit)
    result = type_of(given, limit=limit) if isinstance(given, Mapping) else "string"
    mark = "?" if _is_optional(wanted) else ""
    return f"(args{mark}: {ANY_OBJECT if arguments == UNKNOWN else arguments}): Promise<{result}>"


def _is_optional(schema: Json) -> bool:
    """Tell whether a call without arguments fits `schema`, as far as that is plain."""
    if not isinstance(schema, Mapping):
        return True
    return not any(schema.get(key) for key in ("required", "$ref", "allOf", "anyOf", "oneOf"))


def _doc(definition: JsonObject) -> list[str]:
    about = definition.get("description")
    lines = about.strip().splitlines() if isinstance(about, str) else []
    lines += _argument_lines(definition.get("inputSchema"))
    if not lines:
        return []
    cut = [*lines[:_MAX_DOC_LINES], *(["…"] if len(lines) > _MAX_DOC_LINES else [])]
    return ["/**", *(f" * {_harmless(line)}".rstrip() for line in cut), " */"]


def _argument_lines(schema: Json) -> list[str]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return []
    return [
        f"@param args.{name} {' '.join(about.split())}"
        for name, inner in properties.items()
        if isinstance(inner, Mapping) and isinstance(about := inner.get("description"), str)
    ]


def _harmless(line: str) -> str:
    """Return `line` so that it stays within its comment, and shows all that it has."""
    cut = line if len(line) <= _MAX_DOC_LINE else f"{line[:_MAX_DOC_LINE]}…"
    return visible(cut).replace("*/", "* /")
