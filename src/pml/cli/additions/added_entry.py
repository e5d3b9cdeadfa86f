"""Keeping an installed server: its entry is written, on record, and found before the catalog from then on."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pml.cli.additions.proposal import Proposal
from pml.core.audit.entries import server_changed
from pml.core.errors import Invalid
from pml.core.names import ToolName
from pml.core.packages.added import added_metadata
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.cli.verbs.installs import Installs
    from pml.core.servers.manifest import Manifest


async def keep_server(
    installs: "Installs", proposal: Proposal, manifest: "Manifest | None", *, why: str
) -> str:
    """Write the entry of what was installed, and return its file. Raises: Invalid, Unavailable."""
    from pml.app import person
    from pml.registry.added_servers import AddedServers

    dependency = replace(proposal.dependency, lock=proposal.plan.lock)
    tools = proposal.tools if manifest is None else _callable(manifest.tools)
    metadata = added_metadata(dependency, tools=tools, description=proposal.description)
    path = str(await asyncio.to_thread(AddedServers(installs.place.home).write, metadata))
    now, target = installs.context.clock.now(), proposal.plan.terms
    change = server_changed(dependency.name, "added", path, at=now, by=person(), why=why, target=target)
    await installs.context.store.audit.record(change)
    return path


def _callable(tools: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the tools whose names can be called; what a server lists is its own word."""
    found: dict[str, JsonObject] = {}
    for tool in tools:
        with contextlib.suppress(Invalid):
            found.setdefault(ToolName(namespace="x", action=str(tool.get("name"))).action, tool)
    return [*found.values()]
