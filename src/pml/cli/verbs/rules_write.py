"""`pml rules allow`, `deny`, `ask`: adding a rule, told with what it means for what waits."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard, is_person
from pml.cli.terminal.cards import short
from pml.cli.terminal.output import complain, complain_prose, print_json, say, say_prose
from pml.core.approvals.record import Channel, Decider, DeciderKind, instant
from pml.core.config.file import FileKind
from pml.core.errors import Invalid
from pml.core.rules.ruleset import Effect
from pml.core.text import entry_text, quote, visible, visible_json
from pml.core.values import Json, loads

if TYPE_CHECKING:
    from pml.core.ports.loader import Found
    from pml.core.rules.unknown_names import Doubt
    from pml.service.context import Context
    from pml.service.rules.rules import Change

_OPENS_JSON: Final = ("{", "[", '"')


_UNDER: Final = {
    Effect.ALLOW: "filesystem:write_file --under path=./build --ttl 3600",
    Effect.DENY: "'filesystem:*' --under '*=~/.ssh'",
    Effect.ASK: "'filesystem:*' --under '*=~/.ssh'",
}


def configure_add(parser: argparse.ArgumentParser, effect: Effect) -> None:
    parser.add_argument("entry", metavar="ENTRY", help="a tool, a glob, or a whole entry as a JSON object")
    parser.add_argument("--user", action="store_true", help="in the user's file: for every workspace")
    named: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--arg", metavar="NAME=VALUE", **named, help="only with exactly this argument")
    parser.add_argument("--under", metavar="NAME=DIR", **named, help=_under_help(effect))
    parser.add_argument("--host", metavar="NAME=GLOB", **named, help="only with a URL to such a host")
    parser.add_argument("--id", metavar="ID", help="a name to remove the rule by")
    parser.add_argument("--ttl", type=int, metavar="SECONDS", help="end the rule after so long")
    parser.set_defaults(effect=effect, release=[])
    parser.epilog = f"""VALUE is JSON if it reads as such (n=3, on=true), else text; n='"3"' is the text 3.

examples:
  pml rules {effect} github:create_issue
  pml rules {effect} 'github:*' --user
  pml rules {effect} {_UNDER[effect]}
  pml rules {effect} '{{"tool": "web:fetch", "args": {{"url": {{"host": "*.example.com"}}}}}}'"""
    if effect is Effect.ALLOW:
        parser.add_argument(
            "--release", metavar="ID", nargs="+", default=[], help="also let these waiting calls run"
        )


def _under_help(effect: Effect) -> str:
    any_argument = "" if effect is Effect.ALLOW else "; NAME * is any argument, at any depth"
    return f"only with a path beneath DIR{any_argument}"


async def add_entry(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context, open_sources
    from pml.service.upkeep import sweep

    place = find_place(args.workspace)
    async with open_context(place) as context:
        await guard(context, args)
        await sweep(context)
        bundled = open_sources(place, context.clock, warn=complain).bundled()
        change = await _add(context, str(place.workspace), args, bundled)
    if args.json:
        print_json(change.json())
    else:
        _tell_change(change, args.workspace)
    return Exit.OK


async def _add(
    context: "Context", workspace: str, args: argparse.Namespace, bundled: "Sequence[Found]"
) -> "Change":
    from pml.service.approvals.lifecycle import find
    from pml.service.rules.rules import enter_rule

    entry = _new_entry(args, now=context.clock.now())
    shown = [(await find(context, prefix)).id for prefix in args.release]
    return await enter_rule(
        context,
        workspace,
        Effect(args.effect),
        entry,
        which=which_file(args),
        shown=shown,
        by=await _changer(context, args),
        bundled=bundled,
    )


def which_file(args: argparse.Namespace) -> FileKind:
    """Return the file that the options name."""
    return FileKind.USER if args.user else FileKind.WORKSPACE


async def _changer(context: "Context", args: argparse.Namespace) -> Decider:
    """Return who changes a rule: the log must not call an agent a person."""
    from pml.app import person

    if await is_person(context, args):
        return person()
    return Decider(kind=DeciderKind.CLIENT, id="agent", channel=Channel.TERMINAL)


def read_entry(text: str) -> Json:
    """Return an entry that is given as JSON, or else as a tool, a glob or an id. Raises: Invalid."""
    return loads(text, what="the entry") if text.startswith(_OPENS_JSON) else text


def _new_entry(args: argparse.Namespace, *, now: datetime) -> Json:
    """Return the entry that the options describe. Raises: Invalid."""
    entry = read_entry(args.entry)
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
    for doubt in change.doubts:
        _tell_doubt(doubt)
    for error in change.policy.broken:
        complain_prose(f"  while a file is broken no file allows anything: {visible(error.message)}")
    if change.is_misplaced_launch:
        complain_prose("  it does not apply: only the user's file allows launches (`--user`)")
    elif not change.counts and not change.policy.broken:
        complain_prose("  the file is not trusted, so its allows do not apply yet: `pml trust`")
    for ask, allow in change.policy.rules.hidden_asks():
        if change.effect is Effect.ASK and ask.entry == change.entry:
            complain_prose(f"  it never asks: allow {entry_text(allow.entry)} comes first")
    for record in change.denied:
        say_prose(f"  denied {short(record.id)} {visible(record.tool_name)}, which waited")
    for record in change.released:
        say_prose(f"  allowed {short(record.id)} {visible(record.tool_name)}, which waited")
    for approval_id in change.not_covered:
        complain_prose(f"  {short(approval_id)} stays as it is: no rule allows it, or it waits no longer")
    _tell_covered(change, workspace)


def _tell_doubt(doubt: "Doubt") -> None:
    """Say that the rule names what is not there; a deny that protects nothing is told loudest."""
    loud = (
        "WARNING: this deny protects nothing: " if doubt.rule.effect is Effect.DENY and doubt.is_void else ""
    )
    complain(f"  {loud}{visible(doubt.message)}" + (f"; {visible(doubt.hint)}" if doubt.hint else ""))


def _note_bare(entry: Json) -> None:
    """Say what a name without a colon means, unless it is plainly meant: `*`, or `Bash` of a client."""
    tool = entry.get("tool") if isinstance(entry, Mapping) else entry
    if isinstance(tool, str) and ":" not in tool and tool != "*" and not tool[:1].isupper():
        complain_prose(
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
