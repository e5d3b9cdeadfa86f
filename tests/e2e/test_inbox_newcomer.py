"""What somebody meets who comes to the inbox for the first time: links, records, and a focus that stays."""

import json
from typing import Final

from playwright.sync_api import expect

from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Caller, Inbox
from tests.e2e.inbox_tab import Tab, opened
from tests.promises import promise

OVER_MS: Final = 7_000  # what is left of a card goes after six seconds, if it may
LINE_PX: Final = 80  # what is left of a card is no taller
_FROM_TOP: Final = """
(card) => card.getBoundingClientRect().top - document.querySelector(".top").getBoundingClientRect().bottom
"""


def height(tab: Tab, approval_id: str) -> float:
    box = tab.card(approval_id).bounding_box()
    assert box is not None
    return box["height"]


@promise("inbox:history")
def test_the_history_shows_an_edited_call_as_it_ran_and_says_that_it_was_edited(
    tab: Tab, room: Room, agent: Caller
) -> None:
    file = str(room.path / "shopping.md")
    asked = agent.asks("Write", file_path=file, content="coffee\n")
    tab.look_at(asked)
    tab.press("e")
    tab.field(asked, "edit").fill(json.dumps({"file_path": file, "content": "espresso\n"}))
    tab.press("Control+Enter")
    assert asked.answer()["updatedInput"]["content"] == "espresso\n"
    tab.go("/history")
    row = tab.page.locator(f'[data-id="{asked.id}"]')
    expect(row).to_contain_text("edited")
    row.locator("a").first.click()
    card = tab.card(asked.id)
    expect(card.locator(".notice")).to_contain_text("ana allowed it, edited")
    diff = card.locator("[data-block=diff]")
    expect(diff).to_contain_text("as it was edited")
    expect(diff).to_contain_text("espresso")
    expect(diff).not_to_contain_text("asked for")
    expect(card.locator("[data-block=arguments]").first).to_contain_text("coffee")
    expect(tab.page.locator("[data-nav][aria-current]")).to_have_text("History")


@promise("inbox:no-accidents")
def test_a_return_on_what_was_decided_moves_on_and_decides_nothing(tab: Tab, agent: Caller) -> None:
    first = agent.asks("Bash", command="ls")
    tab.look_at(first)
    tab.press("Enter")
    tab.is_over(first, "You allowed it")
    second = agent.asks("Bash", command="sort list > sorted")
    expect(tab.card(second.id)).to_have_attribute("data-seen", "true")
    tab.let_pass(OVER_MS)
    tab.let_pass(OVER_MS)
    expect(tab.card(first.id)).to_be_focused()
    tab.press("Enter")
    expect(tab.card(second.id)).to_be_focused()
    tab.still_waits(second)
    tab.let_pass()
    tab.press("Enter")
    assert second.answer()["behavior"] == "allow"


def test_short_cards_are_answered_one_after_the_other_by_one_key(tab: Tab, agent: Caller) -> None:
    asked = [agent.asks("Bash", command=f"echo {n}") for n in range(3)]
    tab.look_at(asked[0])
    for each in asked:
        expect(tab.card(each.id)).to_be_focused()
        expect(tab.card(each.id)).to_have_attribute("data-seen", "true")
        tab.let_pass()
        tab.press("Enter")
        assert each.answer()["behavior"] == "allow"


@promise("inbox:no-accidents")
def test_the_place_of_a_card_that_ended_folds_once_no_pointer_is_near(
    inbox: Inbox, room: Room, agent: Caller
) -> None:
    with opened(inbox, viewport={"width": 1280, "height": 1500}) as tab:
        tab.log_in()
        leaving = inbox.caller(room)
        first = leaving.asks("Bash", command="echo 0\necho 1\necho 2")
        second = agent.asks("Bash", command="ls")
        tab.shows([first.id, second.id])
        tab.button(second, "allow").hover()
        before = height(tab, first.id)
        leaving.end()
        tab.is_over(first, "Withdrawn")
        tab.let_pass(OVER_MS)
        assert height(tab, first.id) == before
        tab.page.mouse.move(0, 0)
        tab.let_pass(OVER_MS)
        tab.page.wait_for_function(
            "([id, most]) => document.querySelector(`[data-card='${id}']`).clientHeight < most",
            arg=[first.id, LINE_PX],
        )
        tab.still_waits(second)
    inbox.clear()


def test_a_link_to_a_card_shows_it_from_its_top_and_a_key_does_not_hide_its_head(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked = [agent.asks("Bash", command="\n".join(f"echo {n}" for n in range(4))) for _ in range(5)]
    link = asked[2]
    tab.go("/history")
    expect(tab.page.locator("h1")).to_contain_text("History")
    tab.go(f"/card/{link.id}")
    expect(tab.card(link.id)).to_be_focused()
    expect(tab.card(link.id)).to_have_attribute("data-seen", "true")
    tab.let_pass()
    assert 0 <= tab.card(link.id).evaluate(_FROM_TOP) < 40
    expect(tab.button(link, "allow")).to_be_in_viewport()
    tab.press("Enter")
    assert link.answer()["behavior"] == "allow"


def test_who_comes_back_to_what_waits_has_the_first_card(tab: Tab, agent: Caller) -> None:
    first, _ = (agent.asks("Bash", command=f"echo {n}") for n in range(2))
    tab.go("/rules")
    expect(tab.page.locator("h1")).to_contain_text("Rules")
    tab.page.locator('[data-nav="/waiting"]').click()
    expect(tab.card(first.id)).to_be_focused()


def test_a_rule_that_would_allow_every_tool_is_asked_about_first(tab: Tab, room: Room) -> None:
    tab.go(f"/rules?workspace={room.path}")
    tab.page.locator("[data-action=add-rule]").first.click()
    tab.dialog.locator("textarea").fill("*")
    tab.page.locator("[data-action=save-rule]").click()
    expect(tab.page.locator("dialog[open]").last).to_contain_text("Allow every tool?")
    tab.page.locator("dialog[open] [data-action=cancel]").click()
    assert not (room.path / ".pml.json").exists()
