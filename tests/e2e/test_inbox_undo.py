"""A denial can be undone for a moment, a remembered answer while its line is there; a refused key is seen."""

import json
import time
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Asked, Caller, Inbox
from tests.e2e.inbox_tab import HELD_MS, Tab
from tests.promises import promise

LS: Final = {"command": "ls -l", "description": "list the files"}
MANY: Final = 640  # with their digests more than a browser sends for a page that is gone
WITHIN_MS: Final = 60_000  # a busy machine lays out so many cards
UNTIL_SENT_MS: Final = HELD_MS - 200


def held(tab: Tab, asked: Asked) -> None:
    expect(tab.card(asked.id)).to_have_attribute("data-state", "held")
    expect(tab.button(asked, "undo")).to_be_visible()
    assert tab.inbox.hub.ask(f"/api/approvals/{asked.id}")["status"] == "pending"


@promise("inbox:denial-held")
@pytest.mark.parametrize("how", ["u", "button"])
def test_a_denial_that_is_undone_in_time_was_never_sent(tab: Tab, agent: Caller, how: str) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.stop_clock()
    tab.press("Escape")
    held(tab, asked)
    expect(tab.part(asked, "held")).to_contain_text("sent in 4 s")
    tab.let_pass(UNTIL_SENT_MS - 500)
    held(tab, asked)
    if how == "u":
        tab.press("u")
    else:
        tab.button(asked, "undo").click()
    expect(tab.card(asked.id)).to_contain_text("ls -l")
    expect(tab.card(asked.id)).to_be_focused()
    expect(tab.page.locator("h1 [data-part=count]")).to_have_text("1")
    tab.let_pass(2 * HELD_MS)
    tab.still_waits(asked)
    tab.page.clock.resume()
    tab.look_at(asked)
    tab.press("Enter")
    assert asked.answer()["behavior"] == "allow"


