"""`pml publish`: checks capabilities and servers, adds hashes and locks, and fills a registry's folder.

Code that cannot run anywhere is not published; what may go wrong with other code is told.
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pml.cli.exits import Exit
from pml.cli.terminal.output import complain, count, print_error, print_json, say
from pml.cli.verbs.verbs import add_common
from pml.core.errors import Invalid
from pml.core.packages.lock import Lock
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject
from pml.core.wire import error_json

if TYPE_CHECKING:
    from pml.cli.capability.code_check import Findings
    from pml.core.packages.capability import McpDependency
    from pml.registry.publish import Draft, Published, Resolve

EXAMPLES = """FILE is metadata or code, with the other beside it: `greet.json`, `greet.ts`. Of DIR, all
`*.json` are taken. What is missing is added: `code_integrity`, and the `integrity` and `lock` of each server.
Code that does not parse, imports modules, or has no function for a tool is refused; wrong types and
unknown tools are warnings: `pml capability check` tells more.

examples:
  pml publish greet.json --to registry       into registry/acme.tools.greet.json and .ts
  pml publish capabilities --to registry     all of a folder, or nothing
  pml publish greet.json --check             only tell whether it is sound

exit codes: 0 ok, 1 failed or published already with other content, 2 not sound, 5 nothing there"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    parser.add_argument("source", metavar="FILE|DIR", help="the metadata or the code, or a folder of them")
    parser.add_argument("--to", metavar="FOLDER", help="the registry's folder; made where it is missing")
    parser.add_argument("--check", action="store_true", help="write nothing and look nothing up")
    parser.add_argument(
        "--replace", action="store_true", help="take the place of other content of the same version"
    )


async def run(args: argparse.Namespace) -> int:
    """Raises: Invalid, NotFound, Conflict, IntegrityFailed, Unavailable."""
    from pml.app import find_place

    place = find_place(args.workspace)

    async def resolve(dependency: "McpDependency") -> Lock:
        from pml.app import open_installer
        from pml.cli.terminal.progress import InstallBar

        with InstallBar() as bar:
            return await open_installer(place).resolve(dependency, told=bar)

    return await publish_with(args, resolve)


async def publish_with(args: argparse.Namespace, resolve: "Resolve") -> int:
    """Do what the command line says; `resolve` finds the lock of a server."""
    from pml.registry.publish import publish, read_drafts

    target: str | None = args.to
    if target is None and not args.check:
        raise Invalid("`--to FOLDER` says where to publish", hint="`--check` only checks")
    drafts = read_drafts(Path(args.source))
    broken = await _broken(args, drafts)
    if broken:
        return _refuse(broken, as_json=args.json)
    if args.check or target is None:
        _print_checked(drafts, as_json=args.json)
        return Exit.OK
    published = await publish(drafts, Path(target), resolve=resolve, replace=args.replace)
    if args.json:
        print_json({"published": [_published_json(each) for each in published]})
        return Exit.OK
    for each in published:
        say(f"{each.status.value} {visible(str(each.path))}")
        for dependency in each.metadata.mcp_deps:
            say(f"  {visible(dependency.title)}: {_closure(dependency)}")
    _tell_next(Path(target))
    return Exit.OK


async def _broken(args: argparse.Namespace, drafts: "Sequence[Draft]") -> "list[Findings]":
    """Return what keeps code from being published; what else is wrong with it is told."""
    from pml.cli.capability.code_check import open_checking
    from pml.cli.capability.type_check import Weight

    with_code = [(draft, draft.code) for draft in drafts if draft.code is not None]
    if not with_code:
        return []
    async with open_checking(args) as checking:
        found = [await checking.check(draft, code) for draft, code in with_code]
    for each in found:
        for problem in each.of(Weight.WRONG, Weight.DOUBTFUL):
            complain(f"warning: {visible(each.line(problem))}")
    return [each for each in found if each.of(Weight.BROKEN)]


def _refuse(broken: "Sequence[Findings]", *, as_json: bool) -> int:
    from pml.cli.capability.type_check import Weight

    problems = [(each, problem) for each in broken for problem in each.of(Weight.BROKEN)]
    names = shlex.join(visible(str(each.file)) for each in broken)
    error = Invalid(
        f"nothing was published: {count(len(problems), 'problem')} in {count(len(broken), 'file')}",
        hint=f"pml capability check {names}",
    )
    if as_json:
        print_json(
            {**error_json(error), "problems": [each.problem_json(problem) for each, problem in problems]}
        )
        return Exit.USAGE
    for each, problem in problems:
        complain(visible(each.line(problem)))
    print_error(error, as_json=False)
    return Exit.USAGE


def _tell_next(folder: Path) -> None:
    """Say how what was published comes into use."""
    where = visible_json(str(folder.resolve()), indent=None)
    say(f'use it with "registry": {where} in .pml.json or in the user\'s config.json')
    say(f"  or serve it: {shlex.join(['pml', 'cloud', '--folder', visible(str(folder))])}")


def _print_checked(drafts: "Sequence[Draft]", *, as_json: bool) -> None:
    if as_json:
        print_json({"checked": [{"fqdn": draft.name, "path": str(draft.path)} for draft in drafts]})
        return
    for draft in drafts:
        say(f"sound: {visible(str(draft.path))} ({draft.name})")


def _published_json(published: "Published") -> JsonObject:
    metadata, code_path = published.metadata, published.code_path
    return {
        "fqdn": str(metadata.fqdn),
        "status": published.status.value,
        "path": str(published.path),
        "code_path": None if code_path is None else str(code_path),
        "code_integrity": metadata.code_integrity,
        "dependencies": [
            {
                "name": dependency.name,
                "version": dependency.version,
                "integrity": dependency.integrity,
                "lock": dependency.lock.digest if isinstance(dependency.lock, Lock) else dependency.lock,
            }
            for dependency in metadata.mcp_deps
        ],
    }


def _closure(dependency: "McpDependency") -> str:
    size = len(dependency.lock.packages) if isinstance(dependency.lock, Lock) else 0
    return f"{count(size, 'package')}, {visible(dependency.integrity or 'no integrity')}"
