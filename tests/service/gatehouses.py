"""A gate with all that stands around it: an office, servers that are watched, and clients to ask."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

import pytest

from pml.core.approvals.record import Approval, Scope, SessionId, State
from pml.core.config.file import FileKind
from pml.core.names import parse_tool
from pml.core.ports.queries import AuditQuery
from pml.core.ports.records import Session
from pml.core.values import Json, JsonObject
from pml.service.approvals.lifecycle import wait
from pml.service.call import Attempt, Gate, Loader, Paused, PendingCall
from pml.service.calls.pipeline import call_tool
from pml.service.calls.workflows import Continuation, resume
from pml.service.context import Context
from tests.fakes import FakeAsking, FakeServers
from tests.service.offices import SESSION, Office

TOOL: Final = "notes:add"
ARGUMENTS: Final[JsonObject] = {"text": "hello"}
RAN: Final = ("notes", "tools/call", {"name": "add", "arguments": ARGUMENTS})
SERVER: Final = {"command": "notes-server"}
ADD: Final[JsonObject] = {
    "name": "add",
    "description": "Adds a note.",
    "inputSchema": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
}
CHANGED: Final[JsonObject] = {**ADD, "description": "Adds a note and sends it away."}
LIST: Final[JsonObject] = {"name": "list", "inputSchema": {"type": "object"}}


class Gatehouse:
    """Server `notes` stands in the user's file, no rule names its tools, nobody answers.

    The client prompts for the tools that it lists by name, and the user leaves those to it.
    """

    configured: ClassVar[JsonObject] = {"notes": SERVER}

    def __init__(
        self,
        office: Office,
        session: Session,
        *,
        context: Context | None = None,
        servers: FakeServers | None = None,
        loader: Loader | None = None,
    ) -> None:
        self.office = office
        self.session = session
        self.servers = servers or FakeServers()
        self.servers.offer("notes", ADD, LIST)
        self.gate = Gate(
            context=context or office.context,
            session=session,
            servers=self.servers,
            loader=loader,
            is_stdio=True,
        )
        self.configure()

    def configure(
        self,
        which: FileKind = FileKind.USER,
        *,
        servers: JsonObject | None = None,
        approval: JsonObject | None = None,
        install: JsonObject | None = None,
        **rules: list[Json],
    ) -> None:
        """Write a file: with the servers of this house unless `servers` says otherwise."""
        known = self.configured if servers is None else servers
        left = {"unlisted": "if_client_cannot", **(approval or {})}
        more = {key: value for key, value in (("approval", left), ("install", install)) if value}
        self.office.write(which, {"mcpServers": known, "permissions": rules, **more})

    def only_in_workspace(self) -> None:
        """Move the server to the workspace's file, which nobody trusts."""
        self.configure(servers={})
        self.configure(FileKind.WORKSPACE)

    async def reconnect(
        self, session_id: str = "session-2", *, principal: str = "ana", parent_id: SessionId | None = None
    ) -> "Gatehouse":
        """Return the gate of another connection, with servers of its own, on the same store."""
        office = self.office
        session = await office.session(SessionId(session_id), principal=principal, parent_id=parent_id)
        config = office.read(FileKind.USER)
        other = Gatehouse(office, session)
        office.write(FileKind.USER, config)
        return other

    async def call(
        self,
        tool: str = TOOL,
        arguments: JsonObject = ARGUMENTS,
        *,
        asking: FakeAsking | None = None,
        offered: bool = True,
        settled: Approval | None = None,
        method: str = "tools/call",
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> bytes:
        attempt = Attempt(tool=parse_tool(tool), arguments=arguments, offered=offered, method=method)
        call = PendingCall(
            self.gate, attempt, asking or FakeAsking(), settled=settled, on_progress=on_progress
        )
        return await call_tool(call)

    async def pause(
        self,
        tool: str = TOOL,
        arguments: JsonObject = ARGUMENTS,
        *,
        asking: FakeAsking | None = None,
        offered: bool = False,
    ) -> Paused:
        """Make a call that nobody answers, and return how it was left."""
        with pytest.raises(Paused) as paused:
            await self.call(tool, arguments, asking=asking, offered=offered)
        return paused.value

    async def go_on(
        self,
        workflow_id: str,
        *,
        approved: bool = True,
        always: bool = False,
        message: str | None = None,
        tool: str | None = TOOL,
        arguments: JsonObject | None = None,
        asking: FakeAsking | None = None,
    ) -> bytes:
        """Call the tool with `continue_workflow`."""
        said = Continuation(workflow_id=workflow_id, approved=approved, always=always, message=message)
        given = None if tool is None else {tool: arguments or {}}
        attempt, settled = await resume(self.gate, said, given=given, client="agent")
        return await call_tool(PendingCall(self.gate, attempt, asking or FakeAsking(), settled=settled))

    def allowing(
        self, *, scope: Scope = Scope.ONCE, updated_input: JsonObject | None = None
    ) -> Callable[[Approval], Awaitable[Approval]]:
        async def answer(record: Approval) -> Approval:
            return (await self.office.allow(record, scope=scope, updated_input=updated_input)).record

        return answer

    def denying(self, message: str | None = None) -> Callable[[Approval], Awaitable[Approval]]:
        async def answer(record: Approval) -> Approval:
            return await self.office.deny(record, message=message)

        return answer

    def waiting(self) -> Callable[[Approval], Awaitable[Approval]]:
        async def answer(record: Approval) -> Approval:
            return await wait(self.office.context, record.id)

        return answer

    async def judged(self) -> list[tuple[str, str]]:
        """Return what the audit log tells of calls that rules answered: the kind, and why."""
        links = await self.office.context.store.audit.list(AuditQuery(limit=10_000))
        return [
            (link.entry.kind, str(link.entry.detail["why"]))
            for link in links
            if link.entry.kind.startswith("call.")
        ]

    async def states(self) -> list[State]:
        """Return the states of all questions ever asked, oldest first."""
        links = await self.office.context.store.audit.list(AuditQuery(limit=10_000))
        ids = dict.fromkeys(link.entry.approval_id for link in links if link.entry.approval_id is not None)
        found = [await self.office.context.store.approvals.find(approval_id, limit=1) for approval_id in ids]
        return [records[0].status for records in found]


async def enter(office: Office) -> Gatehouse:
    return Gatehouse(office, await office.session(SESSION))


async def interrupt(task: "asyncio.Task[bytes]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
