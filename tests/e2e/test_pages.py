"""The pages beside the inbox, in a real browser on a real hub: what they show, change and refuse."""

import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

from playwright.sync_api import expect

from pml.core.approvals.record import SessionId, Subject
from pml.service.approvals.lifecycle import Question, ask
from pml.service.context import Context
from pml.service.session_tree import session_of
from tests.e2e.hubs import Room, bash
from tests.e2e.inbox_rig import Asked, Caller, Inbox
from tests.e2e.inbox_tab import Tab
from tests.promises import promise

VALUE: Final = "hunter2-correct-horse"
FILE: Final = {
    "permissions": {"allow": ["github:get_*"], "deny": ["WebSearch"], "ask": ["*"]},
    "mcpServers": {"shop": {"command": "shop-server", "args": ["--fast"]}},
}


def file_of(room: Room) -> Path:
    return room.path / ".pml.json"


def lists(room: Room) -> dict[str, list[object]]:
    return json.loads(file_of(room).read_text())["permissions"]


def at(room: Room, page: str) -> str:
    return f"{page}?workspace={quote(str(room.path))}"


def decide(room: Room, asked: Asked, **decision: object) -> None:
    room.hub.ask(f"/api/approvals/{asked.id}/decision", {"digest": asked.digest, **decision})
    asked.answer()


# --- history


def test_what_was_decided_is_found_by_its_words_and_by_what_became_of_it(tab: Tab, agent: Caller) -> None:
    yes, no = agent.asks("Bash", command="make zebra"), agent.asks("Bash", command="make okapi")
    decide(agent.room, yes, allow=True)
    decide(agent.room, no, allow=False)
    tab.go("/history")
    rows = tab.page.locator("li.history")
    expect(rows.first).to_have_attribute("data-id", no.id)
    tab.page.get_by_role("searchbox").fill("zebra")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("allowed")
    tab.page.get_by_role("searchbox").fill("")
    tab.page.get_by_role("button", name="Denied").click()
    expect(rows.first).to_have_attribute("data-id", no.id)
    tab.page.reload()
    expect(tab.page.get_by_role("button", name="Denied")).to_have_attribute("aria-pressed", "true")
    tab.page.get_by_role("searchbox").fill("nothing has these words")
    tab.page.get_by_role("button", name="Show all").click()
    expect(rows.first).to_be_visible()


def test_the_history_goes_on_by_itself(tab: Tab, agent: Caller) -> None:
    tab.go(f"/history?session={agent.session_id}")
    expect(tab.page.get_by_text("Nothing found")).to_be_visible()
    asked = agent.asks("Bash", command="make quagga")
    row = tab.page.locator(f'li.history[data-id="{asked.id}"]')
    expect(row).to_contain_text("waiting")
    decide(agent.room, asked, allow=False)
    expect(row).to_contain_text("denied")
    row.get_by_role("link").click()
    expect(tab.page).to_have_url(re.compile(f"#/card/{asked.id}$"))


# --- sessions


def test_sessions_stand_beneath_those_that_started_them(tab: Tab, inbox: Inbox, room: Room) -> None:
    lead = inbox.caller(room, "lead")
    below = inbox.caller(room, "below", parent=lead.session_id)
    tab.go(f"/sessions?session={below.session_id}")
    item = tab.page.locator("li", has=tab.page.locator(f'details[data-key="{below.session_id}"]'))
    expect(item).to_have_class("depth-1")
    expect(item).to_contain_text(str(room.path))
    below.asks("Bash", command="make dodo")
    expect(item).to_contain_text("waits for you")
    expect(item.locator("details")).to_have_attribute("open", "")


def test_a_launched_agent_is_stopped_after_a_confirmation(inbox: Inbox, tab: Tab, room: Room) -> None:
    inbox.hub.api.also("page-task", bash("touch a.mark"))
    with room.launched("do the page-task", "--name", "digger") as agent:
        session = room.question()["session"]
        tab.go(f"/sessions?session={session}")
        item = tab.page.locator("li", has=tab.page.locator(f'details[data-key="{session}"]'))
        expect(item.locator(".facts")).to_contain_text("do the page-task")
        item.get_by_role("button", name="Stop").click()
        tab.confirm()
        expect(item).to_contain_text("stopped")
        agent.finish()
    assert room.marks() == []


