"""`pml rules`: which rules there are and whether they count, and what they say of a call."""

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pml.cli.exits import Exit
from pml.cli.output import Shown, complain, print_json, print_table, say
from pml.cli.parsing import read_object
from pml.cli.ruling import (
    add_entry,
    configure_add,
    configure_remove,
    entry_text,
    refuse_wire_name,
    remove_entry,
)
from pml.cli.verbs import Verbs, run_verb
from pml.core.approvals import instant
from pml.core.config import FileKind, Unlisted
from pml.core.names import parse_tool
from pml.core.rules import ORDER, Call, Effect, Rule, VerdictKind
from pml.core.text import visible
from pml.core.values import Json, JsonObject
from pml.core.wire import rule_json, verdict_json

if TYPE_CHECKING:
    from pml.service.policy import Judged, Policy

EXAMPLES = """One order: deny, allow, ask. What no rule decides, or only the default ask "*", is unlisted:
a person is asked, unless the client asks for it itself.

examples:
  pml rules list
  pml rules allow 'github:get_*'                    every action that begins so
  pml rules allow fs:read --under path=.            only beneath the workspace
  pml rules allow web:fetch --host url='*.example.com' --ttl 3600
  pml rules deny Bash --user                        in every workspace
  pml rules ask 'github:create_*'                   on every call
  pml rules remove 'github:get_*'
  pml rules explain fs:read '{"path": "/etc/passwd"}'"""
LIST_EXAMPLES = """examples:
  pml rules list
  pml rules list --json | jq '.rules[] | select(.counts | not)'    those that do not count, and why

exit codes: 0 ok, 1 a file is broken"""
EXPLAIN_EXAMPLES = """Judges by the rules alone: what is remembered for a session does not show here.

examples:
  pml rules explain github:create_issue
  pml rules explain fs:read '{"path": "/etc/passwd"}'
  pml rules explain Bash '{"command": "git status"}' --json"""


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
    from pml.app import find_place, open_desk
    from pml.service.policy import current_policy

    place = find_place(args.workspace)
    async with open_desk(place) as desk:
        policy = await current_policy(desk, str(place.workspace))
        now = desk.clock.now()
    listed = list(_listed(policy, now))
    if args.json:
        rules = [rule_json(rule) | {"counts": not note, "note": note} for rule, note in listed]
        print_json({"rules": rules, "trusted": policy.trusted, **_state_json(policy)})
    else:
        _tell_rules(listed, policy)
    return Exit.FAILED if policy.broken else Exit.OK


def _tell_rules(listed: Sequence[tuple[Rule, str | None]], policy: "Policy") -> None:
    if listed:
        print_table(["EFFECT", "FROM", "RULE"], [_row(rule, note, policy) for rule, note in listed])
    else:
        say(f"no rules, {_who_asks(policy)}")
    _complain_of_files(policy)
    if policy.untrusted is not None and not policy.broken:
        complain("  → `pml trust` shows what this workspace's .pml.json would allow, and trusts it")


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


def _row(rule: Rule, note: str | None, policy: "Policy") -> list[str]:
    where = ""
    if rule.source is not None:
        kind = FileKind.USER if rule.source.file == policy.loaded.user.path else FileKind.WORKSPACE
        where = f"{kind} {Path(rule.source.file).name}:{rule.source.line}"
    return [rule.effect, where, Shown(entry_text(rule.entry) + (f"  ({note})" if note else ""))]


def _warnings(policy: "Policy") -> Iterator[str]:
    for file in (policy.loaded.user, policy.loaded.workspace):
        if file.config is not None:
            yield from (f"{file.path}: {warning}" for warning in file.config.warnings)
    yield from policy.settings.problems


def _state_json(policy: "Policy") -> JsonObject:
    return {"broken": [error.message for error in policy.broken], "warnings": [*_warnings(policy)]}


