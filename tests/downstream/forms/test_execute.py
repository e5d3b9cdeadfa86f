"""`execute` on the wire, in both eras: results, errors, forms in the middle of code, and going on with it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from pml.app import open_workshop
from pml.core.approvals.record import State
from pml.core.code.sandbox import Conditions, Ending, Execution, Language, Program, Reply, Turn
from pml.core.packages.capability import CapabilityType
from pml.core.packages.permissions import Containment
from pml.core.ports.queries import ApprovalQuery
from pml.core.values import Json, JsonObject
from pml.downstream.forms.relay import Relay
from pml.downstream.gateway import Gateway
from pml.downstream.protocol.eras import MODERN, Era
from pml.service.call import Gate, Loader
from pml.service.sandboxes import Sandboxes
from tests.downstream.parties import (
    FORMS,
    LATEST,
    SOON_S,
    Message,
    Party,
    code_of,
    text_of,
    text_result,
    tool,
)
from tests.fakes_loading import FakeInstaller, FakeSources, FakeVariables
from tests.fakes_sandbox import FakeExecution, FakeSandbox, Script, value
from tests.promises import promise

Asked = list[tuple[str, JsonObject]]
Work = Generator[Asked, Reply, Any]

BOTH = pytest.mark.parametrize("version", ["2025-06-18", LATEST, MODERN])
GONE: Final = {"code": -32000, "message": "Workflow expired or not found"}
WRITE: Final = "files:write"
ONCE: Final[JsonObject] = {"action": "accept", "content": {"remember": "once"}}
DECLINE: Final[JsonObject] = {"action": "decline"}


def read(path: str) -> tuple[str, JsonObject]:
    return "files:read", {"path": path}


def write(path: str) -> tuple[str, JsonObject]:
    return WRITE, {"path": path, "text": "x"}


def three(args: Any) -> Work:
    """Read a file, write one, which asks, and read another."""
    for call in (read("first"), write("asks"), read("last")):
        value((yield [call]))
    return {"args": args, "done": True}


def two_asks(args: Any) -> Work:
    value((yield [write("one")]))
    value((yield [write("two")]))
    return "both"


def asks_at_once(args: Any) -> Work:
    yield [write("one"), write("two"), read("free")]
    yield []
    yield []
    return "all"


def catching(args: Any) -> Work:
    reply = yield [write("asks")]
    return None if reply.fault is None else reply.fault.code


def failing(args: Any) -> Work:
    value((yield [read("first")]))
    raise RuntimeError("it broke")


SCRIPTS: Final[dict[str, Script]] = {
    "three": three,
    "two asks": two_asks,
    "at once": asks_at_once,
    "catching": catching,
    "failing": failing,
}


class TellingSandbox(FakeSandbox):
    """A sandbox whose code says a line when it begins."""

    async def open(self, program: Program, conditions: Conditions) -> Execution:
        execution = TellingExecution(self.scripts[program.code], program, conditions)
        self.opened.append(execution)
        return execution


class TellingExecution(FakeExecution):
    async def begin(self) -> Turn:
        turn = await super().begin()
        return Turn(requests=turn.requests, logs=["hello"], ended=turn.ended)

    async def deliver(self, reply: Reply) -> Turn:
        """As real code: an error that it did not catch keeps its code."""
        turn = await super().deliver(reply)
        ended = turn.ended
        if ended is None or ended.how is not Ending.RAISED or reply.fault is None:
            return turn
        return replace(turn, ended=replace(ended, code=reply.fault.code, message=reply.fault.message))


class Coder(Party):
    """A client behind whose gateway code runs; capabilities are in `sources`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sandbox = TellingSandbox(SCRIPTS)
        self.workshop = Sandboxes(sandboxes={language: lambda: self.sandbox for language in Language})
        self.sources = FakeSources()

    async def _open(self, era: Era) -> Gateway:
        self.opened.append(era)
        session = await self.office.session()
        self.relay = Relay(self.connection, session.workspace)
        self.servers.on_changed = self.relay.changed
        loader = Loader(
            sources=self.sources,
            installer=FakeInstaller(),
            variables=FakeVariables(),
            containment=lambda permissions: Containment.BUBBLEWRAP,
        )
        gate = Gate(
            context=self.office.context,
            session=session,
            servers=self.servers,
            loader=loader,
            workshop=self.workshop,
            is_stdio=True,
        )
        self._gateway = Gateway(gate, self.connection, self.relay)
        return self._gateway

    async def close(self) -> None:
        await super().close()
        await self.workshop.close()

    @property
    def paths(self) -> list[Json]:
        """What files were read and written, in order."""
        found = [params["arguments"] for params in self.servers.calls]
        return [it["path"] for it in found if isinstance(it, dict)]

    async def leave(self, code: str = "three", *, version: str = LATEST) -> str:
        """Run code from a client without forms until it waits, and return the workflow's id."""
        await self.connect(version)
        result = await self.call("execute", {"code": code})
        assert result["approval_required"] is True, result
        return result["approval_context"]["workflow_id"]

    async def statuses(self) -> list[State]:
        return [it.status for it in await self.office.context.store.approvals.page(ApprovalQuery())]


