"""`pml capability check`: whether a capability is sound, and what it needs here, told without running it.

A problem is what keeps it from working anywhere; what only this workspace refuses or lacks is a warning.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.capability_known import Here, look_around
from pml.cli.capability_new import SUFFIXES
from pml.cli.capability_types import DECLARATIONS, Problem, type_check
from pml.cli.exits import Exit
from pml.cli.opening import opened
from pml.cli.output import complain, print_json
from pml.cli.progress import InstallBar
from pml.core.capability import CapabilityMetadata, CapabilityType, McpDependency
from pml.core.errors import PmlError
from pml.core.exports import export_for, exports_of
from pml.core.loading import Progress
from pml.core.names import ToolName, tool_of
from pml.core.permissions import permissions_json
from pml.core.rules import Call, VerdictKind
from pml.core.sandbox import Language
from pml.core.signatures import declarations
from pml.core.static_calls import StaticCalls, static_calls
from pml.core.text import quote, visible, visible_json
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.registry.publishing import Draft
    from pml.service.desk import Desk
    from pml.service.policy import Policy

DYNAMIC: Final = "also calls tools that cannot be told beforehand"
_LANGUAGES: Final = {CapabilityType.DENO: Language.TYPESCRIPT, CapabilityType.PYTHON: Language.PYTHON}
_MAX_TYPES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Needed:
    """A tool that the code calls, and what the rules say of it."""

    tool: ToolName
    verdict: VerdictKind


@dataclass(kw_only=True)
class Report:
    """What was found out about one capability. `code` is the file that the places of problems are in."""

    path: Path
    code: Path | None = None
    metadata: CapabilityMetadata | None = None
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[str] = field(default_factory=list[str])
    tools: list[Needed] = field(default_factory=list[Needed])
    servers: list[McpDependency] = field(default_factory=list[McpDependency])
    missing: list[str] = field(default_factory=list[str])
    dynamic: bool = False

    def json(self) -> JsonObject:
        return {
            "path": str(self.path),
            "fqdn": None if self.metadata is None else str(self.metadata.fqdn),
            "ok": not self.problems,
            "problems": [self._problem_json(each) for each in self.problems],
            "warnings": self.warnings,
            "tools": [{"tool": str(each.tool), "verdict": each.verdict.value} for each in self.tools],
            "dynamic": self.dynamic,
            "servers": [_server_json(each) for each in self.servers],
            "variables_missing": self.missing,
        }

    def _problem_json(self, problem: Problem) -> dict[str, Json]:
        file = self.code if problem.line is not None and self.code is not None else self.path
        shape: dict[str, Json] = {"message": problem.message, "file": str(file)}
        return {**shape, "line": problem.line, "column": problem.column}


async def check_capabilities(args: argparse.Namespace) -> int:
    """Raises: Unavailable if code cannot be checked here."""
    from pml.app import find_place
    from pml.service.policy import current_policy

    place = find_place(args.workspace)
    paths = [Path(text) for text in args.paths if Path(text).name != DECLARATIONS]  # as `*.ts` means it
    async with opened(args) as desk:
        policy = await current_policy(desk, str(place.workspace))
        for error in policy.broken:
            complain(f"warning: {visible(error.message)}; while a file is broken, no file allows anything")
        checking = _Checking(desk, place, policy, await look_around(desk, place, policy))
        with InstallBar() as bar:
            reports: list[Report] = []
            for path in paths:
                bar(Progress(done=len(reports), total=len(paths), message=f"checking {path}"))
                reports.append(await checking.check(path))
    if args.json:
        print_json({"checked": [report.json() for report in reports]})
    else:
        for report in reports:
            _tell(report)
    return Exit.FAILED if any(report.problems for report in reports) else Exit.OK


class _Checking:
    """One command line's worth: the rules and what is known, for every file."""

    def __init__(self, desk: "Desk", place: "Place", policy: "Policy", here: Here) -> None:
        self._desk = desk
        self._place = place
        self._policy = policy
        self._here = here

    async def check(self, path: Path) -> Report:
        report = Report(path=path)
        draft = _draft(report)
        if draft is None:
            return report
        metadata = report.metadata = draft.metadata
        calls = StaticCalls(tools=(), dynamic=False)
        if draft.code is not None:
            calls = await self._check_code(report, draft)
        elif metadata.code_url is not None:
            report.warnings.append(f"its code is at {quote(metadata.code_url)}, and was not checked")
        await self._judge(report, calls)
        self._find_servers(report, metadata)
        await self._look_for_variables(report)
        return report

    async def _check_code(self, report: Report, draft: "Draft") -> StaticCalls:
        """Return what the code calls; what is wrong with it is reported."""
        language = _LANGUAGES[draft.metadata.type]
        report.code = draft.path.with_suffix(SUFFIXES[language])
        try:
            code = (draft.code or b"").decode()
        except UnicodeDecodeError as exc:
            report.problems.append(
                Problem(message=f"{quote(str(report.code))} is not UTF-8: byte {exc.start}")
            )
            return StaticCalls(tools=(), dynamic=True)
        calls = static_calls(code, language)
        report.dynamic = calls.dynamic
        report.problems += await type_check(code, language, declared=self._declared(report.code, calls))
        _check_exports(report, code, language)
        return calls

    def _declared(self, code: Path, calls: StaticCalls) -> str:
        """Return the types that lie beside the code, or those of what it calls."""
        from pml.registry.files import read_plain

        beside = read_plain(code.with_name(DECLARATIONS), limit=_MAX_TYPES)
        if beside is not None:
            return beside.decode(errors="replace")
        called = dict.fromkeys(tool.namespace for tool in calls.tools)
        known = [name for name in called if name is not None and name in self._here.namespaces]
        return declarations(self._here.of(known))

    def _find_servers(self, report: Report, metadata: CapabilityMetadata) -> None:
        """Tell which servers would be installed, and of which tools nothing is known."""
        report.servers += metadata.mcp_deps
        own = {dependency.name for dependency in metadata.mcp_deps}
        for tool in (each.tool for each in report.tools if each.verdict is not VerdictKind.DENY):
            name = tool.namespace or ""
            if name in own or name in self._here.silent:
                continue
            if name in self._here.installs and self._here.installs[name] not in report.servers:
                report.servers.append(self._here.installs[name])
            self._check_known(report, metadata, tool)

    def _check_known(self, report: Report, metadata: CapabilityMetadata, tool: ToolName) -> None:
        actions = [each.action for each in self._here.tools if each.namespace == tool.namespace]
        if tool in self._here.tools:
            return
        if tool.namespace == metadata.fqdn.namespace:
            report.warnings.append(f"calls {tool}, of its own namespace: it must not call itself")
        elif actions:
            near = get_close_matches(tool.action, actions, n=1)
            also = f"; did you mean `{tool.namespace}:{near[0]}`?" if near else ""
            report.problems.append(Problem(message=f"no tool {quote(str(tool))}{also}"))
        else:
            self._tell_unknown(report, tool)

    def _tell_unknown(self, report: Report, tool: ToolName) -> None:
        near = self._here.near(tool.namespace or "")
        also = f"; did you mean `{near}`?" if near else ""
        name = quote(tool.namespace or "")
        what = f"{name} is neither a dependency, configured, in the catalog nor a capability"
        if self._here.is_open:
            report.warnings.append(f"{what} that is known{also}; the registry may have it")
        else:
            report.problems.append(Problem(message=what + also))

    async def _judge(self, report: Report, calls: StaticCalls) -> None:
        from pml.service.policy import judge

        for tool in calls.tools:
            call = Call(tool=str(tool), arguments={}, cwd=str(self._place.workspace))
            judged = await judge(self._desk, self._policy, call, session=None)
            report.tools.append(Needed(tool=tool, verdict=judged.kind))
            if judged.kind is VerdictKind.DENY:
                report.warnings.append(f"{tool} is denied here: `pml rules explain {tool}` shows the rule")

    async def _look_for_variables(self, report: Report) -> None:
        from pml.app import open_variables

        names = [*dict.fromkeys(name for each in report.servers for name in each.env_required)]
        trusted = str(self._place.workspace) if self._policy.trusted else None
        values = await asyncio.to_thread(open_variables(self._place).values, names, workspace=trusted)
        report.missing = [name for name in names if name not in values]


