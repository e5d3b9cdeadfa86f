"""The audit log over HTTP, for a person to look at."""

from collections.abc import Mapping
from typing import Final

from pml.core.names import parse_tool
from pml.core.ports.queries import AuditQuery
from pml.core.values import Json
from pml.core.wire import link_json
from pml.hub.api.api_request import PERSON, ApiRequest, Route
from pml.service.audit import verify_audit
from pml.service.shapes import verification_json

_LAST_SEQ: Final = 2**62


async def list_entries(request: ApiRequest) -> Mapping[str, Json]:
    """Return the newest entries, of those `before` a place if one is given; or the first ones `after` it.

    The oldest stands first.
    """
    query, tool = request.query, request.query.get("tool")
    found = await request.context.store.audit.list(
        AuditQuery(
            session_id=query.get("session"),
            tool=None if tool is None else str(parse_tool(tool)),
            decider=query.get("decider"),
            approval_id=query.get("approval"),
            after=request.number("after", default=0, low=0, high=_LAST_SEQ),
            before=request.number("before", default=_LAST_SEQ, low=1, high=_LAST_SEQ),
            limit=request.limit(),
            newest="after" not in query,
        )
    )
    return {"entries": [link_json(link) for link in found]}


async def verify_entries(request: ApiRequest) -> Mapping[str, Json]:
    return verification_json(await verify_audit(request.context))


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/audit",
        roles=PERSON,
        serve=list_entries,
        query=("session", "tool", "decider", "approval", "after", "before", "limit"),
    ),
    Route(method="GET", path="/api/audit/verify", roles=PERSON, serve=verify_entries),
)
