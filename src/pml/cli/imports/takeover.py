"""Taking over what was shown: secrets, installs, and the file's entries, in one step that can be undone."""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.imports.found import FoundServers, find_servers, servers_of
from pml.cli.imports.preview import preview_json, show_preview, show_removal
from pml.cli.imports.proposed_installs import ProposedInstalls, propose_installs
from pml.cli.imports.reversal import take_back
from pml.cli.terminal.output import complain, count, print_json, say
from pml.cli.terminal.prompts import confirm, is_interactive
from pml.cli.verbs.installs import Installs
from pml.core.config.file import FileKind
from pml.core.imports.client_files import ClientServer
from pml.core.imports.import_plan import Outcome
from pml.core.text import visible
from pml.core.values import Json

if TYPE_CHECKING:
    from pml.app import Place
    from pml.service.context import Context
    from pml.settings.import_records import ReplacedFile


@dataclass(frozen=True, kw_only=True)
class _Edit:
    """A client's file without what was taken over."""

    path: Path
    servers: Sequence[ClientServer]
    before: str = field(repr=False)
    after: str = field(repr=False)


async def take_over(context: "Context", place: "Place", args: argparse.Namespace) -> int:
    """Show what would be taken over, ask, and do it. Raises: as `pml import`."""
    from pml.service.policy.policy import current_policy

    policy = await current_policy(context, str(place.workspace))
    found = await asyncio.to_thread(find_servers, place, args)
    found, proposed = await propose_installs(Installs(context, place, policy), found)
    installs = {name: proposed.facts(name) for name in proposed.proposals}
    edits = _edits(found) if args.replace else []
    if not args.json:
        show_preview(found, proposed.rows(context.clock.now()))
        for edit in edits:
            show_removal(edit.path, edit.before, edit.servers)
    code, moves = _agreed(args, found, edits)
    if edits and not moves:
        shown = {str(edit.path): edit.before for edit in edits}
        edits = _edits(found, but_secrets=shown)  # their values are nowhere else
    if code is not Exit.OK or args.dry_run or not (found.taken or edits):
        if args.json:
            print_json(preview_json(found, installs=installs, moved=None, written=False))
        return code
    await guard(context, args)  # an agent may have come while the question was open
    moved = await _carry_out(context, place, found, edits, proposed, moves=moves)
    if args.json:
        print_json(preview_json(found, installs=installs, moved=moved, written=True))
    else:
        _tell(found, moved, edits)
    return code


def _agreed(args: argparse.Namespace, found: FoundServers, edits: Sequence[_Edit]) -> tuple[Exit, bool]:
    """Return OK if all of it is to be taken over, and whether secrets are to be moved."""
    taken = found.taken
    secrets = {secret.name for each in taken for secret in each.secrets}
    if args.dry_run or not (taken or edits):
        return Exit.OK, False
    if args.yes:
        return Exit.OK, args.move_secrets
    if args.json or not is_interactive():
        complain("pml: nobody is there to answer; to take them over, add `--yes`")
        return Exit.PENDING, False
    files = f" and take them out of {count(len(edits), 'file')}" if edits else ""
    if not confirm(f"\nTake over {count(len(taken), 'server')} into {visible(found.file)}{files}?"):
        say("nothing was changed")
        return Exit.DENIED, False
    if not secrets:
        return Exit.OK, False
    return Exit.OK, confirm(f"Move {', '.join(sorted(secrets))} to `pml secrets`?")


async def _carry_out(
    context: "Context",
    place: "Place",
    found: FoundServers,
    edits: Sequence[_Edit],
    proposed: ProposedInstalls,
    *,
    moves: bool,
) -> dict[str, str]:
    """Do it, or nothing of it; return where each secret went."""
    from pml.app import person
    from pml.service.policy.server_entries import add_servers
    from pml.settings.import_records import ImportRecord, ImportRecords

    records = ImportRecords(place.home)
    entries: dict[str, Json] = {
        each.name: each.entry for each in found.taken if each.outcome is Outcome.TAKEN
    }
    secrets = _to_move(place, found) if moves else {}
    record = ImportRecord(
        at=context.clock.now(),
        file=found.file,
        workspace=str(place.workspace),
        is_workspace_file=found.which is FileKind.WORKSPACE,
        entries=entries,
        added=tuple(proposed.proposals),
        installed=tuple(name for name in proposed.proposals if proposed.is_new(name)),
        secrets=tuple(secrets),
        replaced=tuple(_kept(edit) for edit in edits),
    )
    records.add(record)  # first: what a crash leaves can be taken back
    try:
        moved = await _store(context, place, secrets)
        for name in proposed.proposals:
            await proposed.carry_out(name)
        if entries:
            await add_servers(
                context,
                str(place.workspace),
                entries,
                which=found.which,
                by=person(),
                why="imported",
            )
        _replace(edits)
    except BaseException:
        await asyncio.shield(take_back(context, place, record))
        await asyncio.shield(proposed.take_away(record.installed))
        records.forget(record)
        raise
    return moved


