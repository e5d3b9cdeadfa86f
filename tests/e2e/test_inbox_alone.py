"""What is decided by itself, what runs out first, each value once, and pages that begin with all places."""

from typing import Final

from msgspec import structs
from playwright.sync_api import expect

from pml.core.approvals.record import SessionId, Subject
from pml.core.digest import digest
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import Question, ask
from pml.service.context import Context
from pml.service.session_tree import session_of
from tests.e2e.inbox_rig import Asked, Caller, Inbox
from tests.e2e.inbox_scene import CHANGED, NOW, put
from tests.e2e.inbox_tab import Tab
from tests.promises import promise

TRUST: Final[JsonObject] = {"path": "/w/.pml.json", "digest": "sha256:0", "allows": ["Bash"], "launches": []}


def changed(inbox: Inbox, agent: Caller) -> str:
    return put(inbox, agent, "chat:send_message", Subject.TOOL_CHANGED, CHANGED, definition=digest(NOW))


def test_allow_all_is_offered_where_two_can_be_answered_together(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    plain = agent.asks("Bash", command="ls")
    tab.look_at(plain)
    expect(tab.button(plain, "allow")).to_be_visible()
    expect(tab.button(plain, "allow-all")).to_be_hidden()
    tab.look_at_id(changed(inbox, agent))
    expect(tab.button(plain, "allow-all")).to_be_hidden()
    places = [tab.button(plain, action).bounding_box() for action in ("deny", "allow")]
    agent.asks("Bash", command="pwd")
    expect(tab.button(plain, "allow-all")).to_be_visible()
    now = [tab.button(plain, action).bounding_box() for action in ("deny", "allow")]
    assert [box and box["x"] for box in now] == [box and box["x"] for box in places]


@promise("approval:alone")
def test_all_at_once_leaves_out_what_is_decided_by_itself(inbox: Inbox, tab: Tab, agent: Caller) -> None:
    plain = agent.asks("Bash", command="ls")
    alone = changed(inbox, agent)
    tab.look_at_id(alone)
    card = tab.card(alone)
    expect(card.locator("[data-action=allow-all]")).to_have_count(0)
    expect(card.locator("[data-action=allow]")).to_contain_text("Accept the new description")
    expect(card.locator("[data-part=kind]")).to_contain_text("A tool changed")
    tab.look_at(plain)
    for key in ("Alt+Enter", "Alt+Escape"):
        tab.press(key)
        expect(tab.dialog.locator("[data-covers]")).to_have_count(1)
        expect(tab.dialog.locator(f"[data-covers='{alone}']")).to_have_count(0)
        expect(tab.dialog.locator("[data-part=unread]")).to_contain_text("left out")
        tab.press("Escape")
        tab.let_pass()
    tab.press("Alt+Enter")
    tab.confirm()
    assert plain.answer()["behavior"] == "allow"
    tab.press("Alt+Enter")
    tab.says("one by one")
    assert inbox.hub.ask(f"/api/approvals/{alone}")["status"] == "pending"


def test_trust_and_installs_say_what_their_button_does(inbox: Inbox, tab: Tab, agent: Caller) -> None:
    trust = put(inbox, agent, "memory:read_graph", Subject.WORKSPACE_TRUST, TRUST)
    facts: JsonObject = {"name": "memory", "version": "1.2.3", "ecosystem": "npm", "source": "catalog"}
    install = put(inbox, agent, "memory:read", Subject.DEPENDENCY_INSTALL, {"dependency": facts})
    for approval_id, verb in ((trust, "Trust this file"), (install, "Install and run")):
        tab.focus(approval_id)
        expect(tab.card(approval_id).locator("[data-action=allow]")).to_contain_text(verb)
    expect(tab.card(install).locator("[data-part=server]")).to_contain_text(
        "memory is a server: an npm package, version 1.2.3, from PML's catalog"
    )


@promise("card:value-once")
def test_a_command_stands_once_and_its_raw_arguments_unfold(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="make apples", description="bake", timeout=5)
    tab.look_at(asked)
    card = tab.card(asked.id)
    expect(card.locator("[data-block=arguments]")).not_to_contain_text("make apples")
    assert card.inner_text().count("bake") == 1
    expect(card.locator("[data-block=arguments]")).to_contain_text("timeout")
    card.locator("[data-block=raw] summary").click()
    expect(card.locator("[data-block=raw]")).to_contain_text('"command": "make apples"')
    tab.press("e")
    expect(tab.field(asked, "edit")).to_have_value(
        '{\n  "command": "make apples",\n  "description": "bake",\n  "timeout": 5\n}'
    )


def test_what_runs_out_first_comes_first(inbox: Inbox, tab: Tab, agent: Caller) -> None:
    late = agent.asks("Bash", command="echo late")

    async def put_soon(context: Context) -> str:
        session = structs.replace(await session_of(context, SessionId(agent.session_id)), ttl_s=60)
        return str(
            (await ask(context, Question(session=session, tool="Bash", arguments={"command": "ls"}))).id
        )

    tab.shows([inbox.beside(put_soon), late.id])


def asked_in(inbox: Inbox, name: str) -> Asked:
    room = inbox.room(name)
    room.settle({"permissions": {"allow": [f"{name}:get"], "deny": [], "ask": ["*"]}})
    return inbox.caller(room, name).asks("Bash", command=f"echo {name}")


def test_rules_servers_and_trust_open_on_all_workspaces(inbox: Inbox, tab: Tab) -> None:
    for name in ("apples", "pears"):
        asked_in(inbox, name)
    for path in ("/rules", "/servers", "/trust"):
        tab.go(path)
        expect(tab.page.locator("#workspace")).to_have_value("")
        expect(tab.page.locator("#workspace option").first).to_have_text("All workspaces")
    tab.go("/rules")
    for name in ("apples", "pears"):
        expect(tab.page.locator(f'[data-rule="{name}:get"]')).to_contain_text(f"{name}/.pml.json")
    tab.page.locator("[data-action=add-rule]").click()
    expect(tab.dialog.locator("#where option")).not_to_have_count(0)
    tab.press("Escape")
    tab.go("/trust")
    for name in ("apples", "pears"):
        row = tab.page.locator("li[data-workspace]", has_text=f"/{name}/.pml.json")
        expect(row).to_contain_text("trusted")
    tab.page.locator("li[data-workspace]", has_text="/pears/").locator("a").click()
    expect(tab.page.locator("main")).to_contain_text("pears:get")


def test_a_new_agent_is_given_less_by_the_fields_of_its_card(inbox: Inbox, tab: Tab, agent: Caller) -> None:
    given: JsonObject = {"prompt": "look around", "parent_may_decide": "unlisted"}
    launch = put(inbox, agent, "pml:session_launch", Subject.TOOL_CALL, given)
    tab.look_at_id(launch)
    card = tab.card(launch)
    expect(card.locator("[data-action=allow]")).to_contain_text("Start the agent")
    answers = card.locator("[data-field=launch-answers]")
    expect(answers.locator("option")).to_have_count(3)
    card.locator("[data-field=launch-tools]").click()
    tab.type("Read, Grep")
    tab.press("Escape")
    expect(card).to_be_focused()
    answers.select_option("nothing")
    tab.let_pass()
    card.locator("[data-action=allow]").click()
    tab.is_over(launch, "edited")
    stored = inbox.hub.ask(f"/api/approvals/{launch}")
    assert stored["updated_input"] == {
        **given,
        "allowed_tools": ["Read", "Grep"],
        "parent_may_decide": "nothing",
    }
