"""`pml add`: any server by one line, shown with all that it is, and added after one yes."""

import argparse
from typing import Any

EXAMPLES = """WHAT is a command as its README has it, a URL, a full name of a registry, or a name of the
catalog. A package is pinned to one version and one lock of all that it depends on; without a version, to the
newest, or to the one that the catalog has verified. It is installed, contained, started once, and shown with
its tools; from then on its files are proven before each start. A package reaches all of the network and, of
the files, only the folders that its line names, unless the options say otherwise.

examples:
  pml add 'npx -y @modelcontextprotocol/server-everything'
  pml add 'uvx mcp-server-time==2026.8.18' --name clock --net none
  pml add 'npx -y @acme/tickets-mcp' --env TICKETS_TOKEN --net api.tickets.example
  pml add 'npx -y @modelcontextprotocol/server-filesystem /srv/docs' --before 2026-09-01
  pml add https://mcp.example.com/mcp --header 'Authorization: Bearer ${EXAMPLE_TOKEN}'
  pml add io.github.user/server      from a registry with the official API
  pml add memory                     from the catalog
  pml add 'node server.js'           a program of yours: neither proven nor contained

exit codes: 0 added, or there already; 1 failed; 2 usage; 3 answered no, or a rule denies it; 4 nobody there
to answer; 5 no such package or server"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="WHAT", help="a command line in quotes, a URL, or a name")
    parser.add_argument(
        "--name", metavar="NAME", help="what the server is called (default: after its package)"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be added")
    parser.add_argument("--yes", action="store_true", help="add it without asking")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")
    parser.add_argument(
        "--workspace-file", action="store_true", help="for a URL or a program: into the workspace's .pml.json"
    )
    parser.add_argument("--no-try", action="store_true", help="do not start it now")
    more: dict[str, Any] = {"action": "append", "default": []}
    package = parser.add_argument_group("a package")
    package.add_argument(
        "--before", metavar="DATE", help="take nothing that was published on that day or later"
    )
    package.add_argument("--net", metavar="HOST", help="a host it reaches, `all` or `none`", **more)
    package.add_argument(
        "--access", choices=["none", "read", "write"], help="to the workspace (default: none)"
    )
    package.add_argument("--read", metavar="DIR", help="a folder it may read", **more)
    package.add_argument("--write", metavar="DIR", help="a folder it may write", **more)
    package.add_argument("--run", metavar="PROGRAM", dest="programs", help="a program it may start", **more)
    parser.add_argument(
        "--env", metavar="NAME[=VALUE]", help="a variable; without a value it is a secret", **more
    )
    parser.add_argument("--set", metavar="KEY=VALUE", dest="answers", help="what a registry asks for", **more)
    remote = parser.add_argument_group("a URL")
    remote.add_argument("--header", metavar="NAME: VALUE", help="with `${NAME}` in place of a secret", **more)
    remote.add_argument("--sse", action="store_true", help="it speaks the older transport")


async def run(args: argparse.Namespace) -> int:
    """Raises: MayNotDecide, Conflict, ConfigInvalid, ToolDenied, Invalid, NotFound, Unavailable."""
    from pml.app import find_place
    from pml.cli.additions.addition import add_server
    from pml.cli.guards import guard
    from pml.cli.open_context import opened

    place = find_place(args.workspace)
    async with opened(args) as context:
        await guard(context, args)
        return await add_server(context, place, args)
