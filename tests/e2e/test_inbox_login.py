"""Who gets in, and who does not: the link, the token in the browser, and other pages on this machine."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from pml.core.sessions.token import TokenRole
from pml.service.context import Context
from pml.service.sessions.logins import login_link
from pml.service.sessions.tokens import create_token
from tests.e2e.hubs import until
from tests.e2e.inbox_rig import ME, Inbox
from tests.e2e.inbox_tab import Tab, opened
from tests.e2e.strangers import stranger_running
from tests.promises import promise

TOKEN: Final = "pml.token"


class Earlier:
    """A clock that is behind."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return datetime.now(UTC) - self._by


def old_link(inbox: Inbox) -> str:
    """Return a link that was made two hours ago, and was good for one."""

    async def make(context: Context) -> str:
        then = dataclasses.replace(context, clock=Earlier(timedelta(hours=2)))
        _, text = await create_token(then, role=TokenRole.LOGIN, name="ana", ttl_s=3600, by=ME)
        return text

    return login_link(inbox.hub.url, inbox.beside(make))


def stored(tab: Tab) -> dict[str, str]:
    return tab.page.evaluate("({...localStorage, ...sessionStorage})")


@promise("login:one-time-link")
def test_the_link_that_the_hub_prints_logs_in_and_leaves_the_address_bar(inbox: Inbox) -> None:
    with opened(inbox) as tab:
        tab.page.goto(inbox.hub.login_url)
        tab.is_in()
        assert "login" not in tab.page.url
        assert inbox.hub.login_url.partition("login=")[2] not in str(stored(tab))
        tab.page.reload()
        tab.is_in()
        tab.page.go_back()
        assert "login" not in tab.page.url


@promise("login:one-time-link")
def test_a_link_that_is_opened_in_the_tab_that_asks_for_it_logs_in(inbox: Inbox) -> None:
    with opened(inbox) as tab:
        tab.page.goto(inbox.hub.url)
        expect(tab.page.locator("body")).to_contain_text("pml inbox --link")
        tab.page.goto(inbox.link())  # the same page: only what follows the # is another
        tab.is_in()
        assert "login" not in tab.page.url
        link = inbox.link()
        tab.page.goto(link)
        tab.is_in()
        expect(tab.page).not_to_have_url(link)


@promise("login:one-time-link")
def test_a_link_that_was_used_opens_no_second_browser_and_says_how_to_get_another(inbox: Inbox) -> None:
    link = inbox.link()
    with opened(inbox) as first, opened(inbox) as second:
        first.page.goto(link)
        first.is_in()
        second.refusals = {409}
        second.page.goto(link)
        expect(second.page.locator("body")).to_contain_text("used already")
        expect(second.page.locator("body")).to_contain_text("pml inbox --link")
        assert TOKEN not in stored(second)


def test_a_link_whose_time_is_over_says_so(inbox: Inbox) -> None:
    with opened(inbox) as tab:
        tab.refusals = {404}
        tab.page.goto(old_link(inbox))
        expect(tab.page.locator("body")).to_contain_text("This link is over")
        assert TOKEN not in stored(tab)


@pytest.mark.parametrize("text", ["pml_0123456789ab_no-such-secret", "<img src=x onerror=alert(1)>", ""])
def test_a_link_with_a_wrong_token_lets_nobody_in(inbox: Inbox, text: str) -> None:
    with opened(inbox) as tab:
        tab.refusals = {400, 401, 404}
        tab.page.goto(f"{inbox.hub.url}/#login={text}")
        expect(tab.page.locator("body")).to_contain_text("pml inbox --link")
        assert TOKEN not in stored(tab)
        assert "login=" not in tab.page.url


def test_a_browser_without_a_token_is_shown_how_to_log_in_and_nothing_else(inbox: Inbox) -> None:
    caller = inbox.caller(inbox.room())
    caller.asks("Bash", command="touch unseen.mark")
    with opened(inbox) as tab:
        tab.page.goto(f"{inbox.hub.url}/#/waiting")
        expect(tab.page.locator("body")).to_contain_text("pml inbox --link")
        expect(tab.page.locator("body")).not_to_contain_text("unseen.mark")
    inbox.clear()


