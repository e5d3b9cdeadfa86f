"""The pages beside what waits: history, secrets, and that all of them can be used by everybody."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from pml.core.approvals.record import Subject
from pml.core.audit.entries import session_changed
from pml.service.context import Context
from tests.e2e.inbox_rig import Inbox
from tests.e2e.inbox_scene import KEYLESS, Scene, put, set_scene
from tests.e2e.inbox_tab import Tab, opened
from tests.e2e.installed import PACKAGES
from tests.promises import promise

PAGES: Final = (
    "/waiting",
    "/history",
    "/sessions",
    "/rules",
    "/grants",
    "/servers",
    "/audit",
    "/trust",
    "/secrets",
)
AXE: Final = PACKAGES / "axe-core" / "axe.min.js"
FINDINGS: Final = """
async ([within, rules]) => {
  const place = within ? document.querySelector(within) : document;
  const { violations } = await axe.run(place, { resultTypes: ["violations"], runOnly: rules });
  return violations
    .filter((each) => each.impact === "serious" || each.impact === "critical")
.map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}
"""
EVERY_RULE: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CARD: Final = "article.card:has(textarea)"
DIALOG: Final = "dialog[open]"
SECRET: Final = "tvly-0f1e2d3c-not-for-the-model"


@pytest.fixture(scope="module")
def scene(inbox: Inbox) -> Generator[Scene]:
    yield set_scene(inbox)
    inbox.clear()


def findings(tab: Tab, where: str, rules: list[str], *, within: str = "") -> list[str]:
    """Return what is wrong with the page, or with what has changed of it since it was looked at."""
    if not tab.page.evaluate("'axe' in window"):
        tab.page.evaluate(AXE.read_text())
    expect(tab.page.locator("main h1").first).to_be_visible()
    expect(tab.page.locator("main [aria-busy=true]")).to_have_count(0)
    found: list[str] = tab.page.evaluate(FINDINGS, [within, rules])
    return [f"{where}: {each}" for each in found]


@promise("inbox:accessible")
@pytest.mark.parametrize(("scheme", "rules"), [("light", EVERY_RULE), ("dark", ["color-contrast"])])
def test_axe_finds_nothing_serious_on_any_page(
    inbox: Inbox, scene: Scene, scheme: str, rules: list[str]
) -> None:
    with opened(inbox, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce") as tab:
        tab.page.goto(inbox.hub.url)
        found = findings(tab, "login", rules)
        tab.page.goto("about:blank")
        tab.log_in()
        for path in (*PAGES, f"/card/{scene.decided}", f"/secrets/{scene.keyless}"):
            tab.go(path)
            found += findings(tab, path, rules)
        tab.go("/waiting")
        for approval_id in scene.ids:
            tab.focus(approval_id)
            expect(tab.card(approval_id).locator("[data-action=allow]")).to_be_visible()
        found += findings(tab, "every card", rules)
        tab.look_at_id(scene.ids[0])
        for key, within in (("e", CARD), ("m", CARD), ("?", DIALOG), ("Alt+Enter", DIALOG)):
            tab.press(key)
            expect(tab.page.locator(within)).to_be_visible()
            found += findings(tab, key, rules, within=within)
            tab.press("Escape")
    assert found == []


def test_every_kind_of_question_says_in_words_what_it_is_about(
    inbox: Inbox, scene: Scene, still: Tab
) -> None:
    tab = still
    wanted = (
        "total.py",
        "release/2.4",
        "memory",
        "chat:send_message",
        "TAVILY_API_KEY",
        "mail-server.js",
        "rm -rf",
    )
    assert len(wanted) == len(scene.ids)
    for approval_id, word in zip(scene.ids, wanted, strict=True):
        tab.look_at_id(approval_id)
        expect(tab.card(approval_id)).to_contain_text(word)
    lineage = tab.card(scene.ids[0]).locator(".lineage a")
    expect(lineage).to_have_text(["release-2.4", "checkout", "fix-rounding"])


@pytest.fixture
def still(inbox: Inbox, scene: Scene) -> Generator[Tab]:
    """A tab before the scene, which stays as it is."""
    with opened(inbox) as tab:
        tab.log_in()
        yield tab


def test_what_was_decided_is_in_the_history_with_who_and_can_be_found(scene: Scene, still: Tab) -> None:
    tab = still
    tab.go("/history")
    main = tab.page.locator("main")
    expect(main).to_contain_text("git push --force origin main")
    tab.search.fill("invoices.example")
    expect(main).not_to_contain_text("git push --force")
    expect(main).to_contain_text("WebFetch")
    tab.go(f"/card/{scene.decided}")
    expect(main).to_contain_text("ana denied it")
    expect(main).to_contain_text("not to main: push to release/2.4")


@promise("inbox:history")
def test_a_decision_made_in_the_page_is_in_the_history(inbox: Inbox, still: Tab) -> None:
    tab = still
    asked = inbox.caller(inbox.room(), "historian").asks("Bash", command="echo for the record")
    tab.look_at(asked)
    tab.press("Enter")
    asked.answer()
    tab.is_over(asked, "You allowed it")
    tab.page.locator("[data-nav='/history']").click()
    expect(tab.page.locator("main")).to_contain_text("echo for the record")
    expect(tab.page.locator("main")).to_contain_text("ana")


def test_the_audit_log_can_be_read_back_to_its_first_entry_while_it_grows(inbox: Inbox, still: Tab) -> None:
    tab = still

    def log(count: int) -> None:
        async def write(context: Context) -> None:
            for _ in range(count):
                await context.store.audit.record(session_changed("busy", "running", at=context.clock.now()))

        inbox.beside(write)

    log(250)
    rows = tab.page.locator("li.audit-item")
    older = tab.page.locator("[data-action=older]")
    tab.go("/audit?session=busy")
    expect(rows).to_have_count(100)
    rows.nth(5).locator("summary").click()
    older.click()
    expect(rows).to_have_count(200)
    log(1)
    expect(rows).to_have_count(201)
    expect(rows.nth(6).locator("details")).to_have_attribute("open", "")
    older.click()
    expect(rows).to_have_count(251)
    expect(older).to_be_hidden()
    places: list[int] = rows.evaluate_all("rows => rows.map((row) => Number(row.dataset.seq))")
    logged = inbox.hub.ask("/api/audit?session=busy&limit=1000")["entries"]
    assert places == [each["seq"] for each in reversed(logged)]


def everything_kept(inbox: Inbox) -> str:
    """What the hub wrote down, but for the one file of secrets."""
    places = [inbox.hub.place, Path(inbox.hub.environment["PML_HOME"])]
    files = {each for place in places for each in place.rglob("*") if each.is_file()}
    own = [each for each in files if each.name != "secrets.json" and not each.is_symlink()]
    return "".join(
        each.read_bytes().decode(errors="replace") for each in own if each.stat().st_size < 5_000_000
    )


@promise("inbox:secret-stays")
def test_a_key_that_is_given_to_the_page_is_stored_and_shown_and_logged_nowhere(
    inbox: Inbox, still: Tab
) -> None:
    tab = still
    caller = inbox.caller(inbox.room(), "searcher")
    approval_id = put(inbox, caller, "tavily:tavily_search", Subject.API_KEY_REQUIRED, KEYLESS)
    sent: list[tuple[str, str]] = []
    tab.page.on("request", lambda request: sent.append((request.url, request.post_data or "")))
    tab.focus(approval_id)
    tab.card(approval_id).locator("[data-action=set-secret]").click()
    field = tab.page.locator("main input[type=password]")
    field.fill(SECRET)
    tab.page.locator("[data-action=save-secrets]").click()
    tab.page.wait_for_url(re.compile(f"#/card/{approval_id}"))
    assert [url.removeprefix(inbox.hub.url) for url, body in sent if SECRET in body + url] == ["/api/secrets"]
    assert SECRET not in tab.page.content()
    kept: dict[str, Any] = tab.page.evaluate("({...localStorage, ...sessionStorage, h: history.state})")
    assert SECRET not in str(kept)
    assert inbox.hub.ask(f"/api/approvals/{approval_id}")["status"] != "pending"
    names = [each["name"] for each in inbox.hub.ask("/api/secrets")["secrets"]]
    assert names == ["TAVILY_API_KEY"]
    stored = Path(inbox.hub.environment["PML_HOME"], "secrets.json").read_text()
    assert SECRET in stored
    assert SECRET not in everything_kept(inbox)