def _to_move(place: "Place", found: FoundServers) -> dict[str, str]:
    """Return the values to store; one that is there already with another value is kept, and told of."""
    from pml.app import open_variables

    stored = open_variables(place).secrets
    values: dict[str, str] = {}
    for each in found.taken:
        for secret in each.secrets:
            if values.setdefault(secret.name, secret.value) != secret.value:
                complain(f"warning: two servers have another {secret.name}; the first one is stored")
    there = stored.values([name for name in stored.names() if name in values])
    for name in there:
        if there[name] != values[name]:
            complain(f"warning: {name} is stored already with another value, which is kept")
    return {name: value for name, value in values.items() if name not in there}


async def _store(context: "Context", place: "Place", secrets: Mapping[str, str]) -> dict[str, str]:
    from pml.app import open_variables, person
    from pml.core.audit.entries import secret_changed

    moved: dict[str, str] = {}
    for name, value in secrets.items():
        stored = await asyncio.to_thread(open_variables(place).secrets.store, name, value)
        moved[name] = stored.where.value
        entry = secret_changed(name, "stored", at=context.clock.now(), by=person())
        await context.store.audit.record(entry)
    return moved


def _edits(found: FoundServers, *, but_secrets: Mapping[str, str] | None = None) -> list[_Edit]:
    """Return the clients' files without what is taken over, or was before. Raises: ConfigInvalid.

    `but_secrets`: what has secrets that stay out of PML stays where it is, in these files as they were shown.
    """
    from pml.agents.server_lists import read_text, without_servers
    from pml.core.errors import Unavailable

    there = [each for each in found.planned if each.outcome.is_taken or each.outcome is Outcome.SAME]
    gone = [each for each in there if not (but_secrets is not None and each.secrets)]
    edits: list[_Edit] = []
    for path in dict.fromkeys(server.path for server in servers_of(gone)):
        before = read_text(Path(path)) if but_secrets is None else but_secrets.get(path)
        if before is None:
            continue
        here = [server for server in servers_of(gone) if server.path == path]
        try:
            after = without_servers(before, here, Path(path))
            edits.append(_Edit(path=Path(path), servers=here, before=before, after=after))
        except Unavailable as exc:
            complain(f"warning: {visible(exc.message)}; {visible(exc.hint or '')}")
    return edits


def _kept(edit: _Edit) -> "ReplacedFile":
    from pml.agents.server_lists import keep_copy
    from pml.settings.import_records import ReplacedFile
    from pml.settings.watched_file import digest_of

    backup = keep_copy(edit.path, edit.before)
    return ReplacedFile(
        path=str(edit.path),
        backup=str(backup),
        digest=digest_of(edit.after.encode()),
        was=digest_of(edit.before.encode()),
    )


def _replace(edits: Sequence[_Edit]) -> None:
    from pml.agents.server_lists import replace_text

    for edit in edits:
        replace_text(edit.path, edit.after, was=edit.before)


def _tell(found: FoundServers, moved: Mapping[str, str], edits: Sequence[_Edit]) -> None:
    taken = found.taken
    say(f"\ntook over {count(len(taken), 'server')} into {visible(found.file)}")
    for each in taken:
        for secret in each.secrets:
            if secret.name not in moved:
                say(f"  {visible(each.name)} needs {secret.name}: pml secrets set {secret.name}")
    for edit in edits:
        say(f"  {visible(str(edit.path))} no longer has them; a copy with all of it lies beside it")
    if taken and not edits:
        say("your clients still start them by themselves; `pml import --replace` takes them out there")
    say("`pml import --undo` takes it back")
