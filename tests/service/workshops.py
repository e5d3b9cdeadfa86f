"""A gatehouse where code runs: its scripts call the tools of server `notes`."""

import dataclasses
from collections.abc import Mapping

import msgspec

from pml.core.approvals.record import Approval, OwnerId, SessionId
from pml.core.code.sandbox import Language
from pml.core.config.file import FileKind
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.core.values import Json, JsonObject, loads_object
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.calls.execute import execute, go_on
from pml.service.calls.workflows import Continuation, resume
from pml.service.sandboxes import Sandboxes
from pml.service.upkeep import sweep
from tests.fakes import FakeAsking, FakeOwners, FakeServers
from tests.fakes_sandbox import FakeSandbox, Script
from tests.service.gatehouses import Gatehouse
from tests.service.offices import SESSION, Office


class Codehouse(Gatehouse):
    """`run` hands code over, which is the name of a script."""

    sandbox: FakeSandbox

    @classmethod
    async def open(cls, office: Office, scripts: Mapping[str, Script]) -> "Codehouse":
        house = cls(office, await office.session(SESSION))
        house.equip(FakeSandbox(scripts))
        return house

    def equip(self, sandbox: FakeSandbox) -> None:
        self.sandbox = sandbox
        workshop = Sandboxes(sandboxes={language: lambda: sandbox for language in Language})
        self.gate = dataclasses.replace(self.gate, servers=self.servers, workshop=workshop)

    async def restart(self) -> "Codehouse":
        """Return the house after its process was killed: another session of the same principal."""
        office = self.office
        config = office.read(FileKind.USER)
        context = dataclasses.replace(office.context, owners=FakeOwners(OwnerId("the next")), policies={})
        await sweep(context)
        session = await office.session(SessionId("session-2"))
        house = Codehouse(office, session, context=context, servers=FakeServers())
        office.write(FileKind.USER, config)
        house.equip(FakeSandbox(self.sandbox.scripts))
        return house

    async def run(
        self, code: str, args: JsonObject | None = None, *, asking: FakeAsking | None = None
    ) -> Json:
        arguments: JsonObject = {"code": code, "args": args or {}}
        attempt = Attempt(tool=parse_tool(EXECUTE), arguments=arguments, offered=True)
        return _value(await execute(PendingCall(self.gate, attempt, asking or FakeAsking())))

    async def resume(self, paused: Paused, *, asking: FakeAsking | None = None, **said: bool) -> Json:
        """Continue the workflow, as `execute` does with nothing but `continue_workflow`."""
        continued = Continuation(workflow_id=paused.workflow.id, approved=said.get("approved", True))
        attempt, _ = await resume(self.gate, continued, given={EXECUTE: {}}, client="agent")
        assert attempt.run_id is not None
        return _value(await go_on(PendingCall(self.gate, attempt, asking or FakeAsking()), attempt.run_id))

    @property
    def added(self) -> list[Json]:
        """What the server was told to add, in order."""
        params = [params["arguments"] for _, _, params in self.servers.ran]
        return [it.get("text") for it in params if isinstance(it, Mapping)]

    async def allow(self, record: Approval) -> None:
        await self.office.allow(record)


def _value(result: bytes) -> Json:
    structured = loads_object(result, what="the result")["structuredContent"]
    assert isinstance(structured, Mapping)
    return msgspec.to_builtins(structured["result"])
