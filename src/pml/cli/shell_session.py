"""The session of a person or script that runs `pml`: that of its shell or job."""

from typing import TYPE_CHECKING

from pml.core.approvals.record import SessionId
from pml.core.digest import digest

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.ports.records import Session
    from pml.service.context import Context


async def script_session(context: "Context", place: "Place", session_id: str | None) -> "Session":
    """Return the session that a script asks in; it lasts as long as the terminal or job that runs it."""
    from pml.app import principal
    from pml.service.session_tree import start_session

    leader = context.processes.leader()
    mark = digest({"started": leader.started, "workspace": str(place.workspace)})[-6:]
    name = session_id or f"shell-{leader.pid}-{mark}"
    return await start_session(
        context,
        session_id=SessionId(name),
        name=name,
        principal=principal(place),
        workspace=str(place.workspace),
        process=leader,
        is_agent=False,
    )
