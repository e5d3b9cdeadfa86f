"""Capabilities: what a rule, an answer or a loaded server does not reach, and what the cloud gets."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import Approval, Scope, State, Subject
from pml.core.approvals.subjects import asked_facts
from pml.core.config.file import FileKind
from pml.core.errors import CodeFailed, NotFound, ToolFailed
from pml.core.names import parse_tool
from pml.core.own_tools import EXECUTE
from pml.core.packages.capability import Routing
from pml.core.ports.cloud import KEY
from pml.core.ports.loader import Found
from pml.core.values import Json, JsonObject, loads_object
from pml.service.approvals.lifecycle import release
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.calls.execute import run_or_call
from pml.service.code.capabilities import MAX_INDENTED, result_of
from pml.service.code.run import Outcome
from tests.builders import PERSON
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    Work,
    abandon,
    add,
    catching,
    enter_library,
    one_by_one,
    until,
    value_in,
)
from tests.service.gatehouses import ADD, LIST, SERVER
from tests.service.offices import Office

CAP: Final = "digest:run"
OURS: Final = "acme.tools"
THEIRS: Final = "evil.org"
CLOUD: Final = "https://cloud.example"
SHELL: Final[JsonObject] = {
    "name": "shell",
    "inputSchema": {"type": "object", "properties": {"command": {"type": "string"}}},
}


@pytest.fixture
async def house(office: Office) -> Library:
    house = await enter_library(office)
    house.publish("digest", one_by_one(add("one")), "notes:add")
    return house


def configure(house: Library, *, which: FileKind = FileKind.USER, **said: Any) -> None:
    """Write a file with these rules, and whatever else is said."""
    rules = {key: said.pop(key) for key in ("allow", "ask", "deny") if key in said}
    servers: JsonObject = {"notes": SERVER} if which is FileKind.USER else {}
    house.office.write(which, {"mcpServers": servers, "permissions": rules, **said})


async def make(
    house: Library, tool: str, arguments: JsonObject | None = None, *, prefix: str | None = None
) -> bytes:
    """Make the call as a client does; nobody answers."""
    attempt = Attempt(
        tool=parse_tool(tool), arguments=arguments or {}, offered=tool == EXECUTE, prefix=prefix
    )
    return await run_or_call(PendingCall(house.gate, attempt, FakeAsking(has_form=True)))


async def left(
    house: Library, tool: str, arguments: JsonObject | None = None, *, prefix: str | None = None
) -> Approval:
    with pytest.raises(Paused) as paused:
        await make(house, tool, arguments, prefix=prefix)
    return paused.value.record


# What was listed is what is covered


@promise("capability:list-shown")
async def test_a_tool_that_was_listed_as_allowed_asks_once_its_rule_is_gone(house: Library) -> None:
    house.publish("digest", one_by_one(add("one"), ("notes:list", {})), "notes:add", "notes:list")
    house.configure(allow=["notes:add"])
    record = await left(house, CAP)  # it says `notes:add (allowed)`
    house.configure(allow=[])
    await house.allow(record)

    assert (await left(house, CAP)).tool_name == "notes:add"
    assert house.added == []


@promise("capability:list-shown")
@pytest.mark.parametrize("entry", ["notes:add", "notes:*"])
async def test_a_rule_that_asks_only_since_the_list_was_shown_still_asks(house: Library, entry: str) -> None:
    record = await left(house, CAP)
    await house.allow(record)
    house.configure(ask=[entry])

    assert (await left(house, CAP)).tool_name == "notes:add"
    assert house.added == []


@promise("capability:list-shown")
async def test_a_tool_that_a_rule_asked_about_when_it_was_listed_is_covered(house: Library) -> None:
    house.configure(ask=["notes:add"])
    record = await left(house, CAP)
    await house.allow(record)
    await make(house, CAP)

    assert house.added == ["one"]


# What was approved is what runs


@promise("gate:approved-is-executed")
async def test_a_capability_runs_with_the_arguments_that_a_person_edited(house: Library) -> None:
    def pay(args: Any) -> Work:
        yield [add(args["to"])]
        return args["to"]

    house.publish("digest", pay, "notes:add")
    asking = FakeAsking(house.allowing(updated_input={"to": "bob"}))

    assert await house.use(CAP, {"to": "mallory"}, asking=asking) == "bob"
    assert house.added == ["bob"]


@promise("gate:approved-is-executed")
async def test_inner_code_that_was_changed_while_it_waited_does_not_go_on(house: Library) -> None:
    house.publish("inner", one_by_one(add("one"), add("asks")), dynamic=True)
    house.publish("digest", catching(("inner:run", {})), dynamic=True)
    house.configure(allow=[CAP, "inner:run", {"tool": "notes:add", "args": {"text": "one"}}])
    paused = await house.leave(CAP)
    await house.allow(paused.record)
    house.publish("inner", one_by_one(add("new")), note="new", dynamic=True)

    told = await house.resume(paused)

    assert told != [None]
    assert house.added == ["one"]


async def test_code_that_fails_is_in_the_audit_log(house: Library) -> None:
    def fails(args: Any) -> Work:
        yield [add("one")]
        raise RuntimeError("enough")

    house.publish("digest", fails, "notes:add")
    house.configure(allow=["*"])
    with pytest.raises(CodeFailed):
        await house.use(CAP)

    assert ("call.failed", "enough") in await house.judged()


# Its own servers


@promise("capability:own-server")
async def test_a_server_that_a_capability_brought_answers_nobody_else(house: Library) -> None:
    script = one_by_one(("memory:add", {"text": "kept"}))
    house.publish("digest", script, "memory:add", dependencies=[make_dependency()])
    house.configure(allow=["*"])
    await house.allow(await left(house, CAP))
    await make(house, CAP)
    assert "memory" in house.gate.loaded
    house.sandbox.scripts["other"] = catching(("memory:add", {"text": "by another"}))

    with pytest.raises(NotFound):
        await make(house, "memory:add", {"text": "by the client"})
    assert value_in(await make(house, EXECUTE, {"code": "other"})) == ["not_found"]
    assert house.added == ["kept"]


@promise("capability:own-server")
async def test_a_server_that_is_configured_while_code_waits_is_not_taken_for_the_codes_own(
    house: Library,
) -> None:
    script = one_by_one(add("asks"), ("memory:add", {"text": "kept"}))
    house.publish("digest", script, dependencies=[make_dependency()], dynamic=True)
    configure(house, allow=[CAP])
    await house.allow(await left(house, CAP))
    configure(house, allow=["*"], mcpServers={"notes": SERVER, "memory": SERVER})

    assert (await left(house, CAP)).subject is Subject.DEPENDENCY_INSTALL
    assert house.added == ["asks"]


# What is released


@promise("capability:covers-this-run")
async def test_a_rule_on_its_name_releases_no_capability_with_its_list(house: Library) -> None:
    house.configure(ask=["notes:add"])
    record = await left(house, CAP)
    house.configure(ask=["notes:add"], allow=[CAP])

    assert await release(house.office.context, [record.id], by=PERSON) == ()
    await left(house, CAP)
    assert (await house.office.status(record), house.added) == (State.PENDING, [])


@promise("code:unknown-asks-a-person")
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_no_rule_or_grant_releases_a_call_that_may_have_run(house: Library, scope: Scope) -> None:
    house.sandbox.scripts["pay"] = one_by_one(add("rent"))
    house.configure(allow=["*"])
    house.servers.hangs = True
    working = asyncio.ensure_future(make(house, EXECUTE, {"code": "pay"}))
    await until(house.servers.running)
    after = await house.restart()
    after.configure(ask=["notes:add"])
    unknown = await left(after, EXECUTE, {"code": "pay"})
    assert unknown.rule is not None
    assert matched(unknown.rule).verdict == "unknown"
    other = await left(after, "notes:add", {"text": "other"})

    decided = await after.office.allow(other, scope=scope, release=(unknown.id,))

    assert decided.released == ()
    assert await after.office.status(unknown) is State.PENDING
    assert after.added == []
    await abandon(working)


# What an answer covers


@promise("capability:list-shown")
@pytest.mark.parametrize("is_known", ["by its server", "by the catalog"])
async def test_a_tool_that_takes_code_is_said_to_be_shown_each_time_and_not_to_be_covered(
    house: Library, is_known: str
) -> None:
    server = "notes"
    if is_known == "by its server":
        house.servers.offer("notes", ADD, LIST, SHELL)
        await house.call("notes:list", {})
    else:
        server = "memory"
        house.sources.offer("memory", make_dependency())
        _tell_tools(house, "memory", ADD, SHELL)
    house.configure(allow=["notes:list"])
    house.publish("digest", one_by_one(), f"{server}:add", "notes:list", f"{server}:shell")

    record = await left(house, CAP)

    assert record.rule is not None
    told = loads_object(matched(record.rule).entry.encode(), what="the rule")
    each_time = f"{server}:shell (shown each time it is called)"
    assert told["calls"] == [f"{server}:add", "notes:list (allowed)", each_time]
    assert told["covers"] == [f"{server}:add"]
    assert dict(asked_facts(record))["covers"] == f"allowing it allows {server}:add too, in this run only"


def _tell_tools(house: Library, namespace: str, *tools: JsonObject) -> None:
    known: Any = house.sources
    found = known._found[namespace]
    known._found[namespace] = Found(
        metadata=msgspec.structs.replace(found.metadata, tools=tools), source=found.source
    )


@promise("capability:covers-this-run")
async def test_a_command_that_a_session_remembers_is_no_yes_to_all_commands_of_a_capability(
    house: Library,
) -> None:
    asked = await left(house, "notes:run", {"command": "ls"})
    await house.office.allow(asked, scope=Scope.SESSION)
    await make(house, "notes:run", {"command": "ls"})
    house.publish("digest", one_by_one(("notes:run", {"command": "rm"})), "notes:run")
    house.configure(allow=[CAP])

    assert (await left(house, CAP)).tool_name == CAP
    assert house.sandbox.opened == []


@promise("capability:list-shown")
async def test_a_question_that_shows_no_list_covers_nothing(house: Library) -> None:
    """It is asked about because it names PML's own files."""
    arguments: JsonObject = {"path": f"{house.office.home}/config.json"}
    await house.allow(await left(house, CAP, arguments))

    assert (await left(house, CAP, arguments)).tool_name == "notes:add"
    assert house.added == []