def _draft(report: Report) -> "Draft | None":
    """Return what was written; what is not sound about it is reported."""
    from pml.registry.publishing import read_drafts

    path = report.path
    if path.suffix not in {".json", *SUFFIXES.values()} or path.is_dir():
        report.problems.append(Problem(message="is no capability: expected its `.ts`, `.py` or `.json`"))
        return None
    try:
        [draft] = read_drafts(path.with_suffix(".json"))
    except PmlError as exc:
        hint = "" if exc.hint is None else f" ({exc.hint})"
        report.problems.append(Problem(message=f"{exc.message}{hint}"))
        return None
    name = str(draft.metadata.fqdn)
    if path.with_suffix("").name != name:
        report.warnings.append(
            f"a registry's folder has it as {name}{path.suffix}; `pml publish` names it so"
        )
    return draft


def _check_exports(report: Report, code: str, language: Language) -> None:
    exports = exports_of(code, language)
    if report.metadata is None or exports is None:
        return  # what cannot be understood, the type checker tells of
    own = tool_of(report.metadata.fqdn)
    for action in [str(tool.get("name")) for tool in report.metadata.tools] or [own.action]:
        if export_for(action, exports, language) is None:
            how = "`export async function`" if language is Language.TYPESCRIPT else "`async def`"
            tool = quote(f"{own.namespace}:{action}")
            expected = f"expected {how} {quote(action)} or `run`"
            report.problems.append(Problem(message=f"nothing serves {tool}: {expected}"))


