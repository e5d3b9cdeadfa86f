"""What stands between a text and the person who reads it, on every page; and a browser that keeps nothing."""

import json
import re
import sys
import unicodedata
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Route, expect

from pml.core.approvals.record import SessionId, Subject
from pml.core.text import has_hidden, visible, visible_json
from pml.hub.pages import ASSETS_HASH
from pml.service.approvals.lifecycle import Question, ask
from pml.service.context import Context
from pml.service.session_tree import session_of
from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Caller, Inbox
from tests.e2e.inbox_tab import Tab, opened
from tests.promises import promise

MIXED: Final = "mv א ב && echo 1 ג 2"  # a browser by itself draws the letters the other way round
WORDS: Final = "one שלום עולם two"
BLOCKED: Final = """
Object.defineProperty(window, "localStorage", {get() { throw new DOMException("no", "SecurityError"); }});
"""
FULL: Final = 'Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };'
DRAWN: Final = """
(node) => {
  node.style.whiteSpace = "nowrap";
  const found = [];
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const range = document.createRange();
    for (let at = 0; at < walker.currentNode.length; at++) {
      range.setStart(walker.currentNode, at);
      range.setEnd(walker.currentNode, at + 1);
      const box = range.getBoundingClientRect();
      if (box.width) found.push([box.left, walker.currentNode.data[at]]);
    }
  }
  return found.sort(([one], [other]) => one - other).map(([, char]) => char).join("");
}
"""
UNLIKE: Final = ("Cn", "Co", "Cs")  # not assigned, or assigned by whoever likes
HIDDEN_CODES: Final = """
async ([address, most]) => {
  const {escapeHidden} = await import(address);
  const found = [];
  for (let code = 0; code <= most; code++) {
    const char = String.fromCodePoint(code);
    if (code !== 10 && escapeHidden(char) !== char) found.push(code);
  }
  return found.join(" "); // nearly a million of them: as an array they would take half a minute
}
"""
AS_SHOWN: Final = """
async ([address, samples]) => {
  const {escapeHidden, shownText, visible} = await import(address);
  return samples.map((codes) => {
    const text = String.fromCodePoint(...codes);
    const place = document.createElement("div");
    place.append(...shownText(text));
    const marks = place.querySelectorAll(".hidden-char").length;
    return [visible(text), escapeHidden(JSON.stringify(text)), marks];
  });
}
"""
SAMPLES: Final = [
    "plain",
    "back\\slash and \"quotes\" and 'quotes'",
    "tab\tline\nbreak\rreturn\x00\x1b[2J\x7f\x85",
    "soft\u00adhyphen no\u00a0break\u2003em\u3000wide\u2028line\u2029paragraph",
    "over\u202eride\u202c isolate\u2066d\u2069 mark\u200e\u200f\u061c",
    "zero\u200b\u200c\u200d\u2060\ufeffwidth",
    "blank\u2800 filler\u3164\u115f\u1160\uffa0 joiner\u034f vowel\u17b4\u17b5",
    "variant\ufe0f\U000e0101 tag\U000e0041 notehead\U0001d159 khitan\U00016fe4",
    "private\ue000 \U000f0000 lone\ud800 none\uffff",
    "three e\u0301\u0302\u0303 four e\u0301\u0302\u0303\u0304 pile e" + "\u0335" * 40 + "end",
    "pile with a joiner e\u0301\u034f\u0301\u0301\u0301 thai \u0e01\u0e31\u0e34\u0e47\u0e48\u0e49",
    "marks of two scripts e\u0301\u20d0\ufe20\u1dc0\u1ab0\u0e31",
    "\u0301\u0301\u0301\u0301 from the beginning",
    "emoji 👩\u200d💻 and 漢字 and é",
]


def drawn(place: Locator) -> str:
    """Return the text of one line as it is read from left to right."""
    expect(place).to_be_visible()
    return place.evaluate(DRAWN)


