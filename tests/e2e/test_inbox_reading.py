"""What a person reads: cards made to deceive, hundreds of them, on a phone, by keyboard alone, at rest."""

import json
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from pml.core.approvals.bounds import MAX_INPUT_BYTES
from tests.e2e.hubs import STATE_S, Room, until
from tests.e2e.inbox_rig import Caller, Inbox
from tests.e2e.inbox_tab import Tab, opened
from tests.promises import promise

MANY: Final = 500
PHONE: Final = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
MARKUP: Final = (
    "<script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 2'>",
    "\"><svg onload='window.owned = 3'>",
    "<a href='javascript:window.owned = 4'>click</a>",
    "<iframe srcdoc='<script>parent.owned = 5</script>'></iframe>",
    "<style>* { display: none !important }</style>",
    "</textarea><script>window.owned = 6</script>",
    "{{constructor.constructor('window.owned = 7')()}}",
)
HIDDEN: Final = {
    "\u202e": "U+202E",  # right-to-left override
    "\u200b": "U+200B",  # zero width space
    "\u2066": "U+2066",
    "\ufeff": "U+FEFF",
    "\u00ad": "U+00AD",
    "\U000e0041": "U+E0041",  # a tag character
    "\x1b": "ESC",
    "\x07": "U+0007",
}


def nothing_ran(tab: Tab) -> None:
    assert tab.page.evaluate("window.owned") is None
    assert tab.page.evaluate("({}).polluted") is None
    assert tab.page.locator("main script, main iframe, main style, main a[href^='javascript:']").count() == 0


@promise("inbox:nothing-in-a-card-runs")
@pytest.mark.parametrize("tool", ["Bash", "Edit", "mail:send"])
def test_markup_in_a_card_is_text_and_nothing_of_it_runs(
    inbox: Inbox, tab: Tab, room: Room, tool: str
) -> None:
    hostile = inbox.caller(room, "agent <img src=x onerror='window.owned = 8'>")
    text = "\n".join(MARKUP)
    given: dict[str, Any] = {
        "command": text,
        "file_path": f"notes {MARKUP[0]}.md",
        "old_string": text,
        "new_string": text + "!",
        "content": text,
        "description": MARKUP[1],
        "url": "javascript:window.owned=9",
        MARKUP[0]: MARKUP[2],
    }
    asked = hostile.asks(tool, **given)
    tab.look_at(asked)
    for markup in MARKUP[:2]:
        expect(tab.card(asked.id)).to_contain_text(markup)
    tab.press("e")
    expect(tab.field(asked, "edit")).to_be_focused()
    tab.press("Escape")
    tab.press("Alt+Enter")
    expect(tab.dialog).to_be_visible()
    tab.press("Escape")
    nothing_ran(tab)
    tab.look_at(asked)
    tab.press("Escape")
    tab.send_held()
    assert asked.answer()["behavior"] == "deny"
    for path in ("/history", f"/card/{asked.id}", "/sessions", "/audit"):
        tab.go(path)
        expect(tab.page.locator("main")).to_contain_text("onerror=" if path == "/sessions" else tool)
        nothing_ran(tab)


@promise("inbox:nothing-in-a-card-runs")
def test_keys_of_a_prototype_are_keys_like_others(tab: Tab, agent: Caller) -> None:
    raw = '{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 2}}, "toString": "x"}'
    asked = agent.asks("mail:send", **json.loads(raw))
    tab.look_at(asked)
    expect(tab.card(asked.id)).to_contain_text("__proto__")
    nothing_ran(tab)
    tab.press("e")
    tab.press("Control+Enter")
    assert asked.answer() == {"behavior": "allow", "updatedInput": json.loads(raw)}
    nothing_ran(tab)


@promise("inbox:hidden-shown")
def test_a_hidden_character_is_a_mark_that_can_be_seen(tab: Tab, agent: Caller) -> None:
    hidden = "a".join(HIDDEN)
    asked = agent.asks("Bash", command=f"rm -rf a{hidden}b", description=f"clean{hidden}up")
    tab.look_at(asked)
    command = tab.card(asked.id).locator("[data-block=command]")
    expect(command.locator(".ln .hidden-char")).to_have_text([*HIDDEN.values()])
    expect(tab.card(asked.id).locator(".warnings")).to_contain_text("hidden")
    shown = tab.card(asked.id).inner_text()
    assert [char for char in HIDDEN if char in shown] == []


def test_an_argument_of_a_megabyte_is_read_whole_before_it_can_be_allowed(tab: Tab, agent: Caller) -> None:
    tab.page.set_viewport_size({"width": 1280, "height": 6000})  # else it is scrolled for half a minute
    text = "".join(f"{n:07d} " for n in range(131_000))
    asked = agent.asks("mail:send", text=text, to="ana")
    tab.focus(asked.id)
    tab.let_pass()
    tab.press("Enter")
    tab.says("read to its end")
    tab.still_waits(asked)
    expect(tab.card(asked.id)).to_contain_text("0130999")
    tab.look_at(asked)
    tab.press("Enter")
    assert asked.answer() == {"behavior": "allow", "updatedInput": {"text": text, "to": "ana"}}


