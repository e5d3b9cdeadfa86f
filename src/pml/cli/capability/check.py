"""`pml capability check`: whether a capability is sound, and what it needs here, told without running it.

A problem is what keeps it from working anywhere; what only this workspace refuses or lacks is a warning.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.capability.code_check import CodeChecking, Findings, open_checking
from pml.cli.capability.new import PLACEHOLDER, SUFFIXES
from pml.cli.capability.type_check import DECLARATIONS, Problem, Weight
from pml.cli.exits import Exit
from pml.cli.terminal.output import complain, print_json
from pml.cli.terminal.progress import InstallBar
from pml.core.errors import Invalid, PmlError
from pml.core.packages.capability import CapabilityMetadata, McpDependency
from pml.core.packages.permissions import permissions_json
from pml.core.ports.loader import Progress
from pml.core.rules.ruleset import VerdictKind
from pml.core.text import quote, visible, visible_json
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.registry.publish import Draft

DYNAMIC: Final = "also calls tools that cannot be told beforehand"
_METADATA: Final = ".json"


@dataclass(kw_only=True)
class Report:
    """What was found out about one capability; `found` is about its code."""

    path: Path
    metadata: CapabilityMetadata | None = None
    found: Findings
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[str] = field(default_factory=list[str])
    servers: list[McpDependency] = field(default_factory=list[McpDependency])
    missing: list[str] = field(default_factory=list[str])

    def json(self) -> JsonObject:
        tools = self.found.tools
        return {
            "path": str(self.path),
            "fqdn": None if self.metadata is None else str(self.metadata.fqdn),
            "ok": not self.problems,
            "problems": [self.found.problem_json(each) for each in self.problems],
            "warnings": self.warnings,
            "tools": [{"tool": str(each.tool), "verdict": each.verdict.value} for each in tools],
            "dynamic": self.found.dynamic,
            "servers": [_server_json(each) for each in self.servers],
            "variables_missing": self.missing,
        }


async def check_capabilities(args: argparse.Namespace) -> int:
    """Raises: Invalid for a name that is not a capability's; Unavailable if code cannot be checked here."""
    paths = [*_paths(args.paths)]
    async with open_checking(args) as checking:
        with InstallBar() as bar:
            reports: list[Report] = []
            for path in paths:
                bar(Progress(done=len(reports), total=len(paths), message=f"checking {path}"))
                reports.append(await _check(path, checking))
    if args.json:
        print_json({"checked": [report.json() for report in reports]})
    else:
        for report in reports:
            _tell(report)
    return Exit.FAILED if any(report.problems for report in reports) else Exit.OK


def _paths(given: Sequence[str]) -> Iterator[Path]:
    """Yield what is to be checked, each capability once: of a folder, all that `pml publish` would take.

    Raises: Invalid if that is nothing.
    """
    seen: set[Path] = set()
    for path in map(Path, given):
        for each in sorted(path.glob(f"*{_METADATA}")) if path.is_dir() else [path]:
            metadata = each.with_suffix(_METADATA)
            if metadata not in seen and not each.name.startswith(".") and each.name != DECLARATIONS:
                seen.add(metadata)
                yield each
    if not seen:
        raise Invalid(
            f"{', '.join(map(quote, given))}: there is no capability",
            hint="name its code (`.ts`, `.py`), its metadata (`.json`), or a folder that has metadata",
        )


async def _check(path: Path, checking: CodeChecking) -> Report:
    report = Report(path=path, found=Findings(file=path))
    draft = _draft(report)
    if draft is None:
        return report
    metadata = report.metadata = draft.metadata
    if draft.code is not None:
        report.found = await checking.check(draft, draft.code)
        report.problems += report.found.of(Weight.BROKEN, Weight.WRONG)
        report.warnings += [report.found.line(each) for each in report.found.of(Weight.DOUBTFUL)]
    elif metadata.code_url is not None:
        report.warnings.append(f"its code is at {quote(metadata.code_url)}, and was not checked")
    if PLACEHOLDER in f"{metadata.description} {metadata.tools}":
        report.warnings.append("its description is still the template's: tell what it does")
    report.warnings += [
        f"{each.tool} is denied here: `pml rules explain {each.tool}` shows the rule"
        for each in report.found.tools
        if each.verdict is VerdictKind.DENY
    ]
    _find_servers(report, metadata, checking)
    await _look_for_variables(report, checking)
    return report


def _find_servers(report: Report, metadata: CapabilityMetadata, checking: CodeChecking) -> None:
    """Tell which servers would be installed."""
    report.servers += metadata.mcp_deps
    own = {dependency.name for dependency in metadata.mcp_deps}
    for each in report.found.tools:
        offered = checking.here.installs.get(each.tool.namespace or "")
        is_wanted = each.verdict is not VerdictKind.DENY and each.tool.namespace not in own
        if is_wanted and offered is not None and offered not in report.servers:
            report.servers.append(offered)


async def _look_for_variables(report: Report, checking: CodeChecking) -> None:
    from pml.app import open_variables

    place = checking.place
    names = [*dict.fromkeys(name for each in report.servers for name in each.env_required)]
    trusted = str(place.workspace) if checking.policy.trusted else None
    values = await asyncio.to_thread(open_variables(place).values, names, workspace=trusted)
    report.missing = [name for name in names if name not in values]


def _draft(report: Report) -> "Draft | None":
    """Return what was written; what is not sound about it is reported."""
    from pml.registry.publish import read_drafts

    path = report.path
    if path.suffix not in {_METADATA, *SUFFIXES.values()}:
        report.problems.append(Problem(message="is not a capability: expected its `.ts`, `.py` or `.json`"))
        return None
    try:
        [draft] = read_drafts(path)
    except PmlError as exc:
        hint = "" if exc.hint is None else f" ({exc.hint})"
        report.problems.append(Problem(message=f"{exc.message}{hint}".removeprefix(f"{path}: ")))
        return None
    name = str(draft.metadata.fqdn)
    if path.with_suffix("").name != name:
        report.warnings.append(
            f"a registry's folder has it as {name}{path.suffix}; `pml publish` names it so"
        )
    return draft


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
    from pml.cli.commands.catalog import print_facts

    for problem in report.problems:
        complain(visible(report.found.line(problem)))
    if report.metadata is None:
        return
    title = str(report.metadata.fqdn)
    print_facts(f"{title}  {'HAS PROBLEMS' if report.problems else 'is sound'}", [*_facts(report)])
    for warning in report.warnings:
        complain(f"warning: {visible(warning)}")


def _facts(report: Report) -> Sequence[tuple[str, str]]:
    calls = [f"{each.verdict.value:<9}{visible(str(each.tool))}" for each in report.found.tools]
    if report.found.dynamic and report.found.is_parsed:
        calls.append(DYNAMIC)
    facts = [("calls", "\n".join(calls) or "no tools")] if report.found.is_parsed else []
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