def test_logging_out_ends_the_token_in_the_hub_too(inbox: Inbox, tab: Tab) -> None:
    tab.is_in()
    token = stored(tab)[TOKEN]
    tab.refusals = {401}  # for what was on its way
    tab.log_out()
    expect(tab.page.locator("body")).to_contain_text("pml inbox --link")
    assert TOKEN not in stored(tab)
    answer = tab.page.request.get(
        f"{inbox.hub.url}/api/me", headers={"Authorization": f"Bearer {token}"}, fail_on_status_code=False
    )
    assert answer.status == 401


def test_a_token_that_was_revoked_elsewhere_takes_the_page_to_the_login(inbox: Inbox, tab: Tab) -> None:
    tab.is_in()
    tab.refusals = {401}
    for token in inbox.hub.pml("token", "list", "--json").json["tokens"]:
        if token["role"] == "person" and token["name"] == "ana":
            assert inbox.hub.pml("token", "revoke", token["id"]).code == 0
    tab.page.reload()
    expect(tab.page.locator("body")).to_contain_text("pml inbox --link")
    assert TOKEN not in stored(tab)


def test_an_answer_that_a_token_counts_no_longer_takes_the_page_to_the_login_by_itself(inbox: Inbox) -> None:
    with opened(inbox) as tab:
        tab.page.route("**/events*", lambda route: None)  # which would tell it too
        tab.page.goto(inbox.link())
        expect(tab.page.locator("[data-part=empty]")).to_be_visible()
        _, token_id, _ = stored(tab)[TOKEN].split("_", 2)
        assert inbox.hub.pml("token", "revoke", token_id).code == 0
        tab.refusals = {401}
        tab.go("/rules")
        expect(tab.page.locator("body")).to_contain_text("pml inbox --link")
        assert TOKEN not in stored(tab)


@promise("login:no-cookie")
def test_no_cookie_is_set_and_no_other_port_of_this_machine_is_sent_the_token(tab: Tab) -> None:
    tab.is_in()
    token = stored(tab)[TOKEN]
    assert tab.page.context.cookies() == []
    with stranger_running() as stranger:
        tab.page.goto(stranger.url)
        assert tab.page.context.cookies() == []
        assert stored(tab) == {}
    assert stranger.got
    assert all(token not in str(headers) for headers in stranger.got)
    assert all("cookie" not in headers and "authorization" not in headers for headers in stranger.got)


@promise("inbox:not-framed")
def test_the_inbox_cannot_be_framed_by_another_page(inbox: Inbox, tab: Tab) -> None:
    caller = inbox.caller(inbox.room())
    caller.asks("Bash", command="touch framed.mark")
    tab.is_in()
    with stranger_running(f'<iframe name="inbox" src="{inbox.hub.url}/#/waiting"></iframe>') as stranger:
        page = tab.page.context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(stranger.url, wait_until="load")
        frame = page.frame("inbox")
        assert frame is not None
        expect(page.frame_locator("iframe").locator("body")).not_to_contain_text("framed.mark")
        assert not frame.url.startswith(inbox.hub.url)
        assert re.search("fram", " ".join(said))


CROSS: Final = """
async ([url, id, digest, token]) => {
  const body = JSON.stringify({allow: true, digest});
  const decision = `${url}/api/approvals/${id}/decision`;
  const told = (answer) => answer.type + " " + answer.status;
  const tries = {
    read: () => fetch(`${url}/api/inbox`, {headers: {authorization: `Bearer ${token}`}}),
    page: () => fetch(`${url}/`),
    decide: () => fetch(decision, {method: "POST", body, headers: {authorization: `Bearer ${token}`}}),
    simple: () => fetch(decision, {method: "POST", body, mode: "no-cors"}),
    login: () => fetch(`${url}/api/login`, {method: "POST", headers: {authorization: `Bearer ${token}`}}),
  };
  const found = {};
  for (const [name, attempt] of Object.entries(tries)) {
    found[name] = await attempt().then(told, (error) => error.name);
  }
  return found;
}
"""


