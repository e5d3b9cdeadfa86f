"""`pml remove`: a server that was added or imported goes: its entry, its files, if asked its secrets."""

import argparse

EXAMPLES = """It removes the server's entry in your config.json (with --workspace-file, in the workspace's
.pml.json), what `pml add` keeps of it, and its installed files. What it remembered in its own folder stays,
and so do rules.

examples:
  pml remove clock
  pml remove tickets --secrets       also the secrets that no other server names
  pml remove clock --dry-run

exit codes: 0 removed; 1 failed; 3 answered no; 4 nobody there to answer; 5 no such server"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("name", metavar="NAME", help="the server")
    parser.add_argument("--secrets", action="store_true", help="also the secrets that only it names")
    parser.add_argument(
        "--workspace-file", action="store_true", help="its entry in the workspace's .pml.json"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    parser.add_argument("--yes", action="store_true", help="remove it without asking")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")


async def run(args: argparse.Namespace) -> int:
    """Raises: MayNotDecide, NotFound, ConfigInvalid, Unavailable."""
    from pml.app import find_place
    from pml.cli.additions.removal import remove_server
    from pml.cli.guards import guard
    from pml.cli.open_context import opened

    place = find_place(args.workspace)
    async with opened(args) as context:
        await guard(context, args)
        return await remove_server(context, place, args)
