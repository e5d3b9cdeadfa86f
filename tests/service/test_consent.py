"""Consent to a call that somebody else runs: given out once, for exactly what was approved."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from pml.core.approvals import RECONNECT_S, Approval, ApprovalId, OwnerId, Scope, State
from pml.core.errors import AlreadyClaimed, ToolDenied
from pml.core.ports import AuditQuery
from pml.service.approvals import Question, claim, pending
from pml.service.consent import Consent, seek_consent
from pml.service.upkeep import Swept, sweep
from pml.store.sqlite import SqliteStore
from tests.builders import OWNER
from tests.promises import promise
from tests.service.offices import ARGUMENTS, TOOL, Office

BOUND_S = 5.0


class Asked:
    """Keeps what `on_asked` was given."""

    def __init__(self) -> None:
        self.records: list[Approval] = []
        self.event = asyncio.Event()

    def __call__(self, record: Approval) -> None:
        self.records.append(record)
        self.event.set()


async def seek(office: Office, question: Question | None = None) -> Consent:
    return await seek_consent(office.desk, question or await office.question(), wait_s=0, on_asked=Asked())


def waiter(office: Office, question: Question, asked: Asked) -> "asyncio.Task[Consent]":
    return asyncio.create_task(seek_consent(office.desk, question, wait_s=None, on_asked=asked))


@promise("agent:nothing-unapproved")
async def test_what_no_rule_or_grant_allows_is_asked_and_not_granted_meanwhile(office: Office) -> None:
    consent = await seek(office)

    assert not consent.granted
    assert consent.record is not None
    assert consent.record.status is State.PENDING
    assert await pending(office.desk) == [consent.record]


async def test_a_rule_or_a_grant_answers_without_a_question(office: Office) -> None:
    office.write_rules(allow=["fs:*"])
    await office.allow(await office.ask(), scope=Scope.SESSION)

    by_rule = await seek(office, await office.question("fs:read"))
    by_grant = await seek(office)

    assert (by_rule.granted, by_rule.record, by_rule.judged.grant) == (True, None, None)
    assert (by_grant.granted, by_grant.record) == (True, None)
    assert by_grant.judged.grant is not None
    assert await pending(office.desk) == []


@promise("deny:beats-grants")
async def test_a_deny_rule_refuses_without_a_question_whatever_was_remembered(office: Office) -> None:
    await office.allow(await office.ask(), scope=Scope.SESSION)
    office.write_rules(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await seek(office)

    assert await pending(office.desk) == []


async def test_an_answer_given_while_waiting_is_delivered_with_the_edited_arguments(office: Office) -> None:
    asked = Asked()
    waiting = waiter(office, await office.question(), asked)
    async with asyncio.timeout(BOUND_S):
        await asked.event.wait()
        await office.allow(asked.records[0], updated_input={"title": "edited"})
        consent = await waiting

    assert (consent.granted, consent.arguments) == (True, {"title": "edited"})
    assert await office.status(asked.records[0]) is State.COMPLETED


@promise("expiry:not-denial")
async def test_a_denial_is_delivered_as_a_denial(office: Office) -> None:
    asked = Asked()
    waiting = waiter(office, await office.question(), asked)
    async with asyncio.timeout(BOUND_S):
        await asked.event.wait()
        await office.deny(asked.records[0], message="not today")
        consent = await waiting

    assert not consent.granted
    assert consent.record is not None
    assert (consent.record.status, consent.record.response_message) == (State.DENIED, "not today")


@promise("run:at-most-once")
async def test_an_answer_not_waited_for_is_collected_once_by_asking_again(office: Office) -> None:
    first = await seek(office)
    assert first.record is not None
    await office.allow(first.record)

    second = await seek(office)
    third = await seek(office)

    assert (second.granted, second.arguments) == (True, ARGUMENTS)
    assert second.record is not None
    assert second.record.id == first.record.id
    assert not third.granted
    assert third.record is not None
    assert third.record.id != first.record.id


@promise("expiry:not-denial")
async def test_a_denial_not_waited_for_is_told_once_and_then_the_question_is_new(office: Office) -> None:
    first = await seek(office)
    assert first.record is not None
    denied = await office.deny(first.record, message="not today")

    other = await seek(office, await office.question(tool_use_id="another"))
    second = await seek(office)
    third = await seek(office)

    assert (second.granted, second.record) == (False, denied)
    for asked_anew in (other, third):
        assert asked_anew.record is not None
        assert asked_anew.record.status is State.PENDING


@promise("run:at-most-once")
async def test_two_that_wait_for_one_answer_do_not_both_get_it(office: Office) -> None:
    question = await office.question()
    asked = [Asked(), Asked()]
    waiting = [waiter(office, question, each) for each in asked]
    async with asyncio.timeout(BOUND_S):
        for each in asked:
            await each.event.wait()
        await office.allow(asked[0].records[0])
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert sum(isinstance(outcome, Consent) and outcome.granted for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyClaimed) for outcome in outcomes) == 1


@promise("run:at-most-once")
async def test_an_answer_that_somebody_else_uses_is_not_given_out(office: Office) -> None:
    asked = Asked()
    waiting = waiter(office, await office.question(), asked)
    async with asyncio.timeout(BOUND_S):
        await asked.event.wait()
        record = (await office.allow(asked.records[0])).record
        await claim(office.desk, record.id)  # before the waiter gets to run

        with pytest.raises(AlreadyClaimed):
            await waiting

    assert await office.status(record) is State.EXECUTING


@promise("claim:judged-again")
async def test_an_answer_is_not_given_out_when_a_deny_rule_came_after_it(office: Office) -> None:
    first = await seek(office)
    assert first.record is not None
    await office.allow(first.record, updated_input={"title": "edited"})
    office.write_rules(deny=[{"tool": TOOL, "args": {"title": "edited"}}])

    with pytest.raises(ToolDenied):
        await seek(office)

    assert await office.status(first.record) is State.CANCELLED


@promise("expiry:not-denial")
async def test_an_asker_that_stops_waiting_withdraws_its_question(office: Office) -> None:
    asked = Asked()
    waiting = waiter(office, await office.question(), asked)
    await asked.event.wait()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting

    stored = await office.stored(asked.records[0])
    assert (stored.status, stored.decided_by) == (State.CANCELLED, None)


async def test_an_asker_interrupted_before_it_knows_of_its_question_withdraws_it(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store", OWNER)
    try:
        office, asked = Office(store, tmp_path), Asked()
        waiting = waiter(office, await office.question(), asked)
        async with asyncio.timeout(BOUND_S):
            while not (stored := await pending(office.desk)):  # noqa: ASYNC110 - the turn after the commit
                await asyncio.sleep(0)
        assert asked.records == []
        waiting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert await office.status(stored[0]) is State.CANCELLED
    finally:
        await store.close()


async def test_a_question_left_open_lives_on_when_its_asker_has_gone(office: Office) -> None:
    left_open = await seek(office)
    assert left_open.record is not None
    office.owners.me = OwnerId("owner-2")

    assert await sweep(office.desk) == Swept()

    office.clock.advance(RECONNECT_S)
    assert await sweep(office.desk) == Swept()
    assert await office.stored(left_open.record) == left_open.record


async def test_a_verdict_that_a_rule_gives_at_once_is_recorded_with_the_rule(office: Office) -> None:
    office.write_rules(allow=["fs:*"], deny=["db:*"])

    await seek(office, await office.question("fs:read"))
    with pytest.raises(ToolDenied):
        await seek(office, await office.question("db:drop"))

    told = [
        (link.entry.kind, link.entry.tool, str(link.entry.detail["why"]).split(" (")[0])
        for link in await office.desk.store.audit.list(AuditQuery())
        if link.entry.kind.startswith("call.")
    ]
    assert told == [
        ("call.allowed", "fs:read", 'allow "fs:*"'),
        ("call.denied", "db:drop", 'deny "db:*"'),
    ]


async def test_an_asker_that_stops_does_not_withdraw_the_question_another_has_taken_up(
    office: Office,
) -> None:
    asked = Asked()
    task = waiter(office, await office.question(), asked)
    await asyncio.wait_for(asked.event.wait(), BOUND_S)
    other = msgspec.structs.replace(asked.records[0], id=ApprovalId("other"), owner=OwnerId("another"))
    await office.desk.store.approvals.ask(other, max_pending=20)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [record.status for record in await pending(office.desk)] == [State.PENDING]