@pytest.fixture
async def coder(tmp_path: Path) -> AsyncGenerator[Coder]:
    coder = Coder(tmp_path)
    coder.serve("files", tool("read", required=["path"]), tool("write", required=["path", "text"]))
    coder.rules(allow=["files:read"])
    yield coder
    await coder.close()


# Results


@BOTH
async def test_the_value_is_told_as_text_and_as_structure_with_what_was_printed(
    coder: Coder, version: str
) -> None:
    coder.rules(allow=["files:*"])
    await coder.connect(version)

    result = await coder.call("execute", {"code": "three", "args": {"n": 1}})

    told = {"args": {"n": 1}, "done": True}
    assert result["structuredContent"] == {"result": told, "logs": ["hello"]}
    assert text_of(result) == json.dumps(told, indent=2)
    assert result["isError"] is False
    assert coder.paths == ["first", "asks", "last"]


@BOTH
async def test_an_error_tells_where_it_was_and_what_was_printed(coder: Coder, version: str) -> None:
    await coder.connect(version)

    result = await coder.call("execute", {"code": "failing"})

    error = result["structuredContent"]["error"]
    assert (error["code"], error["message"]) == ("code_failed", "it broke")
    assert (error["line"], error["column"], error["logs"]) == (1, 1, ["hello"])
    assert text_of(result).split("\n")[:3] == ["it broke", "at line 1, column 1 of the code", "hello"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"code": ""},
        {"code": " \n"},
        {"code": 7},
        {"code": "three", "language": "perl"},
        {"code": "three", "language": 7},
        {"code": "three", "args": []},
        {"code": "three", "args": "x"},
        {"code": "x" * (1024 * 1024 + 1)},
    ],
)
async def test_what_is_no_code_is_refused_and_runs_nothing(coder: Coder, arguments: JsonObject) -> None:
    await coder.connect()

    assert code_of(await coder.call("execute", arguments)) == "invalid_arguments"
    assert coder.sandbox.opened == []


@promise("code:effects-are-told")
@pytest.mark.parametrize("rules", [{"deny": [WRITE]}, {}])
async def test_code_that_failed_after_it_did_something_is_not_said_to_have_done_nothing(
    coder: Coder, rules: dict[str, list[Json]]
) -> None:
    coder.rules(allow=["files:read"], **rules)
    await coder.connect(LATEST, FORMS)
    id = coder.start_call("execute", {"code": "three"})
    if not rules:
        coder.reply(await coder.asked(), DECLINE)
    result = await coder.result_of(id)

    assert coder.paths == ["first"]
    assert result["isError"] is True
    assert "Nothing has run" not in json.dumps(result)
    assert result["structuredContent"]["error"]["retry"] is False


