"""What nobody meant to decide is not decided: held keys, cards that arrive or were not read, late answers."""

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Asked, Caller, Inbox
from tests.e2e.inbox_tab import Tab, opened
from tests.promises import promise

LONG: Final = "\n".join(f"echo line {n} of a script that nobody reads to its end" for n in range(300))


def three(agent: Caller) -> list[Asked]:
    return [agent.asks("Bash", command=f"echo {n}") for n in range(3)]


@promise("inbox:no-accidents")
@pytest.mark.parametrize("key", ["Enter", "Escape"])
def test_a_key_that_is_held_down_decides_one_card_and_no_second(tab: Tab, agent: Caller, key: str) -> None:
    first, second, third = three(agent)
    tab.look_at(second)
    tab.look_at(first)
    tab.page.keyboard.down(key)
    first.answer()
    expect(tab.card(second.id)).to_be_focused()
    for _ in range(20):
        tab.page.keyboard.down(key)  # as a held key does: it repeats
        tab.let_pass(100)
    tab.page.keyboard.up(key)
    tab.still_waits(second)
    tab.still_waits(third)


@promise("inbox:no-accidents")
@pytest.mark.parametrize("key", ["Enter", "Escape"])
def test_a_key_pressed_twice_in_a_hurry_decides_one_card(tab: Tab, agent: Caller, key: str) -> None:
    first, second, _ = three(agent)
    tab.look_at(second)
    tab.look_at(first)
    tab.press(key)
    expect(tab.card(second.id)).to_be_focused()
    tab.press(key)
    tab.still_waits(second)
    tab.let_pass()
    tab.press(key)
    if key == "Escape":
        tab.send_held()
    answers = [first.answer()["behavior"], second.answer()["behavior"]]
    assert answers == [{"Enter": "allow", "Escape": "deny"}[key]] * 2


@promise("inbox:no-accidents")
def test_a_card_that_arrives_takes_neither_the_focus_nor_a_key(tab: Tab, agent: Caller) -> None:
    first = agent.asks("Bash", command="echo first")
    tab.look_at(first)
    late = agent.asks("Bash", command="echo late")
    tab.shows([first.id, late.id])
    expect(tab.card(first.id)).to_be_focused()
    tab.press("Enter")
    assert first.answer()["behavior"] == "allow"
    tab.press("Enter")
    tab.still_waits(late)


@promise("inbox:no-accidents")
def test_a_card_that_arrives_on_an_empty_page_takes_no_key_at_once(tab: Tab, agent: Caller) -> None:
    expect(tab.page.locator("[data-part=empty]")).to_be_visible()
    asked = agent.asks("Bash", command="echo first")
    expect(tab.card(asked.id)).to_have_attribute("data-seen", "true")
    tab.press("Enter")
    tab.press("Escape")
    tab.still_waits(asked)


@promise("inbox:no-accidents")
def test_nothing_slides_under_the_pointer_when_a_card_is_decided(tab: Tab, agent: Caller) -> None:
    first, second, _ = three(agent)
    tab.look_at(first)
    button = tab.button(first, "allow")
    box = button.bounding_box()
    assert box is not None
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, click_count=2)
    assert first.answer()["behavior"] == "allow"
    tab.still_waits(second)


@promise("inbox:seen-whole")
@pytest.mark.parametrize("key", ["Enter", "Escape"])
def test_a_long_card_is_decided_by_no_key_before_its_end_was_in_view(
    tab: Tab, agent: Caller, key: str
) -> None:
    asked = agent.asks("Bash", command=LONG)
    tab.focus(asked.id)
    expect(tab.card(asked.id)).to_be_focused()
    tab.let_pass()
    tab.press(key)
    tab.says("all of it is here")
    expect(tab.card(asked.id)).to_contain_text("line 299 of a script")
    tab.let_pass()
    tab.press(key)
    tab.says("Scroll to the end first")
    tab.still_waits(asked)
    tab.look_at(asked)
    tab.press(key)
    asked.answer()


@promise("inbox:seen-whole")
@pytest.mark.parametrize("action", ["allow", "always"])
def test_a_button_does_not_allow_what_is_folded(tab: Tab, agent: Caller, action: str) -> None:
    asked = agent.asks("Write", file_path="notes.txt", content=LONG)
    tab.focus(asked.id)
    tab.let_pass()
    if action == "always":
        tab.part(asked, "always").locator("summary").click()
    tab.button(asked, action).click()
    tab.says("There is more of it than was shown")
    tab.still_waits(asked)


@promise("approval:first-decision-wins")
def test_of_two_browsers_that_decide_at_once_one_is_told_who_was_first(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", command="echo both")
    with opened(inbox) as other:
        other.refusals = {409}
        other.page.route("**/events*", lambda route: None)  # it has not heard of it yet
        other.page.goto(inbox.link("ben"))
        other.look_at(asked)
        tab.look_at(asked)
        tab.press("Enter")
        tab.is_over(asked, "You allowed it")
        other.press("Escape")
        other.send_held()
        other.is_over(asked, "ana allowed it")
    assert asked.answer()["behavior"] == "allow"


def test_what_is_decided_elsewhere_is_said_at_the_card_which_takes_no_key_any_more(
    inbox: Inbox, tab: Tab, agent: Caller, room: Room
) -> None:
    asked = agent.asks("Bash", command="echo elsewhere")
    tab.look_at(asked)
    ran = room.pml("approvals", "deny", asked.id)
    assert ran.code == 0, ran.err
    tab.is_over(asked, "denied it")
    tab.press("Enter")
    assert inbox.hub.ask(f"/api/approvals/{asked.id}")["status"] == "denied"


def test_a_card_whose_agent_has_ended_says_so(inbox: Inbox, tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="echo lost")
    tab.look_at(asked)
    agent.end()
    tab.is_over(asked, "Withdrawn")
