"""The session of whoever runs `pml` by hand or from a script: that of the shell or job."""

from typing import TYPE_CHECKING

from pml.core.approvals import SessionId
from pml.core.digest import digest

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.ports import Session
    from pml.service.desk import Desk


async def script_session(desk: "Desk", place: "Place", session_id: str | None) -> "Session":
    """Return the session that a script asks in; it lasts as long as the terminal or job that runs it."""
    from pml.app import principal
    from pml.service.sessions import start_session

    leader = desk.processes.leader()
    mark = digest({"started": leader.started, "workspace": str(place.workspace)})[-6:]
    name = session_id or f"shell-{leader.pid}-{mark}"
    return await start_session(
        desk,
        session_id=SessionId(name),
        name=name,
        principal=principal(place),
        workspace=str(place.workspace),
        process=leader,
        is_agent=False,
    )
