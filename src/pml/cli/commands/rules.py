"""`pml rules`: the rules, whether each applies, and what they say about a call."""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.options import read_object
from pml.cli.terminal.cards import short
from pml.cli.terminal.output import Shown, complain, complain_prose, print_json, print_table, say, say_prose
from pml.cli.verbs.rules_write import add_entry, configure_add, read_entry, which_file
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.config.file import FileKind, Unlisted
from pml.core.errors import NotFound
from pml.core.names import parse_tool
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.rules.ruleset import Call, Effect, Rule, VerdictKind, names_tool
from pml.core.text import entry_text, quote, visible
from pml.core.values import Json

if TYPE_CHECKING:
    from pml.service.policy.policy import Policy
    from pml.service.rules.rules import Explained, Listed

EXAMPLES = """One order: deny, allow, ask. What no rule decides, or only the default ask "*", is unlisted:
PML asks.

examples:
  pml rules list
  pml rules allow 'github:get_*'                    every action that begins so
  pml rules deny 'filesystem:*' --under '*=~/.ssh'  whichever argument leads there
  pml rules allow web:fetch --host url='*.example.com' --ttl 3600
  pml rules deny Bash --user                        in every workspace
  pml rules ask 'github:create_*'                   on every call
  pml rules disable 'github:get_*'                  it stays in its file, to be enabled again
  pml rules remove 'github:get_*'
  pml rules explain fs:read '{"path": "/etc/passwd"}'"""
LIST_EXAMPLES = """examples:
  pml rules list
  pml rules list --json | jq '.rules[] | select(.counts | not)'    those that do not apply, and why

exit codes: 0 ok, 1 a file is broken"""
EXPLAIN_EXAMPLES = """Judges by the rules alone: what is remembered for a session does not show here.

examples:
  pml rules explain github:create_issue
  pml rules explain fs:read '{"path": "/etc/passwd"}'
  pml rules explain Bash '{"command": "git status"}' --json"""
MAX_REMOVALS: Final = 3  # in a hint, which is one line


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    summary = "list the rules of both files in the order they are tried"
    verbs.add("list", summary, list_rules, epilog=LIST_EXAMPLES)
    summaries = {
        Effect.ALLOW: "let calls run without asking",
        Effect.DENY: "never let calls run",
        Effect.ASK: "ask on every call",
    }
    for effect, summary in summaries.items():
        configure_add(verbs.add(effect.value, summary, add_entry), effect)
    configure_switch(
        verbs.add("disable", "switch rules off without removing them", switch_entry), enabled=False
    )
    configure_switch(verbs.add("enable", "switch disabled rules on again", switch_entry), enabled=True)
    configure_remove(verbs.add("remove", "remove rules", remove_entry))
    summary = "say what the rules make of a call, and why"
    explain = verbs.add("explain", summary, explain_call, epilog=EXPLAIN_EXAMPLES)
    explain.add_argument("tool", metavar="TOOL", help="namespace:action, or a client's built-in name")
    explain.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="the call's arguments; - reads stdin"
    )
    explain.set_defaults(late="arguments")


run = run_verb


async def list_rules(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context
    from pml.service.policy.model_rules import rules_of_models
    from pml.service.policy.policy import current_policy
    from pml.service.rules.rules import listed_rules, rules_json

    place = find_place(args.workspace)
    async with open_context(place) as context:
        policy = await current_policy(context, str(place.workspace))
        now = context.clock.now()
        models = await rules_of_models(context, str(place.workspace))
    if args.json:
        print_json(rules_json(policy, now, models))
    else:
        _tell_rules(list(listed_rules(policy, now, models)), policy)
    return Exit.FAILED if policy.broken else Exit.OK


def _tell_rules(listed: Sequence["Listed"], policy: "Policy") -> None:
    from pml.service.policy.policy import kept_notice

    if listed:
        print_table(["EFFECT", "FROM", "RULE"], [_row(each, policy) for each in listed])
    else:
        say(f"no rules, {_who_asks(policy)}")
    _complain_of_files(policy)
    notice = kept_notice(policy)
    if notice is not None:
        complain(f"kept: {notice}")
        complain_prose("  → `pml trust` ends that if you trust other content, `pml trust --forget` at once")
    if policy.untrusted is not None and not policy.broken:
        complain_prose("  → `pml trust` shows what this workspace's .pml.json would allow, and trusts it")


def _row(each: "Listed", policy: "Policy") -> list[str]:
    rule, note, where = each.rule, each.note, ""
    if rule.source is not None:
        kind = FileKind.USER if rule.source.file == policy.loaded.user.path else FileKind.WORKSPACE
        where = "kept" if each.is_kept else f"{kind} {Path(rule.source.file).name}:{rule.source.line}"
    return [rule.effect, where, Shown(entry_text(rule.entry) + (f"  ({note})" if note else ""))]


def _complain_of_files(policy: "Policy") -> None:
    from pml.service.rules.rules import file_warnings

    for line in file_warnings(policy):
        complain(f"warning: {visible(line)}")
    for error in policy.broken:
        complain(f"broken: {visible(error.message)}")
    if policy.broken:
        complain("  → while a file is broken no file allows anything; fix it")


def _who_asks(policy: "Policy") -> str:
    if policy.settings.approval.unlisted is Unlisted.EVERY_CALL:
        return "so PML asks"
    return "so the client asks, and PML only where the client cannot"


async def explain_call(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context
    from pml.service.rules.rules import explain

    place = find_place(args.workspace)
    call = Call(
        tool=str(parse_tool(args.tool)),
        arguments=read_object(args.arguments, what="the input"),
        cwd=str(place.workspace),
    )
    async with open_context(place) as context:
        explained = await explain(context, str(place.workspace), call)
    if args.json:
        print_json(explained.json())
    else:
        _tell_explained(call.tool, explained)
    return Exit.OK


_MEANING = {
    VerdictKind.DENY: "never runs, and no approval lifts that",
    VerdictKind.ALLOW: "runs without asking",
    VerdictKind.ASK: "asks on every call",
    VerdictKind.UNLISTED: "is decided by no rule",
}


def _tell_explained(tool: str, explained: "Explained") -> None:
    judged, policy = explained.judged, explained.policy
    kind = judged.kind if judged.broken or judged.is_launch else judged.verdict.kind
    then = f", {explained.runs_unasked or _who_asks(policy)}" if kind is VerdictKind.UNLISTED else ""
    say(f"{kind}: {visible(tool)} {_MEANING[kind]}{then}")
    for rule in judged.verdict.matched:
        mark = "→" if rule is judged.verdict.rule else " "
        say(f"  {mark} {_rule_line(rule)}" + ("  (the default)" if rule.is_default else ""))
    for rule, note in explained.near:
        say(f"    {_rule_line(rule)}  ({note})")
    _complain_of_files(policy)
    if judged.is_launch and kind is VerdictKind.ASK:
        complain_prose(
            f"  a launch is a person's to allow; only `{LAUNCH_TOOL}` itself, in the user's file, does"
        )
    if judged.asking_is_off:
        complain_prose("  ASKING IS OFF (`approval.enabled`): it runs without asking")
    if judged.needs_trust:
        complain_prose("  the workspace's .pml.json would allow it, but is not trusted: `pml trust`")


def _rule_line(rule: Rule) -> str:
    where = "" if rule.source is None else f"  {visible(rule.source.file)}:{rule.source.line}"
    return f"{rule.effect:<5} {entry_text(rule.entry)}{where}"


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
        say_prose(f"  denied {short(record.id)} {visible(record.tool_name)}, which waited")
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
