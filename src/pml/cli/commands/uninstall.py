"""`pml uninstall`: shows all that PML put on this machine, and removes it. What it did not write stays.

Clients come first: a hook whose program is gone would block every tool. The package itself is removed by what
installed it.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.claude_code.init import Change, removals, show_change, write_change
from pml.cli.claude_code.listed_gateways import ListedGateway, listed_gateways, take_out
from pml.cli.claude_code.registration import client_file
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, complain_prose, print_json, say, say_command, say_prose
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.core.errors import Conflict, PmlError, Unavailable
from pml.core.packages.install_facts import bytes_text
from pml.core.text import visible
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.service.context import Context

EXAMPLES = """Removed are PML's hooks and servers in Claude Code's settings (of this user, and of every
workspace that PML knows) and in its own list of servers (with `claude mcp remove`), the values that it keeps
in the keyring, and its files in `PML_HOME` (~/.pml): your rules, the history, installed servers and what
those keep. Each workspace's .pml.json stays, and so does whatever PML did not write. It refuses while PML
runs.

examples:
  pml uninstall --dry-run            show all that would be removed, and what would stay
  pml uninstall                      show it, then ask
  pml uninstall --yes --json         for scripts; refused beneath an agent

exit codes: 0 removed, or nothing was there; 1 failed, or PML runs; 3 answered no; 4 nobody there to answer"""
PACKAGE: Final = "pml-gateway"
# All that PML makes in its home. What else lies there, such as a `.env`, somebody else put there.
_OWN: Final = frozenset(
    {
        *(
            "config.json",
            "deps.json",
            "secrets.json",
            "imports.json",
            "pml.db",
            "pml.db-wal",
            "pml.db-shm",
            "pml.db-journal",
        ),
        *("added", "audit", "cache", "keys", "locks", "logs", "pins", "run", "servers", "state"),
    }
)
_PAGE: Final = 500


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be removed; `kept` is what stays, with the reason or the next step."""

    home: Path
    changes: Sequence[Change]
    listed: Sequence[ListedGateway]
    secrets: Sequence[str]
    own: Sequence[Path]
    kept: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def is_empty(self) -> bool:
        return not (self.changes or self.listed or self.secrets or self.own)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    parser.add_argument("--yes", action="store_true", help="remove it without asking")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")


async def run(args: argparse.Namespace) -> int:
    """Raises: MayNotDecide, Conflict, ConfigInvalid, Unavailable."""
    from pml.app import find_place

    place = find_place(args.workspace)
    if not args.dry_run or place.home.exists():  # a look leaves no folder behind
        async with opened(args) as context:
            await guard(context, args)
            workspaces = await _workspaces(context, place)
            runs = context.owners.alive_others()
    else:
        workspaces, runs = [place.workspace], ()
    plan = _plan(place, workspaces)
    if not args.json:
        _show(plan)
    if runs and not args.dry_run:
        hint = "close your clients, end `pml serve` and launched agents, then try again"
        raise Conflict(f"PML still runs ({len(runs)} processes): nothing was removed", hint=hint)
    code = _agreed(args, plan)
    if code is Exit.OK and not args.dry_run:
        _remove(place, plan)
    if args.json:
        print_json(_shape(plan, removed=code is Exit.OK and not args.dry_run))
    elif code is Exit.OK:
        done = "" if args.dry_run or plan.is_empty else "all of it is removed; "
        say_prose(f"\n{done}then remove the program itself: {_package_command()}")
    return code


async def _workspaces(context: "Context", place: "Place") -> list[Path]:
    """Return this workspace, and every other in which a session of PML ever was and that is still there."""
    found = {str(place.workspace): None}
    after = None
    while page := await context.store.sessions.page(after=after, limit=_PAGE):
        found |= dict.fromkeys(session.workspace for session in page)
        after = (page[-1].started_at, page[-1].id)
    return [path for path in map(Path, found) if path.is_dir()]


def _plan(place: "Place", workspaces: Sequence[Path]) -> Plan:
    """Raises: ConfigInvalid, Unavailable."""
    kept: list[tuple[str, str]] = []
    changes = [change for change in removals(place, workspaces, kept) if change.is_one]
    for workspace in workspaces:
        if os.path.lexists(workspace / ".pml.json"):
            kept.append((str(workspace / ".pml.json"), "rules of the workspace: they are yours"))
    try:
        listed = listed_gateways(place)
    except PmlError as exc:
        listed = []
        kept.append((str(client_file(place)), f"it cannot be read, and may still start PML: {exc.message}"))
    own, others = _home(place.home)
    kept += [(str(path), "PML did not write it") for path in others]
    secrets = _in_keyring(place)
    return Plan(home=place.home, changes=changes, listed=listed, secrets=secrets, own=own, kept=kept)


