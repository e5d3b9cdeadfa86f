"""Every button and every key of the inbox, each with an agent that waits for what it does."""

import json
import re
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.e2e.hubs import Room, bash
from tests.e2e.inbox_rig import Caller, Inbox
from tests.e2e.inbox_tab import Tab
from tests.e2e.messages_api import LAST_WORD
from tests.promises import promise

LS: Final = {"command": "ls -l", "description": "list the files"}


def allows(given: dict[str, Any]) -> dict[str, Any]:
    return {"behavior": "allow", "updatedInput": given}


@promise("inbox:agent-goes-on")
@pytest.mark.parametrize("key", ["Enter", "Control+Enter", "Meta+Enter"])
def test_a_key_that_allows_lets_the_agent_go_on(tab: Tab, agent: Caller, key: str) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press(key)
    assert asked.answer() == allows(LS)
    tab.is_over(asked, "You allowed it")


@promise("inbox:agent-goes-on")
def test_escape_denies(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("Escape")
    tab.send_held()
    assert asked.answer()["behavior"] == "deny"
    tab.is_over(asked, "You denied it")


@pytest.mark.parametrize(("action", "behavior"), [("allow", "allow"), ("deny", "deny")])
def test_the_buttons_do_what_they_say(tab: Tab, agent: Caller, action: str, behavior: str) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.button(asked, action).click()
    if action == "deny":
        tab.send_held()
    assert asked.answer()["behavior"] == behavior


def test_allow_is_the_rightmost_button_and_deny_the_leftmost_of_three(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    places = [tab.button(asked, action).bounding_box() for action in ("deny", "allow-all", "allow")]
    lefts = [place["x"] for place in places if place is not None]
    assert lefts == sorted(lefts)
    assert len(lefts) == 3


def test_m_opens_a_message_which_reaches_the_agent_with_the_denial(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("m")
    tab.type("look into src/ instead")
    tab.press("Control+Enter")
    tab.send_held()
    told = asked.answer()
    assert told["behavior"] == "deny"
    assert "look into src/ instead" in told["message"]


def test_what_is_typed_into_the_message_decides_nothing_and_escape_only_closes_it(
    tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("m")
    tab.type("jkems/? ")
    tab.press("Escape")
    expect(tab.field(asked, "message")).to_have_count(0)
    tab.still_waits(asked)


@promise("inbox:edit-judged-again")
def test_e_edits_the_arguments_and_the_edit_is_what_the_agent_is_told_to_run(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("e")
    edited = {"command": "ls -l src", "description": "list the sources"}
    tab.field(asked, "edit").fill(json.dumps(edited))
    tab.press("Control+Enter")
    assert asked.answer() == allows(edited)
    tab.is_over(asked, "edited")


@promise("inbox:edit-judged-again")
def test_an_edit_into_a_call_that_is_denied_is_refused_at_the_card_and_runs_nothing(
    tab: Tab, room: Room, agent: Caller
) -> None:
    denied = {"tool": "Bash", "args": {"command": {"is": "rm -rf src"}}}
    room.settle({"permissions": {"allow": [], "deny": [denied], "ask": ["*"]}})
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.refusals = {403, 409}
    tab.press("e")
    tab.field(asked, "edit").fill(json.dumps({"command": "rm -rf src"}))
    tab.press("Control+Enter")
    expect(tab.told(asked)).to_contain_text("denied")
    tab.still_waits(asked)
    tab.let_pass()
    tab.field(asked, "edit").fill(json.dumps({"command": "ls src"}))
    tab.press("Control+Enter")
    assert asked.answer() == allows({"command": "ls src"})


def test_an_edit_that_is_no_json_is_told_and_sends_nothing(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.button(asked, "edit").click()
    tab.field(asked, "edit").fill('{"command": ')
    expect(tab.card(asked.id)).to_contain_text("not JSON")
    tab.press("Control+Enter")
    tab.still_waits(asked)


def test_an_edit_keeps_numbers_that_javascript_cannot_hold(tab: Tab, agent: Caller) -> None:
    given = {"account": 12345678901234567890, "rate": 1.0, "note": "a"}
    asked = agent.asks("bank:transfer", **given)
    tab.look_at(asked)
    tab.press("e")
    field = tab.field(asked, "edit")
    field.fill(field.input_value().replace('"a"', '"b"'))
    tab.press("Control+Enter")
    assert asked.answer() == allows({**given, "note": "b"})


@promise("inbox:remember")
def test_s_remembers_for_the_session_and_the_next_same_call_runs_unasked(
    inbox: Inbox, tab: Tab, agent: Caller, room: Room
) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    expect(tab.card(asked.id)).to_contain_text("these arguments")
    tab.press("s")
    expect(tab.button(asked, "remember")).to_be_checked()
    tab.press("Enter")
    assert asked.answer() == allows(LS)
    assert agent.tries("Bash", LS).result(30) == allows(LS)
    other = agent.asks("Bash", command="ls -l /")
    foreign = inbox.caller(room).asks("Bash", **LS)
    assert other.waits
    assert foreign.waits


@promise("always:only-what-was-shown")
@pytest.mark.parametrize("action", ["always", "always-exactly"])
def test_always_writes_the_very_entry_that_was_shown(
    tab: Tab, room: Room, agent: Caller, action: str
) -> None:
    given = {"url": "https://docs.example/a*b", "prompt": "what is new?"}
    asked = agent.asks("WebFetch", **given)
    other = agent.asks("WebFetch", url="https://docs.example/other", prompt="and here?")
    tab.look_at(asked)
    tab.open_always(asked)
    part = tab.part(asked, "always")
    expect(part).to_contain_text(str(room.path / ".pml.json"))
    entry = part.locator(".entry", has=tab.page.locator(f"[data-action={action}]"))
    shown = "\n".join(entry.locator(".code .ln").all_inner_texts())
    part.locator(f"[data-action={action}]").click()
    assert asked.answer() == allows(given)
    tab.is_over(asked, "always")
    [written] = json.loads((room.path / ".pml.json").read_text())["permissions"]["allow"]
    assert written == (json.loads(shown) if shown.startswith("{") else shown)
    assert agent.tries("WebFetch", given).result(30) == allows(given)
    assert other.waits, "only what was ticked beside the button goes on with it"


@promise("always:only-what-was-shown")
def test_always_lets_go_on_what_it_covers_only_when_that_was_ticked(tab: Tab, agent: Caller) -> None:
    first = agent.asks("WebFetch", url="https://docs.example/one", prompt="a")
    second = agent.asks("WebFetch", url="https://docs.example/two", prompt="b")
    third = agent.asks("Bash", **LS)
    tab.look_at(first)
    tab.open_always(first)
    tab.field(first, "release").check()
    tab.part(first, "always").locator("[data-action=always]").click()
    assert first.answer()["behavior"] == "allow"
    assert second.answer()["behavior"] == "allow"
    assert third.waits


def test_j_and_k_move_from_card_to_card_and_no_further(tab: Tab, agent: Caller) -> None:
    ids = [agent.asks("Bash", command=f"echo {n}").id for n in range(3)]
    tab.shows(ids)
    tab.focus(ids[0])
    for key, place in (("j", 1), ("j", 2), ("j", 2), ("k", 1), ("k", 0), ("k", 0)):
        tab.press(key)
        expect(tab.card(ids[place])).to_be_focused()


def test_slash_searches_and_hides_what_does_not_fit(tab: Tab, agent: Caller) -> None:
    first = agent.asks("Bash", command="echo apples")
    second = agent.asks("Bash", command="echo pears")
    tab.shows([first.id, second.id])
    tab.press("/")
    expect(tab.search).to_be_focused()
    tab.type("pears")
    expect(tab.card(first.id)).to_be_hidden()
    expect(tab.card(second.id)).to_be_visible()
    tab.search.fill("")
    tab.shows([first.id, second.id])


def test_question_mark_shows_the_keys_and_escape_closes_them_and_nothing_else(
    tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("?")
    for word in ("Allow", "Deny", "Edit", "Search"):
        expect(tab.dialog).to_contain_text(re.compile(word, re.IGNORECASE))
    tab.press("Escape")
    expect(tab.dialog).to_have_count(0)
    tab.still_waits(asked)


@promise("inbox:batch-shows-what-it-covers")
@pytest.mark.parametrize(("key", "behavior"), [("Alt+Enter", "allow"), ("Alt+Escape", "deny")])
def test_all_at_once_shows_what_it_covers_and_decides_exactly_that(
    tab: Tab, agent: Caller, key: str, behavior: str
) -> None:
    asked = [agent.asks("Bash", command=f"echo {n} of three") for n in range(3)]
    tab.shows([each.id for each in asked])
    tab.look_at(asked[0])
    tab.press(key)
    for n in range(3):
        expect(tab.dialog).to_contain_text(f"echo {n} of three")
    late = agent.asks("Bash", command="echo too late")
    tab.confirm()
    if behavior == "deny":
        tab.send_held()
    assert [each.answer()["behavior"] for each in asked] == [behavior] * 3
    tab.still_waits(late)


@promise("inbox:batch-shows-what-it-covers")
def test_all_at_once_reports_of_each_what_became_of_it(inbox: Inbox, tab: Tab, agent: Caller) -> None:
    asked = [agent.asks("Bash", command=f"echo {n}") for n in range(3)]
    tab.shows([each.id for each in asked])
    tab.look_at(asked[0])
    tab.press("Alt+Enter")
    expect(tab.dialog).to_be_visible()
    no = {"allow": False, "digest": asked[1].digest, "message": "no"}
    inbox.hub.ask(f"/api/approvals/{asked[1].id}/decision", no)
    tab.confirm()
    assert [each.answer()["behavior"] for each in asked] == ["allow", "deny", "allow"]
    for each in (asked[0], asked[2]):
        tab.is_over(each, "allowed")
    tab.is_over(asked[1], "denied")


@promise("inbox:seen-whole")
def test_all_at_once_allows_nothing_that_was_not_seen_whole(tab: Tab, agent: Caller) -> None:
    seen, unread = (agent.asks("Bash", command=command) for command in ("echo 1", "echo 1\n" * 600))
    tab.shows([seen.id, unread.id])
    tab.look_at(seen)
    tab.button(seen, "allow-all").click()
    expect(tab.dialog.locator("[data-part=unread]")).to_contain_text("1 is left out")
    expect(tab.dialog.locator(f"[data-covers='{unread.id}']")).to_have_count(0)
    tab.confirm()
    assert seen.answer()["behavior"] == "allow"
    tab.still_waits(unread)


@promise("inbox:seen-whole")
def test_a_list_of_what_was_not_seen_must_be_read_to_its_end(tab: Tab, agent: Caller) -> None:
    asked = [agent.asks("Bash", command=f"echo {n} {'x' * 700}") for n in range(12)]
    tab.shows([each.id for each in asked])
    tab.look_at(asked[0])
    tab.button(asked[0], "allow-all").click()
    tab.dialog.locator(".covered").evaluate("list => list.scrollTop = list.scrollHeight")
    tab.confirm()
    expect(tab.dialog).to_contain_text("read the list to its end")
    for each in asked:
        tab.still_waits(each)


@promise("inbox:seen-whole")
def test_what_would_run_elsewhere_is_read_by_itself_before_it_is_allowed(tab: Tab, agent: Caller) -> None:
    seen = agent.asks("Bash", command="echo 1")
    long = agent.asks("Bash", command="\n".join(f"echo {n}" for n in range(200)))  # hides the next
    server = agent.asks("shell:run", command="rm -rf .")
    tab.shows([seen.id, long.id, server.id])
    tab.look_at(seen)
    tab.button(seen, "allow-all").click()
    expect(tab.dialog.locator("[data-covers]")).to_have_count(1)
    tab.confirm()
    assert seen.answer()["behavior"] == "allow"
    tab.still_waits(server)


@promise("inbox:batch-shows-what-it-covers")
def test_all_at_once_can_be_left(tab: Tab, agent: Caller) -> None:
    asked = [agent.asks("Bash", command=f"echo {n}") for n in range(2)]
    tab.shows([each.id for each in asked])
    tab.look_at(asked[0])
    tab.button(asked[0], "allow-all").click()
    expect(tab.dialog).to_be_visible()
    tab.press("Escape")
    expect(tab.dialog).to_have_count(0)
    for each in asked:
        tab.still_waits(each)


@promise("inbox:agent-goes-on")
def test_claude_code_waits_for_the_page_and_runs_what_a_person_edited_there(
    inbox: Inbox, tab: Tab, room: Room
) -> None:
    inbox.hub.api.also("browser-task", bash("touch a.mark"), bash("touch b.mark"))
    with room.launched("do the browser-task", "--name", "builder") as agent:
        first = room.question()
        tab.look_at_id(first["id"])
        expect(tab.card(first["id"])).to_contain_text("builder")
        expect(tab.card(first["id"])).to_contain_text("touch a.mark")
        tab.press("e")
        tab.card(first["id"]).locator("[data-field=edit]").fill(json.dumps({"command": "touch edited.mark"}))
        tab.press("Control+Enter")
        second = room.question()
        tab.look_at_id(second["id"])
        tab.press("Escape")
        tab.send_held()
        ran = agent.finish()
    assert (ran.code, ran.out) == (3, f"{LAST_WORD}\n"), ran.err  # a person denied a call
    assert room.marks() == ["edited.mark"]
