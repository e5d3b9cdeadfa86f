"""Rules, grants, sessions, servers and the audit log over HTTP, and the numbers."""

import asyncio

import pytest

from pml.core.approvals.record import Approval, SessionId, instant
from pml.core.sessions.agent import Message, MessageKind
from pml.core.sessions.token import TokenRole, read_token
from pml.core.values import Json, JsonObject
from pml.service.approvals.lifecycle import Decision, decide, pending
from tests.builders import PERSON
from tests.hub.hubs import KID, Got, HubRig
from tests.promises import promise


async def test_a_person_adds_explains_and_removes_rules(rig: HubRig) -> None:
    asked = await rig.ask(KID, n=1)
    added = await rig.send("POST", "/api/rules", json={"effect": "allow", "entry": "github:*", "user": True})
    assert (added.status, added.json["added"], added.json["counts"]) == (200, True, True)
    assert added.json["covers"] == [asked.id]
    released = await rig.send(
        "POST",
        "/api/rules",
        json={"effect": "allow", "entry": "github:*", "user": True, "release": [asked.id]},
    )
    assert (released.json["added"], released.json["released"]) == (False, [asked.id])
    explained = await rig.send("POST", "/api/rules/explain", json={"tool": "github:create_issue"})
    assert (explained.json["verdict"], explained.json["rule"]) == ("allow", "github:*")
    listed = await rig.send("GET", "/api/rules")
    assert [rule["entry"] for rule in listed.json["rules"]] == ["github:*"]
    removed = await rig.send("POST", "/api/rules/remove", json={"entry": "github:*", "user": True})
    assert removed.json == {"entry": "github:*", "removed": 1}
    again = await rig.send("POST", "/api/rules/remove", json={"entry": "github:*", "user": True})
    assert again.status == 404


async def test_a_deny_refuses_what_waits(rig: HubRig) -> None:
    asked = await rig.ask()
    got = await rig.send("POST", "/api/rules", json={"effect": "deny", "entry": "github:*"})
    assert got.json["denied"] == [asked.id]
    assert await rig.status(asked) == "denied"


@pytest.mark.parametrize(
    ("workspace", "status"), [("relative", 400), ("/no/such/place", 404), ("", 400), ("/etc/passwd", 404)]
)
async def test_a_workspace_is_a_directory_by_its_whole_path(rig: HubRig, workspace: str, status: int) -> None:
    assert (await rig.send("GET", f"/api/rules?workspace={workspace}")).status == status
    assert (await rig.send("GET", f"/api/servers?workspace={workspace}")).status == status
    body: Json = {"effect": "deny", "entry": "a:b", "workspace": workspace}
    assert (await rig.send("POST", "/api/rules", json=body)).status == status


async def test_a_rule_of_another_workspace_is_written_there(rig: HubRig) -> None:
    other = rig.office.home.parent / "other"
    other.mkdir()
    body: Json = {"effect": "deny", "entry": "a:b", "workspace": str(other)}
    got = await rig.send("POST", "/api/rules", json=body)
    assert got.json["file"] == str(other / ".pml.json")
    assert (other / ".pml.json").is_file()


@pytest.mark.parametrize(
    "body", [{}, {"effect": "perhaps", "entry": "a:b"}, {"effect": "deny"}, {"effect": "deny", "entry": 7}]
)
async def test_a_rule_that_is_none_is_told(rig: HubRig, body: Json) -> None:
    got = await rig.send("POST", "/api/rules", json=body)
    assert (got.status, got.json["error"]["code"]) == (400, "invalid")


async def test_grants_are_listed_and_revoked(rig: HubRig) -> None:
    await rig.decide(await rig.ask(), scope="session")
    (grant,) = (await rig.send("GET", "/api/grants")).json["grants"]
    assert (grant["session"], grant["tool"]) == (KID, "github:create_issue")
    assert (await rig.send("DELETE", f"/api/grants/{grant['id']}")).json["revoked"] is True
    assert (await rig.send("GET", "/api/grants")).json == {"grants": []}
    assert (await rig.send("DELETE", f"/api/grants/{grant['id']}")).status == 404