def file_of(room: Room) -> Path:
    return room.path / ".pml.json"


def at(room: Room, page: str) -> str:
    return f"{page}?workspace={quote(str(room.path))}"


def allow(room: Room, *entries: object) -> None:
    file_of(room).write_text(json.dumps({"permissions": {"allow": entries}}, ensure_ascii=False))


# --- the order of what is read


@promise("page:drawn-in-order")
def test_letters_from_right_to_left_do_not_reorder_what_a_card_would_run(tab: Tab, agent: Caller) -> None:
    command = agent.asks("Bash", command=MIXED, description=f"say {MIXED}")
    other = agent.asks("Mystery", query=MIXED, **{f"key {MIXED}": 1})
    assert MIXED in drawn(tab.card(command.id).locator(".ln .text").first)
    for part in ('"query"', '"key '):
        assert MIXED in drawn(tab.card(other.id).locator(".code .ln").filter(has_text=part).first)


@promise("page:drawn-in-order")
@pytest.mark.parametrize(
    ("page", "where"),
    [
        ("/rules", "[data-rule] .entry"),
        ("/trust", ".loosens .ln"),
        ("/trust", ".code .ln"),
        ("/servers", ".facts .mono"),
        ("/servers", ".facts dd:has(.path) .path"),
    ],
)
def test_letters_from_right_to_left_do_not_reorder_what_a_file_says(
    inbox: Inbox, tab: Tab, page: str, where: str
) -> None:
    room = inbox.room(f"1 ג 2 {page[1:]}{len(where)}")
    entry = {"tool": "fs:read", "args": {"path": MIXED}}
    settings = {"permissions": {"allow": [entry]}, "mcpServers": {"shop": {"command": "go", "args": [MIXED]}}}
    file_of(room).write_text(json.dumps(settings, ensure_ascii=False))
    tab.go(at(room, page))
    place = tab.page.locator(where).filter(has_text=re.compile("[אג]")).first
    seen = drawn(place)
    assert MIXED in seen or "1 ג 2" in seen


@promise("page:drawn-in-order")
def test_letters_from_right_to_left_do_not_reorder_what_was_asked_and_by_whom(
    inbox: Inbox, tab: Tab, room: Room
) -> None:
    agent = inbox.caller(room, f"ana {MIXED}")
    asked = agent.asks("Bash", command=MIXED)
    row = f'li.history[data-id="{asked.id}"]'
    tab.go("/history")
    assert MIXED in drawn(tab.page.locator(f"{row} .clip.mono"))
    assert MIXED in drawn(tab.page.locator(f"{row} .item-side div").first)
    tab.go(f"/sessions?session={quote(agent.session_id)}")
    assert MIXED in drawn(tab.page.locator("details[open] strong"))
    tab.go(f"/audit?session={quote(agent.session_id)}")
    assert MIXED in drawn(tab.page.locator(".detail summary").filter(has_text="א").first)


def test_a_word_from_right_to_left_stays_a_word_in_prose_and_is_spelled_out_in_code(
    inbox: Inbox, tab: Tab, room: Room
) -> None:
    agent = inbox.caller(room, WORDS)
    asked = agent.asks("Bash", command=WORDS)
    assert drawn(tab.card(asked.id).locator(".ln .text").first) == WORDS
    tab.go("/history")
    by = drawn(tab.page.locator(f'li.history[data-id="{asked.id}"] .item-side div').first)
    assert f"one {'שלום'[::-1]} {'עולם'[::-1]} two" in by


@promise("page:drawn-in-order")
def test_what_is_typed_as_code_is_drawn_in_its_order(tab: Tab, room: Room) -> None:
    tab.go(at(room, "/rules"))
    tab.page.get_by_text("Try a call").click()
    field = tab.page.get_by_label("Arguments, as JSON")
    field.fill("א" * 3 + "1 ב")
    mixed = field.screenshot(caret="hide")
    field.evaluate("field => field.style.unicodeBidi = 'normal'")
    assert field.screenshot(caret="hide") != mixed
    field.evaluate("field => field.style.unicodeBidi = ''")
    assert field.evaluate("field => getComputedStyle(field).unicodeBidi") == "isolate-override"


