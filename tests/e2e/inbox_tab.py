"""A tab of a real browser with the inbox in it, as the tests use and read it.

Whatever the page complains of on its console, and every breach of its content security policy, is kept: the test
fails with it. So is each request that the hub refused, unless the test says that it is to be so.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.sync_api import BrowserContext, ConsoleMessage, Page

from tests.e2e.inbox_rig import Inbox

WAIT_MS: Final = 20_000  # only ever reached by what never happens
_STATUS: Final = re.compile(r"responded with a status of (\d+)")
_LOST: Final = re.compile(r"net::ERR_(CONNECTION|INCOMPLETE|EMPTY|NETWORK|SOCKET)\w*")
_LISTEN: Final = """
document.addEventListener("securitypolicyviolation", (breach) =>
  console.error(`breach of the policy: ${breach.violatedDirective} ${breach.blockedURI} ${breach.sample}`));
"""


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


@contextmanager
def opened(inbox: Inbox, **options: Any) -> Generator[Tab]:
    """Open a tab of a browser that knows nothing yet; it must have had no faults at the end."""
    context = inbox.browser.new_context(**{"locale": "en-GB", "timezone_id": "Europe/Berlin", **options})
    tab = opened_in(context, inbox)
    yield tab
    context.close()
    assert tab.faults == []


def opened_in(context: BrowserContext, inbox: Inbox) -> Tab:
    """Open another tab of the same browser."""
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(_LISTEN)
    page = context.new_page()
    tab = Tab(page=page, inbox=inbox)
    page.on("console", tab.note)
    page.on("pageerror", lambda error: tab.faults.append(f"{error.name}: {error.message}\n{error.stack}"))
    return tab
