"""`pml rules allow`, `deny`, `ask`, `disable`, `enable`, `remove`: changing rules, and what that means.

What a change means for what waits is told with it.
"""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pml.cli.cards import short
from pml.cli.exits import Exit
from pml.cli.output import complain, print_json, say
from pml.core.approvals import Channel, Decider, DeciderKind, instant
from pml.core.config import FileKind
from pml.core.errors import Invalid, MayNotDecide, NotFound
from pml.core.rules import Effect, Rule, names_tool
from pml.core.telling import entry_text
from pml.core.text import quote, visible, visible_json
from pml.core.values import Json, loads

if TYPE_CHECKING:
    from pml.service.desk import Desk
    from pml.service.policy import Policy
    from pml.service.rulings import Change

MAX_REMOVALS: Final = 3  # in a hint, which is one line

_OPENS_JSON: Final = ("{", "[", '"')


def configure_add(parser: argparse.ArgumentParser, effect: Effect) -> None:
    parser.add_argument("entry", metavar="ENTRY", help="a tool, a glob, or a whole entry as a JSON object")
    parser.add_argument("--user", action="store_true", help="in the user's file: for every workspace")
    named: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--arg", metavar="NAME=VALUE", **named, help="only with exactly this argument")
    parser.add_argument("--under", metavar="NAME=DIR", **named, help="only with a path beneath DIR")
    parser.add_argument("--host", metavar="NAME=GLOB", **named, help="only with a URL to such a host")
    parser.add_argument("--id", metavar="ID", help="a name to remove the rule by")
    parser.add_argument("--ttl", type=int, metavar="SECONDS", help="end the rule after so long")
    parser.set_defaults(effect=effect, release=[])
    parser.epilog = f"""VALUE is JSON if it reads as such (n=3, on=true), else text; n='"3"' is the text 3.

examples:
  pml rules {effect} github:create_issue
  pml rules {effect} 'github:*' --user
  pml rules {effect} fs:write --under path=./build --ttl 3600
  pml rules {effect} '{{"tool": "web:fetch", "args": {{"url": {{"host": "*.example.com"}}}}}}'"""
    if effect is Effect.ALLOW:
        parser.add_argument(
            "--release", metavar="ID", nargs="+", default=[], help="also let these waiting calls run"
        )


def configure_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entry", metavar="ENTRY_OR_ID", help="the entry as it stands in the file, or its id")
    parser.add_argument("--user", action="store_true", help="in the user's file")
    parser.add_argument("--effect", choices=[effect.value for effect in Effect], help="only of this list")
    parser.epilog = """examples:
  pml rules remove 'github:*'
  pml rules remove '{"tool": "fs:read", "args": {"path": {"under": "."}}}'
  pml rules remove nightly --user --effect allow"""


def configure_switch(parser: argparse.ArgumentParser, *, enabled: bool) -> None:
    verb = "enable" if enabled else "disable"
    parser.add_argument("entry", metavar="ENTRY_OR_ID", help="the entry as it stands in the file, or its id")
    parser.add_argument("--user", action="store_true", help="in the user's file")
    parser.add_argument("--effect", choices=[effect.value for effect in Effect], help="only of this list")
    parser.set_defaults(enabled=enabled)
    parser.epilog = f"""A disabled rule stays in its file and does not count until it is enabled.

examples:
  pml rules {verb} 'github:*'
  pml rules {verb} nightly --user --effect allow"""