async def test_sessions_are_a_tree_with_what_waits_in_each(rig: HubRig) -> None:
    await rig.ask(KID)
    listed = (await rig.send("GET", "/api/sessions")).json["sessions"]
    told = {each["id"]: (each["parent"], each["state"], each["waiting"]) for each in listed}
    assert told == {
        "top": (None, "connected", 0),
        "kid": ("top", "waiting_for_approval", 1),
        "other": (None, "connected", 0),
        "stranger": ("other", "connected", 0),
    }


async def test_all_sessions_are_reached_page_by_page(rig: HubRig) -> None:
    seen: list[str] = []
    more = ""
    for _ in range(3):
        page = (await rig.send("GET", f"/api/sessions?limit=3{more}")).json
        seen += [each["id"] for each in page["sessions"]]
        if page["next"] is None:
            break
        more = f"&after={page['next']}"
    assert sorted(seen) == ["kid", "other", "stranger", "top"]


async def test_all_that_live_are_told_at_once_with_those_that_they_descend_from(rig: HubRig) -> None:
    for ended in ("top", "stranger"):
        await rig.context.store.sessions.end(SessionId(ended), at=rig.context.clock.now())
    told = (await rig.send("GET", "/api/sessions?live&limit=1")).json
    assert sorted(each["id"] for each in told["sessions"]) == ["kid", "other", "top"]
    assert told["next"] is None


async def test_a_session_is_told_of_its_own_tree_only_also_of_what_lives(rig: HubRig) -> None:
    told = (await rig.send("GET", "/api/sessions?live", TokenRole.SESSION)).json
    assert sorted(each["id"] for each in told["sessions"]) == ["kid", "top"]


async def test_a_person_launches_looks_at_and_stops_an_agent(rig: HubRig) -> None:
    body: Json = {"prompt": "look", "name": "scout", "model": "m", "may_launch": True}
    launched = (await rig.send("POST", "/api/sessions", json=body)).json
    assert (launched["name"], launched["parent"], launched["role"]) == ("scout", None, "session")
    await rig.agents.started(1)
    session_id = SessionId(launched["id"])
    said = Message(session_id=session_id, kind=MessageKind.TEXT, text="found it", at=rig.office.clock.now())
    stored = await rig.context.store.runs.say(said)
    await rig.context.store.runs.count(session_id, turns=1, cost_usd=0.1 + 0.2)
    shown = (await rig.send("GET", f"/api/sessions/{session_id}")).json
    assert (shown["run"]["turns"], shown["run"]["cost_usd"]) == (1, 0.3)
    messages = (await rig.send("GET", f"/api/sessions/{session_id}/messages")).json["messages"]
    assert [(each["kind"], each["text"]) for each in messages] == [("text", "found it")]
    after = await rig.send("GET", f"/api/sessions/{session_id}/messages?after={stored.seq}")
    assert after.json == {"messages": []}
    stopped = await rig.send("POST", f"/api/sessions/{session_id}/stop")
    assert (stopped.status, stopped.json["state"]) == (200, "stopped")
    assert (await rig.send("POST", f"/api/sessions/{session_id}/stop")).status == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"prompt": ""}, {"prompt": "a", "arguments": ["--dangerously-skip-permissions"]}, {"prompt": 1}],
)
async def test_a_launch_that_is_not_understood_starts_nothing(rig: HubRig, body: Json) -> None:
    assert (await rig.send("POST", "/api/sessions", json=body)).status == 400
    assert rig.agents.orders == []


async def test_a_session_chooses_no_other_workspace(rig: HubRig) -> None:
    rig.office.write_rules(allow=["pml:session_launch"])
    body: Json = {"prompt": "go", "workspace": "/"}
    assert (await rig.send("POST", "/api/sessions", TokenRole.SESSION, json=body)).status == 403
    assert rig.agents.orders == []


