"""An answer is to what was drawn and to nothing else, and a dialog that has only just opened takes none."""

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Asked, Caller, Inbox
from tests.e2e.inbox_tab import Tab
from tests.promises import promise


@pytest.fixture
def room(inbox: Inbox) -> Room:
    return inbox.room()


@pytest.fixture
def agent(inbox: Inbox, room: Room) -> Caller:
    return inbox.caller(room)


def draw_another(tab: Tab, asked: Asked) -> None:
    """Let the list show the card as it was before its question changed."""
    other = asked.digest[::-1]
    assert other != asked.digest

    def former(route: Route) -> None:
        told = route.fetch().json()
        cards = [{**card, "digest": other} if card["id"] == asked.id else card for card in told["cards"]]
        route.fulfill(json={**told, "cards": cards})

    tab.page.route("**/api/inbox?*", former)
    tab.page.reload()
    tab.is_in()
    tab.refusals = {409}


@promise("inbox:no-accidents")
@pytest.mark.parametrize("key", ["Enter", "Escape"])
def test_a_question_that_is_not_the_one_that_was_drawn_takes_no_answer(
    tab: Tab, agent: Caller, key: str
) -> None:
    asked = agent.asks("Bash", command="ls")
    draw_another(tab, asked)
    tab.look_at(asked)
    tab.press(key)
    tab.says("It changed since it was shown")
    tab.still_waits(asked)


@promise("inbox:batch-shows-what-it-covers")
def test_all_at_once_answers_no_question_that_is_not_the_one_that_was_drawn(tab: Tab, agent: Caller) -> None:
    asked, changed = (agent.asks("Bash", command=command) for command in ("ls", "ls -l"))
    draw_another(tab, changed)
    for each in (asked, changed):
        tab.look_at(each)
    tab.press("Alt+Enter")
    expect(tab.dialog.locator("[data-covers]")).to_have_count(2)
    tab.confirm()
    assert asked.answer()["behavior"] == "allow"
    tab.says("It changed since it was shown")
    tab.still_waits(changed)


@promise("inbox:no-accidents")
@pytest.mark.parametrize("key", ["Alt+Enter", "Alt+Escape"])
def test_the_key_that_asks_about_all_does_not_also_answer(tab: Tab, agent: Caller, key: str) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    tab.page.clock.pause_at(tab.page.evaluate("Date.now() / 1000 + 5"))
    tab.press(key)
    expect(tab.dialog).to_be_visible()
    tab.press("Enter")
    tab.dialog.locator("[data-action=confirm]").evaluate("button => button.click()")
    expect(tab.dialog).to_be_visible()
    tab.still_waits(asked)
    tab.page.clock.resume()
    tab.confirm()
    assert asked.answer()["behavior"] == ("allow" if key == "Alt+Enter" else "deny")