# --- what is hidden


@promise("page:hidden-as-in-cards")
def test_the_page_hides_no_character_that_the_hub_would_mark(tab: Tab) -> None:
    address = f"/assets/{ASSETS_HASH}/dom.js"
    found = set(map(int, tab.page.evaluate(HIDDEN_CODES, [address, sys.maxunicode]).split()))
    known = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in UNLIKE]
    differ = [hex(code) for code in known if code != 0x0A and has_hidden(chr(code)) != (code in found)]
    assert differ == []


@promise("page:hidden-as-in-cards")
def test_the_page_marks_in_a_text_what_the_hub_marks_in_it(tab: Tab) -> None:
    address = f"/assets/{ASSETS_HASH}/dom.js"
    shown = tab.page.evaluate(AS_SHOWN, [address, [list(map(ord, text)) for text in SAMPLES]])
    for text, (line, as_json, marks) in zip(SAMPLES, shown, strict=True):
        assert re.sub("[\u2068\u2069]", "", line) == visible(text)
        assert as_json == visible_json(text)
        assert (marks > 0) == has_hidden(text)


def test_a_session_that_is_stopped_is_named_with_its_hidden_characters(tab: Tab, room: Room) -> None:
    run = {"prompt": "dig", "cwd": None, "model": None, "allowed_tools": None, "result": None}
    session = {
        **{"id": "s-1", "name": "dig\u202eger", "parent": None, "workspace": str(room.path), "pid": None},
        **{"state": "running", "started_at": "2026-01-01T00:00:00Z", "ended_at": None, "is_agent": True},
        **{"waiting": 0, "run": {**run, "turns": 1, "cost_usd": 0, "ended_at": None}},
    }
    tab.page.route(
        re.compile("/api/sessions"),
        lambda route: route.fulfill(json={"sessions": [session], "messages": []}),
    )
    tab.go("/sessions?session=s-1")
    tab.page.locator("[data-action=stop]").click()
    expect(tab.dialog.locator("h2")).to_have_text(r"Stop dig\u{202e}ger?")
    tab.confirm()
    tab.says(r"Stopped dig\u{202e}ger.")


# --- trust


@promise("trust:exact-content")
def test_content_that_took_the_place_of_another_is_looked_at_before_it_is_trusted(
    tab: Tab, room: Room
) -> None:
    tab.refusals.add(409)
    allow(room, "ls:*")
    tab.go(at(room, "/trust"))
    trust = tab.page.locator("[data-action=trust]")
    changed = tab.page.get_by_text("The file has just changed")
    expect(trust).to_be_enabled()
    tab.page.clock.pause_at(tab.page.evaluate("Date.now() + 1000"))
    allow(room, "*:*")
    for _ in range(3):  # each draws it again
        with tab.page.expect_response(re.compile("/api/trust")):
            tab.page.evaluate("dispatchEvent(new Event('focus'))")
            tab.page.clock.run_for(300)
        expect(tab.page.locator(".loosens")).to_contain_text("*:*")
        expect(changed).to_be_visible()
        expect(trust).to_be_disabled()
    tab.page.clock.run_for(1600)
    expect(trust).to_be_enabled()
    expect(changed).to_be_visible()
    tab.page.clock.resume()
    trust.click()
    expect(tab.page.locator("[data-action=untrust]")).to_be_visible()
    expect(changed).to_have_count(0)


