"""The loopback and session tools as clients use them, and the gateway of a session that was launched."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pml.core.approvals.record import Role, SessionId, State
from pml.core.sessions.agent import MessageKind
from pml.core.sessions.token import TokenRole
from pml.core.values import Json, JsonObject
from pml.downstream import keepalive
from pml.downstream.protocol.connection import Exchange, Origin
from pml.downstream.protocol.eras import MODERN
from pml.downstream.tools.supervision import until_read
from pml.jsonrpc.messages import Request
from tests.downstream.parties import LATEST, SOON_S, code_of, text_of
from tests.downstream.seats import BASH, Hub, found, opened_hub, permit_of
from tests.promises import promise
from tests.service.families import Asker, join

EDITED: JsonObject = {"command": "ls -la"}
WRITE: JsonObject = {"path": "a", "text": "b"}
NAMES = [
    *("loopback_permit", "loopback_respond", "loopback_pending", "loopback_wait"),
    *("session_launch", "session_wait", "session_list", "session_stop"),
]
PROGRESS = "notifications/progress"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[Hub]:
    async with opened_hub(tmp_path) as hub:
        yield hub


# What is offered, to whom


async def test_a_session_is_offered_all_and_a_child_only_what_asks(hub: Hub) -> None:
    parent, child = await hub.sit(hub.family.parent), await hub.sit(hub.family.child)

    offered = [
        [each["name"] for each in (await seat.result("tools/list"))["tools"]] for seat in (parent, child)
    ]

    assert offered[0] == ["discover", "call", "execute", *NAMES, "files__read", "files__write"]
    assert offered[1] == ["discover", "call", "execute", "loopback_permit", "files__read", "files__write"]


async def test_a_client_on_stdio_finds_them_and_uses_them_through_call(hub: Hub) -> None:
    seat = await hub.sit(hub.family.parent, stdio=True)

    listed = [each["name"] for each in (await seat.result("tools/list"))["tools"]]
    assert listed == ["discover", "call", "execute", "loopback_permit", "files__read", "files__write"]
    tools = found(await seat.call("discover", {"query": "session"}))["tools"]
    assert {each["tool"] for each in tools} >= {"pml:session_launch", "pml:session_list"}
    assert all(each["call"] == "call" for each in tools if each["tool"] != "pml:loopback_permit")
    for name in ("session_list", "pml:session_list"):
        assert found(await seat.call("call", {"tool": name})) == found(await seat.call("session_list"))
    refused = await seat.call("call", {"tool": "loopback_permit", "arguments": BASH})
    assert "is listed by its own name" in text_of(refused)


@promise("launch:a-persons-to-allow")
async def test_a_launch_through_call_is_a_persons_too(hub: Hub) -> None:
    seat = await hub.sit(hub.family.parent, stdio=True)
    asked = await seat.call("call", {"tool": "pml:session_launch", "arguments": {"prompt": "go"}})
    said: JsonObject = {"workflow_id": asked["approval_context"]["workflow_id"], "approved": True}
    again = await seat.call("call", {"continue_workflow": said})

    assert asked["approval_context"]["tool"] == "pml:session_launch"
    assert (again["approval_required"], hub.agents.ran) == (True, {})
    await seat.decide(allow=True)
    assert found(await seat.call("call", {"continue_workflow": said}))["state"] == "starting"
    await hub.agents.until_running()


async def test_a_child_finds_none_that_it_may_not_use(hub: Hub) -> None:
    child = await hub.sit(hub.family.child)

    tools = found(await child.call("discover"))["tools"]
    assert [each["tool"] for each in tools] == ["files:read", "files:write", "pml:loopback_permit"]
    refused = await child.call("call", {"tool": "pml:session_launch", "arguments": {"prompt": "x"}})
    assert "is a child" in text_of(refused)


@promise("supervise:own-descendants-only")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("spelling", ["{}_{}", "{}.{}", "pml:{}_{}"])
async def test_a_child_may_use_nothing_else_and_asks_nobody_for_it(
    hub: Hub, spelling: str, waits: bool
) -> None:
    session = await join(hub.office, "low", parent=hub.family.parent, waits=waits)
    child = await hub.sit(session)
    uses: dict[str, JsonObject] = {
        "loopback_respond": {"approval_id": "x", "allow": True},
        "loopback_wait": {"timeout_s": 0},
        "session_launch": {"prompt": "x"},
        "session_wait": {"timeout_s": 0},
        "session_list": {},
        "session_stop": {"session_id": hub.family.sibling.id},
    }

    for name, arguments in uses.items():
        refused = await child.call(spelling.format(*name.split("_")), arguments)
        assert refused["isError"] is True, name
        assert "is a child" in text_of(refused)

    assert found(await child.call("loopback_pending")) == {"approvals": []}
    assert await child.all_questions() == []
    assert hub.agents.ran == {}


@pytest.mark.parametrize("name", ["loopback.permit", "loopback_permit", "pml:loopback_permit"])
async def test_the_permission_tool_answers_to_its_dotted_name_too(hub: Hub, name: str) -> None:
    child = await hub.sit(hub.family.child)
    child.rules(allow=["Bash"])

    assert permit_of(await child.call(name, BASH)) == {"behavior": "allow", "updatedInput": {"command": "ls"}}


# The permission tool


@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_a_permit_is_one_text_block_whatever_the_answer(hub: Hub, version: str) -> None:
    child = await hub.sit(hub.family.child, version)
    child.rules(allow=["Read"], deny=["Bash"])

    denied = await child.permit()
    allowed = await child.permit({**BASH, "tool_name": "Read"})

    assert denied["behavior"] == "deny"
    assert denied["message"].startswith("Tool Bash is denied by user config")
    assert allowed == {"behavior": "allow", "updatedInput": {"command": "ls"}}


@promise("permit:blocks-until-decided")
@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_a_child_asks_its_parent_edits_and_the_edit_is_what_may_run(hub: Hub, version: str) -> None:
    parent, child = await hub.sit(hub.family.parent), await hub.sit(hub.family.child, version)
    asked = child.start_call("loopback_permit", BASH)

    waited = found(await parent.call("loopback_wait", {"timeout_s": 50}))
    (request,) = waited["requests"]
    assert request["session_name"] == hub.family.child.name
    assert (request["tool_name"], request["tool_input"], request["tool_use_id"]) == (
        "Bash",
        {"command": "ls"},
        "use-1",
    )
    assert request["may_decide"] is True
    assert found(await parent.call("loopback_pending"))["approvals"] == [request]
    decided = await parent.call(
        "loopback.respond", {"approval_id": request["approval_id"], "allow": True, "updated_input": EDITED}
    )

    assert "isError" not in decided
    answer = permit_of(await child.result_of(asked))
    assert answer == {"behavior": "allow", "updatedInput": EDITED}
    assert found(await parent.call("loopback_pending")) == {"approvals": []}


async def test_a_denial_reaches_the_client_with_its_message(hub: Hub) -> None:
    parent, child = await hub.sit(hub.family.parent), await hub.sit(hub.family.child)
    asked = child.start_call("loopback_permit", BASH)
    record = await child.question()

    await parent.call("loopback_respond", {"approval_id": record.id, "allow": False, "message": "not now"})

    answer = permit_of(await child.result_of(asked))
    assert answer == {
        "behavior": "deny",
        "message": "Denied by the session that supervises this one: not now",
    }


@promise("permit:doubt-is-no")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tool_name": "Bash"},
        {"tool_name": "Bash", "input": "ls"},
        {"tool_name": 1, "input": {}},
        {"tool_name": "", "input": {}},
        {"input": {}},
        {**BASH, "tool_use_id": 7},
        {**BASH, "session_id": "parent"},
        {**BASH, "session_id": "no-session"},
        {**BASH, "session_id": 7},
    ],
)
async def test_a_permit_that_is_not_understood_is_a_no(hub: Hub, arguments: JsonObject) -> None:
    child = await hub.sit(hub.family.child)
    child.rules(allow=["*"])

    answer = await child.permit(arguments)

    assert answer["behavior"] == "deny"
    assert answer["message"].startswith("Not permitted: ")
    assert await child.all_questions() == []


async def test_a_permit_may_name_the_session_of_its_token(hub: Hub) -> None:
    child = await hub.sit(hub.family.child)
    child.rules(allow=["*"])

    answer = await child.permit({**BASH, "session_id": hub.family.child.id})

    assert answer["behavior"] == "allow"


async def test_a_client_that_waits_long_hears_that_its_call_is_alive(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "TICK_S", 0.01)
    child = await hub.sit(hub.family.child)
    asked = child.start_call("loopback_permit", BASH, _meta={"progressToken": "p"})

    told = await child.told(PROGRESS, 4)

    assert {each["progressToken"] for each in told} == {"p"}
    await child.decide(allow=True)
    assert permit_of(await child.result_of(asked))["behavior"] == "allow"


@promise("permit:same-tool-use-attaches")
async def test_a_client_that_gave_up_and_asks_again_goes_on_with_its_question(hub: Hub) -> None:
    child = await hub.sit(hub.family.child)
    child.cancel(child.start_call("loopback_permit", BASH))
    lost = child.start_call("loopback_permit", BASH)
    record = await child.question()
    child.cancel(lost)
    await child.settle()
    again = child.start_call("loopback_permit", BASH)
    await child.settle()

    assert [each.id for each in await child.all_questions()] == [record.id]

    await child.decide(allow=True)
    assert permit_of(await child.result_of(again))["behavior"] == "allow"


# PML's own tools behind the permission tool


@promise("launch:own-tools-asked-once")
@pytest.mark.parametrize("name", ["files__write", "discover", "call", "session_launch", "loopback.pending"])
async def test_what_the_gateway_itself_asks_about_passes_without_a_question(hub: Hub, name: str) -> None:
    child = await hub.sit(await hub.launched())

    answer = await child.permit({"tool_name": f"mcp__plexus__{name}", "input": WRITE, "tool_use_id": "u"})

    assert answer == {"behavior": "allow", "updatedInput": WRITE}
    assert await child.all_questions() == []


@promise("supervise:deny-never-lifted")
@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("files:write", "files__write"),
        ("files:*", "files__write"),
        ("pml:call", "call"),
        ("pml:session_launch", "session_launch"),
        ("pml:session_launch", "session.launch"),
    ],
)
async def test_what_a_rule_denies_does_not_pass(hub: Hub, rule: str, name: str) -> None:
    child = await hub.sit(await hub.launched())
    child.rules(deny=[rule])

    answer = await child.permit({"tool_name": f"mcp__plexus__{name}", "input": WRITE, "tool_use_id": "u"})

    assert answer["behavior"] == "deny"
    assert f"Tool {rule.replace('*', 'write')} is denied by user config" in answer["message"]


@promise("session:tools-bound")
async def test_what_the_session_was_not_given_does_not_pass_and_does_not_run(hub: Hub) -> None:
    child = await hub.sit(await hub.launched(tools=("files:read", "Read")))
    child.rules(allow=["*"])

    permits = [
        (await child.permit({"tool_name": name, "input": WRITE, "tool_use_id": "u"}))["behavior"]
        for name in ("mcp__plexus__files__write", "mcp__plexus__files__read", "Bash", "Read")
    ]
    called = await child.call("files__write", WRITE)
    carried = await child.call("call", {"tool": "files:write", "arguments": WRITE})

    assert permits == ["deny", "allow", "deny", "allow"]
    assert code_of(called) == "TOOL_DENIED"
    assert carried["isError"] is True
    assert child.servers.calls == []
    await child.call("files__read", {"path": "a"})
    assert child.servers.calls == [{"name": "read", "arguments": {"path": "a"}}]


async def test_a_tool_that_is_none_of_ours_does_not_pass(hub: Hub) -> None:
    child = await hub.sit(await hub.launched())

    answer = await child.permit({"tool_name": "mcp__plexus__nothing", "input": {}, "tool_use_id": "u"})

    assert answer["behavior"] == "deny"


async def test_a_session_that_is_not_asked_by_waiting_asks_for_them_here(hub: Hub) -> None:
    child = await hub.sit(hub.family.child)
    asked = child.start_call("loopback_permit", {**BASH, "tool_name": "mcp__plexus__files__write"})

    assert (await child.question()).tool_name == "mcp__plexus__files__write"

    await child.decide(allow=False)
    assert permit_of(await child.result_of(asked))["behavior"] == "deny"


# The gateway of a launched session


@promise("permit:blocks-until-decided")
@pytest.mark.parametrize(
    ("version", "forms"), [(LATEST, False), (LATEST, True), (MODERN, False), (MODERN, True)]
)
async def test_every_unlisted_call_is_asked_waits_and_runs_exactly_as_decided(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, version: str, forms: bool
) -> None:
    monkeypatch.setattr(keepalive, "TICK_S", 0.01)
    parent, child = (
        await hub.sit(hub.family.parent),
        await hub.sit(await hub.launched(), version, forms=forms),
    )
    id = child.start_call("files__write", WRITE, _meta={"progressToken": "p"})
    record = await child.question()

    assert record.deciders == frozenset({Role.PERSON, Role.PARENT})
    assert await child.told(PROGRESS, 3)
    assert child.unasked
    assert child.servers.calls == []
    assert await hub.office.context.store.workflows.get(record.id) is None

    edited: JsonObject = {"path": "elsewhere", "text": "b"}
    await parent.call("loopback_respond", {"approval_id": record.id, "allow": True, "updated_input": edited})

    assert json.loads(text_of(await child.result_of(id))) == edited
    assert child.servers.calls == [{"name": "write", "arguments": edited}]


async def test_a_denied_call_does_not_run_and_tells_so(hub: Hub) -> None:
    child = await hub.sit(await hub.launched())
    id = child.start_call("files__write", WRITE)

    await child.decide(allow=False, message="not that file")

    refused = await child.result_of(id)
    assert code_of(refused) == "user_denied"
    assert "not that file" in text_of(refused)
    assert child.servers.calls == []


async def test_what_a_rule_allows_runs_at_once(hub: Hub) -> None:
    child = await hub.sit(await hub.launched())
    child.rules(allow=["files:*"])

    await child.call("files__write", WRITE)

    assert await child.all_questions() == []
    assert len(child.servers.calls) == 1


@promise("permit:blocks-until-decided")
@pytest.mark.parametrize("forms", [False, True])
@pytest.mark.parametrize("may", ["always", "if_no_form"])
async def test_neither_model_nor_form_of_a_launched_session_confirms(hub: Hub, may: str, forms: bool) -> None:
    child = await hub.sit(await join(hub.office, "alone", waits=True), forms=forms)
    child.configure(approval={"model_may_approve": may})
    id = child.start_call("files__write", WRITE)
    record = await child.question()
    assert record.deciders == frozenset({Role.PERSON})

    refused = await child.continue_("call", record.id)

    assert code_of(refused["result"]) == "workflow_gone"
    assert (await hub.office.stored(record)).status is State.PENDING
    await child.decide(allow=False)
    await child.result_of(id)


# Deciding


@promise("supervise:never-always")
@pytest.mark.parametrize(
    "said",
    [
        {"allow": True, "scope": "always"},
        {"allow": True, "scope": "forever"},
        {"allow": True, "scope": None},
        {"allow": "true"},
        {"allow": 1},
        {},
        {"allow": True, "updated_input": "ls"},
        {"allow": True, "updated_input": None},
        {"allow": True, "message": 7},
        {"allow": True, "remember": "always"},
        {"allow": True, "session_id": "parent"},
    ],
)
async def test_an_answer_that_is_none_decides_nothing(hub: Hub, said: JsonObject) -> None:
    parent, child = await hub.sit(hub.family.parent), await hub.sit(hub.family.child)
    child.start_call("loopback_permit", BASH)
    record = await child.question()

    refused = await parent.call("loopback_respond", {"approval_id": record.id, **said})

    assert refused["isError"] is True
    assert refused["structuredContent"]["error"]["code"] == "invalid"
    assert await hub.office.stored(record) == record


async def test_a_foreign_question_and_none_are_told_alike(hub: Hub) -> None:
    stranger, child = await hub.sit(hub.family.stranger), await hub.sit(hub.family.child)
    child.start_call("loopback_permit", BASH)
    record = await child.question()

    foreign, unknown = [
        text_of(await stranger.call("loopback_respond", {"approval_id": id, "allow": True}))
        for id in (record.id, "x" * 36)
    ]

    assert foreign.replace(record.id, "ID") == unknown.replace("x" * 36, "ID")
    assert await hub.office.stored(record) == record
    for session in (hub.family.child.id, "nobody"):
        assert found(await stranger.call("loopback_pending", {"session_id": session})) == {"approvals": []}


async def test_a_second_answer_learns_who_was_first(hub: Hub) -> None:
    parent, child = await hub.sit(hub.family.parent), await hub.sit(hub.family.child)
    child.start_call("loopback_permit", BASH)
    record = await child.question()
    await child.decide(allow=False)

    late = await parent.call("loopback_respond", {"approval_id": record.id, "allow": True})

    assert late["isError"] is True
    assert "already denied by person `ana` (terminal)" in text_of(late)


@pytest.mark.parametrize("timeout_s", [-1, 3601, "5", True, None, float("1e9")])
async def test_a_wait_without_bound_is_refused(hub: Hub, timeout_s: Json) -> None:
    parent = await hub.sit(hub.family.parent)

    for name in ("loopback_wait", "session_wait"):
        refused = await parent.call(name, {"timeout_s": timeout_s})
        assert "`timeout_s` must be from 0 to 3600" in text_of(refused)


# Launching


async def test_a_parent_launches_hears_and_stops_a_child(hub: Hub) -> None:
    parent = await hub.sit(hub.family.parent)

    launched = found(await parent.launch({"prompt": "mend it", "name": "mender"}))
    await hub.agents.until_running()
    session_id = SessionId(launched["session_id"])
    assert (launched["name"], launched["state"]) == ("mender", "starting")
    assert hub.agents.ran[session_id][0].prompt == "mend it"

    await hub.agents.told[session_id].said(MessageKind.TEXT, "hello")
    heard = found(await parent.call("session_wait", {"timeout_s": 50}))
    assert (heard["kind"], heard["messages"]) == ("message", [{"kind": "text", "text": "hello"}])
    (listed,) = found(await parent.call("session_list"))["sessions"]
    assert listed["id"] == session_id

    stopped = found(await parent.call("session_stop", {"session_id": session_id}))
    assert stopped["state"] == "stopped"
    ended = found(await parent.call("session_wait", {"session_id": session_id}))
    assert (ended["kind"], ended["session"]["state"]) == ("ended", "stopped")
    assert found(await parent.call("session_wait"))["kind"] == "nothing"


@promise("launch:never-wider-than-parent")
@pytest.mark.parametrize(
    "more",
    [
        {"arguments": ["--dangerously-skip-permissions"]},
        {"args": ["--allowedTools", "Bash"]},
        {"permission_mode": "bypassPermissions"},
        {"env": {"X": "y"}},
        {"workspace": "/"},
        {"role": "session"},
        {"allowed_tools": "Bash"},
        {"allowed_tools": [1]},
        {"allowed_tools": [""]},
        {"may_launch": "yes"},
        {"loopback_enabled": 0},
        {"loopback_timeout_secs": 1.5},
        {"loopback_timeout_secs": True},
        {"prompt": 7},
        {"cwd": ".."},
        {"model": "--model"},
    ],
)
async def test_nothing_of_an_agents_passes_but_what_the_tool_has(hub: Hub, more: JsonObject) -> None:
    parent = await hub.sit(hub.family.parent)

    refused = await parent.call("session_launch", {"prompt": "x", **more})

    assert refused["isError"] is True
    assert refused["structuredContent"]["error"]["code"] == "invalid"
    assert hub.agents.ran == {}


@promise("launch:never-wider-than-parent")
async def test_a_launch_by_a_launched_session_is_asked_and_is_what_was_decided(hub: Hub) -> None:
    middle = await hub.sit(await hub.launched(role=TokenRole.SESSION, tools=("Read",)))
    id = middle.start_call("session_launch", {"prompt": "x", "allowed_tools": ["Read"]})
    record = await middle.question()
    assert (record.tool_name, hub.agents.ran) == ("pml:session_launch", {})

    await hub.office.allow(record, updated_input={"prompt": "y"})

    launched = found(await middle.result_of(id))
    await hub.agents.until_running()
    order, _ = hub.agents.ran[SessionId(launched["session_id"])]
    assert (order.prompt, order.tools) == ("y", ("Read",))


@promise("launch:never-wider-than-parent")
async def test_a_launch_that_is_denied_starts_nothing(hub: Hub) -> None:
    middle = await hub.sit(await hub.launched(role=TokenRole.SESSION))
    id = middle.start_call("session_launch", {"prompt": "x"})

    await middle.decide(allow=False)

    assert code_of(await middle.result_of(id)) == "user_denied"
    assert hub.agents.ran == {}


@promise("supervise:own-descendants-only")
async def test_nobody_stops_who_is_not_below_it(hub: Hub) -> None:
    parent, stranger = await hub.sit(hub.family.parent), await hub.sit(hub.family.stranger)
    launched = found(await parent.launch({"prompt": "x"}))
    await hub.agents.until_running()

    refused = await stranger.call("session_stop", {"session_id": launched["session_id"]})

    assert refused["structuredContent"]["error"]["code"] == "not_found"
    session = await hub.office.context.store.sessions.get(SessionId(launched["session_id"]))
    assert session is not None
    assert session.ended_at is None


@promise("permit:same-tool-use-attaches")
async def test_an_answer_waits_until_somebody_reads_it() -> None:
    class Reader:
        congested = False
        gone = True

        def write(self, line: bytes, *, alone: bool = False, lasting: bool = True) -> None: ...

    sink = Reader()
    exchange = Exchange(Request(1, "tools/call", {}), Origin(), sink, None)
    waiting = asyncio.ensure_future(until_read(exchange))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    sink.gone = False
    await asyncio.wait_for(waiting, SOON_S)


@promise("supervise:own-descendants-only")
async def test_nobody_goes_on_with_the_question_of_another_session(hub: Hub) -> None:
    sibling = await hub.sit(hub.family.sibling)
    asker = Asker(hub.office, hub.family.child)
    record = await asker.question()
    said = await sibling.permit({"approval_id": record.id})
    assert said["behavior"] == "deny"
    assert "ls -la" not in json.dumps(said)
    await asker.lose()
