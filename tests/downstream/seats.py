"""Clients of sessions that launch and supervise each other, before gateways of one hub, in process."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pml.core.approvals.record import Approval, State
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.values import JsonObject
from pml.downstream.forms.relay import Relay
from pml.downstream.gateway import Gateway
from pml.downstream.protocol.eras import Era
from pml.service.call import Gate
from pml.service.sessions.launcher import Launcher
from tests.downstream.parties import FORMS, LATEST, SOON_S, Message, Party, text_of, tool
from tests.fakes import FakeAgents
from tests.service.families import Family, gather, join
from tests.service.offices import Office

BASH: JsonObject = {"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "use-1"}


class Seat(Party):
    """The client of one session, before a gateway of the hub."""

    def __init__(
        self, root: Path, session: Session, launcher: Launcher, office: Office, *, is_stdio: bool
    ) -> None:
        root.mkdir()
        super().__init__(root)
        self.office = office
        self.session = session
        self._launcher = launcher
        self._is_stdio = is_stdio

    async def _open(self, era: Era) -> Gateway:
        self.relay = Relay(self.connection, self.session.workspace)
        self.servers.on_changed = self.relay.changed
        gate = Gate(
            context=self.office.context,
            session=self.session,
            servers=self.servers,
            is_held=self.session.waits,
            is_stdio=self._is_stdio,
        )
        self._gateway = Gateway(gate, self.connection, self.relay, self._launcher)
        return self._gateway

    async def permit(self, arguments: JsonObject = BASH) -> Message:
        """Return what the permission tool answers, as its client reads it."""
        return permit_of(await self.call("loopback_permit", arguments))

    async def launch(self, arguments: JsonObject) -> Message:
        """Launch an agent that a person allows, and return what the tool answers then."""
        asked = await self.call("session_launch", arguments)
        await self.decide(allow=True)
        answer = await self.continue_("session_launch", asked["approval_context"]["workflow_id"])
        return answer["result"]

    async def all_questions(self) -> list[Approval]:
        return await self.office.context.store.approvals.page(ApprovalQuery(states=frozenset(State)))


class Hub:
    """A family in which anybody can sit down, with agents that do as the test says."""

    def __init__(self, root: Path, office: Office, family: Family) -> None:
        self._root = root
        self.office = office
        self.family = family
        self.agents = FakeAgents()
        self.launcher = Launcher(office.context, self.agents)
        self.seats: list[Seat] = []

    async def sit(
        self, session: Session, version: str = LATEST, *, forms: bool = False, stdio: bool = False
    ) -> Seat:
        """Return the connected client of the session; the server `files` stands behind its gateway."""
        root = self._root / f"seat-{len(self.seats)}"
        seat = Seat(root, session, self.launcher, self.office, is_stdio=stdio)
        self.seats.append(seat)
        seat.serve("files", tool("read", required=["path"]), tool("write", required=["path", "text"]))
        await seat.connect(version, FORMS if forms else None)
        return seat

    async def launched(self, **more: Any) -> Session:
        """Return a session that was launched so that it is asked by waiting."""
        return await join(self.office, "launched", parent=self.family.parent, waits=True, **more)

    async def close(self) -> None:
        for seat in self.seats:
            await seat.close()
        async with asyncio.timeout(SOON_S):
            await self.launcher.close()


@asynccontextmanager
async def opened_hub(root: Path) -> AsyncGenerator[Hub]:
    party = Party(root)
    await party.close()
    hub = Hub(root, party.office, await gather(party.office))
    yield hub
    await hub.close()


def permit_of(result: Message) -> Message:
    """Return the answer of the permission tool: exactly one text block and nothing else."""
    assert set(result) <= {"content", "resultType", "_meta"}
    return json.loads(text_of(result))


def found(result: Message) -> Message:
    """Return the structured result, which the text spells too."""
    assert json.loads(text_of(result)) == result["structuredContent"]
    return result["structuredContent"]
