"""`pml servers logs`: what a server of this workspace wrote to stderr, and what PML noted about it."""

import argparse
import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from pml.cli.exits import Exit
from pml.cli.opening import opened
from pml.cli.output import print_json, say
from pml.cli.results import print_foreign
from pml.cli.standing import all_standing
from pml.cli.verbs import page_size
from pml.core.errors import NotFound
from pml.core.text import quote
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.service.desk import Desk

_LOOK_S: Final = 0.2  # a log is read by people; nobody sees a shorter wait
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
    from pml.app import find_place

    async with opened(args) as desk:
        path = await _path(desk, find_place(args.workspace), args.name)
    if args.follow:
        await _follow(path, lines=args.lines, as_json=args.json)
    if not path.exists():
        raise NotFound(
            f"server {quote(args.name)} has written nothing yet", hint="it is logged once it starts"
        )
    lines = _tail(path, args.lines)
    if args.json:
        print_json({"name": args.name, "path": str(path), "lines": lines})
        return Exit.OK
    for line in lines:
        print_foreign(line)
    return Exit.OK


async def logs_json(desk: "Desk", place: "Place", name: str, limit: int) -> JsonObject:
    """Return the last lines that a server of the workspace wrote; none yet is no error. Raises: NotFound."""
    path = await _path(desk, place, name)
    return {"name": name, "path": str(path), "lines": await asyncio.to_thread(_tail, path, limit)}


async def _path(desk: "Desk", place: "Place", name: str) -> Path:
    """Return where the server's log is: as it is configured now, or as it still runs. Raises: NotFound."""
    from pml.service.policy import current_policy
    from pml.upstream.log import log_path

    found = await all_standing(desk, place, await current_policy(desk, str(place.workspace)))
    own = [standing for standing in found if standing.name == name]
    if not own:
        hint = "`pml servers list` shows all there are"
        raise NotFound(f"no server {quote(name)} in this workspace", hint=hint)
    launches = [standing.launch for standing in own if standing.launch is not None]
    if not launches:
        raise NotFound(f"server {quote(name)} cannot be started: {own[0].problem}")
    paths = [log_path(place.home, name, launch) for launch in launches]
    return next((path for path in paths if path.exists()), paths[0])


def _tail(path: Path, count: int) -> list[str]:
    """Return the last lines of the log and of the older part beside it; both are small."""
    lines: list[str] = []
    for part in (_older(path), path):
        with contextlib.suppress(FileNotFoundError), part.open("rb") as file:
            lines += _whole_lines(file)
    return lines[-count:]


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


async def _follow(path: Path, *, lines: int, as_json: bool) -> None:
    """Print what there is and what comes, until interrupted; a log that begins anew is followed on."""
    before = _tail(_older(path), lines)
    limit: int | None = lines
    while True:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while True:
                found = [*before, *_whole_lines(file)]
                for line in found if limit is None else found[-limit:]:
                    _tell(line, as_json=as_json)
                before, limit = [], None
                if not _is_same(path, file):
                    break
                await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_LOOK_S)


def _whole_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines that have been written to their end; the rest is read again."""
    while (line := file.readline()).endswith(b"\n"):
        yield line[:-1].decode(errors="replace")
    file.seek(-len(line), 1)


def _is_same(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _tell(line: str, *, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"line": line}))
    else:
        print_foreign(line)