@promise("code:effects-are-told")
async def test_a_result_that_waits_does_not_say_that_nothing_has_run(coder: Coder) -> None:
    await coder.connect()
    result = await coder.call("execute", {"code": "three"})

    assert coder.paths == ["first"]
    assert "what it did before is not done again" in text_of(result)
    assert "Nothing has run." not in text_of(result)


@promise("code:effects-are-told")
async def test_a_server_that_failed_in_code_is_no_reason_to_run_all_of_it_again(coder: Coder) -> None:
    async def refuse(method: str, params: JsonObject, on_progress: Any) -> bytes:
        arguments = params["arguments"]
        assert isinstance(arguments, dict)
        if arguments["path"] == "last":
            return b'{"content": [{"type": "text", "text": "no such file"}], "isError": true}'
        return b'{"content": []}'

    coder.servers.named["files"].answer = refuse
    coder.rules(allow=["files:*"])
    await coder.connect()

    result = await coder.call("execute", {"code": "three"})

    assert "no such file" in text_of(result)
    assert result["structuredContent"]["error"]["retry"] is False


# Paused, and continued


@BOTH
async def test_code_that_waits_tells_its_question_its_workflow_and_its_run(
    coder: Coder, version: str
) -> None:
    await coder.connect(version)
    result = await coder.call("execute", {"code": "three"})

    context = result["approval_context"]
    assert context["tool"] == WRITE
    assert context["run_id"] != context["workflow_id"]
    assert text_of(result).startswith("Approval required to call files:write\n")
    assert coder.paths == ["first"]


@BOTH
@pytest.mark.parametrize("name", ["execute", "call"])
@promise("code:pause-repeats-nothing")
async def test_continue_workflow_alone_goes_on_with_the_code(coder: Coder, version: str, name: str) -> None:
    workflow_id = await coder.leave(version=version)

    answer = await coder.continue_(name, workflow_id)

    assert answer["result"]["structuredContent"]["result"] == {"args": {}, "done": True}
    assert coder.paths == ["first", "asks", "last"]


async def test_each_approval_in_a_run_has_its_own_workflow(coder: Coder) -> None:
    first = await coder.leave("two asks")
    second = (await coder.continue_("execute", first))["result"]["approval_context"]

    assert second["workflow_id"] != first
    assert coder.paths == ["one"]
    done = await coder.continue_("call", second["workflow_id"])
    assert done["result"]["structuredContent"]["result"] == "both"
    assert coder.paths == ["one", "two"]


@promise("workflow:bound-to-its-call")
async def test_arguments_beside_it_that_are_not_those_of_the_run_are_refused(coder: Coder) -> None:
    workflow_id = await coder.leave()
    said = {"workflow_id": workflow_id, "approved": True}

    refused = await coder.call("execute", {"code": "two asks", "continue_workflow": said})
    assert code_of(refused) == "invalid_arguments"
    assert coder.paths == ["first"]

    done = await coder.call("execute", {"code": "three", "continue_workflow": said})
    assert done["structuredContent"]["result"] == {"args": {}, "done": True}


@promise("workflow:bound-to-its-call")
@pytest.mark.parametrize("name", ["files__write", "discover", "call"])
async def test_a_run_is_not_continued_by_another_tool(coder: Coder, name: str) -> None:
    workflow_id = await coder.leave()
    said: JsonObject = {"continue_workflow": {"workflow_id": workflow_id, "approved": True}}
    arguments: JsonObject = {"tool": WRITE, **said} if name == "call" else said

    if name == "files__write":
        assert await coder.call_error(name, arguments) == GONE
    else:
        assert code_of(await coder.call(name, arguments)) == "workflow_gone"
    assert coder.paths == ["first"]


@promise("workflow:once")
async def test_a_run_is_continued_once_by_one_workflow(coder: Coder) -> None:
    workflow_id = await coder.leave()
    await coder.continue_("execute", workflow_id)

    assert code_of((await coder.continue_("execute", workflow_id))["result"]) == "workflow_gone"
    assert coder.paths == ["first", "asks", "last"]