# The cloud


@promise("cloud:key-from-secrets")
@pytest.mark.parametrize("users", [None, "https://another.example"])
async def test_a_cloud_that_only_a_workspace_names_gets_no_key_though_it_is_trusted(
    house: Library, users: str | None
) -> None:
    house.publish("far", one_by_one(), routing=Routing.SERVER)
    users_own: dict[str, Any] = {} if users is None else {"cloud": users}
    configure(house, allow=["far:run"], **users_own)
    configure(house, which=FileKind.WORKSPACE, cloud=CLOUD)
    await house.office.trust()
    house.variables.known[KEY] = "the key"

    await make(house, "far:run")

    assert [(url, key) for url, _, _, key in house.cloud.calls] == [(CLOUD, None)]


@promise("cloud:asks-there")
async def test_code_whose_call_the_cloud_asked_about_goes_on_with_the_same_call(house: Library) -> None:
    house.publish("far", one_by_one(), routing=Routing.SERVER)
    house.sandbox.scripts["code"] = one_by_one(add("one"), ("far:run", {}), add("two"))
    configure(house, allow=["*"], cloud=CLOUD)
    answer, house.cloud.result = house.cloud.result, {"approval_required": True}
    with pytest.raises(ToolFailed) as asked:
        await make(house, EXECUTE, {"code": "code"})
    assert asked.value.refusal == "cloud_asks"
    house.cloud.result = answer

    await house.allow(await left(house, EXECUTE, {"code": "code"}))
    assert value_in(await make(house, EXECUTE, {"code": "code"})) == "done"

    assert house.added == ["one", "two"]
    assert len(house.cloud.calls) == 2


# What a client is shown


@pytest.mark.parametrize(
    "value", [b"[" + b"1," * MAX_INDENTED + b"1]", b"[" * 200 + b"1" + b"]" * 200], ids=["long", "deep"]
)
def test_line_breaks_do_not_make_a_result_many_times_as_long(value: bytes) -> None:
    result = loads_object(result_of(Outcome(value=value, logs=())), what="the result")

    assert _text(result) == value.decode()


def _text(result: JsonObject) -> Json:
    content = result["content"]
    assert isinstance(content, list)
    first = content[0]
    assert isinstance(first, Mapping)
    return first["text"]
