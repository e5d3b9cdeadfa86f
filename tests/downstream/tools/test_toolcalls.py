"""`tools/call` on the wire: which tool a name means, `call`, and every case of `continue_workflow`."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from pml.core.approvals.record import Role, Scope, SessionId, State
from pml.core.config.file import FileKind
from pml.core.ports.queries import ApprovalQuery
from pml.core.values import Json, JsonObject
from pml.downstream import keepalive
from pml.downstream.forms import elicitation
from pml.downstream.protocol.eras import LEGACY, MODERN
from pml.service.approvals import lifecycle as approvals
from pml.service.approvals.trust import trust_question
from pml.service.policy.policy import current_policy
from tests.downstream.parties import FORMS, LATEST, Message, Party, code_of, text_of, tool
from tests.promises import promise
from tests.service.offices import rules_of

Progress: TypeAlias = Callable[[JsonObject], None]

GONE = {"code": -32000, "message": "Workflow expired or not found"}


async def ask(
    party: Party,
    name: str = "files__write",
    arguments: JsonObject | None = None,
    *,
    version: str = LATEST,
) -> str:
    """Call what a rule asks about, from a client without a form, and return the workflow's id."""
    await party.connect(version)
    result = await party.call(name, {"path": "a", "text": "b"} if arguments is None else arguments)
    assert result["approval_required"] is True, result
    return result["approval_context"]["workflow_id"]


# Names


@pytest.mark.parametrize("name", ["files__read", "files:read"])
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])
async def test_a_tool_is_called_by_its_wire_name_or_as_people_write_it(
    party: Party, name: str, version: str
) -> None:
    await party.connect(version)
    result = await party.call(name, {"path": "a"})

    assert text_of(result) == '{"path": "a"}'
    assert party.servers.calls == [{"name": "read", "arguments": {"path": "a"}}]


async def test_a_call_without_arguments_has_none(party: Party) -> None:
    await party.connect()
    await party.result("tools/call", {"name": "files__stat"})

    assert party.servers.calls == [{"name": "stat", "arguments": {}}]


@pytest.mark.parametrize(
    "name", ["files__reed", "files:reed", "file__read", "reed", "", "a:b:c", "pml:run", ":"]
)
async def test_an_unknown_tool_is_told_with_those_that_are_near(party: Party, name: str) -> None:
    await party.connect()
    result = await party.call(name)

    assert code_of(result) == "not_found"
    if name.startswith("file"):
        assert "did you mean" in text_of(result)
        assert "did you mean" in result["structuredContent"]["error"]["hint"]
    assert party.servers.calls == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 7},
        {"name": "files__read", "arguments": []},
        {"name": "files__read", "arguments": "x"},
        {"name": "files__read", "arguments": {"continue_workflow": "yes"}},
        {"name": "files__read", "arguments": {"continue_workflow": {"workflow_id": "x"}}},
        {"name": "files__read", "arguments": {"continue_workflow": {"approved": True}}},
        {"name": "files__read", "arguments": {"continue_workflow": {"workflow_id": 1, "approved": True}}},
        {"name": "files__read", "arguments": {"continue_workflow": {"workflow_id": "x", "approved": "true"}}},
        {
            "name": "files__read",
            "arguments": {"continue_workflow": {"workflow_id": "x", "approved": True, "always": 1}},
        },
        {
            "name": "files__read",
            "arguments": {"continue_workflow": {"workflow_id": "x", "approved": False, "message": []}},
        },
        {"name": "call", "arguments": {"tool": "files:read", "arguments": {"continue_workflow": True}}},
    ],
)
async def test_a_call_that_is_none_is_refused_as_such(party: Party, params: JsonObject) -> None:
    await party.connect()

    assert (await party.error("tools/call", params))["code"] == -32602
    assert party.servers.sent == []


# `call`


@pytest.mark.parametrize("name", ["files:read", "files__read"])
async def test_call_refuses_a_tool_that_is_listed_itself(party: Party, name: str) -> None:
    party.rules(allow=["*"])
    await party.connect()
    result = await party.call("call", {"tool": name, "arguments": {"path": "a"}})

    assert code_of(result) == "invalid_arguments"
    assert "`files:read` is listed by its own name: call `files__read`" in text_of(result)
    assert party.servers.calls == []