async def test_giving_it_up_ends_the_run(coder: Coder) -> None:
    workflow_id = await coder.leave("at once")

    answer = await coder.continue_("execute", workflow_id, approved=False, message="rather not")

    assert code_of(answer["result"]) == "workflow_aborted"
    assert text_of(answer["result"]).startswith("Workflow aborted by user: rather not\n")
    assert State.PENDING not in await coder.statuses()
    assert coder.paths == ["free"]


async def test_a_no_from_elsewhere_is_told_to_the_code(coder: Coder) -> None:
    workflow_id = await coder.leave("catching")
    await coder.decide(allow=False)

    answer = await coder.continue_("execute", workflow_id)

    assert answer["result"]["structuredContent"]["result"] == "user_denied"
    assert coder.paths == []


# Rules on `execute` itself


@promise("rules:deny-wins")
@pytest.mark.parametrize("how", ["execute", "pml:execute", "call"])
async def test_a_deny_of_execute_holds_however_it_is_called(coder: Coder, how: str) -> None:
    coder.rules(allow=["files:*"], deny=["pml:execute"])
    await coder.connect()
    code: JsonObject = {"code": "three"}
    arguments: JsonObject = {"tool": "pml:execute", "arguments": code} if how == "call" else code

    result = await coder.call(how, arguments)
    if result.get("approval_required"):  # `call` names PML itself here: a person may allow that, and no more
        await coder.decide(allow=True)
        result = (await coder.continue_(how, result["approval_context"]["workflow_id"]))["result"]

    assert result["isError"] is True
    assert (coder.sandbox.opened, coder.paths) == ([], [])


@promise("gate:asks-before-running")
@pytest.mark.parametrize("how", ["execute", "call"])
async def test_an_ask_for_execute_holds_however_it_is_called(coder: Coder, how: str) -> None:
    coder.rules(allow=["files:*"], ask=["pml:execute"])
    await coder.connect()
    code: JsonObject = {"code": "three"}
    arguments: JsonObject = {"tool": "pml:execute", "arguments": code} if how == "call" else code

    result = await coder.call(how, arguments)

    assert result.get("approval_required") is True or result["isError"] is True
    assert (coder.sandbox.opened, coder.paths) == ([], [])


@promise("gate:asks-before-running")
async def test_code_that_was_asked_about_itself_runs_when_it_is_allowed(coder: Coder) -> None:
    coder.rules(allow=["files:*"], ask=["pml:execute"])
    workflow_id = await coder.leave()
    await coder.decide(allow=True)

    answer = await coder.continue_("execute", workflow_id)

    assert answer["result"]["structuredContent"]["result"] == {"args": {}, "done": True}


@promise("claim:judged-again")
async def test_a_deny_of_execute_that_comes_during_a_pause_stops_the_run(coder: Coder) -> None:
    workflow_id = await coder.leave()
    coder.rules(allow=["files:*"], deny=["pml:execute"])

    answer = await coder.continue_("execute", workflow_id)

    assert code_of(answer["result"]) == "TOOL_DENIED"
    assert coder.paths == ["first"]


# Forms in the middle of code


async def retry(coder: Coder, form: Message, answer: Json, code: str) -> Message:
    assert form["resultType"] == "input_required"
    return await coder.call(
        "execute",
        {"code": code},
        inputResponses={"approval": answer},
        requestState=form["requestState"],
    )


@promise("code:pause-repeats-nothing")
async def test_a_modern_client_is_shown_each_form_of_a_run_in_its_own_round(coder: Coder) -> None:
    await coder.connect(MODERN, FORMS)
    form = await coder.call("execute", {"code": "two asks"})
    assert "files:write" in json.dumps(form["inputRequests"])
    assert coder.paths == []

    second = await retry(coder, form, ONCE, "two asks")
    assert second["resultType"] == "input_required"
    assert coder.paths == ["one"]

    done = await retry(coder, second, ONCE, "two asks")
    assert done["structuredContent"]["result"] == "both"
    assert coder.paths == ["one", "two"]