@promise("inbox:many")
def test_hundreds_of_cards_are_all_there_in_order_and_each_can_be_reached(
    inbox: Inbox, tab: Tab, room: Room
) -> None:
    ids = inbox.fill(room, MANY)
    tab.shows(ids)
    tab.press("k")
    tab.look_at_id(ids[-1])
    tab.press("Enter")
    expect(tab.card(ids[-1])).to_contain_text("You allowed it")
    tab.search.fill("-n 250")
    tab.shows([ids[250]])
    tab.press("Alt+Escape")
    tab.search.fill("")
    tab.page.locator("main h1").click()
    tab.press("Alt+Escape")
    expect(tab.dialog.locator("[data-covers]")).to_have_count(MANY - 1)
    tab.confirm()
    expect(tab.cards).to_have_count(0)
    tab.send_held()
    until(lambda: not inbox.hub.ask("/api/approvals")["approvals"], "all are denied")


def test_a_phone_shows_a_card_without_scrolling_sideways_and_its_buttons_can_be_touched(
    inbox: Inbox, agent: Caller
) -> None:
    given = {"command": "make " + "x" * 300, "description": "a long line " * 20}
    asked = agent.asks("Bash", **given)
    with opened(inbox, **PHONE) as tab:
        tab.log_in()
        tab.look_at(asked)
        wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        for path in (
            "/history",
            "/sessions",
            "/rules",
            "/grants",
            "/servers",
            "/audit",
            "/trust",
            "/waiting",
        ):
            tab.go(path)
            expect(tab.page.locator("main h1")).to_be_visible()
            assert not tab.page.evaluate(wide), path
        tab.look_at(asked)
        for action in ("deny", "allow-all", "allow", "edit", "message"):
            box = tab.button(asked, action).bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            assert box["height"] >= 32
        tab.button(asked, "allow").tap()
    assert asked.answer() == {"behavior": "allow", "updatedInput": given}


def test_the_keyboard_alone_reaches_everything_and_is_trapped_nowhere(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("WebFetch", url="https://docs.example", prompt="what is new?")
    tab.look_at(asked)
    where = """() => {
      const { dataset, tagName } = document.activeElement;
      return dataset.action ?? dataset.nav ?? dataset.field ?? dataset.card ?? tagName;
    }"""
    tab.page.locator("header .brand").focus()
    reached: list[str] = []
    while len(reached) < 60 and (not reached or reached[-1] != "BODY"):
        tab.press("Tab")
        reached.append(tab.page.evaluate(where))
    wanted = ["/waiting", "/trust", "logout", "search", asked.id, "remember", "SUMMARY", "edit", "message"]
    wanted += ["deny", "allow"]
    assert [each for each in reached if each in wanted] == wanted
    assert reached[-1] == "BODY", "the focus leaves the page at its end"
    back: list[str] = []
    while len(back) < 60 and (not back or back[-1] != "/waiting"):
        tab.press("Shift+Tab")
        back.append(tab.page.evaluate(where))
    assert [each for each in back if each in wanted] == wanted[::-1]


def test_a_dialog_keeps_the_focus_and_gives_it_back(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="ls")
    tab.look_at(asked)
    tab.press("?")
    expect(tab.dialog).to_be_visible()
    for _ in range(4):
        tab.press("Tab")
        assert tab.page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    tab.press("Escape")
    expect(tab.card(asked.id)).to_be_focused()


def test_nothing_moves_where_a_person_wants_no_motion(inbox: Inbox, agent: Caller) -> None:
    asked = agent.asks("Bash", command="ls")
    with opened(inbox, reduced_motion="reduce") as tab:
        tab.log_in()
        tab.look_at(asked)
        tab.press("?")
        moving = """() => [...document.querySelectorAll("*")].filter((each) => {
          const style = getComputedStyle(each);
          const longest = (text) => Math.max(...text.split(",").map(parseFloat));
          return longest(style.transitionDuration) > 0.02 || longest(style.animationDuration) > 0.02;
        }).map((each) => each.outerHTML.slice(0, 80))"""
        assert tab.page.evaluate(moving) == []
        assert tab.page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        assert tab.page.evaluate("document.getAnimations().length") == 0


@promise("approval:bounded-asks")
def test_what_was_refused_before_anybody_was_asked_is_told_above_the_cards(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="make plums")
    expect(tab.card(asked.id)).to_be_visible()
    refused = tab.page.locator("[data-part=refused] .notice", has_text="Write")
    expect(refused).to_have_count(0)
    said = agent.tries("Write", {"file_path": "plums", "content": "x" * MAX_INPUT_BYTES})
    assert said.result(STATE_S)["behavior"] == "deny"
    expect(refused).to_contain_text("was refused without asking")
    tab.still_waits(asked)