async def learn_late(party: Party) -> None:
    """Let the server `late` be there after the client's list, which the client does not read again."""
    late = party.serve("late", tool("add", required=["path"]))
    policy = await current_policy(party.office.context, (await party.office.session()).workspace)
    await party.servers.manifest(policy.settings.servers["late"])
    assert late.tools


@promise("list:late-tool-reached")
@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_a_tool_that_came_after_the_list_is_called_through_call(party: Party, version: str) -> None:
    party.rules(allow=["*"])
    await party.connect(version)
    await learn_late(party)
    party.rules(allow=["*"])

    found = (await party.call("discover", {"query": "late:add"}))["structuredContent"]["tools"]
    assert (found[0]["call"], found[0]["with"]) == ("call", {"tool": "late:add"})
    for name in ("late:add", "late__add"):
        assert not (await party.call("call", {"tool": name, "arguments": {"path": "a"}})).get("isError")
    assert not (await party.call("late__add", {"path": "a"})).get("isError")
    assert len(party.servers.calls) == 3

    await party.result("tools/list")  # from now on the client has it by name
    refused = await party.call("call", {"tool": "late:add", "arguments": {"path": "a"}})
    assert "is listed by its own name" in text_of(refused)
    found = (await party.call("discover", {"query": "late:add"}))["structuredContent"]["tools"]
    assert found[0]["call"] == "late__add"


@promise("list:late-tool-reached")
async def test_what_came_after_the_list_asks_where_listed_tools_are_left_to_the_client(party: Party) -> None:
    await party.connect()
    await learn_late(party)
    result = await party.call("call", {"tool": "late:add", "arguments": {"path": "a"}})

    assert result["approval_required"] is True
    assert party.servers.calls == []


@pytest.mark.parametrize("name", ["files:write", "files__write"])
async def test_what_is_not_listed_asks_when_it_is_called(party: Party, name: str) -> None:
    party.configure(expose=["files:read"])
    await party.connect()
    arguments: JsonObject = {"path": "a", "text": "b"}
    result = await party.call("call", {"tool": name, "arguments": arguments})
    assert text_of(result).startswith("Approval required to call files:write\n")
    direct = await party.call(name, arguments)
    assert direct["approval_required"] is True
    assert party.servers.calls == []


async def test_what_is_not_listed_runs_where_a_rule_allows_it(party: Party) -> None:
    party.configure(expose=[], permissions={"allow": ["files:read"]})
    await party.connect()
    result = await party.call("call", {"tool": "files:read", "arguments": {"path": "a"}})

    assert text_of(result) == '{"path": "a"}'


async def test_what_is_listed_and_named_by_no_rule_is_left_to_the_client(party: Party) -> None:
    await party.connect()
    assert text_of(await party.call("files__read", {"path": "a"})) == '{"path": "a"}'

    party.configure(approval={"unlisted": "every_call"})
    assert (await party.call("files__read", {"path": "a"}))["approval_required"] is True


async def test_pmls_own_tools_have_the_name_that_people_write_too(party: Party) -> None:
    party.configure(expose=[], permissions={"allow": ["files:read"]})
    await party.connect()
    called = await party.call("pml:call", {"tool": "files:read", "arguments": {"path": "a"}})

    assert text_of(called) == '{"path": "a"}'
    assert "files:read" in text_of(await party.call("pml:discover"))
    for own in ("pml:call", "pml:discover", "call", "discover"):
        assert code_of(await party.call("call", {"tool": own})) == "not_found"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"tool": 7}, {"tool": ""}, {"tool": "files:write", "arguments": []}],
)
async def test_call_with_wrong_arguments_is_told_so(party: Party, arguments: JsonObject) -> None:
    party.configure(expose=[])
    await party.connect()

    assert code_of(await party.call("call", arguments)) == "invalid_arguments"


