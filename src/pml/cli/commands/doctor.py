"""`pml doctor`: one line for everything that could be wrong, with the next step. Looks, and fixes nothing."""

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pml.cli.checks.server_logins import check_logins
from pml.cli.checks.setup import (
    Check,
    Status,
    check_asking,
    check_audit,
    check_database,
    check_disk,
    check_file,
    check_forms,
    check_home,
    check_installed,
    check_kept,
    check_model,
    check_registry,
    check_remembered,
    check_rule,
    check_servers,
    check_token_file,
    check_tokens,
    check_tools,
    check_trust,
    check_variables,
    check_waiting,
    check_webhook,
    failed,
)
from pml.cli.exits import Exit
from pml.cli.terminal.output import console, count, print_beside, print_json
from pml.cli.verbs.verbs import add_common
from pml.core.errors import Unavailable

if TYPE_CHECKING:
    from pml.app import Place
    from pml.service.context import Context

EXAMPLES = """Checks both configuration files, trust, asking, PML_HOME, the database, the audit log, and which
programs are found. A missing program is a warning: nothing of it is needed to answer approvals. Where Claude
Code is found, it is run for some seconds against a model of ours, to prove that it asks PML.

examples:
  pml doctor
  pml doctor --json | jq '.checks[] | select(.status == "warn" or .status == "fail")'

exit codes: 0 nothing fails, 1 something does"""

_MARKS: Final = {
    Status.OK: ("✓", "green"),
    Status.ABSENT: ("-", "dim"),
    Status.WARN: ("!", "yellow"),
    Status.FAIL: ("✗", "bold red"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    parser.add_argument("--quick", action="store_true", help="do not prove that Claude Code asks PML")


async def run(args: argparse.Namespace) -> int:
    from pml.app import find_place

    place = find_place(args.workspace)
    checks = [
        *await _examine(place, args.token_file),
        *await asyncio.to_thread(_examine_claude, place, quick=args.quick),
    ]
    ok = all(check.status is not Status.FAIL for check in checks)
    if args.json:
        print_json({"ok": ok, "checks": [msgspec.to_builtins(check) for check in checks]})
    else:
        _print(checks)
    return Exit.OK if ok else Exit.FAILED


async def _examine(place: "Place", token_file: str | None) -> list[Check]:
    from pml.app import DiskConfigs, SystemClock
    from pml.core.config.merged import unite

    loaded = DiskConfigs(place).of(str(place.workspace)).read()
    trusted, stored = await _examine_store(place, token_file)
    settings = unite(loaded.user.config, loaded.workspace.config, trusted=trusted)
    return [
        *check_file("user file", loaded.user),
        *check_file("workspace file", loaded.workspace),
        check_trust(loaded.workspace, trusted=trusted),
        *check_servers(settings),
        *check_registry((loaded.user, loaded.workspace)),
        check_asking(settings, SystemClock().now()),
        check_model(settings),
        check_forms(settings),
        *check_home(place.home),
        *check_disk(place.home),
        *stored,
        check_installed(place),
        *check_variables(place, trusted=trusted),
        *check_logins(settings, place),
        *check_webhook(settings, place),
        *check_tools(),
    ]


def _examine_claude(place: "Place", *, quick: bool) -> list[Check]:
    from pml.cli.checks.claude_code import check_client, check_left, check_name, check_proof, check_set_up
    from pml.cli.terminal.progress import InstallBar
    from pml.core.ports.loader import Progress

    claude, check = check_client()
    if claude is None:
        return [check]
    checks = [check, *check_set_up(place), *check_left(place)]
    if quick:
        return checks
    with InstallBar() as bar:
        checks += check_name(place)
        return [*checks, *check_proof(claude, lambda said: bar(Progress(message=said, done=0, total=None)))]


async def _examine_store(place: "Place", token_file: str | None) -> tuple[bool, list[Check]]:
    """Return whether the workspace's file is trusted, and what is to be said of the store."""
    from pml.app import open_context
    from pml.service.approvals.lifecycle import all_pending
    from pml.service.audit import verify_audit
    from pml.service.policy.policy import current_policy

    checks, is_sound = _look_at_database(place.home)
    if not is_sound:
        return False, checks
    try:
        async with open_context(place) as context:
            policy = await current_policy(context, str(place.workspace))
            return policy.trusted, [
                *checks,
                *check_kept(policy),
                check_audit(await verify_audit(context)),
                check_remembered(await context.store.intents.open()),
                check_waiting([record async for record in all_pending(context)]),
                *check_tokens(await context.store.tokens.all(), context.clock.now()),
                *await check_token_file(context, token_file),
                *await _examine_rules(place, context),
            ]
    except Unavailable as exc:
        return False, [failed("database", exc)]


async def _examine_rules(place: "Place", context: "Context") -> list[Check]:
    """Return what is to be said of rules whose names no known server has."""
    from pml.app import open_sources
    from pml.service.policy.policy import current_policy
    from pml.service.rules.rules import doubtful_rules

    policy = await current_policy(context, str(place.workspace))
    files = [file.config for file in (policy.loaded.user, policy.loaded.workspace) if file.config is not None]
    bundled = open_sources(place, context.clock, warn=lambda _: None).bundled()
    rules = [rule for file in files for rule in file.rules]
    return [check_rule(doubt) for doubt in await doubtful_rules(context, policy, rules, bundled)]


def _look_at_database(home: Path) -> tuple[list[Check], bool]:
    """Return what is to be said of the database, and whether there is one that can be opened."""
    if os.path.exists(home) and not os.path.isdir(home):  # unlike those of Path, they never raise
        return [], False
    check = check_database(home / "pml.db")
    return [check], check.status is not Status.FAIL and os.path.exists(home / "pml.db")


def _print(checks: list[Check]) -> None:
    from rich.text import Text

    out = console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, style = _MARKS[check.status]
        label = Text.assemble((f"{mark} ", style), f"{check.name:<{width}}  ")
        loud = style if check.status in (Status.WARN, Status.FAIL) else ""
        print_beside(out, label, Text(check.message, style=loud))
        if check.hint is not None:
            print_beside(out, Text(f"  {'':<{width}}  → ", style="dim"), Text(check.hint, style="dim"))
    warnings = sum(check.status is Status.WARN for check in checks)
    fails = sum(check.status is Status.FAIL for check in checks)
    out.print(Text(f"\n{count(fails, 'problem')}, {count(warnings, 'warning')}", style="bold"))
