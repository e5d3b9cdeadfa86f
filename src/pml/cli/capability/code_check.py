"""Faults in the code of a capability, found without running it: for `capability check` and `publish`.

No tool is called, nothing installed or requested. Only known tools are checked; those that the rules
deny are not looked for. Whether metadata is sound is settled before.
"""

import argparse
import contextlib
import re
import shlex
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pml.cli.capability.known_tools import Here, look_around
from pml.cli.capability.new import SUFFIXES
from pml.cli.capability.type_check import DECLARATIONS, Problem, Weight, type_check
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain_prose
from pml.core.code.exports import export_for, exports_of, unexported
from pml.core.code.located_calls import LocatedCall, located_calls
from pml.core.code.sandbox import Language
from pml.core.code.signatures import DECLARATIONS_HEAD, declarations
from pml.core.code.static_calls import static_calls
from pml.core.names import FALLBACK_EXPORT, ToolName, tool_of
from pml.core.packages.capability import CapabilityMetadata, CapabilityType
from pml.core.rules.ruleset import Call, VerdictKind
from pml.core.text import quote, visible
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.registry.publish import Draft
    from pml.service.context import Context
    from pml.service.policy.policy import Policy

LANGUAGES: Final = {CapabilityType.DENO: Language.TYPESCRIPT, CapabilityType.PYTHON: Language.PYTHON}
_MAX_TYPES: Final = 1024 * 1024
_DROPPED: Final = "is not awaited: the run waits for it, but its result and its error are lost"
_MISSING: Final = re.compile(r"Property '(?P<name>[^']*)' does not exist on type ")
_NOT_PLAIN: Final = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties")


@dataclass(frozen=True, kw_only=True)
class Needed:
    """A tool that the code calls, and what the rules say of it."""

    tool: ToolName
    verdict: VerdictKind


@dataclass(kw_only=True)
class Findings:
    """What was found out about the code of one capability. `file` is what the places of problems are in.

    `dynamic`: it may call other tools too. `is_parsed` is false where nothing can be told of its calls.
    """

    file: Path
    problems: list[Problem] = field(default_factory=list[Problem])
    tools: list[Needed] = field(default_factory=list[Needed])
    dynamic: bool = False
    is_parsed: bool = True

    def of(self, *weights: Weight) -> list[Problem]:
        """Return the problems that weigh so much."""
        return [problem for problem in self.problems if problem.weight in weights]

    def problem_json(self, problem: Problem) -> dict[str, Json]:
        return {
            "message": problem.message,
            "file": str(self.file),
            "line": problem.line,
            "column": problem.column,
        }

    def line(self, problem: Problem) -> str:
        """Return what a person reads of a problem: the file, the place and the message."""
        place = "" if problem.line is None else f":{problem.line}:{problem.column}"
        return f"{self.file}{place}: {problem.message}"


@contextlib.asynccontextmanager
async def open_checking(args: argparse.Namespace) -> AsyncGenerator["CodeChecking"]:
    """Yield what checks code by what is known here, and by the rules of this workspace."""
    from pml.app import find_place
    from pml.service.policy.policy import current_policy

    place = find_place(args.workspace)
    async with opened(args) as context:
        policy = await current_policy(context, str(place.workspace))
        for error in policy.broken:
            complain_prose(
                f"warning: {visible(error.message)}; while a file is broken, no file allows anything"
            )
        yield CodeChecking(context, place, policy, await look_around(context, place, policy))


