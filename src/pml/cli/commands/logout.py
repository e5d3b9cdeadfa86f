"""`pml logout`: the tokens of a remote server are revoked where they come from, and forgotten here."""

import argparse
import asyncio
from typing import Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, print_json, say
from pml.cli.verbs.verbs import add_common
from pml.core.errors import NotFound
from pml.core.text import quote, visible

EXAMPLES: Final = """The tokens are revoked at the server that gave them, where it does that, and removed
from this machine.

examples:
  pml logout linear

exit codes: 0 ok, 1 removed here but not revoked, 5 not logged in"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    parser.add_argument("name", metavar="NAME", help="the server")


async def run(args: argparse.Namespace) -> int:
    """Raises: NotFound, MayNotDecide, Unavailable."""
    from pml.app import find_place, open_server_logins, person
    from pml.oauth.revocation import revoke_login
    from pml.service.servers.server_logins import note_logout

    logins = open_server_logins(find_place(args.workspace))
    async with opened(args) as context:
        await guard(context, args)
        own = [login for login in await asyncio.to_thread(logins.all) if login.server == args.name]
        if not own:
            raise NotFound(
                f"PML is not logged in to {quote(args.name)}", hint="`pml servers status` shows all logins"
            )
        problems: list[str] = []
        for login in own:
            held = await asyncio.to_thread(logins.read, login.key)
            problem = None if held is None else await revoke_login(held)
            problems += [] if problem is None else [problem]
        left = await asyncio.to_thread(logins.forget, args.name)
        problems += [] if left is None else [f"a token may still be in the keyring: {left}"]
        for login in own:
            await note_logout(context, login, by=person())
    if args.json:
        print_json({"server": args.name, "logged_out": [login.issuer for login in own], "problems": problems})
    else:
        say(f"logged out of {visible(args.name)}: its tokens are gone from this machine")
        for problem in problems:
            complain(f"  {visible(problem)}")
    return Exit.FAILED if problems else Exit.OK
