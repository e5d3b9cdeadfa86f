"""`pml cloud`: serves a folder of capabilities as a registry, and runs them for others if it is asked to."""

import argparse
import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit, exit_of
from pml.cli.interrupts import until_done
from pml.cli.options import port_number
from pml.cli.terminal.output import complain, complain_prose, count, print_error, print_json, say, say_prose
from pml.core.errors import Invalid, NotFound, PmlError
from pml.core.ports.cloud import KEY
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.app import Place
    from pml.registry.cloud.served_calls import Calls
    from pml.registry.folder import RegistryFolder

EXAMPLES = """Only sound entries are served, and nothing can be written. `pml publish` fills the folder.
With `--execute`, everyone with a token can run tools here, by the rules of the workspace.

examples:
  pml cloud --folder registry                   on this machine, port 4446
  pml cloud --folder registry --port 0 --json   on any free port, printed as JSON
  pml cloud --folder registry --execute         also runs capabilities for others"""
DEFAULT_PORT: Final = 4446


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--folder", metavar="DIR", required=True, help="the registry's folder")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=port_number,
        default=DEFAULT_PORT,
        help=f"port; 0 picks a free one (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--execute",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="run tools for those who have a token (default: no)",
    )
    parser.add_argument(
        "--workspace", metavar="DIR", help="whose rules hold for what runs (default: the working directory)"
    )
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
    """Raises: NotFound, Unavailable."""
    from pml.app import find_place, is_debugging
    from pml.registry.cloud.registry_server import registry_app
    from pml.registry.folder import RegistryFolder
    from pml.web.connections import Limits
    from pml.web.hosts import is_loopback
    from pml.web.http_server import listen, serve, url_of

    folder = RegistryFolder(_folder(args.folder))
    place = find_place(args.workspace) if args.execute else None
    served = _warn_of_unsound(folder)
    is_local = is_loopback(args.host)
    debug = complain if is_debugging() else _nothing
    with listen(args.host, args.port) as listening:
        async with _open_calls(place, folder.path) as calls:
            app = registry_app(folder, only_local=is_local, debug=debug, calls=calls)
            url = url_of(listening)
            if args.json:
                print_json(
                    {"url": url, "folder": str(folder.path), "entries": served, "executes": args.execute}
                )
            else:
                _tell(url, folder.path, served, place, is_local=is_local)
            await serve(
                app,
                listening,
                limits=Limits(answers_last=calls is not None),  # a tool takes as long as it takes
                on_stop=None if calls is None else calls.stop,
            )
    return Exit.OK


@contextlib.asynccontextmanager
async def _open_calls(place: "Place | None", folder: Path) -> "AsyncGenerator[Calls | None]":
    """Yield what runs tools in `place`; nothing without one."""
    if place is None:
        yield None
        return
    from pml.app_cloud import open_cloud
    from pml.registry.cloud.served_calls import Calls

    async with open_cloud(place, folder=folder, warn=_warn) as executor:
        calls = Calls(executor, warn=_warn)
        try:
            yield calls
        finally:
            await calls.close()


def _folder(given: str) -> Path:
    path = Path(given)
    if not path.is_dir():
        raise NotFound(f"there is no folder {quote(given)}", hint="`pml publish … --to DIR` makes one")
    return path.resolve()


def _warn_of_unsound(folder: "RegistryFolder") -> int:
    """Tell of the entries that are not served, and return how many are."""
    from pml.registry.entry_forms import Form, MetadataReader

    reader, served = MetadataReader(), 0
    for name in folder.names():
        try:
            body = folder.read(name, Form.METADATA)
            if body is not None:
                reader.read(body, name, source=str(folder.path))
                served += 1
        except Invalid as exc:
            complain(f"warning: not served: {visible(exc.message)}")
    return served


def _tell(url: str, folder: Path, served: int, place: "Place | None", *, is_local: bool) -> None:
    say_prose(f"serving {count(served, 'entry', 'entries')} of {visible(str(folder))} at {url}")
    cloud = "" if place is None else f' and "cloud": "{url}"'
    if is_local:
        say(f'  use it with "registry": "{url}"{cloud} in .pml.json or in the user\'s config.json')
    else:
        complain_prose("warning: everyone who reaches this machine can read the registry")
        say_prose("  other machines take a registry only by https: put a proxy with a certificate before it")
    if place is not None:
        _tell_of_running(place, is_local=is_local)
    say("  Ctrl-C ends it")


def _tell_of_running(place: "Place", *, is_local: bool) -> None:
    rules = f"{visible(str(place.workspace / '.pml.json'))} and {visible(str(place.home / 'config.json'))}"
    words = ["pml", "token", "create", "--role", "session", "--name", "NAME"]
    command = shlex.join([*words, "--workspace", visible(str(place.workspace))])
    if not is_local:
        complain_prose("warning: tokens and calls reach this port unencrypted: let only the proxy reach it")
    say_prose(f"  IT RUNS TOOLS for everyone with a token, by the rules of {rules}")
    say_prose(f"  a token: `{command}`; its holder keeps it with `pml secrets set {KEY}`")


def _warn(line: str) -> None:
    complain(f"warning: {line}")


def _nothing(line: str) -> None:
    """Debugging is off."""
