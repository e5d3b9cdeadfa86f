"""`pml serve`: the hub, where sessions meet, until it is interrupted. What waits is kept in the store."""

import argparse
import asyncio
import contextlib
import os
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit, exit_of
from pml.cli.guards import guard, is_person
from pml.cli.interrupts import until_done
from pml.cli.options import port_number
from pml.cli.terminal.output import complain_prose, count, print_error, print_json, say, say_prose
from pml.core.errors import Invalid, PmlError, Unavailable
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.service.context import Context
    from pml.web.http_server import Tls

EXAMPLES = """It prints a link that opens the inbox in a browser, once. Scripts send a token that
`pml token create` makes. Only this machine reaches the hub, unless `--host` says otherwise, and then
only with a certificate or `--insecure`.

examples:
  pml serve                                        on this machine, port 4445
  pml serve --port 0 --json                        on any free port, printed as JSON
  pml serve --host 0.0.0.0 --allow-host hub.example --tls-cert hub.pem --tls-key hub.key

exit codes: 0 stopped, 1 failed, 2 usage"""
DEFAULT_PORT: Final = 4445


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--port",
        type=port_number,
        default=DEFAULT_PORT,
        help=f"port; 0 picks a free one (default: {DEFAULT_PORT})",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name that clients call the hub by, with its port if that is another",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="serve https with this certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="and this key (PEM)")
    parser.add_argument(
        "--insecure", action="store_true", help="let tokens travel unencrypted to other machines"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the workspace (default: the working directory)")
    parser.add_argument("--json", action="store_true", help="print one JSON object when it is ready")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted, which is a good end."""
    try:
        return asyncio.run(until_done(_serve(args)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return Exit.OK
    except PmlError as exc:
        print_error(exc, as_json=args.json)
        return exit_of(exc)


async def _serve(args: argparse.Namespace) -> int:
    """Raises: Invalid, MayNotDecide beneath an agent, Conflict if a hub runs, Unavailable."""
    from pml.app import find_place, open_context, person, user_name
    from pml.app_hub import open_hub
    from pml.hub.listeners import listen_as_hub, serve_hub
    from pml.hub.origins import allowed_names
    from pml.hub.presence import Presence, sole_hub
    from pml.service.sessions.logins import login_link, make_login
    from pml.web.http_server import url_of

    tls = _tls(args)
    if tls is not None:
        _check_usable(tls)
    place = find_place(args.workspace)
    async with open_context(place) as context:
        await guard(context, args)
        has_person = await is_person(context, args)  # whoever opens the link becomes one
        await warn_broken(context, str(place.workspace))

    with sole_hub(place.home) as announce, listen_as_hub(args.host, args.port) as listening:
        scheme = "http" if tls is None else "https"
        url = url_of(listening, scheme=scheme)
        address, port = listening.getsockname()[:2]
        allowed = allowed_names(args.host, address, port, scheme=scheme, more=args.allow_host)
        async with open_hub(place, url=url, allowed=allowed) as hub:
            since = hub.context.clock.now()
            page = allowed.public if _is_reached_elsewhere(args, port) else None
            announce(Presence(url=url, pid=os.getpid(), started_at=since, page=page))
            login_url = None
            if has_person:
                login = await make_login(hub.context, name=user_name(), by=person())
                login_url = login_link(page or url, login)
            _tell(url, args, home=str(place.home), login_url=login_url)
            try:
                await serve_hub(hub.app, listening, on_stop=hub.stop, tls=tls)
            finally:
                await _tell_left(hub.context, since=since)
    return Exit.OK


def _tls(args: argparse.Namespace) -> "Tls | None":
    """Return the certificate. Raises: Invalid if the hub would be open to other machines without one."""
    from pml.web.hosts import is_loopback
    from pml.web.http_server import Tls

    if (args.tls_cert is None) != (args.tls_key is None):
        raise Invalid("--tls-cert and --tls-key go together")
    if args.tls_cert is not None:
        if args.insecure:
            raise Invalid("--insecure is for serving without a certificate")
        return Tls(certificate=args.tls_cert, key=args.tls_key)
    if not is_loopback(args.host) and not args.insecure:
        raise Invalid(
            f"on {quote(args.host)} other machines reach the hub, and tokens would travel unencrypted",
            hint="give --tls-cert and --tls-key, or accept it with --insecure",
        )
    return None


def _is_reached_elsewhere(args: argparse.Namespace, port: int) -> bool:
    """Whether people open the hub by its other name: other machines reach it, or a proxy before it."""
    from pml.web.hosts import is_loopback

    is_proxied = any(":" in name and not name.endswith(f":{port}") for name in args.allow_host[:1])
    return is_proxied or not is_loopback(args.host)


def _check_usable(tls: "Tls") -> None:
    """Raise Unavailable, naming the file, for a certificate or a key that cannot be served with."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    hint = "both must be PEM files, and the key not locked with a passphrase"
    what, path = "certificate", tls.certificate
    try:
        with open(path, "rb"):
            context.load_verify_locations(path)
        what, path = "key", tls.key
        with open(path, "rb"):
            context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except OSError as exc:  # an SSLError is one
        why = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
        raise Unavailable(f"cannot use the {what} {quote(path)}: {why or exc}", hint=hint) from exc


async def warn_broken(context: "Context", workspace: str) -> None:
    """Tell of files whose rules and servers cannot be read."""
    from pml.service.policy.policy import current_policy

    for error in (await current_policy(context, workspace)).broken:
        complain_prose(
            f"warning: {visible(error.message)}; until it is fixed its denies and servers are unknown"
        )


async def _tell_left(context: "Context", *, since: datetime) -> None:
    """Tell which agents of other terminals are left without a hub.

    Those that were launched before this hub began may have one of their own.
    """
    with contextlib.suppress(PmlError):  # it ends all the same
        left = [
            run.session_id
            for run in await context.store.runs.live()
            if run.owner != context.owners.me and run.started_at >= since and context.owners.alive(run.owner)
        ]
        sessions = [await context.store.sessions.get(session_id) for session_id in left]
        names = [visible(session.name) for session in sessions if session is not None]
        if names:
            agents = count(len(names), "agent")
            verbs = "runs and can" if len(names) == 1 else "run and can"
            complain_prose(
                f"pml: stopped; {agents} ({', '.join(names)}) still {verbs} use no tool "
                "until a hub runs on this port again"
            )


def _tell(url: str, args: argparse.Namespace, *, home: str, login_url: str | None) -> None:
    if args.json:
        print_json(
            {"url": url, "mcp": f"{url}/mcp", "pid": os.getpid(), "home": home, "login_url": login_url}
        )
        return
    if args.insecure:
        complain_prose("warning: anyone who listens on the network in between can read tokens and use them")
    say_prose(f"the hub of {visible(home)} serves at {url}")
    if login_url is None:
        say_prose("  inbox   `pml inbox --link`, in a terminal of yours, prints a link")
    else:
        say(f"  inbox   {login_url}")
        say_prose("          (opens once, within an hour; `pml inbox --link` prints another)")
    say_prose("  pml launch --loopback -- claude -p '…'   an agent that asks here")
    say_prose("  pml inbox                                what waits, on a terminal")
    say("  Ctrl-C ends it; what waits is kept")
