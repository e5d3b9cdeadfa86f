"""The inbox over HTTP: what waits, as cards. Only for people: a card shows what stands in their files."""

from collections.abc import Mapping
from typing import Final

import msgspec

from pml.core.approvals.record import Approval, ApprovalId, instant
from pml.core.errors import NotFound
from pml.core.values import Json
from pml.hub.api.api_request import PERSON, ApiRequest, Route, read_approval_id
from pml.service.approvals.cards import card, cards
from pml.service.approvals.lifecycle import pending
from pml.service.approvals.notices import notices


async def list_cards(request: ApiRequest) -> Mapping[str, Json]:
    """Return one page of what waits, oldest first, as shortened cards; how many wait; what was refused."""
    after = request.query.get("after")
    last = None if after is None else await _find(request, read_approval_id(after))
    limit = request.limit()
    found = await pending(request.context, after=last, limit=limit)
    is_all = last is None and len(found) < limit
    return {
        "cards": msgspec.to_builtins(await cards(request.context, found)),
        "next": found[-1].id if len(found) == limit else None,
        "now": instant(request.context.clock.now()),
        "notices": [each.json() for each in await notices(request.context)] if last is None else [],
        "waiting": len(found) if is_all else await request.context.store.approvals.count_pending(),
    }


async def show_card(request: ApiRequest) -> Mapping[str, Json]:
    """Return the card of one question, whatever became of it: whole, or as short as in a page."""
    record = await _find(request, request.approval_id())
    shown = await card(request.context, record, whole=not request.flag("short"))
    return {"card": msgspec.to_builtins(shown), "now": instant(request.context.clock.now())}


async def _find(request: ApiRequest, approval_id: ApprovalId) -> Approval:
    record = await request.context.store.approvals.get(approval_id)
    if record is None:
        raise NotFound(f"no approval `{approval_id}`")
    return record


ROUTES: Final = (
    Route(method="GET", path="/api/inbox", roles=PERSON, serve=list_cards, query=("after", "limit")),
    Route(method="GET", path="/api/inbox/{id}", roles=PERSON, serve=show_card, query=("short",)),
)
