"""Sessions that started each other, and clients among them that ask for permission."""

import asyncio
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.record import Approval, SessionId, State
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.sessions.process import Process
from pml.core.sessions.token import ParentMay, TokenRole
from pml.core.values import JsonObject
from pml.service.session_tree import start_session
from pml.service.sessions.loopback import Permit, permit
from tests.service.offices import BOUND_S, Asked, Office

BASH: Final = "Bash"
LIST: Final[JsonObject] = {"command": "ls -la"}
ANY: Final = frozenset(State)


async def join(
    office: Office,
    session_id: str,
    *,
    parent: Session | None = None,
    role: TokenRole | None = None,
    tools: tuple[str, ...] | None = None,
    waits: bool = False,
    ttl_s: int | None = None,
    process: Process | None = None,
    parent_may: ParentMay | None = None,
    launches_unasked: bool = False,
) -> Session:
    """Start a session; unless told otherwise one with a parent is a child, and others supervise.

    A person let its parents answer for it.
    """
    return await start_session(
        office.context,
        session_id=SessionId(session_id),
        name=session_id,
        principal=f"session:{session_id}",
        workspace=str(office.workspace),
        process=process,
        is_agent=True,
        parent_id=None if parent is None else parent.id,
        role=role or (TokenRole.SESSION if parent is None else TokenRole.CHILD),
        tools=tools,
        waits=waits,
        ttl_s=ttl_s,
        parent_may=parent_may or (ParentMay.NOTHING if parent is None else ParentMay.ALL),
        launches_unasked=launches_unasked,
    )


@dataclass(frozen=True, kw_only=True)
class Family:
    """Three generations, a sibling of the youngest, and a stranger that supervises nobody here."""

    grandparent: Session
    parent: Session
    child: Session
    sibling: Session
    stranger: Session


async def gather(office: Office) -> Family:
    grandparent = await join(office, "grandparent")
    parent = await join(office, "parent", parent=grandparent, role=TokenRole.SESSION)
    return Family(
        grandparent=grandparent,
        parent=parent,
        child=await join(office, "child", parent=parent),
        sibling=await join(office, "sibling", parent=parent),
        stranger=await join(office, "stranger"),
    )


class Asker:
    """A client that asks permission for one use of a tool and waits."""

    def __init__(
        self,
        office: Office,
        session: Session,
        tool: str = BASH,
        input: JsonObject = LIST,
        *,
        use: str = "use-1",
    ) -> None:
        self._asked = Asked()
        self.reads = asyncio.Event()  # whether its answer would be heard
        self.reads.set()
        self.task = asyncio.create_task(
            permit(
                office.context,
                session,
                tool_name=tool,
                input=input,
                tool_use_id=use,
                on_asked=self._asked,
                heard=self._heard,
            )
        )

    async def _heard(self) -> None:
        await self.reads.wait()

    async def question(self) -> Approval:
        """Return the question once it is stored."""
        await self._asked.wait_for(1)
        return self._asked.records[-1]

    async def answer(self) -> Permit:
        async with asyncio.timeout(BOUND_S):
            return await self.task

    async def lose(self) -> None:
        """Be gone, as a client whose connection broke."""
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=BOUND_S)
        assert self.task.cancelled()


async def ask_at_once(
    office: Office, session: Session, tool: str = BASH, input: JsonObject = LIST, *, use: str = "use-1"
) -> Permit:
    """Return the answer to a question that needs nobody."""
    return await Asker(office, session, tool, input, use=use).answer()


async def questions(office: Office) -> list[Approval]:
    """Return all that was ever asked, oldest first."""
    return await office.context.store.approvals.page(ApprovalQuery(states=ANY))