@pytest.mark.parametrize("denied", ["pml:call", "pml:*", "files:read", "files:*", "read", "*"])
async def test_call_is_denied_by_a_rule_on_it_or_on_what_it_calls(party: Party, denied: str) -> None:
    party.configure(expose=[], permissions={"allow": ["*"], "deny": [denied]})
    await party.connect()
    result = await party.call("call", {"tool": "files:read", "arguments": {"path": "a"}})

    assert code_of(result) == "TOOL_DENIED"
    assert party.servers.calls == []


async def test_call_that_a_rule_asks_about_is_asked_once_and_then_what_it_calls(party: Party) -> None:
    party.configure(expose=[], permissions={"ask": ["pml:call", "files:read"]})
    await party.connect(MODERN, FORMS)
    arguments: JsonObject = {"tool": "files:read", "arguments": {"path": "a"}}
    shown = await party.call("call", arguments)
    titles: list[str] = []
    while shown["resultType"] == "input_required":
        form = shown["inputRequests"]["approval"]["params"]
        titles.append(form["message"].split("\n")[0])
        answers: JsonObject = {"approval": {"action": "accept", "content": {"remember": "once"}}}
        shown = await party.call(
            "call", arguments, inputResponses=answers, requestState=shown["requestState"]
        )

    assert titles == ["Call pml:call?", "Call files:read?"]
    assert text_of(shown) == '{"path": "a"}'


async def test_servers_progress_reaches_the_client_under_its_own_token(party: Party) -> None:
    async def working(
        method: str, params: JsonObject, on_progress: Callable[[JsonObject], None] | None
    ) -> bytes:
        assert on_progress is not None
        on_progress({"progressToken": 1, "progress": 3, "total": 9, "message": "third"})
        return b'{"content":[]}'

    party.servers.named["files"].answer = working
    for version in ("2025-11-25", MODERN):
        await party.connect(version, FORMS)
        await party.call("files__read", {"path": "a"}, _meta={"progressToken": version})
        assert party.told_now("notifications/progress")[-1] == {
            "progressToken": version,
            "progress": 3,
            "total": 9,
            "message": "third",
        }


@pytest.mark.parametrize("capabilities", [{}, FORMS])
@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_a_client_hears_that_a_silent_server_is_at_work(
    party: Party, version: str, capabilities: JsonObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "TICK_S", 0.001)
    release = asyncio.Event()

    async def silent(method: str, params: JsonObject, on_progress: Progress | None) -> bytes:
        assert on_progress is not None
        on_progress({"progress": 0.5, "total": 1})
        await release.wait()
        on_progress({"progress": 0.9, "total": 1})
        return b'{"content":[]}'

    party.servers.named["files"].answer = silent
    await party.connect(version, capabilities)
    id = party.start_call("files__read", {"path": "a"}, _meta={"progressToken": "tok"})
    await party.told("notifications/progress", count=4)
    release.set()
    await party.result_of(id)
    told = party.told_now("notifications/progress")
    await party.settle()

    assert party.told_now("notifications/progress") == told
    assert {each.get("message") for each in told[1:-1]} == {"working"}
    counts = [each["progress"] for each in told]
    assert counts == sorted(set(counts))
    assert counts[-1] == 0.9


async def test_a_client_without_a_progress_token_hears_none(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "TICK_S", 0.0)
    await party.connect()
    await party.call("files__read", {"path": "a"})

    assert party.told_now("notifications/progress") == []


# `continue_workflow`


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN])
async def test_an_approved_workflow_runs_exactly_the_call_that_was_asked_about(
    party: Party, version: str
) -> None:
    party.as_new()
    workflow_id = await ask(party, version=version)
    result = (await party.continue_("files__write", workflow_id))["result"]

    assert json.loads(text_of(result)) == {"path": "a", "text": "b"}
    assert party.servers.calls == [{"name": "write", "arguments": {"path": "a", "text": "b"}}]


async def test_call_alone_continues_any_workflow(party: Party) -> None:
    party.as_new()
    workflow_id = await ask(party)

    assert "result" in await party.continue_("call", workflow_id)
    assert len(party.servers.calls) == 1