@promise("form:bound-and-single-use")
async def test_a_form_of_a_run_is_answered_once_and_only_with_its_own_code(coder: Coder) -> None:
    await coder.connect(MODERN, FORMS)
    form = await coder.call("execute", {"code": "two asks"})
    other = coder.start_call(
        "execute",
        {"code": "three"},
        inputResponses={"approval": ONCE},
        requestState=form["requestState"],
    )
    assert "error" in await coder.answer(other)
    assert coder.paths == []

    await retry(coder, form, ONCE, "two asks")
    again = coder.start_call(
        "execute",
        {"code": "two asks"},
        inputResponses={"approval": ONCE},
        requestState=form["requestState"],
    )
    assert "error" in await coder.answer(again)
    assert coder.paths == ["one"]


@promise("code:denied-is-caught")
async def test_a_modern_form_that_is_declined_is_an_error_in_the_code(coder: Coder) -> None:
    await coder.connect(MODERN, FORMS)
    form = await coder.call("execute", {"code": "catching"})

    done = await retry(coder, form, DECLINE, "catching")

    assert done["structuredContent"]["result"] == "user_denied"
    assert coder.paths == []


@promise("form:nobody-decides-nothing")
async def test_a_modern_form_that_nobody_answered_leaves_the_code_waiting(coder: Coder) -> None:
    await coder.connect(MODERN, FORMS)
    form = await coder.call("execute", {"code": "three"})

    left = await retry(coder, form, {"action": "cancel"}, "three")

    assert left["approval_required"] is True
    await coder.decide(allow=True)
    answer = await coder.continue_("execute", left["approval_context"]["workflow_id"])
    assert answer["result"]["structuredContent"]["result"] == {"args": {}, "done": True}
    assert coder.paths == ["first", "asks", "last"]


@promise("code:pause-repeats-nothing")
async def test_calls_made_at_once_are_asked_about_form_by_form(coder: Coder) -> None:
    await coder.connect(MODERN, FORMS)
    form = await coder.call("execute", {"code": "at once"})
    assert coder.paths == ["free"]
    second = await retry(coder, form, ONCE, "at once")
    done = await retry(coder, second, ONCE, "at once")

    assert done["structuredContent"]["result"] == "all"
    assert coder.paths == ["free", "one", "two"]


async def test_an_older_client_is_asked_while_its_call_waits(coder: Coder) -> None:
    await coder.connect(LATEST, FORMS)
    id = coder.start_call("execute", {"code": "two asks"})
    coder.reply(await coder.asked(), ONCE)
    coder.reply(await coder.asked(), ONCE)

    result = await coder.result_of(id)

    assert result["structuredContent"]["result"] == "both"
    assert coder.paths == ["one", "two"]


async def test_an_older_client_sees_the_forms_of_calls_made_at_once_together(coder: Coder) -> None:
    await coder.connect(LATEST, FORMS)
    id = coder.start_call("execute", {"code": "at once"})
    first, second = await coder.asked(), await coder.asked()
    coder.reply(second, ONCE)
    coder.reply(first, ONCE)

    assert (await coder.result_of(id))["structuredContent"]["result"] == "all"
    assert sorted(map(str, coder.paths)) == ["free", "one", "two"]


@promise("code:denied-is-caught")
async def test_an_older_client_that_declines_tells_the_code(coder: Coder) -> None:
    await coder.connect(LATEST, FORMS)
    id = coder.start_call("execute", {"code": "catching"})
    coder.reply(await coder.asked(), DECLINE)

    assert (await coder.result_of(id))["structuredContent"]["result"] == "user_denied"


# While it runs


@BOTH
async def test_progress_tells_each_call_of_the_code(coder: Coder, version: str) -> None:
    coder.rules(allow=["files:*"])
    await coder.connect(version)
    await coder.result(
        "tools/call",
        {"name": "execute", "arguments": {"code": "three"}, "_meta": {"progressToken": "p"}},
    )

    told = await coder.told("notifications/progress", 3)
    assert [it.get("message") for it in told] == ["files:read done", "files:write done", "files:read done"]
    assert [it["progress"] for it in told] == sorted({it["progress"] for it in told})


