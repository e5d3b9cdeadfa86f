"""How somebody who looks elsewhere learns that something waits: a notification, the title, the icon."""

import re
from typing import Final

from playwright.sync_api import expect

from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Inbox
from tests.e2e.inbox_tab import Tab, opened
from tests.promises import promise

# A browser without a screen lets no page notify: this one would, and keeps what it was given to show.
RECORD: Final = """
globalThis.notes = [];
globalThis.Notification = class {
  static permission = "default";
  static async requestPermission() {
    return this.permission = "granted";
  }
  constructor(title, options) {
    notes.push({ title, ...options, note: this });
  }
  close() {}
};
"""
LOOK_AWAY: Final = (
    "Object.defineProperty(document, 'visibilityState', { get: () => 'hidden', configurable: true })"
)
LOOK_BACK: Final = "delete document.visibilityState"
TOLD: Final = "notes.map(({ title, body }) => [title, body])"


def enter(tab: Tab) -> None:
    tab.page.add_init_script(RECORD)
    tab.log_in()


def wants(tab: Tab) -> None:
    """Let the page notify, as a person does."""
    tab.page.locator("[data-action=notify]").click()
    expect(tab.page.locator("[data-action=notify]")).to_have_attribute("aria-pressed", "true")


@promise("inbox:notification-tells-no-arguments")
def test_who_looks_elsewhere_is_told_of_the_tool_and_the_session_and_no_argument(
    inbox: Inbox, room: Room
) -> None:
    agent = inbox.caller(room, "tidy <b>up</b>")
    with opened(inbox) as tab:
        enter(tab)
        wants(tab)
        tab.page.evaluate(LOOK_AWAY)
        asked = agent.asks("Bash", command="touch secret-name.mark")
        tab.page.wait_for_function("notes.length")
        assert tab.page.evaluate(TOLD) == [["Bash waits for you", "Session tidy <b>up</b>"]]
        assert "secret-name" not in tab.page.evaluate("JSON.stringify(notes)")
        expect(tab.page).to_have_title(re.compile(r"^\(\d+\) "))
        expect(tab.page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("^data:image/png"))
        tab.go("/history")
        tab.page.evaluate("notes[0].note.onclick()")
        expect(tab.card(asked.id)).to_be_focused()
        assert asked.waits


def test_who_looks_at_the_page_or_did_not_want_it_is_not_notified(inbox: Inbox, room: Room) -> None:
    agent = inbox.caller(room)
    with opened(inbox) as tab:
        enter(tab)
        tab.page.evaluate(LOOK_AWAY)
        unwanted = agent.asks("Bash", command="one")
        expect(tab.card(unwanted.id)).to_be_visible()
        tab.page.evaluate(LOOK_BACK)
        wants(tab)
        seen = agent.asks("Bash", command="two")
        expect(tab.card(seen.id)).to_be_visible()
        assert tab.page.evaluate(TOLD) == []