@promise("trust:exact-content")
def test_content_that_came_while_nobody_looked_is_not_trusted_by_the_click_that_comes_back(
    tab: Tab, room: Room
) -> None:
    allow(room, "ls:*")
    tab.go(at(room, "/trust"))
    trust = tab.page.locator("[data-action=trust]")
    expect(trust).to_be_enabled()
    tab.page.evaluate("document.hasFocus = () => false; dispatchEvent(new Event('blur'));")
    allow(room, "*:*")
    room.pml("trust", "--yes")
    room.pml("trust", "--remove")
    expect(tab.page.locator(".loosens")).to_contain_text("*:*")
    expect(trust).to_be_disabled()
    tab.let_pass(60_000)
    expect(trust).to_be_disabled()
    tab.page.evaluate("document.hasFocus = () => true; dispatchEvent(new Event('focus'));")
    expect(trust).to_be_disabled()
    tab.let_pass(2000)
    expect(trust).to_be_enabled()


# --- pages that are left, and keys that came too late


def test_a_dialog_does_not_outlast_the_page_that_asked(tab: Tab, room: Room) -> None:
    allow(room, "ls:*")
    assert room.pml("trust", "--yes").code == 0
    tab.go(at(room, "/trust"))
    tab.page.locator("[data-action=untrust]").click()
    expect(tab.dialog).to_be_visible()
    tab.go("/history")
    expect(tab.dialog).to_have_count(0)
    assert tab.inbox.hub.ask(f"/api{at(room, '/trust')}")["trusted"] is True


def test_a_key_that_was_kept_is_told_though_the_question_is_over(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    tab.refusals.add(409)
    asked = wants_key(inbox, SessionId(agent.session_id), name="LATE_KEY")
    tab.go(f"/secrets/{asked}")
    tab.page.get_by_label("LATE_KEY").fill("a value")

    def decided_elsewhere(route: Route) -> None:
        digest = inbox.hub.ask(f"/api/approvals/{asked}")["digest"]
        inbox.hub.ask(f"/api/approvals/{asked}/decision", {"allow": False, "digest": digest})
        route.continue_()

    tab.page.route(re.compile(f"/api/approvals/{asked}/decision"), decided_elsewhere)
    tab.press("Enter")
    expect(tab.page.locator("main")).to_contain_text("LATE_KEY is kept.")


def wants_key(inbox: Inbox, session_id: SessionId, *, name: str) -> str:
    """Ask what a server asks that is started without a variable which it requires."""

    async def put(context: Context) -> str:
        session = await session_of(context, session_id)
        given = {"server": "shop", "missing": [name], "call": {"tool": "shop:buy", "arguments": {"item": 7}}}
        question = Question(
            session=session, tool="shop:buy", arguments=given, subject=Subject.API_KEY_REQUIRED
        )
        return str((await ask(context, question)).id)

    return inbox.beside(put)


# --- a browser that keeps nothing


@promise("login:one-time-link")
@pytest.mark.parametrize("script", [BLOCKED, FULL], ids=["blocked", "full"])
def test_a_browser_that_keeps_nothing_says_so_and_does_not_use_up_the_link(inbox: Inbox, script: str) -> None:
    link = inbox.link()
    with opened(inbox) as tab:
        tab.page.add_init_script(script)
        tab.page.goto(link)
        expect(tab.page.locator("h1")).to_have_text("This browser cannot log in")
        expect(tab.page.get_by_role("alert")).to_contain_text("keeps nothing for this page")
        assert "login" not in tab.page.url
        tab.page.get_by_label("Or paste the link").fill(link)
        tab.press("Enter")
        expect(tab.page.get_by_role("alert")).to_contain_text("keeps nothing for this page")
    with opened(inbox) as other:
        other.page.goto(link)
        other.is_in()


def test_a_browser_whose_storage_is_full_is_in_still_and_takes_another_theme(tab: Tab) -> None:
    tab.page.add_init_script(FULL)
    tab.page.reload()
    tab.is_in()
    for theme in ("light", "dark"):
        tab.page.locator("[data-action=theme]").click()
        expect(tab.page.locator("html")).to_have_attribute("data-theme", theme)