async def test_a_workflow_of_call_is_continued_by_call_however_it_is_written(party: Party) -> None:
    party.configure(expose=[])
    for place in ("outside", "inside", "beside"):
        text: Json = {"path": "a", "text": place}
        workflow_id = await ask(party, "call", {"tool": "files:write", "arguments": text})
        said: JsonObject = {"continue_workflow": {"workflow_id": workflow_id, "approved": True}}
        arguments: dict[str, JsonObject] = {
            "outside": said,
            "inside": {"tool": "files:write", "arguments": said},
            "beside": {"tool": "files:write", "arguments": text, **said},
        }
        result = await party.call("call", arguments[place])
        assert json.loads(text_of(result)) == text


async def test_the_reserved_argument_never_reaches_a_server(party: Party) -> None:
    party.as_new()
    workflow_id = await ask(party)
    said: JsonObject = {"workflow_id": workflow_id, "approved": True}
    await party.call("files__write", {"path": "a", "text": "b", "continue_workflow": said})

    assert party.servers.calls == [{"name": "write", "arguments": {"path": "a", "text": "b"}}]


async def test_a_workflow_is_not_continued_with_other_arguments(party: Party) -> None:
    party.rules(ask=["files:write"])
    workflow_id = await ask(party)
    said: JsonObject = {"workflow_id": workflow_id, "approved": True}
    result = await party.call("files__write", {"path": "/etc", "text": "b", "continue_workflow": said})

    assert code_of(result) == "invalid_arguments"
    assert party.servers.calls == []
    assert len(await party.pending()) == 1


@pytest.mark.parametrize(
    ("message", "told"),
    [(None, "Workflow aborted by user"), ("use b.txt", "Workflow aborted by user: use b.txt")],
)
async def test_giving_up_is_an_error_that_passes_the_guidance_on(
    party: Party, message: str | None, told: str
) -> None:
    party.rules(ask=["files:write"])
    workflow_id = await ask(party)
    more: dict[str, Json] = {} if message is None else {"message": message}
    answer = await party.continue_("files__write", workflow_id, approved=False, **more)

    assert answer["error"] == {"code": -32000, "message": told}
    assert (await party.continue_("files__write", workflow_id))["error"] == GONE
    assert (party.servers.calls, await party.pending()) == ([], [])


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_what_is_given_up_through_call_is_told_as_a_result_that_every_client_shows(
    party: Party, version: str
) -> None:
    party.rules(ask=["files:write"])
    workflow_id = await ask(party, version=version)
    answer = await party.continue_("call", workflow_id, approved=False, message="use b.txt")

    assert code_of(answer["result"]) == "workflow_aborted"
    assert text_of(answer["result"]).split("\n")[0] == "Workflow aborted by user: use b.txt"
    assert (party.servers.calls, await party.pending()) == ([], [])


async def test_a_workflow_is_used_once(party: Party) -> None:
    party.as_new()
    workflow_id = await ask(party)
    await party.continue_("files__write", workflow_id)

    for approved in (True, False):
        answer = await party.continue_("files__write", workflow_id, approved=approved)
        assert answer["error"] == GONE
    assert len(party.servers.calls) == 1


@pytest.mark.parametrize("name", ["files__read", "files:stat"])
async def test_a_workflow_is_not_another_tools(party: Party, name: str) -> None:
    party.rules(ask=["files:write"])
    workflow_id = await ask(party)

    assert (await party.continue_(name, workflow_id))["error"] == GONE
    assert party.servers.calls == []


async def test_a_workflow_that_never_was_is_not_found(party: Party) -> None:
    await party.connect()

    for name in ("call", "execute", "discover"):
        gone = (await party.continue_(name, "11111111-1111-4111-8111-111111111111"))["result"]
        assert (code_of(gone), text_of(gone).split("\n")[0]) == ("workflow_gone", GONE["message"])
    assert code_of((await party.continue_("call", "x", approved=False))["result"]) == "workflow_gone"
    assert (await party.continue_("files__write", "x"))["error"] == GONE


