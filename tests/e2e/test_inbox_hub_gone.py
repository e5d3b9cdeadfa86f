"""The hub ends and comes back: the page says so, recovers, and neither loses a card nor shows one twice."""

from playwright.sync_api import expect

from tests.e2e.hubs import bash, until
from tests.e2e.inbox_rig import Inbox
from tests.e2e.inbox_tab import Tab
from tests.e2e.messages_api import LAST_WORD
from tests.promises import promise


def is_gone(tab: Tab) -> None:
    """Have the page try until it says so, and soon: an agent tries but twice to get its stream back."""
    banner = tab.page.locator("[data-banner=gone]")
    until(lambda: banner.count() or tab.let_pass(1000), "the page says that the hub is gone")
    expect(banner).to_contain_text("hub is gone")


def is_back(tab: Tab) -> None:
    tab.let_pass(30_000)  # it tries less and less often
    tab.is_in()
    expect(tab.page.locator("[data-banner=gone]")).to_have_count(0)


@promise("inbox:reconnects")
def test_a_killed_hub_that_comes_back_costs_the_page_no_card_and_the_agent_no_answer(
    inbox: Inbox, tab: Tab
) -> None:
    room = inbox.room()
    tab.may_lose = True
    tasks = {name: f"{name}-gone" for name in ("left", "right")}
    for name, task in tasks.items():
        inbox.hub.api.also(task, bash(f"echo once >> {name}.mark"))
    with room.launched(f"do {tasks['left']}") as left, room.launched(f"do {tasks['right']}") as right:
        asked = {each["input"]["command"]: each["id"] for each in room.waited(2)}
        tab.shows([each["id"] for each in room.pending()])
        inbox.hub.kill()
        is_gone(tab)
        inbox.hub.start()
        is_back(tab)
        tab.shows([each["id"] for each in room.pending()])
        tab.look_at_id(asked["echo once >> left.mark"])
        tab.press("Enter")
        tab.look_at_id(asked["echo once >> right.mark"])
        tab.press("Escape")
        tab.send_held()
        ran = [left.finish(), right.finish()]
    said = f"{LAST_WORD}\n"
    assert [(each.code, each.out) for each in ran] == [(0, said), (3, said)], "a person denied one"
    assert (room.path / "left.mark").read_text() == "once\n"
    assert room.marks() == ["left.mark"]


@promise("inbox:reconnects")
def test_what_happened_while_the_hub_was_gone_is_shown_when_it_is_back(inbox: Inbox, tab: Tab) -> None:
    room = inbox.room()
    tab.may_lose = True
    kept, decided = inbox.fill(room, 2)
    tab.shows([kept, decided])
    inbox.hub.stop()
    is_gone(tab)
    assert room.pml("approvals", "deny", decided).code == 0
    new = inbox.fill(room, 1)
    inbox.hub.start()
    is_back(tab)
    tab.shows([kept, *new])
    tab.is_over(decided, "denied it")


@promise("inbox:reconnects")
def test_an_answer_that_the_hub_did_not_hear_is_said_to_be_unsure_and_counts_once_when_it_is_back(
    inbox: Inbox, tab: Tab
) -> None:
    tab.may_lose = True
    [approval_id] = inbox.fill(inbox.room(), 1)
    tab.look_at_id(approval_id)
    inbox.hub.stop()
    is_gone(tab)
    tab.press("Enter")
    expect(tab.card(approval_id).locator("[data-told]")).to_contain_text("No reply from the hub")
    expect(tab.card(approval_id)).to_have_attribute("data-state", "waiting")
    inbox.hub.start()
    is_back(tab)
    tab.look_at_id(approval_id)
    tab.press("Enter")
    tab.is_over(approval_id, "You allowed it")
    assert inbox.hub.ask(f"/api/approvals/{approval_id}")["status"] == "allowed"
