"""Servers over HTTP, for a person to look at: how each stands, and what it wrote."""

from collections.abc import Mapping
from typing import Final

from pml.core.values import Json
from pml.hub.api.api_request import PERSON, Route, Visit
from pml.hub.api.workspaces import named_workspace
from pml.service.servers.logs import log_json
from pml.service.servers.status import servers_json


async def list_servers(visit: Visit) -> Mapping[str, Json]:
    workspace = await named_workspace(visit, visit.query.get("workspace"))
    return await servers_json(visit.context, visit.hub.server_host, workspace)


async def show_logs(visit: Visit) -> Mapping[str, Json]:
    """Return the last lines; values of variables are masked in them."""
    workspace = await named_workspace(visit, visit.query.get("workspace"))
    name, limit = visit.path["name"], visit.limit()
    return await log_json(visit.context, visit.hub.server_host, workspace, name, limit)


ROUTES: Final = (
    Route(method="GET", path="/api/servers", roles=PERSON, serve=list_servers, query=("workspace",)),
    Route(
        method="GET",
        path="/api/servers/{name}/logs",
        roles=PERSON,
        serve=show_logs,
        query=("workspace", "limit"),
    ),
)
