"""`pml stdio`: the MCP gateway on standard input and output, as a client starts it."""

import argparse
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pml.cli.exits import Exit

if TYPE_CHECKING:
    from pml.downstream.connection import Connection
    from pml.downstream.door import Answering
    from pml.downstream.eras import Era

EXAMPLES = """A client starts this; it speaks MCP on standard input and output and asks nothing there itself.

examples:
  claude mcp add pml -- pml stdio      give Claude Code the tools of this workspace's .pml.json
  pml stdio --workspace ~/project      serve another folder than the working directory"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")


async def run(args: argparse.Namespace) -> int:
    from pml.app import find_place, is_debugging
    from pml.downstream.stdio import serve_stdio

    place = find_place(args.workspace)

    async def open_gateway(connection: "Connection", era: "Era", stack: AsyncExitStack) -> "Answering":
        from pml.app import open_gateway

        return await open_gateway(place, connection, era, stack)

    await serve_stdio(open_gateway, debug=is_debugging())
    return Exit.OK
