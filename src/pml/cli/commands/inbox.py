"""`pml inbox`: what waits and answering it, on this terminal or, by a link, in the browser."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, print_json, say
from pml.cli.terminal.prompts import is_interactive
from pml.cli.verbs.verbs import add_common
from pml.core.errors import Invalid, Unavailable
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.hub.presence import Presence
    from pml.service.context import Context

EXAMPLES: Final = """A link opens once, within an hour, and logs the browser that opens it in for 30 days.
`pml token list` shows who is logged in, `pml token revoke` ends it.

examples:
  pml inbox                    on this terminal
  pml inbox --open             in the browser
  pml inbox --link             print a link for a browser, here or on the machine you came from by SSH
  pml inbox --link --name ana  for a colleague, whose answers the history tells apart from yours
  pml inbox --link --json | jq -r .login_url"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--link", action="store_true", help="print a link that logs a browser in, once")
    where.add_argument("--open", action="store_true", help="open the inbox in the browser, logged in")
    parser.add_argument(
        "--name", metavar="NAME", help="with --link: whom it logs in, as the history will tell (default: you)"
    )
    add_common(parser)


async def run(args: argparse.Namespace) -> int:
    if args.name is not None and not args.link:
        raise Invalid("--name goes with --link")
    if args.link or args.open:
        return await _link(args)
    return await _screen(args)


async def _screen(args: argparse.Namespace) -> int:
    """Raises: MayNotDecide beneath an agent, Invalid where there is no terminal."""
    from pml.app import find_place, person, user_name

    async with opened(args) as context:
        await guard(context, args)
        screen = sys.__stderr__  # what Textual draws on
        if args.json or not is_interactive() or screen is None or not screen.isatty():
            raise Invalid("the inbox needs a terminal", hint="`pml approvals list` prints what waits")
        from pml.screen.app import run_inbox

        who = visible(user_name())
        workspace = str(find_place(args.workspace).workspace)
        return await run_inbox(
            context, by=person(), who=who, workspace=workspace, store_key=_keeper(args, context)
        )


def _keeper(args: argparse.Namespace, context: "Context") -> Callable[[str, str], Awaitable[str]]:
    """Return what stores a value that a server needs, and tells where."""
    from pml.app import find_place, open_variables, person
    from pml.core.audit.entries import secret_changed
    from pml.settings.secrets import check_name

    async def store(name: str, value: str) -> str:
        check_name(name)
        secrets = open_variables(find_place(args.workspace)).secrets
        stored = await asyncio.to_thread(secrets.store, name, value)
        await context.store.audit.record(secret_changed(name, "stored", at=context.clock.now(), by=person()))
        where = "the keyring" if stored.problem is None else visible(str(secrets.path))
        return f"stored {name} in {where}"

    return store


async def _link(args: argparse.Namespace) -> int:
    """Raises: MayNotDecide beneath an agent, Unavailable if no hub runs."""
    from pml.app import find_place, person, user_name
    from pml.service.sessions.logins import login_link, make_login

    async with opened(args) as context:
        await guard(context, args)
        hub = _running(args)
        name = user_name() if args.name is None else args.name
        link = login_link(hub.page or hub.url, await make_login(context, name=name, by=person()))
    is_open = args.open and _opens(link, find_place(args.workspace).home)
    if args.json:
        print_json({"login_url": link})
    elif is_open:
        say(f"opened {hub.page or hub.url} in the browser")
    else:
        say(link)
        complain("  it opens once, within an hour")
    return Exit.OK


def _running(args: argparse.Namespace) -> "Presence":
    """Raises: Unavailable."""
    from pml.app import find_place
    from pml.hub.presence import running_hub

    hub = running_hub(find_place(args.workspace).home)
    if hub is None:
        raise Unavailable("no hub is running", hint="start one with `pml serve`")
    return hub


def _opens(link: str, home: Path) -> bool:
    """Open the browser; False where there is none, as over SSH.

    It is given a private file that leads to the link: every user of the machine can read command lines.
    """
    import webbrowser

    from pml.hub.presence import put_link

    try:
        return webbrowser.open(put_link(home, link).as_uri())
    except webbrowser.Error:
        return False
