"""Logging in and out of the inbox, and what its page shows of itself: who, where, and until when."""

from collections.abc import Mapping
from typing import Final

from pml import __version__
from pml.core.approvals.record import instant
from pml.core.sessions.token import TokenRole
from pml.core.values import Json
from pml.core.wire import token_json
from pml.hub.api.api_request import PERSON, ApiRequest, Route
from pml.hub.guard import LOGIN_PATH
from pml.hub.pages import ASSETS_HASH
from pml.service.policy.policy import asking_off, current_policy, kept_notice
from pml.service.sessions.logins import log_in
from pml.service.sessions.tokens import revoke_token

LOGIN: Final = frozenset({TokenRole.LOGIN})


async def enter(request: ApiRequest) -> Mapping[str, Json]:
    """Return a person's token for the one that the link holds. Raises: Conflict, NotFound."""
    token, text = await log_in(request.context, request.identity)
    return {"token": text, "name": token.name, "expires_at": token_json(token)["expires_at"]}


async def leave(request: ApiRequest) -> Mapping[str, Json]:
    return token_json(await revoke_token(request.context, request.identity.token_id, by=request.by))


async def show_me(request: ApiRequest) -> Mapping[str, Json]:
    context, hub = request.context, request.hub
    token = await context.store.tokens.get(request.identity.token_id)
    live = await context.store.sessions.live()
    now = context.clock.now()
    policy = await current_policy(context, hub.workspace)
    return {
        "name": request.identity.name,
        "role": request.identity.role,
        "version": __version__,
        "assets": ASSETS_HASH,  # tells an open page that the hub serves another one by now
        "workspace": hub.workspace,
        "workspaces": sorted({hub.workspace, *(session.workspace for session in live)}),
        "expires_at": None if token is None else token_json(token)["expires_at"],
        "now": instant(now),
        "asking": asking_off(policy, now),
        "kept": kept_notice(policy),
    }


ROUTES: Final = (
    # not `once`: what a receipt keeps is the answer, and this one holds a secret
    Route(method="POST", path=LOGIN_PATH, roles=LOGIN, serve=enter),
    Route(method="POST", path="/api/logout", roles=PERSON, serve=leave),
    Route(method="GET", path="/api/me", roles=PERSON, serve=show_me),
)
