"""Consent to a call that somebody else runs: given out once, for exactly what was approved."""

import asyncio
from pathlib import Path

import pytest

from pml.core.approvals.events import Abandoned
from pml.core.approvals.record import RECONNECT_S, OwnerId, Scope, State
from pml.core.errors import AlreadyClaimed, ToolDenied
from pml.core.ports.queries import AuditQuery
from pml.service.approvals.claims import claim
from pml.service.approvals.consent import Consent, seek_consent
from pml.service.approvals.lifecycle import Question, ask, pending, wait
from pml.service.context import Context
from pml.service.upkeep import Swept, sweep
from pml.store.sqlite.store import SqliteStore
from tests.builders import NOW, OWNER
from tests.promises import promise
from tests.service.offices import ARGUMENTS, BOUND_S, TOOL, Asked, Office, until_idle

OTHER = OwnerId("owner-2")


async def seek(office: Office, question: Question | None = None) -> Consent:
    return await seek_consent(office.context, question or await office.question(), wait_s=0, on_asked=Asked())


def waiter(context: Context, question: Question, asked: Asked) -> "asyncio.Task[Consent]":
    return asyncio.create_task(seek_consent(context, question, wait_s=None, on_asked=asked))


async def interrupt(waiting: "asyncio.Task[Consent]") -> None:
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@promise("agent:nothing-unapproved")
async def test_what_no_rule_or_grant_allows_is_asked_and_not_granted_meanwhile(office: Office) -> None:
    consent = await seek(office)

    assert not consent.granted
    assert consent.record is not None
    assert consent.record.status is State.PENDING
    assert await pending(office.context) == [consent.record]


async def test_a_rule_or_a_grant_answers_without_a_question(office: Office) -> None:
    office.write_rules(allow=["fs:*"])
    await office.allow(await office.ask(), scope=Scope.SESSION)

    by_rule = await seek(office, await office.question("fs:read"))
    by_grant = await seek(office)

    assert (by_rule.granted, by_rule.record, by_rule.judged.grant) == (True, None, None)
    assert (by_grant.granted, by_grant.record) == (True, None)
    assert by_grant.judged.grant is not None
    assert await pending(office.context) == []


@promise("deny:beats-grants")
async def test_a_deny_rule_refuses_without_a_question_whatever_was_remembered(office: Office) -> None:
    await office.allow(await office.ask(), scope=Scope.SESSION)
    office.write_rules(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await seek(office)

    assert await pending(office.context) == []


async def test_an_answer_given_while_waiting_is_delivered_with_the_edited_arguments(office: Office) -> None:
    asked = Asked()
    waiting = waiter(office.context, await office.question(), asked)
    async with asyncio.timeout(BOUND_S):
        await asked.wait_for(1)
        await office.allow(asked.records[0], updated_input={"title": "edited"})
        consent = await waiting

    assert (consent.granted, consent.arguments) == (True, {"title": "edited"})
    assert await office.status(asked.records[0]) is State.COMPLETED


@promise("expiry:not-denial")
async def test_a_denial_is_delivered_as_a_denial(office: Office) -> None:
    asked = Asked()
    waiting = waiter(office.context, await office.question(), asked)
    async with asyncio.timeout(BOUND_S):
        await asked.wait_for(1)
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
    waiting = [waiter(office.context, question, each) for each in asked]
    async with asyncio.timeout(BOUND_S):
        for each in asked:
            await each.wait_for(1)
        await office.allow(asked[0].records[0])
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert sum(isinstance(outcome, Consent) and outcome.granted for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyClaimed) for outcome in outcomes) == 1


@promise("run:at-most-once")
async def test_an_answer_that_somebody_else_uses_is_not_given_out(office: Office) -> None:
    asked = Asked()
    waiting = waiter(office.context, await office.question(), asked)
    async with asyncio.timeout(BOUND_S):
        await asked.wait_for(1)
        record = (await office.allow(asked.records[0])).record
        await claim(office.context, record.id)  # before the waiter gets to run

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
    waiting = waiter(office.context, await office.question(), asked)
    await asked.wait_for(1)

    await interrupt(waiting)

    stored = await office.stored(asked.records[0])
    assert (stored.status, stored.decided_by) == (State.CANCELLED, None)