async def test_an_expired_workflow_is_gone(party: Party) -> None:
    party.rules(ask=["files:write"])
    workflow_id = await ask(party)
    party.office.clock.advance(301)

    assert (await party.continue_("files__write", workflow_id))["error"] == GONE
    assert party.servers.calls == []


async def test_an_undecided_workflow_answers_the_same_again_and_is_not_used(party: Party) -> None:
    party.configure(permissions={"ask": ["files:write"]}, approval={"model_may_approve": "never"})
    workflow_id = await ask(party)
    for _ in range(3):
        result = (await party.continue_("files__write", workflow_id))["result"]
        assert result["approval_context"]["workflow_id"] == workflow_id
        lines = text_of(result).split("\n")
        assert lines[:2] == ["Approval required to call files:write", "It is still undecided."]
        assert "You cannot approve it." in text_of(result)
        assert result["structuredContent"]["description"] == text_of(result)
    assert party.servers.calls == []

    await party.decide(allow=True)
    assert "content" in (await party.continue_("files__write", workflow_id))["result"]
    assert len(party.servers.calls) == 1


@pytest.mark.parametrize("version", [LATEST, MODERN])
@pytest.mark.parametrize("allow", [True, False])
async def test_a_workflow_that_is_continued_too_early_goes_on_once_it_is_decided(
    party: Party, version: str, allow: bool, patient: None
) -> None:
    party.rules(ask=["files:write"])
    said: JsonObject = {"workflow_id": await ask(party, version=version), "approved": True}
    meta: JsonObject = {"progressToken": "tok"}
    id = party.start_call("call", {"continue_workflow": said}, _meta=meta)
    assert (await party.told("notifications/progress"))[0]["message"] == "waiting for approval"
    assert party.servers.calls == []
    await party.decide(allow=allow)

    result = await party.result_of(id)
    assert bool(result.get("isError")) is not allow
    assert len(party.servers.calls) == (1 if allow else 0)


@pytest.mark.parametrize(("meta", "waits_s"), [({"progressToken": 0}, 25.0), ({}, 3.0)])
async def test_a_workflow_is_waited_for_as_long_as_its_client_can_bear(
    party: Party, meta: JsonObject, waits_s: float, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float | None] = []

    async def wait(context: Any, approval_id: Any, *, timeout_s: float | None = None) -> Any:
        waited.append(timeout_s)
        return await approvals.get(context, approval_id)

    monkeypatch.setattr(elicitation, "wait", wait)
    party.rules(ask=["files:write"])
    said: JsonObject = {"workflow_id": await ask(party), "approved": True}
    result = await party.call("call", {"continue_workflow": said}, _meta=meta)

    assert waited == [waits_s]
    assert text_of(result).split("\n")[1] == "It is still undecided."
    assert "input:" not in text_of(result)  # which the first result told


@promise("workflow:waiting-withdraws-nothing")
@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_a_client_that_gives_up_waiting_withdraws_nothing(
    party: Party, version: str, patient: None
) -> None:
    party.rules(ask=["files:write"])
    said: JsonObject = {"workflow_id": await ask(party, version=version), "approved": True}
    meta: JsonObject = {"progressToken": "tok"}
    id = party.start_call("call", {"continue_workflow": said}, _meta=meta)
    await party.told("notifications/progress")
    party.cancel(id)
    await party.settle()

    assert len(await party.pending()) == 1
    await party.decide(allow=True)
    assert not (await party.call("call", {"continue_workflow": said})).get("isError")
    assert len(party.servers.calls) == 1


async def test_a_workflow_denied_elsewhere_tells_so_with_the_persons_words(party: Party) -> None:
    party.rules(ask=["files:write"])
    workflow_id = await ask(party)
    await party.decide(allow=False, message="not on a Friday")
    result = (await party.continue_("files__write", workflow_id))["result"]

    assert code_of(result) == "user_denied"
    assert text_of(result).startswith("Tool execution denied by user: not on a Friday\n")
    assert party.servers.calls == []


