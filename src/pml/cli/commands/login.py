"""`pml login`: a person logs in to a remote server in the browser; tokens go to PML, and are never shown."""

import argparse
import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, local_time, print_json, say
from pml.cli.verbs.verbs import add_common
from pml.core.approvals.record import instant
from pml.core.errors import PmlError
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.core.approvals.record import Approval
    from pml.core.ports.server_logins import HeldLogin, LoginWish, OnLogin
    from pml.oauth.open_logins import OpenLogins

EXAMPLES = """Opens the login page of the server in the browser; its answer comes to a port of this machine.
Tokens go to the keyring or, where none serves, to a file only you can read. They are sent to the server only,
and end with `pml logout`. Calls that wait for the login continue.

examples:
  pml login linear                        in the browser of this machine
  pml login linear --callback-port 8765   where the server wants a fixed address to come back to
  pml login linear --paste                over SSH: open the page anywhere, paste the address it ends at

exit codes: 0 logged in, 1 not logged in, 2 usage, 5 no such server, 130 given up"""

_PASTE: Final = (
    """  then paste the whole address that the browser ends at, also if it shows an error there:"""
)
_KEY: Final = "terminal"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    parser.add_argument("name", metavar="NAME", help="the server, as `pml servers list` names it")
    parser.add_argument(
        "--callback-port", type=_port, metavar="N", help="the port that the browser comes back to"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")
    parser.add_argument(
        "--paste", action="store_true", help="take the address that the browser ends at from this terminal"
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1024 <= int(text) <= 65535):
        raise argparse.ArgumentTypeError("a port is a number from 1024 to 65535")
    return int(text)


async def run(args: argparse.Namespace) -> int:
    """Raises: NotFound, Invalid, MayNotDecide, LoginFailed, Unavailable."""
    from pml.app import find_place, open_logins, open_server_logins, person
    from pml.service.policy.policy import current_policy
    from pml.service.servers.server_logins import login_wish, note_login, remote_server

    place = find_place(args.workspace)
    async with opened(args) as context:
        await guard(context, args)
        spec = remote_server(await current_policy(context, str(place.workspace)), args.name)
        wish = login_wish(spec, callback_port=args.callback_port)
        released: list[Approval] = []

        async def logged_in(held: "HeldLogin") -> None:
            released.extend(await note_login(context, spec, held.login, by=person()))

        logins = open_logins(place)
        try:
            await _log_in(args, logins, wish, logged_in)
        finally:
            await logins.close()
    kept = await asyncio.to_thread(open_server_logins(place).find, wish.server, wish.url)
    if kept is not None:
        _tell(args, kept, released)
    return Exit.OK


async def _log_in(
    args: argparse.Namespace, logins: "OpenLogins", wish: "LoginWish", on_login: "OnLogin"
) -> None:
    complain(f"asking {visible(wish.shown_url)} where to log in …")
    url = await logins.begin(_KEY, wish, on_login)
    is_paste = args.paste or _is_remote_shell()
    is_opened = not args.no_browser and not is_paste and await asyncio.to_thread(_open, url)
    complain("finish the login in the browser:" if is_opened else "open this page in a browser:")
    complain(f"  {visible(url)}")
    if is_paste:
        complain(_PASTE)
        _read_pasted(logins)
    complain("waiting for the login; Ctrl-C gives it up")
    await logins.finished(_KEY)


def _is_remote_shell() -> bool:
    """Tell whether the browser would be another machine's, and could not come back to this one."""
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return bool(os.environ.get("SSH_CONNECTION")) and not has_screen


def _open(url: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _read_pasted(logins: "OpenLogins") -> None:
    """Read addresses from this terminal until one belongs to the login; the browser may be faster."""
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        try:
            logins.paste(_KEY, line)
        except PmlError as exc:
            complain(f"pml: {visible(exc.message)}" + (f" ({visible(exc.hint)})" if exc.hint else ""))

    def read() -> None:
        for line in sys.stdin:  # ends with the terminal, or with this process
            if line.strip():
                loop.call_soon_threadsafe(take, line.strip())

    threading.Thread(target=read, daemon=True).start()


def _tell(args: argparse.Namespace, kept: "HeldLogin", released: "list[Approval]") -> None:
    login = kept.login
    if args.json:
        print_json(
            {
                "server": login.server,
                "issuer": login.issuer,
                "scope": login.scope,
                "expires_at": None if login.expires_at is None else instant(login.expires_at),
                "is_refreshed": login.can_refresh,
                "continued": [record.id for record in released],
            }
        )
        return
    say(f"logged in to {login.server} at {quote(login.issuer)}")
    if login.expires_at is not None:
        refreshed = ", refreshed by itself" if login.can_refresh else ""
        say(f"  until {local_time(login.expires_at)}{refreshed}")
    if login.scope:
        say(f"  it may be used for: {visible(login.scope)}")
    if released:
        say(f"  {len(released)} waiting call{'s' if len(released) > 1 else ''} can continue")
