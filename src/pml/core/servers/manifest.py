"""Manifest of an MCP server: what it offers, as it said it, and the digests that tell when that has changed.

A manifest belongs to a server's name and to the target that answers under it. Keeping manifests and pins, and
asking about a change, is not known here.
"""

import difflib
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from pml.core.digest import digest
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject, canonical

# What a model reads or a client acts on; `_meta` and icons are decoration, and change more often.
DEFINING: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
SERVED_BY: Final = "served by"  # in the pin of a tool that runs elsewhere; no member of a tool is read so


class Manifest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a server offers under the target of this digest. The entries are the server's own words."""

    server: str
    target_digest: str
    capabilities: JsonObject
    instructions: str | None = None
    tools: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()
    identity: str | None = None  # the name that the server gives itself

    @cached_property
    def definitions(self) -> Mapping[str, str]:
        """The digest of each tool's definition, by its action."""
        return {str(tool["name"]): definition_digest(tool) for tool in self.tools}

    @cached_property
    def required(self) -> Mapping[str, tuple[str, ...]]:
        """The arguments that each tool's schema requires, by its action."""
        return {str(tool["name"]): _required(tool.get("inputSchema")) for tool in self.tools}

    def tool(self, action: str) -> JsonObject | None:
        """Return the tool as the server described it."""
        return next((tool for tool in self.tools if tool["name"] == action), None)

    def pinned(self, action: str, *, is_remote: bool) -> JsonObject:
        """Return what is pinned of a tool: of what runs elsewhere, unproven, also who says it."""
        definition = definition_of(self.tool(action) or {})
        return {**definition, SERVED_BY: self.identity} if is_remote else definition

    def pinned_digest(self, action: str, *, is_remote: bool) -> str:
        """Return the digest of what is pinned of a tool."""
        return digest(self.pinned(action, is_remote=True)) if is_remote else self.definitions[action]


def definition_digest(tool: JsonObject) -> str:
    """Return the digest of what a tool says of itself: name, description, schemas and annotations."""
    return digest(definition_of(tool))


def definition_of(tool: JsonObject) -> JsonObject:
    """Return the part of a tool's description that a pin holds."""
    return {key: tool[key] for key in DEFINING if key in tool}


def arguments_text(tool: JsonObject) -> str:
    """Return what a tool takes, in a line: `timezone (string), format (string, optional)`."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return "none"
    required = _required(schema)
    return ", ".join(
        f"{visible(name)} ({_kind(shape)}{'' if name in required else ', optional'})"
        for name, shape in properties.items()
    )


def _kind(shape: Json) -> str:
    kind = shape.get("type") if isinstance(shape, Mapping) else None
    return visible(kind) if isinstance(kind, str) else "any"


def _required(schema: Json) -> tuple[str, ...]:
    names = schema.get("required") if isinstance(schema, Mapping) else None
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list | tuple) else ()


def definition_diff(was: JsonObject, now: JsonObject) -> tuple[str, ...]:
    """Return the difference between two definitions, a line each: ` ` the same, `-` gone, `+` new."""
    lines = difflib.unified_diff(_lines(was), _lines(now), lineterm="", n=1)
    return tuple(line for line in lines if not line.startswith(("---", "+++", "@@")))


def _lines(definition: JsonObject) -> list[str]:
    """Return one line for every fact; long text is broken where it has line breaks of its own.

    What differs has other lines: `:` is before text, `=` before JSON, whose members are sorted.
    """
    lines: list[str] = []
    for key in (*DEFINING, SERVED_BY):
        if key not in definition:
            continue
        value = definition[key]
        if isinstance(value, str):
            lines += [f"{key}: {visible(part)}" for part in value.split("\n")]
        else:
            ordered: Json = msgspec.json.decode(canonical(value))
            lines += [f"{key} = {line}" for line in visible_json(ordered).split("\n")]
    return lines
