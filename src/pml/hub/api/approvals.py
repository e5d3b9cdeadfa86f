"""Approvals over HTTP: what waits, all of one question, and deciding it on exactly what was shown.

A session sees and decides only what its descendants ask; what is not theirs is not there for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pml.core.approvals.record import Approval, ApprovalId, Scope, SessionId, State
from pml.core.errors import Invalid, NotFound, PmlError
from pml.core.ports.queries import ApprovalQuery
from pml.core.text import quote
from pml.core.values import Json
from pml.core.wire import error_json, listed_json, shown_json
from pml.hub.api.api_request import DECIDERS, PERSON, ApiRequest, Route, read_approval_id
from pml.hub.api.bodies import read_shape
from pml.service.approvals.lifecycle import Decision, decide
from pml.service.approvals.previews import preview
from pml.service.rules.undo import take_back
from pml.service.session_tree import session_of
from pml.service.shapes import decided_json

MAX_BATCH: Final = 500
MAX_TEXT: Final = 4096  # what is searched for; a path of a workspace can be as long


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer; `digest` is that of the question as it was shown."""

    allow: bool
    digest: str
    scope: Scope = Scope.ONCE
    literal: bool = False
    message: str | None = None
    updated_input: dict[str, Any] | None = None
    release: tuple[str, ...] = ()


class UndoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`literal` as in the answer that is taken back."""

    literal: bool = False


class BatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers, each with the digest that was shown; or only ids, to deny them whatever they ask."""

    decisions: list[dict[str, Any]] = []
    deny: list[str] = []


async def list_approvals(request: ApiRequest) -> Mapping[str, Json]:
    """Return one page, oldest first: what waits, or with `all` everything, or what is in the `states`."""
    session_id = request.query.get("session")
    after = request.query.get("after")
    last = None if after is None else await _find(request, read_approval_id(after))
    limit = request.limit()
    below = None if request.is_person else await request.below()
    if below is not None and session_id is not None and session_id not in below:
        raise NotFound(f"no session `{session_id}` beneath this one")
    query = ApprovalQuery(
        states=_states(request),
        session_id=None if session_id is None else SessionId(session_id),
        sessions=below,
        workspace=_text(request, "workspace"),
        search=_text(request, "search"),
        newest=request.flag("newest"),
        after=None if last is None else (last.created_at, last.id),
        limit=limit,
    )
    found = [] if below is not None and not below else await request.context.store.approvals.page(query)
    return {
        "approvals": await _with_workspaces(request, found),
        "next": found[-1].id if len(found) == limit else None,
    }


def _states(request: ApiRequest) -> frozenset[State] | None:
    """Return the states that are wanted, None for all. Raises: Invalid."""
    given = request.query.get("states")
    if given is None:
        return None if request.flag("all") else frozenset({State.PENDING})
    if request.flag("all"):
        raise Invalid("`all` and `states` exclude each other")
    unknown = next((word for word in given.split(",") if word not in set(State)), None)
    if unknown is not None:
        raise Invalid(f"there is no state {quote(unknown)}", hint=f"there are: {', '.join(State)}")
    return frozenset(State(word) for word in given.split(","))


def _text(request: ApiRequest, name: str) -> str | None:
    """Return what is to be found; an absent member is not a condition. Raises: Invalid."""
    given = request.query.get(name) or None
    if given is not None and len(given) > MAX_TEXT:
        raise Invalid(f"`{name}` has at most {MAX_TEXT} characters")
    return given


async def show_approval(request: ApiRequest) -> Mapping[str, Json]:
    """Return all of one question; to a person also what "always" would write and release."""
    record = await _find(request, request.approval_id())
    if request.is_person:
        return (await preview(request.context, record, by=request.by)).json()
    session = await session_of(request.context, record.session_id)
    return shown_json(
        record, workspace=session.workspace, session_name=session.name, always=None, covers=(), code=None
    )


async def decide_one(request: ApiRequest) -> Mapping[str, Json]:
    return await _decide(request, request.approval_id(), request.read(DecisionBody))