class CodeChecking:
    """One command line's worth: the rules and what is known, for every file."""

    def __init__(self, context: "Context", place: "Place", policy: "Policy", here: Here) -> None:
        self._context = context
        self.place = place
        self.policy = policy
        self.here = here

    async def check(self, draft: "Draft", code: bytes) -> Findings:
        """Return what is wrong with `code`, which is the draft's. Raises: Unavailable."""
        language = LANGUAGES[draft.metadata.type]
        findings = Findings(file=draft.path.with_suffix(SUFFIXES[language]))
        try:
            text = code.decode()
        except UnicodeDecodeError as exc:
            findings.problems.append(Problem(message=f"is not UTF-8: byte {exc.start}", weight=Weight.BROKEN))
            findings.is_parsed = False
            return findings
        calls, located = static_calls(text, language), located_calls(text, language)
        findings.dynamic = calls.dynamic
        for tool in calls.tools:
            findings.tools.append(Needed(tool=tool, verdict=await self._verdict(tool)))
        unknown = self._unknown(draft.metadata, findings.tools)
        findings.problems += await self._type_check(draft, findings, text, unknown)
        findings.problems += unserved(draft.metadata, text, language)
        for tool, problem in unknown.items():
            findings.problems += placed(problem, tool, located)
        for call in located:
            findings.problems += doubts(call, self.here.tools.get(call.tool))
        is_broken = bool(findings.of(Weight.BROKEN))
        findings.is_parsed = not is_broken or exports_of(text, language) is not None
        return findings

    async def _verdict(self, tool: ToolName) -> VerdictKind:
        from pml.service.policy.policy import judge

        call = Call(tool=str(tool), arguments={}, cwd=str(self.place.workspace))
        return (await judge(self._context, self.policy, call, session=None)).kind

    async def _type_check(
        self, draft: "Draft", findings: Findings, code: str, unknown: Collection[ToolName]
    ) -> list[Problem]:
        """Return what the type checker says: by the types beside the code, else by those of what it calls."""
        from pml.registry.plain_files import read_plain

        beside = read_plain(findings.file.with_name(DECLARATIONS), limit=_MAX_TYPES)
        called = [each.tool for each in findings.tools]
        denied = [each.tool for each in findings.tools if each.verdict is VerdictKind.DENY]
        servers = [name for name in dict.fromkeys(tool.namespace for tool in called) if name is not None]
        known = self.here.of([name for name in servers if name in self.here.namespaces])
        declared = declarations(known) if beside is None else beside.decode(errors="replace")
        said = await type_check(code, LANGUAGES[draft.metadata.type], declared=declared)
        is_ours = beside is not None and declared.startswith(DECLARATIONS_HEAD)
        command = shlex.join(["pml", "capability", "types", "--dir", str(findings.file.parent)])
        return explained(
            said,
            called=called,
            unknown={self._unknown_name(tool) for tool in (*unknown, *denied)},
            untold={dependency.name for dependency in draft.metadata.mcp_deps}.union(self.here.silent),
            hint=f" → {command}" if is_ours else "",
        )

    def _unknown_name(self, tool: ToolName) -> str:
        is_server = tool.namespace in self.here.namespaces
        return tool.action if is_server else tool.namespace or ""

    def _unknown(self, metadata: CapabilityMetadata, tools: Sequence[Needed]) -> dict[ToolName, Problem]:
        """Return what is wrong with those that are not known; one that is denied is hidden, not unknown."""
        own = {dependency.name for dependency in metadata.mcp_deps}
        found: dict[ToolName, Problem] = {}
        for tool in (each.tool for each in tools if each.verdict is not VerdictKind.DENY):
            if tool in self.here.tools or tool.namespace in own or tool.namespace in self.here.silent:
                continue
            if tool.namespace == metadata.fqdn.namespace:
                message = f"calls {tool}, of its own namespace: it must not call itself"
                found[tool] = Problem(message=message, weight=Weight.DOUBTFUL)
            else:
                found[tool] = self._no_tool(tool)
        return found

    def _no_tool(self, tool: ToolName) -> Problem:
        name = tool.namespace or ""
        actions = [each.action for each in self.here.tools if each.namespace == name]
        if actions:
            near = get_close_matches(tool.action, actions, n=1)
            also = f"; did you mean `{name}:{near[0]}`?" if near else ""
            return Problem(message=f"no tool {quote(str(tool))}{also}")
        near = self.here.near(name)
        also = f"; did you mean `{near}`?" if near else ""
        what = f"{quote(name)} is neither a dependency, configured, in the catalog nor a capability"
        if self.here.is_open:
            return Problem(
                message=f"{what} that is known{also}; the registry may have it", weight=Weight.DOUBTFUL
            )
        return Problem(message=what + also)


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
