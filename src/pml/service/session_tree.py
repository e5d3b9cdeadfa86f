"""Sessions: one agent connection each, in a tree, with the process that holds it."""

from pml.core.approvals.record import SessionId
from pml.core.errors import MayNotDecide, NotFound
from pml.core.ports.records import Session
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay, TokenRole
from pml.core.values import check
from pml.service.context import Context


async def start_session(
    context: Context,
    *,
    session_id: SessionId,
    name: str,
    principal: str,
    workspace: str,
    process: Process | None,
    is_agent: bool,
    parent_id: SessionId | None = None,
    role: TokenRole = TokenRole.SESSION,
    tools: tuple[str, ...] | None = None,
    waits: bool = False,
    ttl_s: int | None = None,
    parent_may: ParentMay = ParentMay.NOTHING,
    launches_unasked: bool = False,
) -> Session:
    """Register a session, or join the one with that id; one that had ended begins anew, without memory.

    Raises: Invalid; Conflict if it is another principal's, workspace's or agent's.
    """
    check([session_id, name], what="the session's name")
    return await context.store.sessions.start(
        Session(
            id=session_id,
            name=name,
            principal=principal,
            workspace=workspace,
            parent_id=parent_id,
            process=process,
            is_agent=is_agent,
            role=role,
            tools=tools,
            waits=waits,
            ttl_s=ttl_s,
            parent_may=parent_may,
            launches_unasked=launches_unasked,
            started_at=context.clock.now(),
        )
    )


async def session_of(context: Context, session_id: SessionId) -> Session:
    """Raises: NotFound."""
    session = await context.store.sessions.get(session_id)
    if session is None:
        raise NotFound(f"no session `{session_id}`")
    return session


async def descends_from(context: Context, session: Session, ancestor: SessionId) -> bool:
    """Tell whether `ancestor` started `session`, or one that led to it. Nobody descends from itself."""
    seen: set[SessionId] = set()
    parent = session.parent_id
    while parent is not None and parent not in seen:
        if parent == ancestor:
            return True
        seen.add(parent)
        above = await context.store.sessions.get(parent)
        parent = None if above is None else above.parent_id
    return False


async def agent_above(context: Context, client: Process) -> Session | None:
    """Return the agent that had this gateway started for itself: what it starts decides nothing.

    That is one above `client`, at whatever distance, or `client` itself, if something else than it writes
    to us: its shell can start a gateway too.
    """
    agents = await _agents(context)
    above = context.processes.ancestors()
    at = above.index(client) if client in above else 0
    higher = above[at if not context.processes.feeds(client) else at + 1 :]
    return next((agents[process] for process in higher if process in agents), None)


async def _agents(context: Context) -> dict[Process, Session]:
    return {
        session.process: session
        for session in await context.store.sessions.live()
        if session.is_agent and session.process is not None
    }


async def guard_person(context: Context) -> None:
    """Raise MayNotDecide if this process runs beneath a registered agent: an agent decides nothing."""
    agents = await _agents(context)
    if not agents:
        return
    for process in context.processes.ancestors():
        session = agents.get(process)
        if session is not None:
            raise MayNotDecide(
                f"this command runs beneath the agent session `{session.name}` (process {process.pid}), "
                "and an agent cannot decide for itself",
                hint="decide from a terminal that the agent did not start",
            )