def _server_json(dependency: McpDependency) -> JsonObject:
    return {
        "name": dependency.name,
        "version": dependency.version,
        "install": dependency.install,
        "integrity": dependency.integrity,
        "permissions": permissions_json(dependency.permissions),
        "env_required": dependency.env_required,
    }


def _tell(report: Report) -> None:
    from pml.cli.catalog import print_facts

    title = str(report.path) if report.metadata is None else str(report.metadata.fqdn)
    for problem in report.problems:
        file = report.code if problem.line is not None and report.code is not None else report.path
        place = "" if problem.line is None else f":{problem.line}:{problem.column}"
        message = problem.message.removeprefix(f"{file}: ")
        complain(f"{visible(str(file))}{place}: {visible(message)}")
    if report.metadata is None:
        return
    print_facts(f"{title}  {'HAS PROBLEMS' if report.problems else 'is sound'}", [*_facts(report)])
    for warning in report.warnings:
        complain(f"warning: {visible(warning)}")


def _facts(report: Report) -> Sequence[tuple[str, str]]:
    calls = [f"{each.verdict.value:<9}{visible(str(each.tool))}" for each in report.tools]
    if report.dynamic:
        calls.append(DYNAMIC)
    facts = [("calls", "\n".join(calls) or "no tools")]
    facts += [("installs", "\n".join(_server_lines(each))) for each in report.servers]
    if report.missing:
        facts.append(
            (
                "not set",
                "\n".join(f"{visible(name)}: pml secrets set {visible(name)}" for name in report.missing),
            )
        )
    return facts


def _server_lines(dependency: McpDependency) -> list[str]:
    needs = ", ".join(map(visible, dependency.env_required)) or "no variables"
    permissions = visible_json(permissions_json(dependency.permissions) or {}, indent=None)
    return [visible(dependency.title), f"may reach {permissions}", f"needs {needs}"]