async def test_always_is_remembered_and_not_asked_again(party: Party) -> None:
    party.rules(ask=["*"])
    party.configure(expose=[])
    workflow_id = await ask(party, "call", {"tool": "files:read", "arguments": {"path": "a"}})
    await party.continue_("call", workflow_id, always=True)
    again = await party.call("call", {"tool": "files:read", "arguments": {"path": "b"}})

    assert text_of(again) == '{"path": "b"}'
    assert rules_of(party.office.read(), "allow") == ["files:read"]


@promise("agent:nothing-unapproved")
async def test_a_second_client_cannot_approve_what_the_first_was_not_let_approve(party: Party) -> None:
    party.rules(ask=["files:write"])
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("files__write", {"path": "a", "text": "b"})
    party.reply(await party.asked(), {"action": "cancel"})
    workflow_id = (await party.result_of(id))["approval_context"]["workflow_id"]
    await party.connect("2024-11-05")
    result = (await party.continue_("files__write", workflow_id))["result"]

    assert result["approval_required"] is True
    assert party.servers.calls == []


async def test_a_call_that_was_lost_while_it_ran_is_told_so_and_not_run_again(party: Party) -> None:
    party.as_new()
    workflow_id = await ask(party)
    release = asyncio.Event()

    async def hang(method: str, params: JsonObject, on_progress: Any) -> bytes:
        await release.wait()
        return b"{}"

    party.servers.named["files"].answer = hang
    said: JsonObject = {"continue_workflow": {"workflow_id": workflow_id, "approved": True}}
    id = party.start_call("files__write", said)
    await party.until(lambda: len(party.servers.calls) == 1)
    party.cancel(id)
    await party.settle()
    result = (await party.continue_("files__write", workflow_id))["result"]

    assert code_of(result) == "run_unknown"
    assert "Do not repeat it" in text_of(result)
    assert len(party.servers.calls) == 1


@pytest.mark.parametrize("outcome", ["accept", "decline"])
async def test_a_form_after_a_continued_workflow_does_not_use_the_workflow_twice(
    party: Party, outcome: str
) -> None:
    party.servers.named["local"] = party.servers.named["files"]
    party.configure(mcpServers={}, permissions={"ask": ["local:write"]})
    party.office.write(FileKind.WORKSPACE, {"mcpServers": {"local": {"command": "local"}}})
    await party.connect(MODERN, FORMS)
    arguments: JsonObject = {"path": "a", "text": "b"}
    shown = await party.call("local__write", arguments)
    unanswered: JsonObject = {"approval": {"action": "cancel"}}
    paused = await party.call(
        "local__write", arguments, inputResponses=unanswered, requestState=shown["requestState"]
    )
    await party.decide(allow=True)
    continued: JsonObject = {
        "continue_workflow": {"workflow_id": paused["approval_context"]["workflow_id"], "approved": True}
    }
    form = await party.call("local__write", continued)
    assert form["inputRequests"]["approval"]["params"]["message"].startswith("Call local:write?\n")
    answered: JsonObject = {"approval": {"action": outcome, "content": {"remember": "once"}}}
    result = await party.call(
        "local__write", continued, inputResponses=answered, requestState=form["requestState"]
    )

    if outcome == "accept":
        assert json.loads(text_of(result)) == arguments
    else:
        assert code_of(result) == "user_denied"
    assert len(party.servers.calls) == (1 if outcome == "accept" else 0)


async def test_a_grant_for_the_session_covers_the_tool_as_it_is(party: Party) -> None:
    party.configure(expose=[])
    workflow_id = await ask(party, "call", {"tool": "files:read", "arguments": {"path": "a"}})
    await party.decide(allow=True, scope=Scope.SESSION)
    await party.continue_("call", workflow_id)
    again = await party.call("call", {"tool": "files:read", "arguments": {"path": "b"}})
    assert text_of(again) == '{"path": "b"}'

    party.servers.change("files", tools=(tool("read", required=["path"], description="Another."),))
    changed: Message = await party.call("call", {"tool": "files:read", "arguments": {"path": "b"}})
    assert changed["approval_context"]["type"] == "tool_changed"
    assert text_of(changed).startswith("Approval required to accept the changed tool files:read\n")


