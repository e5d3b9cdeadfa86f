"""Calls that need a workspace's file: nothing of it starts or counts before a person trusts it."""

import asyncio

import pytest

from pml.core.approvals.record import Approval, State, Subject
from pml.core.config.file import FileKind
from pml.core.errors import Changed, NotApproved, NotFound, ToolDenied
from pml.service.approvals.lifecycle import wait
from pml.service.approvals.trust import untrust_workspace
from pml.service.call import Paused
from tests.builders import PERSON
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import RAN, SERVER, TOOL, Gatehouse
from tests.service.offices import BOUND_S, until_idle


@promise("trust:no-server-before-trust")
async def test_a_server_of_a_file_that_nobody_trusts_is_not_started_before_trust_is_given(
    house: Gatehouse,
) -> None:
    house.only_in_workspace()
    asking = FakeAsking(house.waiting())
    calling = asyncio.create_task(house.call(asking=asking, offered=False))
    await until_idle(calling)
    assert (house.servers.started, asking.asked[0].subject) == ([], Subject.WORKSPACE_TRUST)

    await house.office.allow(asking.asked[0])
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(Paused) as paused:
            await calling

    assert (house.servers.started, house.servers.ran) == (["notes"], [])
    assert paused.value.record.subject is Subject.TOOL_CALL


@promise("trust:asked-once-a-call")
async def test_a_question_of_trust_that_expired_is_not_asked_again_for_the_same_call(
    house: Gatehouse,
) -> None:
    house.only_in_workspace()

    async def expire(record: Approval) -> Approval:
        house.office.clock.advance(record.ttl_s + 1)
        return await wait(house.office.context, record.id)

    asking = FakeAsking(expire, expire, expire)
    with pytest.raises(NotApproved) as refused:
        await house.call(asking=asking, offered=False)

    assert [record.subject for record in asking.asked] == [Subject.WORKSPACE_TRUST]
    assert (refused.value.outcome, house.servers.started) == (State.EXPIRED, [])
    with pytest.raises(NotApproved):
        await house.call(asking=asking, offered=False)
    assert len(asking.asked) == 2  # the next call asks once more: nobody has said no


LOOSENS = {"permissions": {"allow": ["other:*"]}}  # nothing that the call needs


@promise("trust:comes-first")
async def test_the_first_call_that_asks_brings_the_question_of_trust_before_its_own(house: Gatehouse) -> None:
    house.office.write(FileKind.WORKSPACE, LOOSENS)
    asking = FakeAsking(house.denying(), house.allowing(), house.allowing())

    await house.call(asking=asking, offered=False)
    await house.call(asking=asking, offered=False)

    assert [record.subject for record in asking.asked] == [
        Subject.WORKSPACE_TRUST,
        Subject.TOOL_CALL,
        Subject.TOOL_CALL,
    ]
    assert house.servers.ran == [RAN, RAN]  # without the file


@promise("trust:comes-first")
async def test_a_call_that_rules_allow_shows_the_form_first_and_is_not_held_by_it(house: Gatehouse) -> None:
    house.configure(allow=[TOOL])
    house.office.write(FileKind.WORKSPACE, LOOSENS)
    shown = FakeAsking(has_form=True)

    await house.call(asking=shown)
    await house.call(asking=shown)
    assert [record.subject for record in shown.asked] == [Subject.WORKSPACE_TRUST]  # left unanswered
    assert house.servers.ran == [RAN, RAN]


async def test_a_call_that_rules_allow_asks_nothing_where_the_client_has_no_form(house: Gatehouse) -> None:
    house.configure(allow=[TOOL])
    house.office.write(FileKind.WORKSPACE, LOOSENS)
    asking = FakeAsking()

    await house.call(asking=asking)
    assert (house.servers.ran, asking.asked) == ([RAN], [])


@promise("trust:comes-first")
async def test_a_file_that_only_tightens_is_not_asked_about(house: Gatehouse) -> None:
    house.office.write(FileKind.WORKSPACE, {"permissions": {"deny": ["other:*"], "ask": ["*"]}})
    asking = FakeAsking(house.allowing(), has_form=True)

    await house.call(asking=asking, offered=False)
    assert [record.subject for record in asking.asked] == [Subject.TOOL_CALL]


@promise("trust:comes-first")
async def test_a_denied_call_brings_no_question_of_trust(house: Gatehouse) -> None:
    house.configure(deny=[TOOL])
    house.office.write(FileKind.WORKSPACE, LOOSENS)
    asking = FakeAsking(has_form=True)

    with pytest.raises(ToolDenied):
        await house.call(asking=asking)
    assert asking.asked == []


@promise("trust:no-server-before-trust")
async def test_who_denied_trust_is_not_asked_again_in_the_session(house: Gatehouse) -> None:
    house.only_in_workspace()
    asking = FakeAsking(house.denying())

    for _ in range(2):
        with pytest.raises(NotApproved, match="which is not trusted") as refused:
            await house.call(asking=asking)
        assert refused.value.outcome == State.DENIED

    assert (len(asking.asked), house.servers.started) == (1, [])


