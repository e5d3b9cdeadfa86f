"""Undoing an import: what it added is removed where it is still as it was written; nothing else changes."""

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pml.cli.additions.removal import forget_secrets, remove_added
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.terminal.output import complain, count, print_json, say
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.core.config.file import FileKind
from pml.core.errors import NotFound, PmlError
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.app import Place
    from pml.service.context import Context
    from pml.settings.import_records import ImportRecord, ReplacedFile


async def undo_last(context: "Context", place: "Place", args: argparse.Namespace) -> int:
    """Raises: NotFound if nothing was imported; Invalid, ConfigInvalid, Unavailable."""
    from pml.settings.import_records import ImportRecords

    records = ImportRecords(place.home)
    record = records.last()
    if record is None:
        raise NotFound("there is no import to undo")
    if not args.json:
        _show(record)
    code = _agreed(args)
    removed: list[str] = []
    if code is Exit.OK and not args.dry_run:
        await guard(context, args)
        removed = await take_back(context, place, record)
        records.forget(record)
    if args.json:
        names = [*record.entries, *record.added]
        print_json({"imported": names, "removed": removed, "file": record.file, "secrets": [*record.secrets]})
    elif code is Exit.OK and not args.dry_run:
        say(f"removed {count(len(removed), 'server')}")
        for name in {*record.entries, *record.added} - {*removed}:
            complain(f"  {visible(name)} was changed or removed since, and is left as it is")
    return code


async def take_back(context: "Context", place: "Place", record: "ImportRecord") -> list[str]:
    """Remove what an import added; return the names of the servers. Raises: ConfigInvalid, Unavailable."""
    from pml.app import person
    from pml.service.policy.server_entries import remove_servers

    for file in reversed(record.replaced):
        await asyncio.to_thread(_put_back, file)
    which = FileKind.WORKSPACE if record.is_workspace_file else FileKind.USER
    removed = await remove_servers(
        context, record.workspace, record.entries, which=which, by=person(), why="import undone"
    )
    added = [
        name
        for name in record.added
        if await remove_added(context, place, name, files=name in record.installed)
    ]
    await forget_secrets(context, place, record.secrets)
    return [*removed, *added]


def _put_back(file: "ReplacedFile") -> None:
    """Give a client's file its old content, if it is still what the import left. Raises: Unavailable."""
    from pml.agents.server_lists import read_text, remove_copy, replace_text
    from pml.settings.watched_file import digest_of

    path, backup = Path(file.path), Path(file.backup)
    try:
        now, old = read_text(path), read_text(backup)
    except PmlError as exc:
        complain(f"warning: {visible(exc.message)}")
        return
    if now is None or old is None:
        return
    if digest_of(old.encode()) != file.was:
        complain(f"warning: {visible(str(backup))} has changed since the import, and is not given back")
        return
    if now != old and digest_of(now.encode()) != file.digest:
        complain(f"warning: {visible(str(path))} has changed since; what it had is in {visible(str(backup))}")
        return
    if now != old:
        replace_text(path, old, was=now)
    remove_copy(backup)


def _show(record: "ImportRecord") -> None:
    say(f"the import of {record.at.astimezone():%Y-%m-%d %H:%M} would be taken back:")
    for name in (*record.entries, *record.added):
        say(f"  server {visible(name)}")
    for name in record.secrets:
        say(f"  secret {visible(name)}, which it stored")
    for file in record.replaced:
        say(f"  {visible(file.path)} gets its old content back")


def _agreed(args: argparse.Namespace) -> Exit:
    if args.dry_run or args.yes:
        return Exit.OK
    if args.json or not is_interactive():
        complain("pml: nobody is there to answer; to take it back, add `--yes`")
        return Exit.PENDING
    if confirm("\nTake it back?"):
        return Exit.OK
    say("nothing was changed")
    return Exit.DENIED