def _home(home: Path) -> tuple[list[Path], list[Path]]:
    """Return what PML made in its home, and what else lies there."""
    try:
        entries = sorted(home.iterdir())
    except FileNotFoundError:
        return [], []
    except OSError as exc:
        raise Unavailable(f"{visible(str(home))}: {exc.strerror}") from exc
    own = [path for path in entries if path.name in _OWN]
    return own, [path for path in entries if path.name not in _OWN]


def _in_keyring(place: "Place") -> list[str]:
    from pml.app import open_variables
    from pml.settings.secrets import Where

    if not place.home.exists():
        return []
    try:
        names = open_variables(place).secrets.names()
    except PmlError as exc:
        complain_prose(f"warning: {visible(exc.message)}; what is in the keyring is not known")
        return []
    return sorted(name for name, where in names.items() if where is Where.KEYRING)


def _agreed(args: argparse.Namespace, plan: Plan) -> Exit:
    """Return OK if all of it is to be removed."""
    if args.dry_run or args.yes or plan.is_empty:
        return Exit.OK
    if args.json or not is_interactive():
        complain("pml: nobody is there to answer; to remove it, add `--yes`")
        return Exit.PENDING
    if confirm("\nRemove all of this?"):
        return Exit.OK
    say("nothing was removed")
    return Exit.DENIED


def _remove(place: "Place", plan: Plan) -> None:
    """Raises: Unavailable, with what is left."""
    from pml.app import open_variables
    from pml.install.tree.tree_folders import remove_tree

    for change in plan.changes:
        write_change(change)
    for gateway in plan.listed:
        take_out(place, gateway)
    for name in plan.secrets:
        problem = open_variables(place).secrets.remove(name)
        if problem is not None:
            complain(f"warning: {visible(problem)}")
    for path in plan.own:
        remove_tree(path)
    left = [path for path in plan.own if os.path.lexists(path)]
    if left:
        names = ", ".join(visible(str(path)) for path in left)
        raise Unavailable(f"not removed: {names}", hint="look who owns them, remove them, then try again")
    if not plan.home.is_symlink() and plan.home.is_dir() and not any(plan.home.iterdir()):
        plan.home.rmdir()


def _show(plan: Plan) -> None:
    if plan.is_empty:
        say("there is nothing of PML's on this machine")
    for change in plan.changes:
        show_change(change)
    for gateway in plan.listed:
        where = "" if gateway.project is None else f", in {visible(gateway.project)}"
        say_prose(f"Claude Code's own list of servers would lose `{visible(gateway.name)}`{where}:")
        say_command(gateway.command)
    for name in plan.secrets:
        say(f"the keyring's {visible(name)} would be removed")
    if plan.own:
        say_prose(f"{visible(str(plan.home))} would be removed ({bytes_text(sum(map(_size, plan.own)))}):")
        for path in plan.own:
            say(f"  {visible(path.name)}")
    if plan.kept:
        say("\nwhat stays:")
    for path, why in plan.kept:
        say(f"  {visible(path)}: {visible(why)}")


def _size(path: Path) -> int:
    files = [path] if not path.is_dir() or path.is_symlink() else _files(path)
    return sum(os.lstat(file).st_size for file in files if os.path.lexists(file))


def _files(folder: Path) -> Iterator[str]:
    return (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)


def _shape(plan: Plan, *, removed: bool) -> JsonObject:
    return {
        "removed": removed,
        "files": [
            {"path": str(each.path), "change": "removed" if each.after is None else "changed"}
            for each in plan.changes
        ],
        "claude_code": [
            {"name": each.name, "project": each.project, "command": each.command} for each in plan.listed
        ],
        "keyring": plan.secrets,
        "home": {"path": str(plan.home), "entries": [path.name for path in plan.own]},
        "kept": [{"path": path, "why": why} for path, why in plan.kept],
        "package": _package_command(),
    }


def _package_command() -> str:
    """Return the command that removes the program, by what installed it."""
    parts = Path(sys.prefix).parts
    if "uv" in parts and "tools" in parts:
        return f"uv tool uninstall {PACKAGE}"
    return f"pipx uninstall {PACKAGE}" if "pipx" in parts else f"pip uninstall {PACKAGE}"