async def test_the_audit_log_is_read_and_verified(rig: HubRig) -> None:
    asked = await rig.ask()
    await rig.decide(asked)
    got = await rig.send("GET", f"/api/audit?approval={asked.id}")
    assert [each["kind"] for each in got.json["entries"]] == ["approval.requested", "approval.allowed"]
    assert {each["at"] for each in got.json["entries"]} == {instant(rig.office.clock.now())}
    first = await rig.send("GET", "/api/audit?after=0&limit=1")
    assert len(first.json["entries"]) == 1
    newest = (await rig.send("GET", "/api/audit?limit=2")).json["entries"]
    older = (await rig.send("GET", f"/api/audit?limit=1&before={newest[0]['seq']}")).json["entries"]
    assert older[0]["seq"] < newest[0]["seq"] < newest[1]["seq"]
    assert (await rig.send("GET", "/api/audit?before=0")).status == 400
    verified = (await rig.send("GET", "/api/audit/verify")).json
    assert (verified["ok"], verified["problems"]) == (True, [])


async def test_servers_are_told_of_the_workspace_that_is_named(rig: HubRig) -> None:
    got = await rig.send("GET", f"/api/servers?workspace={rig.office.home}")
    [server] = got.json["servers"]
    assert (server["name"], server["state"], server["launch"]) == ("shop", "running", str(rig.office.home))


async def test_the_numbers_count_decisions_of_every_channel_and_no_value_of_a_request(rig: HubRig) -> None:
    asked = [await rig.ask(KID, n=n) for n in range(4)]
    await rig.decide(asked[0])
    await rig.decide(asked[1], TokenRole.SESSION, allow=False)
    await rig.office.allow(asked[2])
    await rig.send("GET", "/api/approvals/secret-in-a-path")
    await rig.send("GET", "/secret-elsewhere", None)
    text = (await rig.send("GET", "/metrics")).text
    again = (await rig.send("GET", "/metrics")).text
    for line in (
        "pml_approvals_pending 1",
        'pml_decisions_total{by="person",outcome="allowed"} 2',
        'pml_decisions_total{by="parent",outcome="denied"} 1',
        'pml_sessions_live{role="child"} 2',
        "pml_permits_waiting 3",
        "pml_event_streams 2",
        'pml_http_requests_total{method="POST",route="/api/approvals/{id}/decision",status="200"} 2',
        'pml_http_requests_total{method="GET",route="other",status="401"} 1',
    ):
        assert f"{line}\n" in text
    assert 'pml_decisions_total{by="person",outcome="allowed"} 2\n' in again
    assert "secret" not in text
    assert "process_resident_memory_bytes" in text


async def hooked(rig: HubRig, tool: str, input: JsonObject) -> tuple[asyncio.Task[Got], Approval]:
    """Let a hook ask, and return it with its question once that waits."""
    asks: Json = {
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": input,
        "tool_use_id": "use-9",
    }
    hook = asyncio.create_task(rig.send("POST", "/api/hook", TokenRole.CHILD, json=asks))
    async with asyncio.timeout(60):
        with rig.context.store.changes.watch() as changes:
            while not (waiting := await pending(rig.context)):
                await changes.wait(1.0)
    return hook, waiting[-1]


@promise("token:revocable")
async def test_a_hook_that_waits_hears_nothing_once_its_token_counts_no_longer(rig: HubRig) -> None:
    hook, asked = await hooked(rig, "Bash", {"command": "make"})
    read = read_token(rig.tokens[TokenRole.CHILD])
    assert read is not None
    await rig.context.store.tokens.revoke(read[0], at=rig.context.clock.now(), by=None)
    await rig.decide(asked)
    assert (await hook).status == 403


@promise("gate:approved-is-executed")
async def test_a_hook_is_told_of_an_edit_that_python_takes_for_the_same(rig: HubRig) -> None:
    hook, asked = await hooked(rig, "Clean", {"deep": 1})
    edited = Decision(by=PERSON, digest=asked.digest, allow=True, updated_input={"deep": True})
    await decide(rig.context, asked.id, edited)
    answer = (await hook).json["hookSpecificOutput"]
    assert answer["updatedInput"]["deep"] is True