async def decide_each(request: ApiRequest) -> Mapping[str, Json]:
    """Decide each in turn; one that fails does not keep the others from being decided."""
    body = request.read(BatchBody)
    if body.decisions and body.deny:
        raise Invalid("the body has `decisions` or `deny`, not both")
    if not 0 < len(body.decisions or body.deny) <= MAX_BATCH:
        raise Invalid(f"`{'deny' if body.deny else 'decisions'}` has 1 to {MAX_BATCH} items")
    denied = [await _deny_item(request, named) for named in body.deny]
    return {"results": denied or [await _decide_item(request, item) for item in body.decisions]}


async def _decide_item(request: ApiRequest, item: Mapping[str, Json]) -> Json:
    named = item.get("id")
    try:
        approval_id = read_approval_id(named if isinstance(named, str) else "")
        rest = {name: value for name, value in item.items() if name != "id"}
        body = read_shape(rest, DecisionBody, what="the decision")
        return await _decide(request, approval_id, body, is_batch=True)
    except PmlError as exc:
        return {"id": named, **error_json(exc)}


async def _deny_item(request: ApiRequest, named: str) -> Json:
    """Deny by the id alone: what is denied does not run, so it need not have been seen."""
    try:
        record = await _find(request, read_approval_id(named))
        return await _decide(
            request, record.id, DecisionBody(allow=False, digest=record.digest), is_batch=True
        )
    except PmlError as exc:
        return {"id": named, **error_json(exc)}


async def _decide(
    request: ApiRequest, approval_id: ApprovalId, body: DecisionBody, *, is_batch: bool = False
) -> Mapping[str, Json]:
    """Raises: NotFound, Changed, AlreadyDecided, MayNotDecide, ToolDenied, Invalid."""
    if body.scope is Scope.ONCE and (body.release or body.literal):
        raise Invalid("`release` and `literal` go with a `scope` that is remembered")
    record = await _find(request, approval_id)
    decision = Decision(
        by=request.by,
        digest=f"sha256:{body.digest.removeprefix('sha256:')}",  # people copy it with and without
        allow=body.allow,
        scope=body.scope,
        literal=body.literal,
        message=body.message,
        updated_input=body.updated_input,
        release=tuple(read_approval_id(other) for other in body.release),
        is_batch=is_batch,
    )
    return decided_json(await decide(request.context, record.id, decision))


async def undo(request: ApiRequest) -> Mapping[str, Json]:
    """Take back what an answer is remembered by, and its call if that has not begun."""
    literal = request.read(UndoBody).literal
    return (await take_back(request.context, request.approval_id(), by=request.by, literal=literal)).json()


async def _find(request: ApiRequest, approval_id: ApprovalId) -> Approval:
    """Return the approval if the visitor may see it; of any other it does not learn that there is one."""
    record = await request.context.store.approvals.get(approval_id)
    if record is None or not (request.is_person or record.session_id in await request.below()):
        raise NotFound(f"no approval `{approval_id}`")
    return record


async def _with_workspaces(request: ApiRequest, found: Sequence[Approval]) -> list[Json]:
    asking = {record.session_id for record in found}
    sessions = {each: await session_of(request.context, each) for each in asking}
    return [
        listed_json(record)
        | {
            "workspace": sessions[record.session_id].workspace,
            "session_name": sessions[record.session_id].name,
        }
        for record in found
    ]


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/approvals",
        roles=DECIDERS,
        serve=list_approvals,
        query=("all", "states", "session", "workspace", "search", "newest", "after", "limit"),
    ),
    Route(method="GET", path="/api/approvals/{id}", roles=DECIDERS, serve=show_approval),
    Route(method="POST", path="/api/approvals/decisions", roles=DECIDERS, serve=decide_each, once=True),
    Route(method="POST", path="/api/approvals/{id}/decision", roles=DECIDERS, serve=decide_one, once=True),
    Route(method="POST", path="/api/approvals/{id}/undo", roles=PERSON, serve=undo),
)