# --- rules


def test_a_rule_is_added_disabled_enabled_and_removed(tab: Tab, room: Room) -> None:
    room.settle(FILE)
    tab.go(at(room, "/rules"))
    tab.page.get_by_role("button", name="Add a rule").click()
    tab.page.get_by_text("Deny: never run").click()
    tab.page.get_by_label("Tool, glob").fill('{"tool": "fs:write", "args": {"n": 12345678901234567890}}')
    tab.page.get_by_role("button", name="Add rule").click()
    entry = {"tool": "fs:write", "args": {"n": 12345678901234567890}}
    rule = tab.page.locator('[data-rule*="12345678901234567890"]')
    expect(rule).to_have_attribute("data-counts", "true")
    assert lists(room)["deny"] == ["WebSearch", entry]
    rule.locator("[data-action=disable]").click()
    tab.confirm()
    expect(rule).to_have_attribute("data-counts", "false")
    assert lists(room)["deny"] == ["WebSearch", {**entry, "enabled": False}]
    rule.locator("[data-action=enable]").click()
    expect(rule).to_have_attribute("data-counts", "true")
    rule.locator("[data-action=remove]").click()
    tab.confirm()
    expect(rule).to_have_count(0)
    assert lists(room) == FILE["permissions"]


def test_an_ask_is_disabled_only_by_who_says_so_twice(tab: Tab, room: Room) -> None:
    permissions = {"allow": ["Bash"], "deny": [], "ask": ["WebFetch"]}
    room.settle({"permissions": permissions})
    tab.go(at(room, "/rules"))
    rule = tab.page.locator('[data-rule="WebFetch"]')
    rule.locator("[data-action=disable]").click()
    expect(tab.dialog).to_contain_text("may then be allowed by another rule")
    tab.press("Escape")
    expect(tab.dialog).to_have_count(0)
    assert lists(room) == permissions
    rule.locator("[data-action=disable]").click()
    tab.confirm()
    expect(rule).to_have_attribute("data-counts", "false")


def test_an_allow_shows_what_waits_and_lets_run_only_then(tab: Tab, agent: Caller) -> None:
    agent.room.settle(FILE)
    asked = agent.asks("Bash", command="make moa")
    tab.go(at(agent.room, "/rules"))
    tab.page.get_by_role("button", name="Add a rule").click()
    tab.page.get_by_label("Tool, glob").fill("Bash")
    tab.page.get_by_role("button", name="Add rule").click()
    expect(tab.dialog).to_contain_text("This waits, and is allowed now")
    assert asked.waits
    tab.let_pass()
    tab.page.get_by_role("button", name="Let it run").click()
    assert asked.answer()["behavior"] == "allow"


def test_a_call_is_explained_and_a_rule_that_is_none_is_refused_in_place(tab: Tab, room: Room) -> None:
    room.settle(FILE)
    tab.refusals.add(400)
    tab.go(at(room, "/rules"))
    tab.page.get_by_text("Try a call").click()
    tab.page.get_by_label("Tool", exact=True).fill("WebSearch")
    tab.page.get_by_role("button", name="Explain").click()
    expect(tab.page.locator("[data-verdict]")).to_have_attribute("data-verdict", "deny")
    tab.page.get_by_label("Arguments, as JSON").fill("{")
    tab.page.get_by_role("button", name="Explain").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("not JSON")
    tab.page.get_by_role("button", name="Add a rule").click()
    tab.page.get_by_label("Tool, glob").fill('{"tool": "a:b", "arg": 1}')
    tab.page.get_by_role("button", name="Add rule").click()
    expect(tab.dialog.get_by_role("alert")).to_contain_text("unknown key")
    assert lists(room) == FILE["permissions"]


# --- grants


def test_a_grant_is_revoked_and_asked_about_again(tab: Tab, agent: Caller) -> None:
    decide(agent.room, agent.asks("Read", file_path="a.txt"), allow=True, scope="session")
    tab.go("/grants")
    revoke = tab.page.get_by_role("button", name="Revoke Read")
    revoke.first.click()
    expect(revoke).to_have_count(0)
    assert agent.asks("Read", file_path="b.txt").waits


# --- servers


