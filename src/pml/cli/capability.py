"""`pml capability`: writing capabilities, checking them before they are published, accepting changed code."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.capability_check import check_capabilities
from pml.cli.capability_new import new_capability, write_types
from pml.cli.exits import Exit
from pml.cli.opening import opened
from pml.cli.output import print_json, say
from pml.cli.verbs import Verbs, run_verb
from pml.core.approvals import instant
from pml.core.errors import Conflict, NotFound
from pml.core.names import parse_fqdn
from pml.core.sandbox import Language
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.registry.pins import Pin

EXAMPLES = """A capability is code in a registry that calls tools: `await mcp.memory.read_graph()`.

examples:
  pml capability new acme.tools.notes.summarize --use memory    code, metadata and types to begin with
  pml capability check acme.tools.notes.summarize.ts            what is wrong, and what it needs
  pml capability types                                          the types again, for what the code calls now
  pml capability accept acme.tools.notes.summarize              take code that has changed since its first use
  pml publish acme.tools.notes.summarize.json --to registry

exit codes: 0 ok, 1 problems or failed, 2 usage or not sound, 5 nothing of that name"""
_NEW: Final = """NAME is `org.project.namespace.action`, or `org.project.name`. No file that is there changes.

examples:
  pml capability new acme.tools.notes.summarize
  pml capability new acme.tools.notes.summarize --use memory --use time --dir capabilities
  pml capability new acme.tools.clock --language python --use time"""
_TYPES: Final = """Writes `mcp.d.ts` anew, for the tools that the folder's code calls and those of SERVER.

examples:
  pml capability types
  pml capability types --use memory --dir capabilities"""
_CHECK: Final = """No tool is called, nothing installed or requested. Verdicts are those of this workspace.

examples:
  pml capability check acme.tools.notes.summarize.ts
  pml capability check capabilities/*.json --json | jq '.checked[].tools[] | select(.verdict == "deny")'

exit codes: 0 ok, 1 problems"""
_ACCEPT: Final = """Code that came without `code_integrity` is known by its first use; other code is refused
until you accept it here: what comes at the next use is then taken for the code of the capability.

examples:
  pml capability accept acme.tools.notes.summarize
  pml capability accept acme.tools.notes.summarize --registry https://registry.example.com"""


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
    check.add_argument("paths", metavar="PATH", nargs="+", help="the code or the metadata")
    accept = verbs.add(
        "accept", "accept code that has changed since its first use", accept_code, epilog=_ACCEPT
    )
    accept.add_argument("name", metavar="FQDN", help="its name in the registry")
    accept.add_argument("--registry", metavar="R", help="the URL or folder it is from, if there are several")


run = run_verb


async def accept_code(args: argparse.Namespace) -> int:
    """Raises: Invalid, NotFound, Conflict, MayNotDecide, Unavailable."""
    from pml.app import find_place
    from pml.registry.pins import CodePins
    from pml.service.sessions import guard_person

    pins = CodePins(find_place(args.workspace).home)
    async with opened(args) as desk:
        await guard_person(desk)
        pin = _chosen(pins.of(str(parse_fqdn(args.name))), args.name, args.registry)
        pins.remove(pin)
    if args.json:
        shape = {"fqdn": pin.fqdn, "registry": pin.registry, "sha256": pin.sha256}
        print_json({"accepted": {**shape, "pinned_at": instant(pin.pinned_at)}})
        return Exit.OK
    say(f"forgot the code of {visible(pin.fqdn)} from {visible(pin.registry)}")
    say(f"  it was pinned {instant(pin.pinned_at)}: sha256 {visible(pin.sha256)}")
    say("  what comes at the next use is taken for its code")
    return Exit.OK


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