def _complain_of_files(policy: "Policy") -> None:
    for line in _warnings(policy):
        complain(f"warning: {visible(line)}")
    for error in policy.broken:
        complain(f"broken: {visible(error.message)}")
    if policy.broken:
        complain("  → while a file is broken no file allows anything; mend it")


def _who_asks(policy: "Policy") -> str:
    if policy.settings.approval.unlisted is Unlisted.EVERY_CALL:
        return "so a person is asked"
    return "so a person is asked, unless the client asks for it itself"


async def explain_call(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.service.policy import current_policy, judge

    place = find_place(args.workspace)
    call = Call(
        tool=str(parse_tool(args.tool)),
        arguments=read_object(args.arguments, what="the input"),
        cwd=str(place.workspace),
    )
    async with open_desk(place) as desk:
        policy = await current_policy(desk, str(place.workspace))
        refuse_wire_name(call.tool, policy)
        judged = await judge(desk, policy, call, session=None)
        near = list(_near_misses(policy, call, judged, desk.clock.now()))
    if args.json:
        print_json(_judged_json(judged, near, policy))
    else:
        _tell_judged(call.tool, judged, near, policy)
    return Exit.OK


def _near_misses(policy: "Policy", call: Call, judged: "Judged", now: datetime) -> Iterator[tuple[Rule, str]]:
    """Yield the rules that name the tool and yet do not match the call, each with the reason."""
    matched = {id(rule) for rule in judged.verdict.matched}
    if_trusted = {id(rule) for rule in policy.rules_if_trusted.judge(call, now=now).matched}
    in_force = {id(rule) for rule in policy.rules.naming(call.tool)}
    for rule in policy.rules_if_trusted.naming(call.tool):
        notes: list[str] = []
        if rule.expires_at is not None and rule.expires_at <= now:
            notes.append(f"expired {instant(rule.expires_at)}")
        elif id(rule) not in if_trusted:
            notes.append("its arguments do not match")
        if id(rule) not in in_force:
            notes.append("not trusted")
        if id(rule) not in matched:
            yield rule, "; ".join(notes)


def _judged_json(judged: "Judged", near: Sequence[tuple[Rule, str]], policy: "Policy") -> dict[str, Json]:
    shape = verdict_json(judged.verdict) | {
        "near": [rule_json(rule) | {"note": note} for rule, note in near],
        "trusted": policy.trusted,
        "needs_trust": judged.needs_trust,
        "asking_is_off": judged.asking_is_off,
        **_state_json(policy),
    }
    if judged.broken:  # the rules of a sound file may say allow, but then they do not count
        shape["verdict"] = judged.kind
    return shape


_MEANING = {
    VerdictKind.DENY: "never runs, and no approval lifts that",
    VerdictKind.ALLOW: "runs without asking",
    VerdictKind.ASK: "asks on every call",
    VerdictKind.UNLISTED: "is decided by no rule",
}


def _tell_judged(tool: str, judged: "Judged", near: Sequence[tuple[Rule, str]], policy: "Policy") -> None:
    kind = judged.kind if judged.broken else judged.verdict.kind
    then = f", {_who_asks(policy)}" if kind is VerdictKind.UNLISTED else ""
    say(f"{kind}: {visible(tool)} {_MEANING[kind]}{then}")
    for rule in judged.verdict.matched:
        mark = "→" if rule is judged.verdict.rule else " "
        say(f"  {mark} {_rule_line(rule)}" + ("  (the default)" if rule.is_default else ""))
    for rule, note in near:
        say(f"    {_rule_line(rule)}  ({note})")
    _complain_of_files(policy)
    if judged.asking_is_off:
        complain("  ASKING IS OFF (`approval.enabled`): it runs without asking")
    if judged.needs_trust:
        complain("  the workspace's .pml.json would allow it, but is not trusted: `pml trust`")


def _rule_line(rule: Rule) -> str:
    where = "" if rule.source is None else f"  {visible(rule.source.file)}:{rule.source.line}"
    return f"{rule.effect:<5} {entry_text(rule.entry)}{where}"
