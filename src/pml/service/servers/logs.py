"""Log of a server of a workspace: where it is, and its last lines."""

import asyncio

from pml.core.errors import NotFound
from pml.core.ports.servers import ServerHost, ServerLog
from pml.core.text import quote
from pml.core.values import JsonObject
from pml.service.context import Context
from pml.service.policy.policy import current_policy
from pml.service.servers.status import server_statuses


async def find_log(context: Context, host: ServerHost, workspace: str, name: str) -> ServerLog:
    """Return the server's log: as it is configured now, or as it still runs. Raises: NotFound."""
    statuses = await server_statuses(context, host, await current_policy(context, workspace))
    own = [status for status in statuses if status.name == name]
    if not own:
        hint = "`pml servers list` shows all there are"
        raise NotFound(f"no server {quote(name)} in this workspace", hint=hint)
    targets = [status.target_digest for status in own if status.target_digest is not None]
    if not targets:
        raise NotFound(f"server {quote(name)} cannot be started: {own[0].problem}")
    logs = [host.log(name, target) for target in targets]
    return next((log for log in logs if log.exists()), logs[0])


async def log_json(context: Context, host: ServerHost, workspace: str, name: str, limit: int) -> JsonObject:
    """Return the last lines that a server of the workspace wrote; none yet is no error. Raises: NotFound."""
    log = await find_log(context, host, workspace, name)
    return {"name": name, "path": log.path, "lines": await asyncio.to_thread(log.tail, limit)}
