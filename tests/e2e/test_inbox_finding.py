"""Finding one's way in the page: the search and how it is left, the help, who one is, what is over."""

from playwright.sync_api import expect

from tests.e2e.inbox_rig import Caller, Inbox
from tests.e2e.inbox_tab import Tab, opened


def test_return_in_the_search_goes_to_what_matches_and_escape_shows_all_again(
    tab: Tab, agent: Caller
) -> None:
    first, second = agent.asks("Bash", command="make apples"), agent.asks("Bash", command="make pears")
    tab.shows([first.id, second.id])
    tab.press("/")
    tab.type("pears")
    tab.shows([second.id])
    tab.press("Enter")
    expect(tab.card(second.id)).to_be_focused()
    assert second.waits
    tab.press("/")
    tab.press("Escape")
    tab.shows([first.id, second.id])
    expect(tab.card(first.id)).to_be_focused()
    tab.press("Escape")  # one too many: the card has only just got the focus
    tab.still_waits(first)


def test_a_search_that_finds_nothing_offers_to_show_all(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="make figs")
    tab.shows([asked.id])
    tab.press("/")
    tab.type("no such thing")
    tab.page.locator("[data-action=show-all]").click()
    tab.shows([asked.id])
    expect(tab.search).to_have_value("")
    expect(tab.card(asked.id)).to_be_focused()


def test_the_help_opens_on_every_page_but_not_from_a_field(tab: Tab) -> None:
    tab.go("/history")
    expect(tab.search).to_be_visible()
    tab.search.focus()
    tab.type("?")
    expect(tab.search).to_have_value("?")
    expect(tab.dialog).to_have_count(0)
    tab.search.blur()
    tab.press("?")
    expect(tab.dialog).to_contain_text("Next and previous card")


def test_the_page_shows_who_is_logged_in(inbox: Inbox) -> None:
    with opened(inbox) as tab:
        link = inbox.hub.pml("inbox", "--link", "--name", "ana").out.strip()
        tab.page.goto(link)
        expect(tab.page.get_by_role("button", name="Log out ana")).to_contain_text("ana")


def test_what_is_over_folds_in_the_end_though_the_pointer_rests_there(tab: Tab, agent: Caller) -> None:
    asked, other = agent.asks("Bash", command="one\n" * 12), agent.asks("Bash", command="two")
    tab.shows([asked.id, other.id])
    tab.card(asked.id).hover()
    agent.room.deny({"id": asked.id})
    tab.is_over(asked, "denied it")
    tab.let_pass(3000)
    assert tab.card(asked.id).evaluate("node => node.style.minHeight") != ""
    tab.let_pass(8000)
    tab.page.wait_for_function(f"""!document.querySelector('[data-card="{asked.id}"]')?.style.minHeight""")
