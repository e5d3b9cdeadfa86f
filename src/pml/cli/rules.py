"""`pml rules`: which rules there are and whether they count, and what they say of a call."""

import argparse
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pml.cli.exits import Exit
from pml.cli.output import Shown, complain, print_json, print_table, say
from pml.cli.ruling import add_entry, configure_add, configure_remove, entry_text, remove_entry
from pml.cli.verbs import Verbs, run_verb
from pml.core.approvals import instant
from pml.core.config import FileKind
from pml.core.names import parse_tool
from pml.core.rules import ORDER, Call, Effect, Rule, VerdictKind
from pml.core.text import visible
from pml.core.values import Json, loads_object
from pml.core.wire import rule_json, verdict_json

if TYPE_CHECKING:
    from pml.service.policy import Judged, Policy

EXAMPLES = """One order: deny, allow, ask. What no rule names, or only the default ask "*", is unlisted.

examples:
  pml rules list
  pml rules allow 'github:get_*'                    every action that begins so
  pml rules allow fs:read --under path=.            only beneath the workspace
  pml rules allow web:fetch --host url='*.example.com' --ttl 3600
  pml rules deny Bash --user                        in every workspace
  pml rules ask 'github:create_*'                   on every call
  pml rules remove 'github:get_*'
  pml rules explain fs:read '{"path": "/etc/passwd"}'"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    verbs.add("list", "list the rules of both files in the order they are tried", list_rules, epilog=EXAMPLES)
    summaries = {
        Effect.ALLOW: "let calls run without asking",
        Effect.DENY: "never let calls run",
        Effect.ASK: "ask on every call",
    }
    for effect, summary in summaries.items():
        configure_add(verbs.add(effect, summary, add_entry), effect)
    configure_remove(verbs.add("remove", "remove rules", remove_entry))
    explain = verbs.add("explain", "say what the rules make of a call, and why", explain_call)
    explain.epilog = """Judges by the rules alone: what is remembered for a session does not show here.

examples:
  pml rules explain github:create_issue
  pml rules explain fs:read '{"path": "/etc/passwd"}' --json"""
    explain.add_argument("tool", metavar="TOOL", help="namespace:action, or a client's built-in name")
    explain.add_argument("arguments", metavar="JSON", nargs="?", default="{}", help="the call's arguments")


run = run_verb


async def list_rules(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.service.policy import current_policy

    place = find_place(args.workspace)
    async with open_desk(place) as desk:
        policy = await current_policy(desk, str(place.workspace))
        now = desk.clock.now()
    listed = list(_listed(policy, now))
    warnings = [*_warnings(policy)]
    if args.json:
        print_json(
            {
                "rules": [rule_json(rule) | {"counts": not note, "note": note} for rule, note in listed],
                "trusted": policy.trusted,
                "broken": [error.message for error in policy.broken],
                "warnings": [*warnings],
            }
        )
        return Exit.OK
    if listed:
        print_table(["EFFECT", "FROM", "RULE"], [_row(rule, note) for rule, note in listed])
    else:
        say("no rules: PML asks whenever nobody else can")
    for line in warnings:
        complain(f"warning: {visible(line)}")
    _complain_of_state(policy)
    return Exit.OK


def _listed(policy: "Policy", now: datetime) -> Iterator[tuple[Rule, str | None]]:
    """Yield every rule in the order it is tried, with the reason why it does not count, if it does not."""
    files = [file.config for file in (policy.loaded.user, policy.loaded.workspace) if file.config is not None]
    hidden = {id(ask): allow for ask, allow in policy.rules.hidden_asks()}
    for effect in ORDER:
        for file in files:
            loose = effect is Effect.ALLOW and file.kind is FileKind.WORKSPACE
            for rule in (rule for rule in file.rules if rule.effect is effect):
                if rule.expires_at is not None and rule.expires_at <= now:
                    yield rule, f"expired {instant(rule.expires_at)}"
                elif loose and not policy.trusted:
                    yield rule, "does not count: the file is not trusted"
                elif policy.broken and effect is Effect.ALLOW:
                    yield rule, "does not count while a file is broken"
                elif id(rule) in hidden:
                    yield rule, f"never asks: allow {entry_text(hidden[id(rule)].entry)} comes first"
                else:
                    yield rule, None
            yield from ((rule, "disabled") for rule in file.disabled if rule.effect is effect)


def _row(rule: Rule, note: str | None) -> list[str]:
    where = "" if rule.source is None else f"{Path(rule.source.file).name}:{rule.source.line}"
    return [rule.effect, where, Shown(entry_text(rule.entry) + (f"  ({note})" if note else ""))]


def _warnings(policy: "Policy") -> Iterator[str]:
    for file in (policy.loaded.user, policy.loaded.workspace):
        if file.config is not None:
            yield from (f"{file.path}: {warning}" for warning in file.config.warnings)
    yield from policy.settings.problems


def _complain_of_state(policy: "Policy") -> None:
    for error in policy.broken:
        complain(f"broken: {visible(error.message)}")
    if policy.broken:
        complain("  → while a file is broken no file allows anything; mend it")
    elif policy.untrusted is not None:
        complain("  → `pml trust` shows what this workspace's .pml.json would allow, and trusts it")


async def explain_call(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.service.policy import current_policy, judge

    place = find_place(args.workspace)
    call = Call(
        tool=str(parse_tool(args.tool)),
        arguments=loads_object(args.arguments, what="the arguments"),
        cwd=str(place.workspace),
    )
    async with open_desk(place) as desk:
        policy = await current_policy(desk, str(place.workspace))
        judged = await judge(desk, policy, call, session_id=None)
    if args.json:
        print_json(_judged_json(judged, policy))
    else:
        _tell_judged(call.tool, judged)
    return Exit.OK


def _judged_json(judged: "Judged", policy: "Policy") -> dict[str, Json]:
    shape = verdict_json(judged.verdict) | {
        "trusted": policy.trusted,
        "needs_trust": judged.needs_trust,
        "asking_is_off": judged.asking_is_off,
        "broken": [error.message for error in policy.broken],
    }
    if judged.broken:  # the rules of a sound file may say allow, but then they do not count
        shape["verdict"] = judged.kind
    return shape


_MEANING = {
    VerdictKind.DENY: "never runs, and no approval lifts that",
    VerdictKind.ALLOW: "runs without asking",
    VerdictKind.ASK: "asks on every call",
    VerdictKind.UNLISTED: "is named by no rule, so PML asks whenever nobody else can",
}


def _tell_judged(tool: str, judged: "Judged") -> None:
    kind = judged.kind if judged.broken else judged.verdict.kind
    say(f"{kind}: {visible(tool)} {_MEANING[kind]}")
    for rule in judged.verdict.matched:
        mark = "→" if rule is judged.verdict.rule else " "
        where = "" if rule.source is None else f"  {visible(rule.source.file)}:{rule.source.line}"
        say(f"  {mark} {rule.effect:<5} {entry_text(rule.entry)}{where}")
    for error in judged.broken:
        complain(f"  while a file is broken no file allows anything: {visible(error.message)}")
    if judged.asking_is_off:
        complain("  ASKING IS OFF (`approval.enabled`): it runs without asking")
    if judged.needs_trust:
        complain("  the workspace's .pml.json would allow it, but is not trusted: `pml trust`")