def test_a_server_tells_how_it_stands_and_what_it_wrote(tab: Tab, room: Room) -> None:
    file_of(room).write_text(json.dumps(FILE))
    tab.go(at(room, "/servers"))
    server = tab.page.locator('[data-server="shop"]')
    expect(server).to_contain_text("not trusted")
    expect(server).to_contain_text("shop-server --fast")
    server.get_by_text("Logs").click()
    expect(server).to_contain_text("It has written nothing yet")
    room.pml("trust", "--yes")
    expect(server.locator(".chip").first).to_have_text(re.compile("stopped|refused"))


# --- audit


def test_the_chain_is_told_to_be_whole_and_entries_are_found(tab: Tab, agent: Caller) -> None:
    decide(agent.room, agent.asks("Bash", command="make kiwi"), allow=False)
    tab.go(f"/audit?session={agent.session_id}")
    expect(tab.page.locator("[data-chain]")).to_have_attribute("data-chain", "good")
    expect(tab.page.locator("li.audit-item").filter(has_text="approval.denied")).to_have_count(1)


# --- trust


@promise("trust:exact-content")
def test_only_the_content_that_is_shown_is_trusted(tab: Tab, room: Room) -> None:
    tab.refusals.add(409)
    file_of(room).write_text(json.dumps(FILE))
    tab.go(at(room, "/trust"))
    for shown in ("github:get_*", "shop-server", "deny WebSearch"):
        expect(tab.page.locator("main")).to_contain_text(shown)
    file_of(room).write_text(json.dumps({**FILE, "permissions": {"allow": ["*"]}}))
    trust = tab.page.get_by_role("button", name="Trust this content")
    trust.click()
    expect(tab.page.get_by_text("The file has just changed")).to_be_visible()
    expect(trust).to_be_disabled()
    assert tab.inbox.hub.ask(f"/api{at(room, '/trust')}")["trusted"] is False
    tab.let_pass(2000)
    trust.click()
    tab.page.get_by_role("button", name="Stop trusting").click()
    tab.confirm()
    expect(trust).to_be_visible()
    assert tab.inbox.hub.ask(f"/api{at(room, '/trust')}")["trusted"] is False


# --- secrets


@promise("secrets:never-shown")
def test_a_key_that_is_asked_for_is_taken_and_the_call_goes_on(tab: Tab, inbox: Inbox, agent: Caller) -> None:
    asked = wants_key(inbox, agent)
    tab.go(f"/secrets/{asked}")
    field = tab.page.get_by_label("SHOP_KEY")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("type", "password")
    field.fill(VALUE)
    tab.press("Enter")
    expect(tab.page).to_have_url(re.compile(f"#/card/{asked}$"))
    assert inbox.hub.ask(f"/api/approvals/{asked}")["status"] == "allowed"
    home = Path(inbox.hub.environment["PML_HOME"])
    holding = [
        path.name for path in home.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()
    ]
    assert holding in (["secrets.json"], [])
    assert VALUE not in (inbox.hub.place / "hub.err").read_text()
    tab.go("/secrets")
    tab.page.get_by_role("button", name="Remove SHOP_KEY").click()
    tab.confirm()
    expect(tab.page.locator('[data-secret="SHOP_KEY"]')).to_have_count(0)


def test_a_key_that_is_asked_for_can_be_denied(tab: Tab, inbox: Inbox, agent: Caller) -> None:
    asked = wants_key(inbox, agent)
    tab.go(f"/secrets/{asked}")
    tab.page.get_by_role("button", name="Deny").click()
    expect(tab.page).to_have_url(re.compile(f"#/card/{asked}$"))
    tab.go(f"/secrets/{asked}")
    expect(tab.page.get_by_text("Nothing to enter here")).to_be_visible()
    assert inbox.hub.ask(f"/api/approvals/{asked}")["status"] == "denied"


def wants_key(inbox: Inbox, agent: Caller) -> str:
    """Ask what a server asks that is started without a variable which it requires."""

    async def put(context: Context) -> str:
        session = await session_of(context, SessionId(agent.session_id))
        call = {"tool": "shop:buy", "arguments": {"item": 7}}
        given = {"server": "shop", "missing": ["SHOP_KEY"], "call": call}
        question = Question(
            session=session, tool="shop:buy", arguments=given, subject=Subject.API_KEY_REQUIRED
        )
        return str((await ask(context, question)).id)

    return inbox.beside(put)