async def test_an_asker_interrupted_before_it_knows_of_its_question_withdraws_it(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store", OWNER)
    try:
        office, asked = Office(store, tmp_path), Asked()
        waiting = waiter(office.context, await office.question(), asked)
        async with asyncio.timeout(BOUND_S):
            while not (stored := await pending(office.context)):  # noqa: ASYNC110 - the turn after the commit
                await asyncio.sleep(0)
        assert asked.records == []

        await interrupt(waiting)

        assert await office.status(stored[0]) is State.CANCELLED
    finally:
        await store.close()


async def test_a_question_left_open_lives_on_when_its_asker_has_gone(office: Office) -> None:
    left_open = await seek(office)
    assert left_open.record is not None
    office.owners.me = OwnerId("owner-2")

    assert await sweep(office.context) == Swept()

    office.clock.advance(RECONNECT_S)
    assert await sweep(office.context) == Swept()
    assert await office.stored(left_open.record) == left_open.record


async def test_a_verdict_that_a_rule_gives_at_once_is_recorded_with_the_rule(office: Office) -> None:
    office.write_rules(allow=["fs:*"], deny=["db:*"])

    await seek(office, await office.question("fs:read"))
    with pytest.raises(ToolDenied):
        await seek(office, await office.question("db:drop"))

    told = [
        (link.entry.kind, link.entry.tool, str(link.entry.detail["why"]).split(" (")[0])
        for link in await office.context.store.audit.list(AuditQuery())
        if link.entry.kind.startswith("call.")
    ]
    assert told == [
        ("call.allowed", "fs:read", 'allow "fs:*"'),
        ("call.denied", "db:drop", 'deny "db:*"'),
    ]


@promise("run:at-most-once")
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_an_answer_that_was_also_remembered_is_used_up_by_the_call_it_was_given_for(
    office: Office, scope: Scope
) -> None:
    question = await office.question()
    asked = (
        await seek_consent(office.context_of(OwnerId("ended")), question, wait_s=0, on_asked=Asked())
    ).record
    assert asked is not None
    office.owners.others.discard(OwnerId("ended"))
    await office.allow(asked, scope=scope)

    first, second = await seek(office, question), await seek(office, question)

    assert (first.granted, await office.status(asked)) == (True, State.COMPLETED)
    assert first.record == await office.stored(asked)
    assert (second.granted, second.record) == (True, None)


async def test_an_answer_that_somebody_waits_for_is_left_to_them(office: Office) -> None:
    question = await office.question()
    record = await office.ask()
    await office.allow(record, scope=Scope.SESSION)

    assert (await seek(office, question)).record is None
    assert await office.status(record) is State.ALLOWED


# --- several that ask the same


async def two_waiters(
    office: Office, second_owner: OwnerId
) -> tuple[Asked, "asyncio.Task[Consent]", "asyncio.Task[Consent]"]:
    """Let two ask the same question and wait, the first before the second."""
    question, asked, joined = await office.question(), Asked(), Asked()
    first = waiter(office.context, question, asked)
    await asked.wait_for(1)
    second = waiter(office.context_of(second_owner), question, joined)
    await joined.wait_for(1)
    return asked, first, second


@pytest.mark.parametrize("second_owner", [OTHER, OWNER], ids=["another process", "the same process"])
@promise("approval:decision-never-lost")
async def test_one_that_asks_the_same_and_stops_leaves_the_question_to_the_first(
    office: Office, second_owner: OwnerId
) -> None:
    asked, first, second = await two_waiters(office, second_owner)

    await interrupt(second)
    await until_idle(first)

    record = await office.stored(asked.records[0])
    assert (record.status, record.owner, record.abandoned_at) == (State.PENDING, OWNER, None)
    await office.allow(record)
    async with asyncio.timeout(BOUND_S):
        assert (await first).granted


async def test_one_that_asks_the_same_in_another_process_and_stops_changes_nothing(office: Office) -> None:
    question, joined = await office.question(), Asked()
    await office.ask()
    second = waiter(office.context_of(OTHER), question, joined)
    await joined.wait_for(1)

    await interrupt(second)

    assert await pending(office.context) == joined.records


@pytest.mark.parametrize("second_owner", [OTHER, OWNER], ids=["another process", "the same process"])
@promise("approval:decision-never-lost")
async def test_when_the_first_asker_stops_one_that_asked_the_same_takes_the_question_over(
    office: Office, second_owner: OwnerId
) -> None:
    asked, first, second = await two_waiters(office, second_owner)

    await interrupt(first)
    await until_idle(second)

    record = await office.stored(asked.records[0])
    assert (record.status, record.owner, record.abandoned_at) == (State.PENDING, second_owner, None)
    office.clock.advance(RECONNECT_S)
    assert await sweep(office.context) == Swept()
    await office.allow(record)
    async with asyncio.timeout(BOUND_S):
        assert (await second).granted


@promise("approval:decision-never-lost")
async def test_one_that_took_a_question_over_and_stops_leaves_it_to_those_who_asked_before(
    office: Office,
) -> None:
    record = await office.ask()
    before = office.context_of(OwnerId("owner-3"))
    await ask(before, await office.question())
    await office.context.store.approvals.advance(record.id, Abandoned(at=NOW))
    joined = Asked()
    taken_over = waiter(office.context_of(OTHER), await office.question(), joined)
    await joined.wait_for(1)
    assert joined.records[0].owner == OTHER

    await interrupt(taken_over)

    waiting = asyncio.create_task(wait(before, record.id))
    await until_idle(waiting)
    await office.allow(record)
    async with asyncio.timeout(BOUND_S):
        assert (await waiting).status is State.ALLOWED


@promise("approval:decision-never-lost")
async def test_when_the_first_asker_has_died_one_that_asked_the_same_takes_the_question_over(
    office: Office,
) -> None:
    await ask(office.context_of(OwnerId("dead")), await office.question())
    office.owners.others.clear()
    asked = Asked()
    waiting = waiter(office.context, await office.question(), asked)
    await asked.wait_for(1)
    assert asked.records[0].owner == OwnerId("dead")

    assert await sweep(office.context) == Swept()
    await until_idle(waiting)

    assert (await office.stored(asked.records[0])).owner == OWNER
    office.clock.advance(RECONNECT_S)
    assert await sweep(office.context) == Swept()
    await office.allow(asked.records[0])
    async with asyncio.timeout(BOUND_S):
        assert (await waiting).granted


async def test_a_question_that_all_have_stopped_waiting_for_is_cancelled_in_the_end(office: Office) -> None:
    question, asked, joined = await office.question(), Asked(), Asked()
    first = waiter(office.context, question, asked)
    await asked.wait_for(1)
    second = waiter(office.context_of(OTHER), question, joined)
    await joined.wait_for(1)

    await interrupt(second)
    await interrupt(first)

    office.clock.advance(RECONNECT_S)
    assert await sweep(office.context) == Swept(cancelled=1)
    assert await office.status(asked.records[0]) is State.CANCELLED
