"""A warehouse with a registry of capabilities, a sandbox that runs scripts in their place, and a cloud.

A script stands for a capability's code by that code itself, so what is read of the code beforehand is real.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from pml.core.approvals.record import Approval, OwnerId, SessionId, State
from pml.core.code.sandbox import Conditions, Execution, Language, Program, Reply
from pml.core.config.file import FileKind
from pml.core.errors import PmlError, Unavailable
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.core.packages.capability import CapabilityType, McpDependency, Routing
from pml.core.ports.queries import ApprovalQuery
from pml.core.ports.records import Session
from pml.core.values import Json, JsonObject, loads_object
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.calls.execute import execute, go_on
from pml.service.calls.pipeline import call_tool
from pml.service.calls.workflows import Continuation, resume
from pml.service.context import Context
from pml.service.sandboxes import Sandboxes
from pml.service.upkeep import sweep
from tests.fakes import FakeAsking, FakeOwners
from tests.fakes_loading import FakeInstaller, FakeSources, FakeVariables
from tests.fakes_sandbox import FakeExecution, FakeSandbox, Script, value
from tests.service.gatehouses import ADD, LIST, SERVER
from tests.service.offices import BOUND_S, SESSION, Office
from tests.service.warehouses import Warehouse

Asked = list[tuple[str, JsonObject]]
Work = Generator[Asked, Reply, Any]
T = TypeVar("T")

COMMAND: Final[JsonObject] = {"name": "run", "inputSchema": {"type": "object"}}


def add(text: str) -> tuple[str, JsonObject]:
    return "notes:add", {"text": text}


def one_by_one(*calls: tuple[str, JsonObject], result: Json = "done") -> Script:
    """Return a script that makes the calls one after another, and fails where one fails."""

    def script(args: Any) -> Work:
        for call in calls:
            value((yield [call]))
        return result

    return script


def at_once(*calls: tuple[str, JsonObject]) -> Script:
    """Return a script that makes the calls at once and returns, per call, its value or its fault's code."""

    def script(args: Any) -> Work:
        told: dict[int, Any] = {}
        asked: Asked = list(calls)
        while len(told) < len(calls):
            reply = yield asked
            told[reply.number] = reply.fault.code if reply.fault else msgspec.json.decode(reply.value)
            asked = []
        return [told[number] for number in sorted(told)]

    return script


def catching(*calls: tuple[str, JsonObject]) -> Script:
    """Return a script that makes the calls one after another and returns what each was refused with."""

    def script(args: Any) -> Work:
        told: list[str | None] = []
        for call in calls:
            reply = yield [call]
            told.append(None if reply.fault is None else reply.fault.code)
        return told

    return script


def code_that_calls(*tools: str, note: str = "", dynamic: bool = False) -> str:
    """Return code that names these tools in plain sight."""
    calls = [f"  await mcp.{tool.replace(':', '.')}(args);" for tool in tools]
    calls += ["  await mcp[args.ns][args.action](args);"] if dynamic else []
    return "\n".join([f"// {note}", "export async function run(args, { mcp }) {", *calls, "}"])


class UnsteadySandbox(FakeSandbox):
    """A sandbox that cannot be had while it `is_away`, or whose code dies when it is dumped."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        super().__init__(scripts)
        self.is_away = False
        self.cannot_dump = False

    async def open(self, program: Program, conditions: Conditions) -> Execution:
        if self.is_away:
            raise Unavailable("no process can be had")
        execution = UnsteadyExecution(self.scripts[program.code], program, conditions)
        execution.cannot_dump = self.cannot_dump
        self.opened.append(execution)
        return execution


class UnsteadyExecution(FakeExecution):
    cannot_dump = False

    async def dump(self) -> bytes | None:
        if self.cannot_dump:
            raise Unavailable("the sandbox died")
        return None


class FakeCloud:
    """A cloud that answers as the test wants. `calls` are all that it was sent: where, what, by which key."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, JsonObject, str | None]] = []
        self.error: PmlError | None = None
        self.result: JsonObject = {"content": [{"type": "text", "text": "from the cloud"}]}
        self.hangs = False
        self.running = asyncio.Event()

    async def call(self, url: str, name: str, arguments: JsonObject, *, key: str | None) -> bytes:
        self.calls.append((url, name, arguments, key))
        self.running.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return msgspec.json.encode(self.result)

    async def close(self) -> None: ...


