"""The mouse on a card that has no focus: what was under the pointer when it was pressed is what it does."""

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.e2e.inbox_rig import Asked, Caller
from tests.e2e.inbox_tab import Tab
from tests.promises import promise

LS: Final = {"command": "ls -l", "description": "list the files"}
BUTTONS: Final = ("edit", "message", "deny", "allow-all", "allow", "remember")


def unfocused(tab: Tab, agent: Caller) -> Asked:
    """Have a card that was read, while another one has the focus."""
    asked, other = agent.asks("Bash", **LS), agent.asks("Bash", command="git status")
    tab.look_at(asked)
    tab.look_at(other)
    expect(tab.card(asked.id)).not_to_be_focused()
    return asked


@promise("inbox:buttons-stay")
@pytest.mark.parametrize("action", BUTTONS)
def test_a_press_and_a_release_of_the_mouse_do_what_the_button_says(
    tab: Tab, agent: Caller, action: str
) -> None:
    asked = unfocused(tab, agent)
    before = tab.boxes(asked.id)
    assert set(BUTTONS) <= set(before)
    tab.hold_mouse(tab.button(asked, action))
    scrolled = tab.boxes(asked.id)
    assert {name: box[2:] for name, box in scrolled.items()} == {n: box[2:] for n, box in before.items()}
    assert len({scrolled[name][1] - before[name][1] for name in before}) == 1, "each moved as far as the page"
    assert len({scrolled[name][0] - before[name][0] for name in before}) == 1
    tab.page.mouse.up()
    match action:
        case "edit" | "message":
            expect(tab.field(asked, action)).to_be_focused()
        case "deny" | "allow":
            if action == "deny":
                tab.send_held()
            assert asked.answer()["behavior"] == action
        case "allow-all":
            expect(tab.dialog).to_contain_text("ls -l")
        case _:
            expect(tab.button(asked, "remember")).to_be_checked()


@promise("inbox:buttons-stay")
def test_no_button_of_a_card_moves_when_the_card_gets_or_loses_the_focus(tab: Tab, agent: Caller) -> None:
    asked = unfocused(tab, agent)
    before = tab.boxes(asked.id)
    tab.card(asked.id).evaluate("card => card.focus({ preventScroll: true })")
    expect(tab.card(asked.id)).to_be_focused()
    assert tab.boxes(asked.id) == before


def test_always_by_mouse_on_a_card_without_focus(tab: Tab, agent: Caller) -> None:
    asked = unfocused(tab, agent)
    tab.open_always(asked, by_mouse=True)
    tab.hold_mouse(tab.button(asked, "always"))
    tab.page.mouse.up()
    assert asked.answer()["behavior"] == "allow"


@promise("inbox:message-kept")
def test_a_denial_sent_by_mouse_takes_the_message_with_it(tab: Tab, agent: Caller) -> None:
    asked = unfocused(tab, agent)
    tab.hold_mouse(tab.button(asked, "message"))
    tab.page.mouse.up()
    tab.type("only in src/")
    foot = tab.card(asked.id).locator("footer button")
    assert foot.evaluate_all("found => found.map(each => each.firstChild.textContent)") == [
        "Cancel",
        "Deny with message",
    ]
    before = tab.boxes(asked.id)
    tab.hold_mouse(tab.button(asked, "deny"))
    assert tab.boxes(asked.id) == before
    tab.page.mouse.up()
    tab.send_held()
    told = asked.answer()
    assert told["behavior"] == "deny"
    assert "only in src/" in told["message"]


@promise("inbox:message-kept")
def test_cancel_closes_the_message_and_keeps_its_words_for_the_next_time(tab: Tab, agent: Caller) -> None:
    asked = unfocused(tab, agent)
    tab.button(asked, "message").click()
    tab.type("only in src/")
    tab.button(asked, "close").click()
    expect(tab.field(asked, "message")).to_have_count(0)
    tab.still_waits(asked)
    tab.button(asked, "message").click()
    expect(tab.field(asked, "message")).to_have_value("only in src/")


@promise("inbox:message-kept")
def test_return_beside_an_open_message_allows_nothing(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("m")
    tab.type("no")
    tab.focus(asked.id)
    tab.let_pass()
    tab.press("Enter")
    tab.says("A message is open")
    expect(tab.field(asked, "message")).to_be_focused()
    tab.still_waits(asked)


def test_message_and_edit_close_each_other_and_neither_loses_what_was_written(
    tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", **LS)
    tab.look_at(asked)
    tab.press("m")
    tab.type("no")
    tab.focus(asked.id)
    tab.let_pass()
    tab.press("e")
    expect(tab.field(asked, "message")).to_have_count(0)
    tab.field(asked, "edit").fill('{"command": "ls"}')
    tab.focus(asked.id)
    tab.let_pass()
    tab.press("m")
    expect(tab.field(asked, "edit")).to_have_count(0)
    expect(tab.field(asked, "message")).to_have_value("no")
    tab.button(asked, "close").click()
    tab.let_pass()
    tab.press("e")
    expect(tab.field(asked, "edit")).to_have_value('{"command": "ls"}')
