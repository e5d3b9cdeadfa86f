"""`pml cloud`: serves a folder of capabilities as a registry, read-only, until it is interrupted."""

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit, exit_of
from pml.cli.output import complain, count, print_error, print_json, say
from pml.cli.parsing import port_number
from pml.cli.running import until_done
from pml.core.errors import Invalid, NotFound, PmlError
from pml.core.text import quote, visible

if TYPE_CHECKING:
    from pml.registry.folder import RegistryFolder

EXAMPLES = """Only sound entries are served, and nothing can be written. `pml publish` fills the folder.

examples:
  pml cloud --folder registry                   on this machine, port 4446
  pml cloud --folder registry --port 0 --json   on any free port, printed as JSON"""
DEFAULT_PORT: Final = 4446


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--folder", metavar="DIR", required=True, help="the registry's folder")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=port_number, default=DEFAULT_PORT, help=f"0 takes any (default: {DEFAULT_PORT})"
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
    from pml.app import is_debugging
    from pml.registry.folder import RegistryFolder
    from pml.registry.server import registry_app
    from pml.web.hosts import is_loopback
    from pml.web.serving import listen, serve, url_of

    folder = RegistryFolder(_folder(args.folder))
    served = _warn_of_unsound(folder)
    is_local = is_loopback(args.host)
    app = registry_app(folder, only_local=is_local, debug=complain if is_debugging() else _nothing)
    with listen(args.host, args.port) as listening:
        url = url_of(listening)
        if args.json:
            print_json({"url": url, "folder": str(folder.path), "entries": served})
        else:
            _tell(url, folder.path, served, is_local=is_local)
        await serve(app, listening)
    return Exit.OK


def _folder(given: str) -> Path:
    path = Path(given)
    if not path.is_dir():
        raise NotFound(f"there is no folder {quote(given)}", hint="`pml publish … --to DIR` makes one")
    return path.resolve()


def _warn_of_unsound(folder: "RegistryFolder") -> int:
    """Tell of the entries that are not served, and return how many are."""
    from pml.registry.entries import Form, MetadataReader

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


def _tell(url: str, folder: Path, served: int, *, is_local: bool) -> None:
    say(f"serving {count(served, 'entry', 'entries')} of {visible(str(folder))} at {url}")
    if is_local:
        say(f'  use it with "registry": "{url}" in .pml.json or in the user\'s config.json')
    else:
        complain("warning: whoever reaches this machine can read the registry")
        say("  other machines take a registry only by https: put a proxy with a certificate before it")
    say("  Ctrl-C ends it")


def _nothing(line: str) -> None:
    """Debugging is off."""