class Library(Warehouse):
    """Server `notes` is configured; the registry has what `publish` put there; nobody answers."""

    configured: ClassVar[JsonObject] = {"notes": SERVER}

    def __init__(
        self,
        office: Office,
        session: Session,
        *,
        context: Context | None = None,
        sources: FakeSources | None = None,
        installer: FakeInstaller | None = None,
        variables: FakeVariables | None = None,
        scripts: Mapping[str, Script] | None = None,
    ) -> None:
        super().__init__(
            office, session, context=context, sources=sources, installer=installer, variables=variables
        )
        self.servers.offer("notes", ADD, LIST, COMMAND)
        self.cloud = FakeCloud()
        self.sandbox = UnsteadySandbox(scripts or {})
        self.workshop = Sandboxes(sandboxes={language: lambda: self.sandbox for language in Language})
        self.equip(workshop=self.workshop, cloud=self.cloud)

    def equip(self, **more: Any) -> None:
        """Let the gate have this too."""
        self.gate = dataclasses.replace(self.gate, **more)

    async def restart(self, session_id: str = "session-2", **ignored: Any) -> "Library":
        """Return the house after its process was killed: another session of the same principal."""
        office = self.office
        config = office.read(FileKind.USER)
        owners = FakeOwners(OwnerId(f"owner of {session_id}"))
        context = dataclasses.replace(office.context, owners=owners, policies={})
        await sweep(context)
        other = Library(
            office,
            await office.session(SessionId(session_id)),
            context=context,
            sources=self.sources,
            installer=self.installer,
            variables=self.variables,
            scripts=self.sandbox.scripts,
        )
        office.write(FileKind.USER, config)
        return other

    def publish(
        self,
        name: str,
        script: Script,
        *calls: str,
        dependencies: Sequence[McpDependency] = (),
        routing: Routing = Routing.CLIENT,
        kind: CapabilityType = CapabilityType.DENO,
        note: str = "",
        dynamic: bool = False,
        code: str | None = None,
    ) -> None:
        """Let the registry have `acme.tools.NAME`, whose code calls these and does what the script does."""
        code = code or code_that_calls(*calls, note=note or name, dynamic=dynamic)
        self.sandbox.scripts[code] = script
        self.sources.publish(f"acme.tools.{name}", code, *dependencies, routing=routing, kind=kind)

    async def use(
        self,
        tool: str,
        arguments: JsonObject | None = None,
        *,
        asking: FakeAsking | None = None,
        settled: Approval | None = None,
    ) -> Json:
        """Call the tool, and return what its code returned."""
        return value_in(await self.call(tool, arguments or {}, asking=asking, offered=False, settled=settled))

    async def leave(
        self, tool: str, arguments: JsonObject | None = None, *, asking: FakeAsking | None = None
    ) -> Paused:
        """Call the tool, which waits for an answer that nobody gives."""
        return await self.pause(tool, arguments or {}, asking=asking or FakeAsking(has_form=True))

    async def run(self, code: str, *, asking: FakeAsking | None = None) -> Json:
        """Hand code over, which is the name of a script."""
        attempt = Attempt(tool=parse_tool(EXECUTE), arguments={"code": code}, offered=True)
        result = await execute(PendingCall(self.gate, attempt, asking or FakeAsking(has_form=True)))
        return value_in(result)

    async def resume(
        self, paused: Paused, *, asking: FakeAsking | None = None, approved: bool = True
    ) -> Json:
        """Continue the workflow as `call` does with nothing but `continue_workflow`."""
        said = Continuation(workflow_id=paused.workflow.id, approved=approved)
        attempt, settled = await resume(self.gate, said, given=None, client="agent")
        asked = asking or FakeAsking(has_form=True)
        if attempt.run_id is None:
            return value_in(await call_tool(PendingCall(self.gate, attempt, asked, settled=settled)))
        return await self.take_up(attempt.run_id, asking=asked)

    async def take_up(self, run_id: str, *, asking: FakeAsking | None = None) -> Json:
        attempt = Attempt(tool=parse_tool(EXECUTE), arguments={}, offered=True)
        asked = asking or FakeAsking(has_form=True)
        return value_in(await go_on(PendingCall(self.gate, attempt, asked), run_id))

    async def allow(self, record: Approval) -> None:
        await self.office.allow(record)

    @property
    def added(self) -> list[Json]:
        """What servers were told to add, in order."""
        params = [params["arguments"] for _, _, params in self.servers.ran]
        return [it.get("text") for it in params if isinstance(it, Mapping)]

    async def open_questions(self) -> list[Approval]:
        found = await self.questions()
        return [record for record in found if record.status is State.PENDING]


def value_in(result: bytes) -> Json:
    structured = loads_object(result, what="the result")["structuredContent"]
    assert isinstance(structured, Mapping)
    return msgspec.to_builtins(structured["result"])


class Stopping:
    """Lets everything through to what it stands for, but for one method, which never returns once.

    That is how a kill leaves things: what was done before stays, nothing after is done, nobody tidies up.
    """

    def __init__(self, real: Any, method: str, *, skip: int = 0, after: bool = False) -> None:
        self._real = real
        self._method = method
        self._skip = skip
        self._after = after
        self._is_over = False
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return self._stopped(found) if name == self._method else found

    def _stopped(self, real: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def stopped(*given: Any, **named: Any) -> T:
            if self._is_over or self._skip:
                self._skip -= not self._is_over
                return await real(*given, **named)
            self._is_over = True
            if self._after:
                await real(*given, **named)
            self.reached.set()
            await asyncio.Event().wait()
            raise AssertionError("nothing sets that event")

        return stopped


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(BOUND_S):
        await event.wait()


async def abandon(*tasks: "asyncio.Task[Any]") -> None:
    """End what a test has left hanging."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def enter_library(office: Office) -> Library:
    return Library(office, await office.session(SESSION))


async def asked_in_run(office: Office, run_id: str | None) -> list[Approval]:
    return await office.context.store.approvals.page(ApprovalQuery(run_id=run_id))
