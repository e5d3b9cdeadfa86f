"""The button of the inbox that logs in to a remote server: a real browser, at a real authorization server."""

import json
from pathlib import Path

from playwright.sync_api import expect

from pml.core.approvals.record import SessionId, Subject
from pml.service.approvals.lifecycle import Question, ask
from pml.service.context import Context
from pml.service.policy.policy import current_policy
from pml.service.session_tree import session_of
from tests.e2e.inbox_rig import Caller, Inbox
from tests.e2e.inbox_tab import Tab
from tests.oauth.rig import issuer_running, protected_running
from tests.promises import promise


@promise("login:tokens-shown-nowhere")
def test_the_button_of_a_card_logs_in_and_the_call_continues(inbox: Inbox, tab: Tab, tmp_path: Path) -> None:
    home = Path(inbox.hub.environment["PML_HOME"])
    with issuer_running() as issuer, protected_running(issuer, tmp_path / "calls") as url:
        servers = {"vault": {"type": "http", "url": url}}
        before = (home / "config.json").read_text() if (home / "config.json").exists() else None
        (home / "config.json").write_text(json.dumps({**json.loads(before or "{}"), "mcpServers": servers}))
        try:
            approval_id = put_login(inbox, inbox.caller(inbox.room(), "searcher"))
            tab.focus(approval_id)
            tab.card(approval_id).locator("[data-action=log-in]").click()
            tab.page.locator("[data-action=begin-login]").click()
            with tab.page.expect_popup() as opened:
                tab.page.locator("[data-action=open-login]").click()
            page = opened.value
            page.locator("input[name=login]").fill("ada")
            page.locator("input[name=password]").fill("any")
            page.locator("button[type=submit]").click()
            page.locator("button[type=submit]").click()
            expect(page.locator("h1")).to_have_text("Back to PML")
            expect(tab.page.locator("main")).to_contain_text("No login is waited for")
        finally:
            if before is None:
                (home / "config.json").unlink()
            else:
                (home / "config.json").write_text(before)
    assert inbox.hub.ask(f"/api/approvals/{approval_id}")["status"] == "allowed"
    [row] = json.loads((home / "logins.json").read_text())["logins"]
    assert row["tokens"]["access_token"] not in tab.page.content()


def put_login(inbox: Inbox, caller: Caller) -> str:
    """Ask for a login to the server, as a call does that was refused."""

    async def ask_so(context: Context) -> str:
        session = await session_of(context, SessionId(caller.session_id))
        spec = (await current_policy(context, session.workspace)).settings.servers["vault"]
        given = {
            "server": "vault",
            "url": spec.target.line,
            "call": {"tool": "vault:read", "arguments": {"name": "x"}},
        }
        question = Question(
            session=session,
            tool="vault:read",
            arguments=given,
            subject=Subject.LOGIN_REQUIRED,
            artefact=spec.target_digest,
        )
        return str((await ask(context, question)).id)

    return inbox.beside(ask_so)
