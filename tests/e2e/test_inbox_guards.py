"""An answer is to what was drawn and to nothing else, and a dialog that has only just opened takes none."""

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.inbox_rig import Asked, Caller
from tests.e2e.inbox_tab import Tab
from tests.promises import promise


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
    if key == "Alt+Escape":
        tab.send_held()
    assert asked.answer()["behavior"] == ("allow" if key == "Alt+Enter" else "deny")


@promise("inbox:no-accidents")
def test_who_types_on_when_an_edit_was_closed_by_itself_presses_no_key(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="ls")
    draw_another(tab, asked)
    tab.look_at(asked)
    tab.press("e")
    tab.field(asked, "edit").fill('{"command": "ls -l"}')
    tab.page.clock.pause_at(tab.page.evaluate("Date.now() / 1000 + 5"))
    tab.press("Control+Enter")
    tab.says("It changed since it was shown")
    expect(tab.field(asked, "edit")).to_have_count(0)
    for key in ("j", "/", "?", "Alt+Enter"):
        tab.press(key)
        tab.let_pass(900)  # slowly, but on
    expect(tab.card(asked.id)).not_to_be_focused()
    expect(tab.search).not_to_be_focused()
    expect(tab.dialog).to_have_count(0)
    tab.let_pass()
    tab.press("j")
    expect(tab.card(asked.id)).to_be_focused()
    tab.still_waits(asked)


HIDE = "Object.defineProperty(document, 'visibilityState', { get: () => 'hidden', configurable: true })"
SHOW = "delete document.visibilityState; document.dispatchEvent(new Event('visibilitychange'))"


@promise("inbox:seen-whole")
@pytest.mark.parametrize("key", ["Enter", "Escape"])
def test_what_comes_while_the_tab_is_hidden_was_not_seen(tab: Tab, agent: Caller, key: str) -> None:
    tab.page.evaluate(HIDE)
    asked = agent.asks("Bash", command="ls")
    expect(tab.button(asked, "allow")).to_be_visible()
    tab.focus(asked.id)
    tab.let_pass()
    tab.press(key)
    tab.says("Scroll to the end first")
    expect(tab.card(asked.id)).not_to_have_attribute("data-seen", "true")
    tab.still_waits(asked)
    tab.page.evaluate(SHOW)
    expect(tab.card(asked.id)).to_have_attribute("data-seen", "true")