@promise("inbox:denial-held")
def test_a_denial_is_sent_once_its_time_is_over(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("Escape")
    held(tab, asked)
    tab.send_held()
    assert asked.answer()["behavior"] == "deny"
    tab.is_over(asked, "You denied it")
    tab.press("u")
    tab.says("nothing to undo")


@promise("inbox:denial-held")
@pytest.mark.parametrize("how", ["closes the tab", "goes to another page", "goes elsewhere", "logs out"])
def test_leaving_sends_a_denial_at_once_with_its_message(tab: Tab, agent: Caller, how: str) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.stop_clock()
    tab.press("m")
    tab.type("not now")
    tab.press("Control+Enter")
    held(tab, asked)
    match how:
        case "closes the tab":
            with tab.page.expect_event("close"):
                tab.page.close(run_before_unload=True)
        case "goes to another page":
            tab.go("/history")
        case "goes elsewhere":
            tab.page.goto("about:blank")
        case _:
            tab.log_out()
    told = asked.answer()
    assert told["behavior"] == "deny"
    assert "not now" in told["message"]


@promise("inbox:denial-held")
def test_closing_the_tab_sends_a_denial_of_all_however_many_they_are(
    inbox: Inbox, tab: Tab, room: Room
) -> None:
    ids = inbox.fill(room, MANY)
    expect(tab.page.locator("article.card[data-card]")).to_have_count(MANY, timeout=WITHIN_MS)
    expect(tab.card(ids[-1])).to_be_attached(timeout=WITHIN_MS)
    tab.stop_clock()
    tab.press("Alt+Escape")
    tab.confirm()
    expect(tab.page.locator("[data-state=held]")).to_have_count(MANY, timeout=WITHIN_MS)
    assert inbox.hub.ask("/api/inbox?limit=1")["waiting"] == MANY
    with tab.page.expect_event("close"):
        tab.page.close(run_before_unload=True)
    until = time.monotonic() + WITHIN_MS / 1000
    while (left := inbox.hub.ask("/api/inbox?limit=1")["waiting"]) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == 0


@promise("inbox:denial-held")
def test_until_it_is_sent_somebody_else_may_answer_and_the_card_says_so(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.stop_clock()
    tab.press("Escape")
    held(tab, asked)
    inbox.hub.ask(f"/api/approvals/{asked.id}/decision", {"allow": True, "digest": asked.digest})
    assert asked.answer()["behavior"] == "allow"
    tab.is_over(asked, "before your denial was sent")
    tab.let_pass(2 * HELD_MS)


def test_a_denial_that_the_hub_does_not_hear_leaves_the_card_with_its_message(
    tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.may_lose = True
    tab.page.route("**/decision", lambda route: route.abort("connectionfailed"))
    tab.press("m")
    tab.type("not now")
    tab.press("Control+Enter")
    tab.send_held()
    expect(tab.field(asked, "message")).to_have_value("not now")
    expect(tab.told(asked)).to_contain_text("hub")
    tab.page.unroute("**/decision")
    tab.let_pass()
    tab.button(asked, "deny").click()
    tab.send_held()
    assert "not now" in asked.answer()["message"]


@promise("inbox:denial-held")
def test_a_held_denial_is_not_overturned_by_always_with_what_waits(tab: Tab, agent: Caller) -> None:
    first, denied, third = (
        agent.asks("WebFetch", url=f"https://docs.example/{n}", prompt="what is new?") for n in range(3)
    )
    tab.look_at(denied)
    tab.stop_clock()
    tab.press("Escape")
    held(tab, denied)
    tab.page.clock.resume()
    tab.look_at(first)
    tab.open_always(first)
    tab.field(first, "release").check()
    listed = tab.part(first, "always").locator(".covers").inner_text()
    tab.part(first, "always").locator("[data-action=always]").click()
    assert [each.answer()["behavior"] for each in (first, denied, third)] == ["allow", "deny", "allow"]
    assert "Also allow 1 waiting request" in listed


def test_deny_all_is_held_and_undone_as_one(tab: Tab, agent: Caller) -> None:
    asked = [agent.asks("Bash", command=f"echo {n}") for n in range(3)]
    tab.shows([each.id for each in asked])
    tab.look_at(asked[0])
    tab.press("Alt+Escape")
    tab.confirm()
    for each in asked:
        held(tab, each)
    tab.button(asked[1], "undo").click()
    tab.still_waits(asked[1])
    tab.press("u")
    for each in asked:
        tab.still_waits(each)


@promise("inbox:undo-remembered")
@pytest.mark.parametrize("scope", ["session", "always"])
def test_a_remembered_answer_is_taken_back_and_says_that_the_call_had_gone_ahead(
    tab: Tab, agent: Caller, room: Room, scope: str
) -> None:
    asked = agent.asks("WebFetch", url="https://docs.example/a", prompt="what is new?")
    tab.look_at(asked)
    if scope == "session":
        tab.press("s")
        tab.press("Enter")
    else:
        tab.open_always(asked)
        tab.button(asked, "always").click()
    assert asked.answer()["behavior"] == "allow"
    expect(tab.button(asked, "undo")).to_be_visible()
    if scope == "session":
        tab.press("u")
    else:
        assert json.loads((room.path / ".pml.json").read_text())["permissions"]["allow"] == ["WebFetch"]
        tab.button(asked, "undo").click()
    tab.is_over(asked, "had already gone ahead")
    expect(tab.button(asked, "undo")).to_have_count(0)
    again = agent.asks("WebFetch", url="https://docs.example/a", prompt="what is new?")
    assert again.waits
    if scope == "always":
        assert json.loads((room.path / ".pml.json").read_text())["permissions"]["allow"] == []


@promise("inbox:refused-key-seen")
@pytest.mark.parametrize("key", ["Enter", "Escape"])
def test_a_key_that_comes_too_soon_is_seen_to_be_refused(tab: Tab, agent: Caller, key: str) -> None:
    asked = agent.asks("Bash", **LS)
    expect(tab.card(asked.id)).to_be_focused()
    expect(tab.card(asked.id)).to_have_attribute("data-seen", "true")
    tab.stop_clock()
    tab.page.evaluate("() => document.querySelector('dialog')?.close()")
    tab.press("?")
    expect(tab.dialog).to_be_visible()
    tab.press("Escape")
    expect(tab.dialog).to_have_count(0)
    tab.press(key)
    tab.says("Too soon")
    tab.still_waits(asked)


@promise("inbox:refused-key-seen")
def test_a_click_and_a_list_that_were_too_soon_say_so(tab: Tab, agent: Caller) -> None:
    asked = [agent.asks("Bash", command=f"echo {n}") for n in range(2)]
    tab.look_at(asked[0])
    tab.stop_clock()
    tab.button(asked[0], "allow-all").click()
    tab.dialog.locator("[data-action=confirm]").click()
    expect(tab.dialog).to_contain_text("Too soon")
    tab.press("Escape")
    expect(tab.dialog).to_have_count(0)
    tab.button(asked[0], "allow").click()
    tab.says("click again")
    for each in asked:
        tab.still_waits(each)