@pytest.mark.parametrize("version", [LATEST, MODERN])
@pytest.mark.parametrize("capabilities", [{}, FORMS])
async def test_cancelling_the_request_ends_the_code_and_its_call(
    coder: Coder, version: str, capabilities: JsonObject
) -> None:
    began = asyncio.Event()

    async def hang(method: str, params: JsonObject, on_progress: Callable[..., None] | None) -> bytes:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    coder.servers.named["files"].answer = hang
    await coder.connect(version, capabilities)
    id = coder.start_call("execute", {"code": "three"})
    async with asyncio.timeout(SOON_S):
        await began.wait()
    coder.cancel(id)
    await coder.settle()

    assert coder.sandbox.opened[0].is_closed
    assert await coder.office.context.store.journals.owners() == []


async def test_cancelling_a_request_whose_form_is_open_takes_its_questions_back(coder: Coder) -> None:
    await coder.connect(LATEST, FORMS)
    id = coder.start_call("execute", {"code": "at once"})
    await coder.asked()
    await coder.asked()
    coder.cancel(id)
    await coder.settle()

    assert await coder.statuses() == [State.CANCELLED, State.CANCELLED]
    assert coder.sandbox.opened[0].is_closed
    assert coder.paths == ["free"]


# What can be called


async def test_execute_is_offered_and_says_how_it_is_used(coder: Coder) -> None:
    tools = {it["name"]: it for it in await coder.connect()}

    assert "continue_workflow" in tools["execute"]["inputSchema"]["properties"]
    assert "mcp.namespace.action" in tools["execute"]["description"]


async def test_discover_tells_how_code_calls_each_tool(coder: Coder) -> None:
    await coder.connect()
    found = (await coder.call("discover", {"query": "files"}))["structuredContent"]["tools"]

    (reading,) = [it for it in found if it["tool"] == "files:read"]
    assert reading["code"].startswith("mcp.files.read(")
    assert "path: string" in reading["code"]


@promise("capability:discovered")
async def test_discover_lists_capabilities_and_call_runs_them(coder: Coder) -> None:
    code = "export const run = (args, { mcp }) => mcp.files.read({ path: 'first' })"
    coder.sandbox.scripts[code] = failing
    coder.sources.publish(
        "acme.tools.digest",
        code,
        kind=CapabilityType.DENO,
        registry="https://registry.example",
        description="Makes a digest.",
    )
    coder.configure(registry="https://registry.example", permissions={"allow": ["files:read", "digest:run"]})
    await coder.connect()
    found = (await coder.call("discover", {"query": "digest"}))["structuredContent"]["tools"]
    assert [(it["tool"], it["call"], it["with"]) for it in found] == [
        ("digest:run", "call", {"tool": "digest:run"})
    ]

    result = await coder.call("call", {"tool": "digest:run"})
    assert code_of(result) == "code_failed"
    assert coder.paths == ["first"]


@BOTH
@promise("code:pause-repeats-nothing")
async def test_a_capability_that_waits_is_continued_by_call(coder: Coder, version: str) -> None:
    code = "export const run = (args, { mcp }) => mcp[args.a][args.b]()"
    coder.sandbox.scripts[code] = three
    coder.sources.publish("acme.tools.digest", code, registry="/registry")
    coder.rules(allow=["files:read", "digest:run"])
    await coder.connect(version)
    left = await coder.call("call", {"tool": "digest:run"})
    assert left["approval_context"]["tool"] == WRITE

    answer = await coder.continue_("call", left["approval_context"]["workflow_id"])

    assert answer["result"]["structuredContent"]["result"]["done"] is True
    assert coder.paths == ["first", "asks", "last"]


# With real sandboxes