@promise("expiry:not-denial")
async def test_a_trust_question_that_expired_is_no_denial(house: Gatehouse) -> None:
    house.only_in_workspace()

    async def expire(record: Approval) -> Approval:
        house.office.clock.advance(301)
        return await house.waiting()(record)

    with pytest.raises(NotApproved) as refused:
        await house.call(asking=FakeAsking(expire))

    assert (refused.value.outcome, house.servers.started) == (State.EXPIRED, [])


@promise("trust:no-server-before-trust")
async def test_a_file_that_changes_before_trust_is_decided_is_not_trusted_and_starts_nothing(
    house: Gatehouse,
) -> None:
    house.only_in_workspace()

    async def change_and_allow(record: Approval) -> Approval:
        house.configure(FileKind.WORKSPACE, servers={"notes": {"command": "another-server"}})
        with pytest.raises(Changed):
            await house.office.allow(record)
        return await house.office.stored(record)

    with pytest.raises(NotApproved) as refused:
        await house.call(asking=FakeAsking(change_and_allow))

    assert (refused.value.outcome, house.servers.started) == (State.CANCELLED, [])
    assert "workspace.trusted" not in await house.office.kinds()


@promise("trust:no-server-before-trust")
async def test_a_file_that_changes_after_trust_was_decided_is_not_trusted_and_starts_nothing(
    house: Gatehouse,
) -> None:
    house.only_in_workspace()

    async def allow_and_change(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        house.configure(FileKind.WORKSPACE, servers={"notes": {"command": "another-server"}})
        return allowed

    with pytest.raises(Changed):
        await house.call(asking=FakeAsking(allow_and_change))

    assert house.servers.started == []
    assert "workspace.trusted" not in await house.office.kinds()


@promise("trust:no-server-before-trust")
async def test_an_approved_call_does_not_run_when_its_file_lost_trust_meanwhile(house: Gatehouse) -> None:
    house.only_in_workspace()
    await house.office.trust()

    async def allow_and_untrust(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        await untrust_workspace(house.office.context, str(house.office.workspace), by=PERSON)
        house.servers.stop("notes")
        return allowed

    with pytest.raises(NotApproved, match="not trusted"):
        await house.call(asking=FakeAsking(allow_and_untrust), offered=False)

    assert (house.servers.started, house.servers.ran) == (["notes"], [])


async def test_a_server_of_the_users_own_file_needs_no_trust(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={"other": SERVER})
    asking = FakeAsking()

    await house.call(asking=asking)

    assert (house.servers.ran, asking.asked) == ([RAN], [])


async def test_a_server_that_both_files_define_is_refused_with_that_reason(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={"notes": {"command": "another-server"}})
    await house.office.trust()

    with pytest.raises(NotFound, match="server `notes` is defined twice and not used"):
        await house.call()

    assert house.servers.started == []


async def test_an_allow_of_a_file_that_nobody_trusts_lets_nothing_run_unasked(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={}, allow=[TOOL])
    asking = FakeAsking(house.denying())

    paused = await house.pause(asking=asking)

    assert [record.subject for record in asking.asked] == [Subject.WORKSPACE_TRUST, Subject.TOOL_CALL]
    assert (paused.record.subject, house.servers.ran) == (Subject.TOOL_CALL, [])


async def test_a_trust_question_that_expired_is_asked_once_for_a_call(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={}, allow=[TOOL])

    async def expire(record: Approval) -> Approval:
        house.office.clock.advance(301)
        return await house.waiting()(record)

    asking = FakeAsking(expire, house.allowing())
    await house.call(asking=asking, offered=False)

    assert [record.subject for record in asking.asked] == [Subject.WORKSPACE_TRUST, Subject.TOOL_CALL]


async def test_trust_is_not_asked_for_where_the_call_runs_without_it(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={}, allow=[TOOL])
    asking = FakeAsking()

    await house.call(asking=asking, offered=True)

    assert (house.servers.ran, asking.asked) == ([RAN], [])


async def test_trust_that_is_given_lets_the_call_run_by_the_files_rule(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={}, allow=[TOOL])
    asking = FakeAsking(house.allowing())

    await house.call(asking=asking, offered=False)

    assert (house.servers.ran, len(asking.asked)) == ([RAN], 1)


async def test_two_calls_that_wait_for_trust_both_run_when_it_is_given(house: Gatehouse) -> None:
    house.only_in_workspace()
    asking = FakeAsking(house.waiting(), house.waiting())
    calls = [asyncio.create_task(house.call(arguments={"text": text}, asking=asking)) for text in ("a", "b")]
    for call in calls:
        await until_idle(call)
    assert asking.asked[0].id == asking.asked[1].id

    await house.office.allow(asking.asked[0])
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*calls)

    assert (len(house.servers.ran), len(asking.asked)) == (2, 2)


async def test_trust_that_another_call_has_carried_out_meanwhile_lets_this_one_run_too(
    house: Gatehouse,
) -> None:
    house.only_in_workspace()

    async def allow_and_be_late(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        await house.call(settled=allowed)
        return allowed

    await house.call(asking=FakeAsking(allow_and_be_late))

    assert house.servers.ran == [RAN, RAN]