@promise("rules:deny-wins")
async def test_a_deny_on_call_holds_also_for_what_it_would_continue(party: Party) -> None:
    party.configure(expose=[])
    await party.connect()
    asked = await party.call("call", {"tool": "files:read", "arguments": {"path": "a"}})
    party.configure(expose=[], permissions={"deny": ["pml:call"]})

    result = await party.continue_("call", asked["approval_context"]["workflow_id"])

    assert code_of(result["result"]) == "TOOL_DENIED"
    assert party.servers.calls == []


@pytest.mark.parametrize("repeated", [False, True])
async def test_an_asked_call_of_call_is_continued_alone_or_with_its_arguments_repeated(
    party: Party, repeated: bool
) -> None:
    party.configure(expose=[], permissions={"ask": ["pml:call"], "allow": ["files:read"]})
    await party.connect()
    given: JsonObject = {"tool": "files:read", "arguments": {"path": "a"}}
    asked = await party.call("call", given)
    await party.decide(allow=True)
    said = {"workflow_id": asked["approval_context"]["workflow_id"], "approved": True}

    result = await party.call("call", {**(given if repeated else {}), "continue_workflow": said})

    assert not result.get("isError")
    assert [call["arguments"] for call in party.servers.calls] == [{"path": "a"}]


@promise("run:at-most-once")
async def test_an_answer_that_was_also_remembered_is_used_up_by_the_call_it_was_given_for(
    party: Party,
) -> None:
    party.rules(ask=["files:read"])
    await party.connect()
    await party.call("files__read", {"path": "a"})
    await party.decide(allow=True, scope=Scope.SESSION)
    await party.call("files__read", {"path": "a"})

    (record,) = await party.office.context.store.approvals.page(ApprovalQuery())
    assert (record.status, len(party.servers.calls)) == (State.COMPLETED, 1)


async def test_a_broken_file_is_named_where_its_servers_would_be_and_mending_it_counts_at_once(
    party: Party,
) -> None:
    party.configure()
    await party.connect()
    whole = party.office.path(FileKind.USER).read_text()
    party.office.path(FileKind.USER).write_text("{")
    await party.result("tools/list")

    result = await party.call("files__read", {"path": "a"})
    assert code_of(result) == "config_broken"
    assert "config.json:1:2" in text_of(result)

    party.office.path(FileKind.USER).write_text(whole)
    assert not (await party.call("files__read", {"path": "a"})).get("isError")


async def test_trust_given_in_one_place_answers_the_same_question_of_another(party: Party) -> None:
    party.office.write(FileKind.WORKSPACE, {"mcpServers": {"files": {"command": "files"}}})
    party.office.write(FileKind.USER, {})
    other = await party.office.session(SessionId("other"))
    policy = await current_policy(party.office.context, other.workspace)
    question = replace(trust_question(other, policy), deciders=frozenset({Role.PERSON, Role.FORM}))
    waiting = await approvals.ask(party.office.context, question)
    await party.connect("2025-11-25", FORMS)
    id = party.start_call("discover")
    party.reply(await party.asked(), {"action": "accept", "content": {"remember": "once"}})
    await party.result_of(id)

    answered = await party.office.context.store.approvals.get(waiting.id)
    assert answered is not None
    assert answered.status is not State.PENDING


@promise("workflow:bound-to-its-call")
async def test_call_alone_with_other_arguments_continues_nothing(party: Party) -> None:
    party.configure(expose=[])
    await party.connect()
    asked = await party.call("call", {"tool": "files:read", "arguments": {"path": "a"}})
    said = {"workflow_id": asked["approval_context"]["workflow_id"], "approved": True}

    result = await party.call("call", {"arguments": {"path": "b"}, "continue_workflow": said})

    assert (code_of(result), party.servers.calls) == ("invalid_arguments", [])


async def test_an_answer_that_was_remembered_and_then_ran_out_does_not_stop_what_the_rule_allows(
    party: Party,
) -> None:
    party.rules(ask=["files:read"])
    await party.connect()
    await party.call("files__read", {"path": "a"})
    await party.decide(allow=True, scope=Scope.SESSION)
    party.office.clock.advance(3600)

    assert not (await party.call("files__read", {"path": "a"})).get("isError")