def test_a_page_on_another_port_of_this_machine_reads_and_decides_nothing(inbox: Inbox, tab: Tab) -> None:
    asked = inbox.caller(inbox.room()).asks("Bash", command="touch foreign.mark")
    tab.is_in()
    token = stored(tab)[TOKEN]  # even one that knows the token
    with stranger_running() as stranger:
        page = tab.page.context.new_page()
        page.goto(stranger.url)
        found: dict[str, Any] = page.evaluate(CROSS, [inbox.hub.url, asked.id, asked.digest, token])
    assert found == dict.fromkeys(("read", "page", "decide", "simple", "login"), "TypeError")
    assert asked.waits
    assert inbox.hub.ask(f"/api/approvals/{asked.id}")["status"] == "pending"


@pytest.mark.parametrize("hours", [3, -3])
def test_a_browser_whose_clock_is_wrong_shows_the_time_that_is_left(inbox: Inbox, hours: int) -> None:
    asked = inbox.caller(inbox.room()).asks("Bash", command="touch late.mark")
    with opened(inbox) as tab:
        tab.page.clock.install(time=datetime.now(UTC) + timedelta(hours=hours))
        tab.log_in()
        expect(tab.card(asked.id)).to_contain_text(re.compile(r"(?<!\d)[45]:[0-5]\d left"))
        expect(tab.card(asked.id)).to_contain_text(re.compile(r"now|\d+ s ago"))
    inbox.clear()


def test_a_login_that_the_hub_has_forgotten_is_asked_for_again(inbox: Inbox) -> None:
    with opened(inbox) as tab:
        tab.log_in()
        tab.refusals = {404}
        tab.page.evaluate("localStorage.setItem('pml.token', 'pml_ffffffffffff_unknown')")
        tab.page.reload()
        expect(tab.page.locator("body")).to_contain_text("login of this browser is over")
        expect(tab.page.locator("body")).to_contain_text("pml inbox --link")
        assert TOKEN not in stored(tab)


@promise("inbox:token-only-to-the-hub")
@pytest.mark.parametrize(
    ("status", "body"), [(200, ""), (200, f'{{"proof": "{"0" * 64}"}}'), (401, ""), (404, "{}")]
)
def test_whoever_takes_the_port_of_a_hub_that_has_ended_is_not_told_the_token(
    inbox: Inbox, status: int, body: str
) -> None:
    with opened(inbox) as tab:
        tab.log_in()
        tab.may_lose = True
        tab.refusals = {status}
        tab.page.evaluate("addEventListener('pagehide', () => localStorage.setItem('left', 'yes'))")
        [approval_id] = inbox.fill(inbox.room(), 1)
        tab.look_at_id(approval_id)
        inbox.hub.stop()
        port = int(inbox.hub.url.rpartition(":")[2])
        with stranger_running(port=port, status=status, body=body) as thief:
            banner = tab.page.locator("[data-banner=taken]")
            until(lambda: banner.count() or tab.let_pass(1000), "the page notices who answers")
            expect(banner).to_contain_text("do not reload")
            tab.press("Enter")
            expect(tab.card(approval_id).locator("[data-told]")).to_contain_text("another program answers")
            assert thief.got
            assert not [asked for asked in thief.got if "authorization" in asked]
            assert "left" not in stored(tab)
        inbox.hub.start()
        tab.let_pass(30_000)
        tab.is_in()
        expect(banner).to_have_count(0)
        expect(tab.card(approval_id)).to_have_attribute("data-state", "waiting")


@promise("inbox:token-only-to-the-hub")
def test_a_proof_does_not_outlive_the_hub_while_no_stream_is_open(inbox: Inbox) -> None:
    with opened(inbox) as tab:
        tab.log_in()
        tab.may_lose = True
        inbox.hub.stop()
        banner = tab.page.locator("[data-banner=gone]")
        until(lambda: banner.count() or tab.let_pass(1000), "the page notices that the hub is gone")
        for _ in range(3):  # by then it tries less often than a hub starts
            with tab.page.expect_event("requestfailed"):
                tab.let_pass(15_000)
        inbox.hub.start()
        with tab.page.expect_response("**/api/rules*"):
            tab.page.evaluate("location.hash = '#/rules'")
        inbox.hub.stop()
        with stranger_running(port=int(inbox.hub.url.rpartition(":")[2])) as thief:
            tab.page.evaluate("location.hash = '#/grants'")
            until(lambda: thief.got, "the page asks whoever answers")
            expect(tab.page.locator("main")).to_contain_text("nother program answers")
            assert not [asked for asked in thief.got if "authorization" in asked]
        inbox.hub.start()
