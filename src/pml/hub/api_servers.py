"""Servers over HTTP, for a person to look at: how each stands, and what it wrote."""

from collections.abc import Mapping
from typing import Final

from pml.core.values import Json
from pml.hub.visits import PERSON, Route, Visit
from pml.hub.workspaces import named_workspace


async def list_servers(visit: Visit) -> Mapping[str, Json]:
    return await visit.hub.servers(await named_workspace(visit, visit.query.get("workspace")))


async def show_logs(visit: Visit) -> Mapping[str, Json]:
    """Return the last lines; values of variables are masked in them."""
    workspace = await named_workspace(visit, visit.query.get("workspace"))
    return await visit.hub.server_logs(workspace, visit.path["name"], visit.limit())


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