async def add_entry(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.service.sessions import guard_person
    from pml.service.upkeep import sweep

    place = find_place(args.workspace)
    async with open_desk(place) as desk:
        if args.effect is Effect.ALLOW:  # anybody may tighten; only a person loosens
            await guard_person(desk)
        await sweep(desk)
        change = await _add(desk, str(place.workspace), args)
    if args.json:
        print_json(change.json())
    else:
        _tell_change(change, args.workspace)
    return Exit.OK


async def _add(desk: "Desk", workspace: str, args: argparse.Namespace) -> "Change":
    from pml.service.approvals import find
    from pml.service.rulings import enter_rule

    entry = _new_entry(args, now=desk.clock.now())
    shown = [(await find(desk, prefix)).id for prefix in args.release]
    return await enter_rule(
        desk,
        workspace,
        Effect(args.effect),
        entry,
        which=_which(args),
        shown=shown,
        by=await _changer(desk),
    )


async def remove_entry(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk, person
    from pml.service.policy import current_policy
    from pml.service.rulebook import drop_rule
    from pml.service.sessions import guard_person

    place, which = find_place(args.workspace), _which(args)
    entry = _entry(args.entry)
    effect = None if args.effect is None else Effect(args.effect)
    async with open_desk(place) as desk:
        await guard_person(desk)
        count = await drop_rule(desk, str(place.workspace), effect, entry, which=which, by=person())
        policy = await current_policy(desk, str(place.workspace))
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
    from pml.app import find_place, open_desk, person
    from pml.service.rulebook import switch_rule
    from pml.service.sessions import guard_person
    from pml.service.upkeep import sweep

    workspace, which, entry = str(find_place(args.workspace).workspace), _which(args), _entry(args.entry)
    effect = None if args.effect is None else Effect(args.effect)
    async with open_desk(find_place(args.workspace)) as desk:
        await guard_person(desk)
        await sweep(desk)
        switched = await switch_rule(
            desk, workspace, effect, entry, enabled=args.enabled, which=which, by=person()
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
    command += ["--user"] if kind is FileKind.USER else []
    command += [] if workspace is None else ["--workspace", visible(workspace)]
    return shlex.join(command)


def _which(args: argparse.Namespace) -> FileKind:
    return FileKind.USER if args.user else FileKind.WORKSPACE


async def _changer(desk: "Desk") -> Decider:
    """Return who changes a rule: the log must not call an agent a person."""
    from pml.app import person
    from pml.service.sessions import guard_person

    try:
        await guard_person(desk)
    except MayNotDecide:
        return Decider(kind=DeciderKind.CLIENT, id="agent", channel=Channel.TERMINAL)
    return person()


def _entry(text: str) -> Json:
    return loads(text, what="the entry") if text.startswith(_OPENS_JSON) else text


def _new_entry(args: argparse.Namespace, *, now: datetime) -> Json:
    """Return the entry that the options describe. Raises: Invalid."""
    entry = _entry(args.entry)
    matchers = {
        **{name: {"is": _value(value)} for name, value in _pairs("--arg", args.arg)},
        **{name: {"under": value} for name, value in _pairs("--under", args.under)},
        **{name: {"host": value} for name, value in _pairs("--host", args.host)},
    }
    given = len(args.arg) + len(args.under) + len(args.host)
    if len(matchers) != given:
        raise Invalid("an argument is given twice; a rule has one matcher for each")
    options: dict[str, Json] = {}
    if matchers:
        options["args"] = matchers
    if args.id is not None:
        options["id"] = args.id
    if args.ttl is not None:
        options |= {"created_at": instant(now), "ttl_s": args.ttl}
    if not options:
        return entry
    if not isinstance(entry, str):
        raise Invalid("the options go with a tool or a glob; put them into the entry itself")
    return {"tool": entry, **options}


def _pairs(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise Invalid(f"{option} takes NAME=VALUE, not {quote(each)}")
        yield name, value


def _value(text: str) -> Json:
    """Return what an argument must be: JSON if `text` reads as such, else the text itself."""
    try:
        return loads(text, what="--arg")
    except Invalid:
        if text.startswith(_OPENS_JSON):  # meant as JSON: a mistake in it must not make another rule
            raise
        return text


def _tell_change(change: "Change", workspace: str | None) -> None:
    rule = f"{change.effect} {entry_text(change.entry)}"
    say(f"added to {visible(change.file)}: {rule}" if change.added else f"stands there already: {rule}")
    _note_bare(change.entry)
    for error in change.policy.broken:
        complain(f"  while a file is broken no file allows anything: {visible(error.message)}")
    if not change.counts and not change.policy.broken:
        complain("  the file is not trusted, so its allows do not count yet: `pml trust`")
    for ask, allow in change.policy.rules.hidden_asks():
        if change.effect is Effect.ASK and ask.entry == change.entry:
            complain(f"  it never asks: allow {entry_text(allow.entry)} comes first")
    for record in change.denied:
        say(f"  denied {short(record.id)} {visible(record.tool_name)}, which waited")
    for record in change.released:
        say(f"  allowed {short(record.id)} {visible(record.tool_name)}, which waited")
    for approval_id in change.not_covered:
        complain(f"  {short(approval_id)} stays as it is: no rule allows it, or it waits no longer")
    _tell_covered(change, workspace)


def _note_bare(entry: Json) -> None:
    """Say what a name without a colon means, unless it is plainly meant: `*`, or `Bash` of a client."""
    tool = entry.get("tool") if isinstance(entry, Mapping) else entry
    if isinstance(tool, str) and ":" not in tool and tool != "*" and not tool[:1].isupper():
        complain(
            f"  note: without a `:` it means a client's own tool, or an action of that name of any server; "
            f"for one server write `server:{visible(tool)}`"
        )


def _tell_covered(change: "Change", workspace: str | None) -> None:
    """Show what waits and is covered, with the command that lets exactly that run."""
    if not change.covered:
        return
    say("\nthese wait, and rules allow them now:")
    for record in change.covered:
        say(
            f"  {short(record.id)} {visible(record.tool_name)} {visible_json(record.tool_input, indent=None)}"
        )
    command = ["pml", "rules", "allow", entry_text(change.entry)]
    command += ["--user"] if change.which is FileKind.USER else []
    command += [] if workspace is None else ["--workspace", visible(workspace)]
    command += ["--release", *(short(record.id) for record in change.covered)]
    say(f"let them run:\n  {shlex.join(command)}")
