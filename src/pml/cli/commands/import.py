"""`pml import`: the servers that other clients of this person have, shown, and taken over after one yes."""

import argparse

from pml.cli.exits import Exit

EXAMPLES = """It reads the files of Claude Code, Claude Desktop, Cursor, VS Code, Codex, Gemini, opencode,
Windsurf, Cline and Copilot: yours, and those of this workspace. It shows what would come over, with every
command and URL, and asks once. A command that fetches a package each time (`npx -y x`, `uvx x`) becomes an
install whose files are proven before each start. A secret is never shown; after a second yes it goes to
`pml secrets`. The clients' files stay as they are, unless --replace takes out what was taken over.

examples:
  pml import --dry-run               show what would come over
  pml import                         show it, ask, and write it to your config.json
  pml import github linear           only these
  pml import --from cursor           only from Cursor
  pml import --workspace-file        what clients keep for this workspace, into its .pml.json
  pml import --replace               also take it out of the clients' files
  pml import --undo                  take back what the last import added

exit codes: 0 done, or nothing to take; 1 failed; 3 answered no; 4 nobody there to answer; 5 no such server"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these servers (default: all)")
    parser.add_argument("--from", dest="client", metavar="CLIENT", help="only from this client")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be taken over")
    parser.add_argument(
        "--as-is", action="store_true", help="keep commands that fetch packages, and install nothing"
    )
    parser.add_argument(
        "--workspace-file", action="store_true", help="write to the workspace's .pml.json, not to yours"
    )
    parser.add_argument(
        "--replace", action="store_true", help="take them out of the clients' files, which are kept beside"
    )
    parser.add_argument("--undo", action="store_true", help="take back what the last import added")
    parser.add_argument("--yes", action="store_true", help="take them over without asking")
    parser.add_argument(
        "--move-secrets", action="store_true", help="with --yes: also move secrets to `pml secrets`"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")


async def run(args: argparse.Namespace) -> int:
    """Raises: MayNotDecide, NotFound, Conflict, ConfigInvalid, Invalid, Unavailable."""
    from pml.app import find_place
    from pml.cli.guards import guard
    from pml.cli.imports.reversal import undo_last
    from pml.cli.imports.takeover import take_over
    from pml.cli.open_context import opened
    from pml.core.errors import Invalid

    if args.undo and (args.names or args.replace or args.client):
        raise Invalid(
            "`--undo` takes back the whole last import", hint="`pml remove NAME` removes one server"
        )
    place = find_place(args.workspace)
    async with opened(args) as context:
        await guard(context, args)
        code = await (undo_last if args.undo else take_over)(context, place, args)
    return Exit(code)
