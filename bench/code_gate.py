"""A real gate for benchmarks of code: rules, audit, journal, sandboxes and the echo server behind it.

`echo:echo` and the capabilities of `quick` are allowed; `echo:big` is asked about, and nobody answers.
"""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from bench.caller import Wrong
from bench.contexts import ME, bench_context, bench_session
from bench.peers import ECHO_SERVER
from pml.app import Place, open_fleet, open_loader, open_workshop
from pml.core.approvals.record import Approval
from pml.core.code.sandbox import Language
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.values import Json, JsonObject
from pml.sandbox.deno.sandbox import DenoSandbox
from pml.sandbox.monty.sandbox import MontySandbox
from pml.service.approvals.lifecycle import Decision, decide
from pml.service.call import Attempt, Gate, Paused, PendingCall
from pml.service.calls.absent_client import Nobody
from pml.service.calls.execute import execute, go_on
from pml.service.calls.own_tools import admit_own
from pml.service.calls.pipeline import call_tool

Heard = Callable[[JsonObject], None]
CAPABILITIES = {
    "nothing": "export async function nothing(args: { n: number }) { return args.n + 1; }\n",
    "one": "export async function one(args: { text: string }, { mcp }) {\n"
    "  return await mcp.echo.echo({ text: args.text });\n"
    "}\n",
}


class Away:
    """A client whose user does not answer."""

    has_form = True
    declares_form = True
    has_model = True

    async def put(self, record: Approval) -> Approval:
        return record


class _Structured(msgspec.Struct):
    result: msgspec.Raw


class _Result(msgspec.Struct):
    structuredContent: _Structured


def configure(home: Path) -> None:
    """Write the user's own file, and a folder with the capabilities as a registry."""
    registry = home / "registry"
    registry.mkdir()
    for action, code in CAPABILITIES.items():
        fqdn = f"bench.code.quick.{action}"
        metadata = {
            "fqdn": fqdn,
            "type": "deno",
            "routing": "client",
            "tools": [action],
            "code_integrity": str(integrity_of(code.encode(), Algorithm.SHA256)),
        }
        (registry / f"{fqdn}.json").write_text(json.dumps(metadata))
        (registry / f"{fqdn}.ts").write_text(code)
    command, *args = ECHO_SERVER
    config = {
        "version": "0.1.0",
        "permissions": {"allow": ["echo:echo", "quick:*"], "deny": [], "ask": ["*"]},
        "mcpServers": {"echo": {"command": command, "args": args}},
        "registry": str(registry),
        "registry_prefix": "bench.code",
    }
    (home / "pml").mkdir(exist_ok=True)
    (home / "pml" / "config.json").write_text(json.dumps(config))


class CodeGate:
    """The gate, and what is done with it; every answer is checked."""

    def __init__(self, place: Place, gate: Gate) -> None:
        self._place = place
        self.gate = gate

    async def warm(self) -> None:
        """Have every process ready that is kept ready."""
        assert self.gate.workshop is not None
        for language in Language:
            sandbox = self.gate.workshop.sandbox(language)
            assert isinstance(sandbox, DenoSandbox | MontySandbox)
            await sandbox.warm()

    async def call(self, tool: str, arguments: JsonObject) -> bytes:
        attempt = Attempt(tool=parse_tool(tool), arguments=arguments, offered=False)
        return await call_tool(PendingCall(self.gate, attempt, Away()))

    async def execute(self, language: Language, code: str, *, heard: Heard | None = None) -> bytes:
        """Run the code as `execute` does. Raises: Paused where it waits for an answer."""
        arguments: JsonObject = {"language": language, "code": code}
        attempt = Attempt(tool=parse_tool(EXECUTE), arguments=arguments, offered=True)
        call = PendingCall(self.gate, attempt, Away(), on_progress=heard)
        call.attempt = await admit_own(call)
        return await execute(call)

    async def pause(self, language: Language, code: str) -> str:
        """Run code as far as the call that is asked about, allow that, and return the run."""
        run_id = None
        try:
            await self.execute(language, code)
        except Paused as exc:
            decision = Decision(by=ME, digest=exc.record.digest, allow=True)
            await decide(self.gate.context, exc.record.id, decision)
            run_id = exc.workflow.run_id
        if run_id is None:
            raise Wrong("the code was not asked about")
        return run_id

    async def go_on(self, run_id: str) -> bytes:
        attempt = Attempt(tool=parse_tool(EXECUTE), arguments={}, offered=True)
        return await go_on(PendingCall(self.gate, attempt, Away()), run_id)

    @asynccontextmanager
    async def elsewhere(self) -> AsyncGenerator["CodeGate"]:
        """Yield the gate as another process has it: nothing of the code is left but what is stored."""
        workshop = open_workshop(self._place)
        try:
            yield CodeGate(self._place, replace(self.gate, workshop=workshop))
        finally:
            await workshop.close()


@asynccontextmanager
async def code_gate(home: Path) -> AsyncGenerator[CodeGate]:
    """Open a gate on `home`, as `configure` has made it."""
    place = Place(home=home / "pml", workspace=home / "workspace", user_home=home)
    async with AsyncExitStack() as stack:
        context = await stack.enter_async_context(bench_context(home))
        session = await bench_session(context, home, "code")
        fleet = open_fleet(context, place, Nobody(session.workspace))
        stack.push_async_callback(fleet.close)
        workshop = open_workshop(place)
        stack.push_async_callback(workshop.close)
        loader = open_loader(context, place, fleet, warn=lambda line: None)
        yield CodeGate(
            place, Gate(context=context, session=session, servers=fleet, loader=loader, workshop=workshop)
        )


def check(result: bytes, expected: Json) -> None:
    """Raise Wrong if that is not what the code returned."""
    found = json.loads(bytes(msgspec.json.decode(result, type=_Result).structuredContent.result))
    if found != expected:
        raise Wrong(f"the code returned {str(found)[:200]}")
