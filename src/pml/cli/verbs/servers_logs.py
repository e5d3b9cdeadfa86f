"""`pml servers logs`: what a server of this workspace wrote to stderr, and what PML noted about it."""

import argparse
import asyncio
import json
from typing import Final

from pml.cli.exits import Exit
from pml.cli.open_context import opened
from pml.cli.terminal.output import print_json, say
from pml.cli.terminal.results import print_foreign
from pml.cli.verbs.verbs import page_size
from pml.core.errors import NotFound
from pml.core.text import quote

_EPILOG: Final = """examples:
  pml servers logs github
  pml servers logs github --lines 500
  pml servers logs github --follow"""


def configure_logs(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="the server")
    parser.add_argument("--lines", type=page_size, default=50, metavar="N", help="the last N (default: 50)")
    parser.add_argument(
        "--follow", action="store_true", help="follow what is written, with --json an object a line"
    )


async def show_logs(args: argparse.Namespace) -> int:
    """Raises: NotFound if no such server is known, or nothing was written yet."""
    from pml.app import find_place, open_server_host
    from pml.service.servers.logs import find_log

    place = find_place(args.workspace)
    async with opened(args) as context:
        log = await find_log(context, open_server_host(place), str(place.workspace), args.name)
    if args.follow:
        async for line in log.follow(args.lines):  # until interrupted
            _print_line(line, as_json=args.json)
    if not log.exists():
        raise NotFound(
            f"server {quote(args.name)} has written nothing yet", hint="it is logged once it starts"
        )
    lines = await asyncio.to_thread(log.tail, args.lines)
    if args.json:
        print_json({"name": args.name, "path": log.path, "lines": lines})
        return Exit.OK
    for line in lines:
        print_foreign(line)
    return Exit.OK


def _print_line(line: str, *, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"line": line}))
    else:
        print_foreign(line)
