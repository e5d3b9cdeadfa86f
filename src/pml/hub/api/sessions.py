"""Sessions over HTTP: the tree, one of them, what it said; launching and stopping agents.

A session sees itself and what it started, and stops only the latter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pml.core.approvals.record import SessionId, State
from pml.core.errors import Forbidden, NotFound, Unavailable
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.ports.store import Sessions
from pml.core.sessions.token import ParentMay
from pml.core.text import quote
from pml.core.values import Json
from pml.core.wire import message_json, session_json
from pml.hub.api.api_request import DECIDERS, ApiRequest, Route
from pml.hub.api.workspaces import named_workspace
from pml.service.session_tree import session_of
from pml.service.sessions.launch_consent import consent_unasked
from pml.service.sessions.launcher import Launcher, Wish
from pml.service.sessions.supervision import WAITING, child

_LAST_SEQ: Final = 2**62
_ALL: Final = 10_000


class LaunchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As the tool `session_launch` takes it; `workspace` is a person's to choose."""

    prompt: str
    name: str | None = None
    cwd: str | None = None
    model: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    loopback_enabled: bool = True
    loopback_timeout_secs: int | None = None
    may_launch: bool = False
    parent_may_decide: ParentMay | None = None
    workspace: str | None = None


async def list_sessions(request: ApiRequest) -> Mapping[str, Json]:
    """Return sessions, newest first: to a person all of them, page by page; to a session its own tree.

    With `live` a person gets all that live, at once, with those that they descend from.
    """
    sessions, limit = request.context.store.sessions, request.limit()
    if request.is_person and request.flag("live"):
        found, more = await _with_ancestors(sessions, await sessions.live()), None
    elif request.is_person:
        after = request.query.get("after")
        last = None if after is None else await _find(request, SessionId(after))
        found = await sessions.page(after=None if last is None else (last.started_at, last.id), limit=limit)
        more = found[-1].id if len(found) == limit else None
    else:
        own = await session_of(request.context, request.session_id)
        found, more = [own, *await sessions.descendants(own.id)], None
    return {"sessions": await _told(request, found), "next": more}


async def _with_ancestors(sessions: Sessions, live: Sequence[Session]) -> list[Session]:
    found = {session.id: session for session in live}
    todo = {session.parent_id for session in live} - found.keys()
    while todo:
        parent = None if (session_id := todo.pop()) is None else await sessions.get(session_id)
        if parent is not None:
            found[parent.id] = parent
            todo |= {parent.parent_id} - found.keys()
    return sorted(found.values(), key=lambda session: (session.started_at, session.id), reverse=True)


async def show_session(request: ApiRequest) -> Mapping[str, Json]:
    return await _tell(request, await _find(request, SessionId(request.path["id"])))


async def list_messages(request: ApiRequest) -> Mapping[str, Json]:
    """Return what a launched agent said after a place, oldest first."""
    session = await _find(request, SessionId(request.path["id"]))
    after = request.number("after", default=0, low=0, high=_LAST_SEQ)
    found = await request.context.store.runs.messages(session.id, after=after, limit=request.limit())
    return {"messages": [message_json(message) for message in found]}


async def launch_session(request: ApiRequest) -> Mapping[str, Json]:
    body = request.read(LaunchBody)
    launcher = _launcher(request)
    wish = Wish(
        prompt=body.prompt,
        name=body.name,
        cwd=body.cwd,
        model=body.model,
        tools=body.allowed_tools,
        loopback=body.loopback_enabled,
        ttl_s=body.loopback_timeout_secs,
        may_launch=body.may_launch,
        parent_may=body.parent_may_decide,
    )
    if request.is_person:
        workspace = await named_workspace(request, body.workspace)
        session = await launcher.launch(wish, parent=None, workspace=workspace, by=request.by)
        return await _tell(request, session)
    parent = await session_of(request.context, request.session_id)
    if body.workspace not in (None, parent.workspace):
        raise Forbidden("a session launches in its own workspace only")
    consent = await consent_unasked(request.context, parent, request.json)
    session = await launcher.launch(
        wish, parent=parent, workspace=parent.workspace, by=request.by, consent=consent
    )
    return await _tell(request, session)


async def stop_session(request: ApiRequest) -> Mapping[str, Json]:
    launcher = _launcher(request)
    session = await _find(request, SessionId(request.path["id"]))
    if not request.is_person and session.id == request.session_id:
        raise Forbidden("a session stops those that it started, not itself")
    who = "a person" if request.is_person else f"session `{request.session_id}`"
    await launcher.stop(session.id, reason=f"stopped by {who}")
    return await _tell(request, await session_of(request.context, session.id))


def _launcher(request: ApiRequest) -> Launcher:
    if request.hub.launcher is None:
        raise Unavailable("this hub launches no agents")
    return request.hub.launcher


async def _find(request: ApiRequest, session_id: SessionId) -> Session:
    """Return the session if the visitor may see it; of any other it does not learn that there is one."""
    session = await request.context.store.sessions.get(session_id)
    may_see = request.is_person or session_id == request.session_id or session_id in await request.below()
    if session is None or not may_see:
        raise NotFound(f"no session {quote(session_id)}")
    return session


async def _tell(request: ApiRequest, session: Session) -> dict[str, Json]:
    return (await _told(request, [session]))[0]


async def _told(request: ApiRequest, found: Sequence[Session]) -> list[dict[str, Json]]:
    ids = frozenset(session.id for session in found)
    query = ApprovalQuery(states=frozenset({State.PENDING}), sessions=ids, limit=_ALL)
    waiting = Counter(record.session_id for record in await request.context.store.approvals.page(query))
    return [await _standing(request, session, waiting[session.id]) for session in found]


async def _standing(request: ApiRequest, session: Session, waiting: int) -> dict[str, Json]:
    run = await request.context.store.runs.get(session.id)
    if run is not None:
        state = child(session, run, waiting=waiting).state
    elif session.ended_at is not None:
        state = "ended"
    else:
        state = WAITING if waiting else "connected"
    return session_json(session, run, state=state, waiting=waiting)


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/sessions",
        roles=DECIDERS,
        serve=list_sessions,
        query=("live", "after", "limit"),
    ),
    Route(method="POST", path="/api/sessions", roles=DECIDERS, serve=launch_session, status=201, once=True),
    Route(method="GET", path="/api/sessions/{id}", roles=DECIDERS, serve=show_session),
    Route(
        method="GET",
        path="/api/sessions/{id}/messages",
        roles=DECIDERS,
        serve=list_messages,
        query=("after", "limit"),
    ),
    Route(method="POST", path="/api/sessions/{id}/stop", roles=DECIDERS, serve=stop_session),
)
