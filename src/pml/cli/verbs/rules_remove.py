"""`pml rules remove`, `disable`, `enable`: a rule by its entry or its id, of the one list that has it."""

import argparse
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.terminal.cards import short
from pml.cli.terminal.output import print_json, say
from pml.cli.verbs.rules_write import read_entry, which_file
from pml.core.config.file import FileKind
from pml.core.errors import NotFound
from pml.core.rules.ruleset import Effect, Rule, names_tool
from pml.core.text import entry_text, quote, visible
from pml.core.values import Json

if TYPE_CHECKING:
    from pml.service.policy.policy import Policy

MAX_REMOVALS: Final = 3  # in a hint, which is one line


def configure_remove(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.epilog = """examples:
  pml rules remove 'github:*'
  pml rules remove '{"tool": "fs:read", "args": {"path": {"under": "."}}}'
  pml rules remove nightly --user --effect allow"""


def configure_switch(parser: argparse.ArgumentParser, *, enabled: bool) -> None:
    _configure(parser)
    verb = "enable" if enabled else "disable"
    parser.set_defaults(enabled=enabled)
    parser.epilog = f"""A disabled rule stays in its file and does not apply until it is enabled.

examples:
  pml rules {verb} 'github:*'
  pml rules {verb} nightly --user --effect allow"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entry", metavar="ENTRY_OR_ID", help="the entry as it stands in the file, or its id")
    parser.add_argument("--user", action="store_true", help="in the user's file")
    parser.add_argument(
        "--effect",
        choices=[effect.value for effect in Effect],
        help="in this list; needed if several have it",
    )


async def remove_entry(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context, person
    from pml.service.policy.policy import current_policy
    from pml.service.rules.rulebook import drop_rule

    place, which = find_place(args.workspace), which_file(args)
    entry = read_entry(args.entry)
    effect = None if args.effect is None else Effect(args.effect)
    async with open_context(place) as context:
        await guard(context, args)
        count = await drop_rule(context, str(place.workspace), effect, entry, which=which, by=person())
        policy = await current_policy(context, str(place.workspace))
    if not count:
        near = _removals(policy, entry, args.workspace)
        raise NotFound(
            f"no rule {quote(entry_text(entry))} in the {which}'s file",
            hint="perhaps " + " or ".join(f"`{command}`" for command in near)
            if near
            else "`pml rules list` shows all there are; --user removes from the user's file",
        )
    if args.json:
        print_json({"entry": entry, "removed": count})
    else:
        say(f"removed {entry_text(entry)}" + ("" if count == 1 else f" ({count} times)"))
    return Exit.OK


async def switch_entry(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context, person
    from pml.service.rules.rulebook import switch_rule
    from pml.service.upkeep import sweep

    place, which = find_place(args.workspace), which_file(args)
    entry = read_entry(args.entry)
    effect = None if args.effect is None else Effect(args.effect)
    async with open_context(place) as context:
        await guard(context, args)
        await sweep(context)
        switched = await switch_rule(
            context, str(place.workspace), effect, entry, enabled=args.enabled, which=which, by=person()
        )
    if not switched.count:
        state = "disabled" if args.enabled else "enabled"
        raise NotFound(
            f"no {state} rule {quote(entry_text(entry))} in the {which}'s file",
            hint='`pml rules list` shows all there are; the default ask "*" cannot be disabled',
        )
    denied = [record.id for record in switched.denied]
    if args.json:
        print_json({"entry": entry, "enabled": args.enabled, "switched": switched.count, "denied": [*denied]})
        return Exit.OK
    verb = "enabled" if args.enabled else "disabled"
    say(f"{verb} {entry_text(entry)}" + ("" if switched.count == 1 else f" ({switched.count} times)"))
    for record in switched.denied:
        say(f"  denied {short(record.id)} {visible(record.tool_name)}, which waited")
    return Exit.OK


def _removals(policy: "Policy", entry: Json, workspace: str | None) -> list[str]:
    """Return the commands that would remove rules which name the same tool, the likeliest first."""
    tool = entry.get("tool") if isinstance(entry, Mapping) else entry
    if not isinstance(tool, str):
        return []
    files = [file.config for file in (policy.loaded.workspace, policy.loaded.user) if file.config is not None]
    found = [
        (rule, file.kind)
        for file in files
        for rule in (*file.rules, *file.disabled)
        if names_tool(rule, tool) and not rule.is_default
    ]
    found.sort(key=lambda each: each[0].tool != tool)
    commands = [_removal(rule, kind, workspace) for rule, kind in found]
    # an error is printed with its backslashes doubled, and a command must work as it is shown
    return [command for command in dict.fromkeys(commands) if "\\" not in command][:MAX_REMOVALS]


def _removal(rule: Rule, kind: FileKind, workspace: str | None) -> str:
    command = ["pml", "rules", "remove", entry_text(rule.entry)]
    command += ["--effect", rule.effect]
    command += ["--user"] if kind is FileKind.USER else []
    command += [] if workspace is None else ["--workspace", visible(workspace)]
    return shlex.join(command)
