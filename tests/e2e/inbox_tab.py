"""A tab of a real browser with the inbox in it, as the tests use and read it.

Whatever the page complains of on its console, and every breach of its content security policy, is kept, and
fails the test. So does each request that the hub refused, unless the test says that it is to be so.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, expect

from tests.e2e.hubs import until
from tests.e2e.inbox_rig import Asked, Inbox

WAIT_MS: Final = 60_000  # only ever reached by what never happens
GRACE_MS: Final = 1100  # a card that came by itself takes no key for a second
HELD_MS: Final = 4100  # a denial can be undone for four seconds
FEW: Final = 10  # cards that are waited for one by one; hundreds would take too long
_STATUS: Final = re.compile(r"responded with a status of (\d+)")
_LOST: Final = re.compile(r"net::ERR_(CONNECTION|INCOMPLETE|EMPTY|NETWORK|SOCKET)\w*")
_LISTEN: Final = """
document.addEventListener("securitypolicyviolation", (breach) =>
  console.error(`breach of the policy: ${breach.violatedDirective} ${breach.blockedURI} ${breach.sample}`));
"""
_RECORD: Final = """
globalThis.outcomes = {};
new MutationObserver((changes) => {
  for (const target of new Set(changes.map((change) => change.target))) {
    const around = (target instanceof Element ? target : target.parentElement)?.closest("article.card");
    for (const card of around ? [around] : target.querySelectorAll?.("article.card") ?? []) {
      const text = card.querySelector("[data-outcome]")?.textContent;
      if (text && card.dataset.state === "over") (outcomes[card.dataset.card] ??= []).push(text);
    }
  }
}).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
"""
_BOXES: Final = """
(card) => Object.fromEntries([...card.querySelectorAll("button, a.button, summary, input")].map((each) => {
  const { x, y, width, height } = each.getBoundingClientRect();
  return [each.dataset.action ?? each.tagName, [x, y, width, height]];
}))
"""
_READ: Final = """
async (card) => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const move = async (scroll) => {
    const before = scrollY;
    const moved = new Promise((done) => addEventListener("scroll", done, { once: true, capture: true }));
    scroll();
    if (scrollY !== before) await moved;
    await frame();
  };
  await move(() => card.scrollIntoView({ block: "start" }));
  for (let below = 1; below > 0;) {
    below = Math.ceil(card.getBoundingClientRect().bottom + 16 - innerHeight);
    const before = scrollY;
    await move(() => scrollBy(0, Math.max(0, Math.min(innerHeight * 0.75, below))));
    if (scrollY === before) break;
  }
}
"""

expect.set_options(timeout=WAIT_MS)


@dataclass(kw_only=True)
class Tab:
    """`refusals` are the HTTP statuses that the hub may answer with; `may_lose`: it may also be gone."""

    page: Page
    inbox: Inbox
    refusals: set[int] = field(default_factory=set[int])
    may_lose: bool = False
    faults: list[str] = field(default_factory=list[str])

    def note(self, message: ConsoleMessage) -> None:
        if message.type != "error":
            return
        status = _STATUS.search(message.text)
        if status is not None and int(status[1]) in self.refusals:
            return
        if self.may_lose and _LOST.search(message.text):
            return
        self.faults.append(f"{message.text} ({message.location.get('url', '')})")

    def log_in(self) -> None:
        self.page.goto(self.inbox.link())
        self.is_in()

    def log_out(self) -> None:
        self.page.locator("[data-action=logout]").click()

    def go(self, path: str) -> None:
        self.page.goto(f"{self.inbox.hub.url}/#{path}")

    def is_in(self) -> None:
        expect(self.page.locator("[data-live] .dot")).to_have_class(re.compile(r"\blive\b"))

    def card(self, approval_id: str) -> Locator:
        return self.page.locator(f'article.card[data-card="{approval_id}"]')

    def button(self, asked: Asked, action: str) -> Locator:
        return self.card(asked.id).locator(f"[data-action={action}]")

    def field(self, asked: Asked, name: str) -> Locator:
        return self.card(asked.id).locator(f"[data-field={name}]")

    def part(self, asked: Asked, name: str) -> Locator:
        return self.card(asked.id).locator(f"[data-part={name}]")

    def told(self, asked: Asked) -> Locator:
        """What is said at the card."""
        return self.card(asked.id).locator("[data-told]")

    def says(self, text: str) -> None:
        """Wait until the page says so, where it can be seen."""
        said = self.page.locator(".toast, [data-told]").filter(has_text=text)
        expect(said.first).to_be_in_viewport()

    @property
    def search(self) -> Locator:
        return self.page.locator("main input[type=search]")

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog[open]")

    @property
    def cards(self) -> Locator:
        """The cards that wait and are shown."""
        return self.page.locator(
            'article.card:not([hidden]):not([data-state="over"]):not([data-state="held"])'
        )

    def shows(self, ids: Sequence[str]) -> None:
        """Wait until exactly these wait, in this order."""
        expect(self.cards).to_have_count(len(ids))
        for place, approval_id in enumerate(ids[:FEW]):
            expect(self.cards.nth(place)).to_have_attribute("data-card", approval_id)
        assert self.cards.evaluate_all("found => found.map(each => each.dataset.card)") == list(ids)

    def focus(self, approval_id: str) -> None:
        self.card(approval_id).focus()

    def look_at(self, asked: Asked) -> None:
        self.look_at_id(asked.id)

    def look_at_id(self, approval_id: str) -> None:
        """Read the card from its beginning to its end, with the focus on it, and for long enough."""
        card = self.card(approval_id)
        card.focus()
        expect(card).to_be_focused()
        expect(card.locator("[data-action=allow]")).to_be_visible()
        card.evaluate(_READ)
        expect(card).to_have_attribute("data-seen", "true")
        self.let_pass()

    def let_pass(self, ms: int = GRACE_MS) -> None:
        """Let time pass for the page."""
        self.page.clock.fast_forward(ms)

    def stop_clock(self) -> None:
        """Let time pass for the page only when the test says so, from a moment from now on."""
        now_ms: float = self.page.evaluate("Date.now()")
        self.page.clock.pause_at((now_ms + GRACE_MS) / 1000)

    def send_held(self) -> None:
        """Let pass the time in which a denial can be undone."""
        expect(self.page.locator('article.card[data-state="held"]').first).to_be_visible()
        self.let_pass(HELD_MS)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def boxes(self, approval_id: str) -> dict[str, tuple[float, float, float, float]]:
        """Where each button of the card is in the window, and how large."""
        return self.card(approval_id).evaluate(_BOXES)

    def hold_mouse(self, target: Locator) -> None:
        """Press the mouse on the middle of it, by the browser's own input, and do not release it yet."""
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.page.mouse.down()

    def confirm(self) -> None:
        """Say yes in the dialog that is open."""
        self.let_pass()
        self.dialog.locator("[data-action=confirm]").click()

    def open_always(self, asked: Asked, *, by_mouse: bool = False) -> None:
        """Open what "always" would write, with all that it would cover."""
        summary = self.part(asked, "always").locator("summary")
        with self.page.expect_response(re.compile(f"/api/inbox/{asked.id}$")):
            if by_mouse:
                self.hold_mouse(summary)
                self.page.mouse.up()
            else:
                summary.click()
        expect(self.part(asked, "always")).to_have_attribute("open", "")
        expect(self.card(asked.id)).to_have_attribute("data-seen", "true")

    def is_over(self, asked: Asked | str, text: str) -> None:
        """Wait until the card has said what became of it; it goes away by itself some seconds later."""
        approval_id = asked if isinstance(asked, str) else asked.id

        def said() -> bool:
            outcomes: list[str] = self.page.evaluate("id => outcomes[id] ?? []", approval_id)
            return any(text in each for each in outcomes)

        until(said, f"the card says {text!r}")

    def still_waits(self, asked: Asked) -> None:
        """See that the card waits, here and in the hub."""
        expect(self.card(asked.id)).to_have_attribute("data-state", "waiting")
        assert self.inbox.hub.ask(f"/api/approvals/{asked.id}")["status"] == "pending"
        assert asked.waits


@contextmanager
def opened(inbox: Inbox, **options: Any) -> Generator[Tab]:
    """Open a tab of a browser that knows nothing yet; it must have had no faults at the end."""
    settings: dict[str, Any] = {"locale": "en-GB", "timezone_id": "Europe/Berlin", **options}
    context = inbox.browser.new_context(**settings)
    tab = opened_in(context, inbox)
    yield tab
    for page in context.pages:
        page.unroute_all(behavior="ignoreErrors")  # one may be on its way while the page is closed
    context.close()
    assert tab.faults == [], tab.faults


def opened_in(context: BrowserContext, inbox: Inbox) -> Tab:
    """Open another tab of the same browser."""
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(_LISTEN + _RECORD)
    page = context.new_page()
    page.clock.install()
    tab = Tab(page=page, inbox=inbox)
    page.on("console", tab.note)
    page.on("pageerror", lambda error: tab.faults.append(f"{error.name}: {error.message}\n{error.stack}"))
    return tab
