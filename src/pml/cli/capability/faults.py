"""Faults that the text of code shows, given the known tools: who serves what, and which calls look wrong.

Where the type checker says the same in more words, or without the way out, it is told as here.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from pml.cli.capability.type_check import Problem, Weight
from pml.core.code.exports import export_for, exports_of, unexported
from pml.core.code.located_calls import LocatedCall
from pml.core.code.sandbox import Language
from pml.core.names import FALLBACK_EXPORT, ToolName, tool_of
from pml.core.packages.capability import CapabilityMetadata
from pml.core.text import quote
from pml.core.values import Json, JsonObject

_DROPPED: Final = "is not awaited: the run waits for it, but its result and its error are lost"
_MISSING: Final = re.compile(r"Property '(?P<name>[^']*)' does not exist on type ")
_NOT_PLAIN: Final = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties")


def unserved(metadata: CapabilityMetadata, code: str, language: Language) -> list[Problem]:
    """Return the tools that no function serves. What cannot be parsed, the type checker tells of."""
    exports, own = exports_of(code, language), tool_of(metadata.fqdn)
    actions = [str(tool.get("name")) for tool in metadata.tools] or [own.action]
    return [
        _nothing_serves(ToolName(namespace=own.namespace, action=action), code, language)
        for action in actions
        if exports is not None and export_for(action, exports, language) is None
    ]


def _nothing_serves(tool: ToolName, code: str, language: Language) -> Problem:
    what = f"nothing serves {quote(str(tool))}"
    if language is Language.PYTHON:
        message = f"{what}: expected `async def` {quote(tool.action)} or `run`"
        return Problem(message=message, weight=Weight.BROKEN)
    for name in (tool.action, FALLBACK_EXPORT):
        if (place := unexported(code, name)) is not None:
            message = f"{what}: {quote(name)} is not exported; write `export` before it"
            return Problem(message=message, line=place.line, column=place.column, weight=Weight.BROKEN)
    message = f"{what}: expected `export async function` {quote(tool.action)} or `run`"
    return Problem(message=message, weight=Weight.BROKEN)


def placed(problem: Problem, tool: ToolName, calls: Sequence[LocatedCall]) -> list[Problem]:
    """Return the problem once for each call of `tool`, with its place."""
    places = [call.place for call in calls if call.tool == tool]
    return [msgspec.structs.replace(problem, line=place.line, column=place.column) for place in places] or [
        problem
    ]


def doubts(call: LocatedCall, definition: JsonObject | None) -> list[Problem]:
    """Return what looks wrong about a call of a tool, of which `definition` is known."""
    said = [] if definition is None else _argument_doubts(call, definition.get("inputSchema"))
    if call.is_dropped:
        said.append(f"{call.tool} {_DROPPED}")
    line, column = call.place
    return [Problem(message=each, line=line, column=column, weight=Weight.DOUBTFUL) for each in said]


def _argument_doubts(call: LocatedCall, schema: Json) -> list[str]:
    if call.given is None or not isinstance(schema, Mapping) or any(key in schema for key in _NOT_PLAIN):
        return []
    required, properties = schema.get("required"), schema.get("properties")
    needed = (
        [each for each in required if isinstance(each, str)] if isinstance(required, list | tuple) else []
    )
    said = [f"{call.tool} needs {quote(name)}" for name in needed if name not in call.given]
    if isinstance(properties, Mapping) and schema.get("additionalProperties") in (None, False):
        said += [_not_taken(call, name, [*properties]) for name in sorted(call.given - properties.keys())]
    return said


def _not_taken(call: LocatedCall, name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=1)
    takes = (
        f"did you mean {quote(near[0])}?" if near else f"it takes {', '.join(map(quote, names)) or 'nothing'}"
    )
    return f"{call.tool} does not take {quote(name)}; {takes}"


def explained(
    said: Sequence[Problem],
    *,
    called: Collection[ToolName],
    unknown: Collection[str],
    untold: Collection[str],
    hint: str,
) -> list[Problem]:
    """Return what the type checker said, without the `unknown` names of what is called: those are told of.

    Of servers that are `untold`, nothing can be checked. Of the others the types are out of date: `hint`.
    """
    names = {name for tool in called for name in (tool.namespace, tool.action)}
    problems: list[Problem] = []
    for problem in said:
        missing = _MISSING.match(problem.message)
        name = "" if missing is None else str(missing["name"])
        if name not in names:
            problems.append(problem)
        elif name in untold:
            message = f"nothing is known of the tools of {quote(name)}: calls of them were not checked"
            problems.append(msgspec.structs.replace(problem, message=message, weight=Weight.DOUBTFUL))
        elif name not in unknown:
            problems.append(msgspec.structs.replace(problem, message=problem.message + hint))
    return problems
