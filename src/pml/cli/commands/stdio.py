"""`pml stdio`: the MCP gateway on standard input and output, as a client starts it."""

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pml.app import find_place, is_debugging
from pml.cli.guards import take_token_file
from pml.cli.interrupts import until_done
from pml.core.errors import PmlError
from pml.downstream.stdio.stdio import serve_stdio

if TYPE_CHECKING:
    import argparse

    from pml.downstream.protocol.connection import Connection
    from pml.downstream.protocol.door import Answering
    from pml.downstream.protocol.eras import Era

EXAMPLES = """A client starts this; it speaks MCP on standard input and output and reads nothing else there.

For Claude Code, `pml init --claude-code` sets it up; other clients take the command and its argument.

examples:
  pml stdio                            serve the working directory, as a client starts it
  pml stdio --workspace ~/project      serve another folder than the working directory
  pml stdio --no-forms                 for `goose run`, which ends at any form"""


def configure(parser: "argparse.ArgumentParser") -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")
    parser.add_argument(
        "--no-forms",
        action="store_true",
        help="send no forms, for a client that declares them and cannot show them: people decide elsewhere",
    )


def run(args: "argparse.Namespace") -> int:
    return serve(args.workspace, shows_forms=not args.no_forms)


def serve(workspace: str | None, *, shows_forms: bool = True) -> int:
    """Serve one client until it closes its end, or the process is told to stop; both are good ends."""
    take_token_file()  # nothing that a gateway starts is a person's
    if sys.stdin is not None and sys.stdin.isatty():
        print("pml: this is for an MCP client to start; `pml call` is for people", file=sys.stderr)
    try:
        return asyncio.run(until_done(_serve(workspace, shows_forms=shows_forms)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    except PmlError as exc:
        from pml.cli.exits import exit_of
        from pml.cli.terminal.output import print_error

        print_error(exc, as_json=False)
        return exit_of(exc)


async def _serve(workspace: str | None, *, shows_forms: bool) -> int:
    place = find_place(workspace)

    async def open_gateway(connection: "Connection", era: "Era", stack: AsyncExitStack) -> "Answering":
        from pml import app_gateway

        return await app_gateway.open_gateway(place, connection, era, stack, shows_forms=shows_forms)

    await serve_stdio(open_gateway, debug=is_debugging())
    return 0
