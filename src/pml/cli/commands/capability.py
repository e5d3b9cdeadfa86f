"""`pml capability`: writing capabilities, checking them before they are published, accepting changed code."""

import argparse
import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.capability.check import check_capabilities
from pml.cli.capability.new import new_capability, write_types
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, complain_prose, local_time, print_json, say, say_prose
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.approvals.record import instant
from pml.core.code.sandbox import Language
from pml.core.errors import Changed, Conflict, Invalid, NotFound, Unavailable
from pml.core.names import parse_fqdn
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.registry.client.code_pins import CodePins, Offered, Pin
    from pml.service.context import Context

EXAMPLES = """A capability is code in a registry that calls tools: `await mcp.memory.read_graph()`.

examples:
  pml capability new acme.tools.notes.summarize --use memory    code, metadata and types to begin with
  pml capability check acme.tools.notes.summarize.ts            what is wrong, and what it needs
  pml capability types                                          the types again, for what the code calls now
  pml capability accept acme.tools.notes.summarize              take code that has changed since its first use
  pml publish acme.tools.notes.summarize.json --to registry

exit codes: 0 ok, 1 problems or failed, 2 usage or not sound, 3 answered no, 4 nobody there to answer,
5 nothing of that name"""
_NEW: Final = """NAME is `org.project.namespace.action`, or `org.project.name`. No file that is there changes,
but for the types in `mcp.d.ts` that PML made: they are written again, with those of SERVER.

examples:
  pml capability new acme.tools.notes.summarize
  pml capability new acme.tools.notes.summarize --use memory --use time --dir capabilities
  pml capability new acme.tools.clock --language python --use time"""
_TYPES: Final = """Writes `mcp.d.ts` again, for the tools that the folder's code calls and those of SERVER.

examples:
  pml capability types
  pml capability types --use memory --dir capabilities"""
_CHECK: Final = """It type-checks the code, and looks for a function for each tool and for the tools it calls.
No tool is called, nothing installed or requested. Verdicts are those of this workspace.

examples:
  pml capability check acme.tools.notes.summarize.ts
  pml capability check capabilities --json | jq '.checked[].tools[] | select(.verdict == "deny")'

exit codes: 0 ok (also with warnings), 1 problems, 2 nothing to check"""
_ACCEPT: Final = """Code that came without `code_integrity` is known by its first use; other code is refused
until you accept it here. The hashes are shown, and what has changed, if the code as it was is still kept;
what you accept is exactly the code with the hash that was shown.

examples:
  pml capability accept acme.tools.notes.summarize                   show it, then ask
  pml capability accept acme.tools.notes.summarize --sha256 HASH     without asking, if it is this code
  pml capability accept acme.tools.notes.summarize --registry https://registry.example.com

exit codes: 0 accepted, or nothing to accept; 3 answered no; 4 nobody there to answer; 5 nothing pinned"""
_SHA256: Final = re.compile(r"(?:sha256[:-])?([0-9a-f]{64})")
_MAX_DIFF_LINES: Final = 60
_MAX_COMPARED: Final = 256 * 1024  # bytes of each: beyond, a comparison takes minutes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    new = verbs.add("new", "write a capability to begin with", new_capability, epilog=_NEW)
    new.add_argument("name", metavar="NAME", help="its name in the registry")
    new.add_argument(
        "--language",
        choices=[each.value for each in Language],
        default=Language.TYPESCRIPT.value,
        help="what it is written in (default: typescript)",
    )
    types = verbs.add("types", "write the types of the tools that code calls", write_types, epilog=_TYPES)
    for each in (new, types):
        each.add_argument(
            "--use", metavar="SERVER", action="append", default=[], help="with its tools' types"
        )
        each.add_argument("--dir", metavar="DIR", default=".", help="where to write (default: here)")
    check = verbs.add(
        "check", "check capabilities and tell what they need", check_capabilities, epilog=_CHECK
    )
    check.add_argument("paths", metavar="PATH", nargs="+", help="the code, the metadata, or a folder")
    accept = verbs.add(
        "accept", "accept code that has changed since its first use", accept_code, epilog=_ACCEPT
    )
    accept.add_argument("name", metavar="FQDN", help="its name in the registry")
    how = accept.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="accept it as it is now, without asking")
    how.add_argument("--sha256", metavar="HASH", help="accept the code with this hash, and no other")
    accept.add_argument("--registry", metavar="R", help="the URL or folder it is from, if there are several")


run = run_verb


async def accept_code(args: argparse.Namespace) -> int:
    """Raises: Invalid, NotFound, Conflict, Changed, MayNotDecide, Unavailable."""
    from pml.app import find_place
    from pml.registry.client.code_pins import CodePins

    home, wanted = find_place(args.workspace).home, _hash(args.sha256)
    pins = CodePins(home)
    async with opened(args) as context:
        await guard(context, args)
        pin = _chosen(pins.of(str(parse_fqdn(args.name))), args.name, args.registry)
        offered = await _offered(home, pin, wanted)
        sha256 = _bound(pin, offered, wanted)
        if not args.json:
            _show(pin, offered, sha256)
        if sha256 != pin.sha256:
            if wanted is None and not args.yes and (ended := _ask(pin, sha256, as_json=args.json)):
                return ended
            await _accept(context, pins, pin, sha256)
        _tell(pin, sha256, accepted=True, as_json=args.json)
    return Exit.OK


