"""`pml capability`: writing capabilities, checking them before they are published, accepting changed code."""

import argparse
from typing import Final

from pml.cli.capability.accept import accept_code
from pml.cli.capability.check import check_capabilities
from pml.cli.capability.new import new_capability, write_types
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.code.sandbox import Language

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
but for the types in `mcp.d.ts` that PML made: they are written anew, with those of SERVER.

examples:
  pml capability new acme.tools.notes.summarize
  pml capability new acme.tools.notes.summarize --use memory --use time --dir capabilities
  pml capability new acme.tools.clock --language python --use time"""
_TYPES: Final = """Writes `mcp.d.ts` anew, for the tools that the folder's code calls and those of SERVER.

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