TYPESCRIPT: Final = """console.log("begun");
const first = await mcp.files.read({ path: "first" });
await mcp.files.write({ path: "asks", text: "x" });
await mcp.files.read({ path: args.last });
return JSON.parse(first).path;"""
PYTHON: Final = """import json
print("begun")
first = await mcp.files.read(path="first")
await mcp.files.write(path="asks", text="x")
await mcp.files.read({"path": args["last"]})
json.loads(first)["path"]"""


@pytest.mark.parametrize(("language", "code"), [("typescript", TYPESCRIPT), ("python", PYTHON)])
@promise("code:pause-repeats-nothing")
async def test_real_code_waits_at_the_call_that_asks_and_goes_on(
    coder: Coder, language: str, code: str
) -> None:
    coder.workshop = open_workshop(coder.office.place)
    await coder.connect()
    left = await coder.call("execute", {"code": code, "language": language, "args": {"last": "last"}})
    assert left["approval_required"] is True, left
    assert coder.paths == ["first"]

    answer = await coder.continue_("call", left["approval_context"]["workflow_id"])

    assert answer["result"]["structuredContent"] == {"result": "first", "logs": ["begun"]}
    assert coder.paths == ["first", "asks", "last"]


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("typescript", 'await mcp.files.read({ path: "first" });\n  throw new Error("it broke");'),
        ("python", 'await mcp.files.read(path="first")\nraise ValueError("it broke")'),
    ],
)
async def test_the_error_of_real_code_tells_its_line(coder: Coder, language: str, code: str) -> None:
    coder.workshop = open_workshop(coder.office.place)
    await coder.connect()

    result = await coder.call("execute", {"code": code, "language": language})

    error = result["structuredContent"]["error"]
    assert error["line"] == 2, error
    assert "it broke" in error["message"]


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("typescript", "try { await mcp.files.write({path: 'x', text: 'y'}) } catch (e) { return e.code }"),
        (
            "python",
            "try:\n    await mcp.files.write(path='x', text='y')\n    r = 'ran'\n"
            "except Exception as e:\n    r = str(e)\nr",
        ),
    ],
)
@promise("code:denied-is-caught")
async def test_real_code_catches_a_no_and_never_a_pause(coder: Coder, language: str, code: str) -> None:
    coder.workshop = open_workshop(coder.office.place)
    await coder.connect()
    left = await coder.call("execute", {"code": code, "language": language})
    assert left["approval_required"] is True
    await coder.decide(allow=False)

    answer = await coder.continue_("execute", left["approval_context"]["workflow_id"])

    told = answer["result"]["structuredContent"]["result"]
    assert "denied" in told
    assert coder.paths == []


async def test_two_equal_forms_of_code_that_are_answered_together_ask_for_the_other(coder: Coder) -> None:
    coder.configure(approval={}, permissions={"allow": ["files:*"], "ask": ["pml:execute"]})
    await coder.connect(MODERN, FORMS)
    forms = [await coder.call("execute", {"code": "three"}) for _ in range(2)]
    ids = [
        coder.start_call(
            "execute",
            {"code": "three"},
            inputResponses={"approval": ONCE},
            requestState=form["requestState"],
        )
        for form in forms
    ]
    results = [await coder.result_of(id) for id in ids]

    assert sorted(result["resultType"] for result in results) == ["complete", "input_required"]


async def test_a_form_may_follow_a_servers_question_in_code(coder: Coder) -> None:
    question: JsonObject = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}

    async def curious(method: str, params: JsonObject, on_progress: Any) -> bytes:
        if params["name"] == "read":
            await coder.relay.elicit("files", question)
        return text_result("done")

    coder.servers.named["files"].answer = curious
    await coder.connect(MODERN, FORMS)
    result = await coder.call("execute", {"code": "three"})
    asked: list[str] = []
    while result["resultType"] == "input_required":
        ((key, _),) = result["inputRequests"].items()
        asked.append(key)
        result = await coder.call(
            "execute", {"code": "three"}, inputResponses={key: ONCE}, requestState=result["requestState"]
        )

    assert asked[:2] == ["server", "approval"]
    assert result["structuredContent"]["result"]["done"] is True