def _bound(pin: "Pin", offered: "Offered | None", wanted: str | None) -> str:
    """Return the hash that is to be accepted. Raises: Changed if the code has another than was asked for."""
    sha256 = wanted or "" if offered is None else offered.sha256
    if wanted not in (None, sha256):
        raise Changed(
            f"the code of {pin.fqdn} is sha256 {sha256} now, not {wanted}",
            hint=f"look at it again: `pml capability accept {pin.fqdn}`",
        )
    return sha256


def _ask(pin: "Pin", sha256: str, *, as_json: bool) -> Exit:
    """Return how the command ends, which is OK only if a person said yes."""
    if as_json or not is_interactive():
        if as_json:
            _tell(pin, sha256, accepted=False, as_json=True)
        complain_prose(
            "pml: nobody is there to answer; to accept exactly this code: "
            f"pml capability accept {visible(pin.fqdn)} --sha256 {sha256}"
        )
        return Exit.PENDING
    if not confirm("\nTake this for the code of the capability?"):
        say("not accepted; nothing was changed")
        return Exit.DENIED
    return Exit.OK


def _hash(text: str | None) -> str | None:
    """Return the digits of a hash, which may have a prefix. Raises: Invalid."""
    found = None if text is None else _SHA256.fullmatch(text)
    if text is not None and found is None:
        raise Invalid(f"{quote(text)} is not a sha256", hint="it has 64 digits, as the refusal names them")
    return None if found is None else found[1]


async def _offered(home: Path, pin: "Pin", wanted: str | None) -> "Offered | None":
    """Return the code as it is now; None if it cannot be had, and its hash was given.

    Raises: Unavailable, NotFound, Conflict, Invalid.
    """
    from pml.registry.client.code_pins import look_again

    try:
        return await look_again(home, pin)
    except Unavailable as exc:
        if wanted is None:
            hint = "try again, or give the hash that the refusal named: `--sha256 HASH`"
            raise Unavailable(exc.message, hint=hint) from exc
        complain(f"warning: {visible(exc.message)}: the code was not looked at")
        return None


async def _accept(context: "Context", pins: "CodePins", pin: "Pin", sha256: str) -> None:
    from pml.app import person
    from pml.core.audit.entries import dependency_accepted

    now = context.clock.now()
    await context.store.audit.record(dependency_accepted(pin.fqdn, f"sha256:{sha256}", at=now, by=person()))
    pins.replace(pin, sha256=sha256, pinned_at=now)


def _show(pin: "Pin", offered: "Offered | None", sha256: str) -> None:
    say(f"{visible(pin.fqdn)} from {visible(pin.registry)}")
    say_prose(f"  was  sha256 {visible(pin.sha256)}, pinned {local_time(pin.pinned_at)}")
    say(f"  is   sha256 {sha256}")
    if offered is None or sha256 == pin.sha256:
        return
    if offered.before is None:
        say_prose("  the code as it was is no longer kept: there is nothing to compare it with")
        return
    if max(len(offered.before), len(offered.code)) > _MAX_COMPARED:
        say("  it is too long to be compared here")
        return
    for line in _difference(offered.before, offered.code):
        say(f"  {visible(line)}")


def _difference(before: bytes, after: bytes) -> list[str]:
    old, new = (code.decode(errors="replace").splitlines() for code in (before, after))
    lines = [*difflib.unified_diff(old, new, "was", "is", lineterm="")]
    more = len(lines) - _MAX_DIFF_LINES
    return lines if more <= 0 else [*lines[:_MAX_DIFF_LINES], f"… and {more} more lines"]


def _tell(pin: "Pin", sha256: str, *, accepted: bool, as_json: bool) -> None:
    if as_json:
        shape = {"fqdn": pin.fqdn, "registry": pin.registry, "was": pin.sha256, "sha256": sha256}
        print_json({**shape, "pinned_at": instant(pin.pinned_at), "accepted": accepted})
    elif sha256 == pin.sha256:
        say("it is the code that is pinned: there is nothing to accept")
    else:
        say(f"accepted: exactly this code is run for {visible(pin.fqdn)}")


def _chosen(found: "list[Pin]", name: str, registry: str | None) -> "Pin":
    """Raises: NotFound, Conflict."""
    spelt = {registry, None if registry is None else registry.rstrip("/")}
    if registry is not None and "://" not in registry:
        spelt.add(str(Path(registry).resolve()))
    chosen = [pin for pin in found if registry is None or pin.registry in spelt]
    if not chosen:
        where = "" if registry is None else f" from {quote(registry)}"
        raise NotFound(
            f"no code of {quote(name)}{where} is pinned",
            hint="code with `code_integrity` is known by that, and other code by its first use",
        )
    if len(chosen) > 1:
        places = ", ".join(quote(pin.registry) for pin in chosen)
        raise Conflict(
            f"{quote(name)} is pinned of several registries: {places}", hint="choose with `--registry`"
        )
    return chosen[0]
