"""What every store does for those who wait for a change."""

import asyncio
from typing import Final

import pytest

from pml.core.approvals.events import Completed
from pml.core.approvals.record import ApprovalId
from pml.core.audit.entries import session_ended
from pml.core.errors import IllegalEvent
from pml.core.ports.store import Store, Subscription
from pml.core.sessions.agent import RunState
from tests.builders import (
    PERSON,
    SESSION,
    allow,
    claim,
    deny,
    later,
    make_approval,
    make_grant,
    make_message,
    make_run,
    make_session,
    make_token,
    uuid,
)
from tests.promises import promise

BOUND_S: Final = 60.0  # a wait that would be this long is a wake-up that was lost
AT_ONCE_S: Final = 0.0


async def quiet(subscription: Subscription) -> None:
    """Take the hints that may be left over, until there is none."""
    while await subscription.wait(AT_ONCE_S):
        pass


@promise("approval:decision-never-lost")
async def test_a_decision_made_between_subscribing_and_waiting_is_not_lost(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as subscription:
        await store.approvals.advance(record.id, allow(record))

        assert await subscription.wait(BOUND_S)


@promise("approval:decision-never-lost")
async def test_a_decision_made_while_somebody_waits_wakes_them(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as subscription:
        await quiet(subscription)
        waiter = asyncio.create_task(subscription.wait(BOUND_S))
        await asyncio.sleep(0)
        await store.approvals.advance(record.id, deny(record))

        assert await waiter


async def test_a_change_that_was_made_is_seen_without_time_to_wait_and_only_once(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as subscription:
        await store.approvals.advance(record.id, allow(record))

        assert await subscription.wait(AT_ONCE_S)
        assert not await subscription.wait(AT_ONCE_S)


@promise("approval:decision-never-lost")
async def test_every_change_after_the_last_one_wakes_again(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as subscription:
        record = await store.approvals.advance(record.id, allow(record))
        assert await subscription.wait(BOUND_S)
        record = await store.approvals.advance(record.id, claim(record))
        assert await subscription.wait(BOUND_S)
        await store.approvals.advance(record.id, Completed(at=later(1)))
        assert await subscription.wait(BOUND_S)


async def test_everybody_who_watches_an_approval_is_woken(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as one, store.changes.watch(record.id) as two:
        await store.approvals.advance(record.id, allow(record))

        assert await one.wait(BOUND_S)
        assert await two.wait(BOUND_S)


async def test_who_watches_all_sees_a_new_question_an_attached_one_and_a_decision(store: Store) -> None:
    with store.changes.watch() as subscription:
        record = await store.approvals.ask(make_approval(), max_pending=20)
        assert await subscription.wait(BOUND_S)
        await store.approvals.ask(make_approval(created_at=later(1)), max_pending=20)
        assert await subscription.wait(BOUND_S)
        await store.approvals.advance(record.id, allow(record))
        assert await subscription.wait(BOUND_S)


async def test_who_watches_all_sees_whatever_the_log_tells(store: Store) -> None:
    token, grant = make_token(), make_grant()

    with store.changes.watch() as subscription:
        for change in (
            store.sessions.start(make_session()),
            store.runs.add(make_run()),
            store.runs.move(SESSION, RunState.RUNNING, at=later(1)),
            store.runs.say(make_message()),
            store.tokens.add(token, by=None),
            store.tokens.revoke_of(SESSION, at=later(2)),
            store.grants.add(grant),
            store.grants.revoke(grant.id, at=later(3), by=PERSON),
            store.runs.move(SESSION, RunState.DONE, at=later(4)),
            store.sessions.end(SESSION, at=later(5)),
            store.audit.record(session_ended("another", at=later(6))),
        ):
            await quiet(subscription)
            await change

            assert await subscription.wait(BOUND_S), change.__qualname__


async def test_what_concerns_no_approval_wakes_nobody_who_watches_one(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as subscription:
        await quiet(subscription)
        await store.runs.say(make_message())

        assert not await subscription.wait(AT_ONCE_S)


async def test_what_was_refused_and_what_was_only_noted_wakes_nobody(store: Store) -> None:
    await store.runs.add(make_run())
    await store.runs.move(SESSION, RunState.DONE, at=later(1))

    with store.changes.watch() as subscription:
        await quiet(subscription)
        with pytest.raises(IllegalEvent):
            await store.runs.move(SESSION, RunState.RUNNING, at=later(2))
        await store.audit.note(session_ended("another", at=later(3)))

        assert not await subscription.wait(AT_ONCE_S)


async def test_an_approval_can_be_watched_before_it_is_asked(store: Store) -> None:
    with store.changes.watch(ApprovalId(uuid(1))) as subscription:
        await store.approvals.ask(make_approval(1), max_pending=20)

        assert await subscription.wait(BOUND_S)


async def test_without_a_change_a_wait_ends_with_its_time(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as subscription:
        await quiet(subscription)
        assert not await subscription.wait(0.01)


async def test_a_change_to_another_approval_does_not_wake(store: Store) -> None:
    record = await store.approvals.ask(make_approval(1), max_pending=20)
    other = await store.approvals.ask(make_approval(2), max_pending=20)

    with store.changes.watch(record.id) as subscription, store.changes.watch(other.id) as others:
        await quiet(subscription)
        await store.approvals.advance(other.id, allow(other))
        assert await others.wait(BOUND_S)

        assert not await subscription.wait(AT_ONCE_S)


async def test_a_wait_that_was_given_up_takes_no_wake_up_with_it(store: Store) -> None:
    record = await store.approvals.ask(make_approval(), max_pending=20)

    with store.changes.watch(record.id) as subscription:
        await quiet(subscription)
        waiter = asyncio.create_task(subscription.wait(BOUND_S))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        await store.approvals.advance(record.id, allow(record))

        assert await subscription.wait(BOUND_S)


@promise("approval:decision-never-lost")
async def test_of_many_waiters_none_is_left_behind(store: Store) -> None:
    records = [await store.approvals.ask(make_approval(n), max_pending=1000) for n in range(1, 101)]

    async def decided(approval_id: ApprovalId) -> bool:
        with store.changes.watch(approval_id) as subscription:
            while True:
                record = await store.approvals.get(approval_id)
                if record is not None and record.decided_by is not None:
                    return True
                if not await subscription.wait(BOUND_S):
                    return False

    waiters = [asyncio.create_task(decided(record.id)) for record in records]
    await asyncio.gather(*(store.approvals.advance(record.id, allow(record)) for record in records))

    assert await asyncio.gather(*waiters) == [True] * len(records)
