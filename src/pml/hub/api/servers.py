"""Servers over HTTP, for a person: how each stands, what it wrote, and the login that a call waits for.

Nothing that is given for a login is in an answer, an error or a log.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pml.core.approvals.record import Approval
from pml.core.errors import Invalid
from pml.core.ports.server_logins import HeldLogin
from pml.core.values import Json
from pml.hub.api.api_request import PERSON, ApiRequest, Route
from pml.hub.api.workspaces import named_workspace
from pml.service.approvals.lifecycle import get
from pml.service.servers.logs import log_json
from pml.service.servers.server_logins import login_wish, note_login, server_of_question
from pml.service.servers.status import servers_json


async def list_servers(request: ApiRequest) -> Mapping[str, Json]:
    workspace = await named_workspace(request, request.query.get("workspace"))
    return await servers_json(request.context, request.hub.server_host, workspace)


async def show_logs(request: ApiRequest) -> Mapping[str, Json]:
    """Return the last lines; values of variables are masked in them."""
    workspace = await named_workspace(request, request.query.get("workspace"))
    name, limit = request.path["name"], request.limit()
    return await log_json(request.context, request.hub.server_host, workspace, name, limit)


class AddressBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    address: str

    def __repr__(self) -> str:
        return "AddressBody()"


async def begin_login(request: ApiRequest) -> Mapping[str, Json]:
    record = await _question(request)
    spec = await server_of_question(request.context, record)

    async def logged_in(held: HeldLogin) -> None:
        await note_login(request.context, spec, held.login, by=request.by)

    return {"url": await request.hub.logins.begin(record.id, login_wish(spec), logged_in)}


async def login_state(request: ApiRequest) -> Mapping[str, Json]:
    record = await _question(request)
    problem = request.hub.logins.problem(record.id)
    told = None if problem is None else problem.message
    return {"is_open": request.hub.logins.is_open(record.id), "problem": told}


async def take_address(request: ApiRequest) -> Mapping[str, Json]:
    record = await _question(request)
    request.hub.logins.paste(record.id, _read(request.body))
    return {"is_open": True}


async def _question(request: ApiRequest) -> Approval:
    return await get(request.context, request.approval_id())


def _read(body: bytes) -> str:
    """Return the address. Raises: Invalid, which quotes nothing: it holds a code."""
    try:
        return msgspec.json.decode(body, type=AddressBody).address
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise Invalid("the body must be an object with the text `address`, and nothing else")


_LOGIN: Final = "/api/approvals/{id}/login"
ROUTES: Final = (
    Route(method="GET", path="/api/servers", roles=PERSON, serve=list_servers, query=("workspace",)),
    Route(
        method="GET",
        path="/api/servers/{name}/logs",
        roles=PERSON,
        serve=show_logs,
        query=("workspace", "limit"),
    ),
    Route(method="POST", path=_LOGIN, roles=PERSON, serve=begin_login),
    Route(method="GET", path=_LOGIN, roles=PERSON, serve=login_state),
    Route(method="POST", path=f"{_LOGIN}/address", roles=PERSON, serve=take_address),
)
