"""A request that cannot be shown says so, takes no answer, and keeps nobody from deciding the others."""

from typing import Any

import pytest

from pml.core.approvals.record import Approval, State
from pml.core.cards.card import Card
from pml.core.errors import Unavailable
from pml.screen import live
from pml.service.context import Context
from tests.promises import promise
from tests.screen.seats import Seat, seated, unshowable
from tests.service.offices import Office


def _spoil(office: Office, record: Approval) -> None:
    rows: dict[str, Any] = vars(office.context.store.approvals)["_rows"]
    rows[record.id] = unshowable(record)


@promise("screen:seen-whole")
async def test_one_that_cannot_be_shown_says_so_and_takes_no_key_and_the_others_go_on(office: Office) -> None:
    first = await office.ask(arguments={"title": "one"})
    broken = await office.ask(arguments={"title": "two"})
    last = await office.ask(arguments={"title": "three"})
    _spoil(office, broken)
    async with seated(office) as seat:
        await seat.press("j")
        await seat.shows("cannot be shown", "internal error (TypeError)", f"pml approvals show {broken.id}")
        await seat.press("enter")
        await seat.shows("it is not shown yet: nothing was decided")
        await seat.press("a", "e", "s", "j")
        await seat.settled()
        await seat.press("enter")
        await seat.shows("allowed github:create_issue")
        assert seat.app.crash is None
    assert [await office.status(each) for each in (first, broken, last)] == [
        State.PENDING,
        State.PENDING,
        State.ALLOWED,
    ]


async def test_one_that_cannot_be_shown_is_left_out_of_allow_all_and_can_be_denied_with_all(
    office: Office,
) -> None:
    plain, broken = await office.ask(arguments={"title": "one"}), await office.ask(arguments={"title": "two"})
    _spoil(office, broken)
    async with seated(office) as seat:
        await seat.press("A")
        await seat.shows("allow this one?", "1 left out: open it to decide")
        await seat.press("enter")
        await seat.shows("allowed 1 of 1")
        await seat.press("enter")
        await seat.until(lambda: seat.app.screen is seat.inbox)
        await seat.press("D")
        await seat.shows("deny this one?")
        await seat.press("enter")
        await seat.shows("denied 1 of 1")
        await seat.send_held()
    assert (await office.status(plain), await office.status(broken)) == (State.ALLOWED, State.DENIED)


async def test_the_history_goes_on_past_one_that_cannot_be_shown(office: Office) -> None:
    await office.ask(arguments={"title": "oldest"})
    broken, newest = await office.ask(), await office.ask(arguments={"title": "newest"})
    await office.deny(newest)
    _spoil(office, broken)
    async with seated(office) as seat:
        await seat.press("h")
        await seat.shows("PML history", "newest")
        await seat.press("j")
        await seat.shows("cannot be shown", f"pml approvals show {broken.id}")
        await seat.press("k")
        await seat.shows("ana denied it")
        assert seat.app.crash is None


class _BusyStore:
    """Makes cards, but not while it is busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._made = live.make_card
        self.is_busy = False
        monkeypatch.setattr(live, "make_card", self)

    async def __call__(self, context: Context, record: Approval, *, whole: bool) -> Card:
        if self.is_busy:
            raise Unavailable("the store is busy")
        return await self._made(context, record, whole=whole)


async def _reach_a_busy_store(seat: Seat, store: _BusyStore) -> None:
    store.is_busy = True
    await seat.press("j")
    await seat.shows("cannot be shown", "the store is busy")
    store.is_busy = False


async def test_one_that_could_not_be_read_is_tried_again_at_the_next_look(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.ask(arguments={"title": "one"})
    record = await office.ask(arguments={"title": "two"})
    store = _BusyStore(monkeypatch)
    async with seated(office) as seat:
        await _reach_a_busy_store(seat, store)
        await office.ask(arguments={"title": "three"})
        await seat.until(lambda: seat.inbox.card is not None)
        assert "cannot be shown" not in seat.screen()
        await seat.press("enter")
        await seat.settled()
    assert await office.status(record) is State.ALLOWED


@promise("screen:no-accident")
async def test_one_that_is_read_at_last_takes_no_key_at_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.ask(arguments={"title": "one"})
    record = await office.ask(arguments={"title": "two"})
    store = _BusyStore(monkeypatch)
    async with seated(office) as seat:
        await _reach_a_busy_store(seat, store)
        await seat.inbox.reread()
        await seat.until(lambda: seat.inbox.card is not None)
        await seat.burst("enter")
        await seat.shows("this request came up a moment ago")
    assert await office.status(record) is State.PENDING
