"""Entries of `mcpServers` in a file: added and removed by a person, on record.

A trusted workspace's file stays trusted, as with rules.
"""

import asyncio
from collections.abc import Mapping

from pml.core.approvals.record import Decider
from pml.core.audit.entries import server_changed
from pml.core.config.file import FileKind
from pml.core.digest import digest
from pml.core.values import Json
from pml.service.context import Context
from pml.service.policy.memory import kept_trust


async def add_servers(
    context: Context,
    workspace: str,
    entries: Mapping[str, Json],
    *,
    which: FileKind,
    by: Decider,
    why: str,
) -> str:
    """Add entries to a file, all or none; return its path. Raises: Conflict, ConfigInvalid, Unavailable."""
    files = context.configs.of(workspace)
    async with kept_trust(context, workspace, which, by=by) as keep:
        await asyncio.to_thread(files.add_servers, which, entries, before_replace=keep)
    where = _path(context, workspace, which)
    for name, entry in entries.items():
        change = server_changed(
            name, "added", where, at=context.clock.now(), by=by, why=why, target=digest(entry)
        )
        await context.store.audit.record(change)
    return where


async def remove_servers(
    context: Context,
    workspace: str,
    entries: Mapping[str, Json],
    *,
    which: FileKind,
    by: Decider,
    why: str,
) -> tuple[str, ...]:
    """Remove the entries that are exactly so; return their names. Raises: as `add_servers`."""
    files = context.configs.of(workspace)
    async with kept_trust(context, workspace, which, by=by) as keep:
        removed = await asyncio.to_thread(files.remove_servers, which, entries, before_replace=keep)
    where = _path(context, workspace, which)
    for name in removed:
        change = server_changed(name, "removed", where, at=context.clock.now(), by=by, why=why)
        await context.store.audit.record(change)
    return removed


def _path(context: Context, workspace: str, which: FileKind) -> str:
    loaded = context.configs.of(workspace).read()
    return loaded.user.path if which is FileKind.USER else loaded.workspace.path
