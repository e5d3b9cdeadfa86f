"""Installs that several calls need at once, or whose caller gave up: done once, and found by the next."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pml.core.approvals.record import Approval, ApprovalId, OwnerId, State, Subject
from pml.core.errors import ServerFailed, Unavailable
from pml.core.values import JsonObject
from pml.service.approvals import claims, inquiry
from pml.service.approvals.inquiry import SETTLED
from pml.service.call import Paused
from pml.service.context import Context
from pml.service.install.deeds import stop_installs
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import interrupt
from tests.service.offices import BOUND_S, until_idle
from tests.service.warehouses import ARGUMENTS, OTHER_ARGUMENTS, OTHER_TOOL, RAN, TOOL, Warehouse

Answer = Callable[[Approval], Awaitable[Approval]]

# At the same time


@pytest.mark.parametrize("arguments", [ARGUMENTS, OTHER_ARGUMENTS], ids=["the same call", "another call"])
async def test_two_calls_at_once_need_one_answer_and_one_install(
    warehouse: Warehouse, arguments: JsonObject
) -> None:
    asking = FakeAsking(warehouse.waiting()), FakeAsking(warehouse.waiting(), warehouse.denying())
    calls = [
        asyncio.create_task(warehouse.call(TOOL, ARGUMENTS, asking=asking[0], offered=False)),
        asyncio.create_task(warehouse.call(TOOL, arguments, asking=asking[1], offered=False)),
    ]
    for call in calls:
        await until_idle(call)

    await warehouse.office.allow(asking[0].asked[0])
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*calls)

    assert [len(each.asked) for each in asking] == [1, 1]
    assert (warehouse.installs, len(warehouse.servers.ran)) == (["memory@1.2.3"], 2)


async def test_a_call_of_another_tool_that_waits_for_the_same_install_goes_on_to_its_own_question(
    warehouse: Warehouse,
) -> None:
    asking = FakeAsking(warehouse.waiting()), FakeAsking(warehouse.waiting())
    first = asyncio.create_task(warehouse.call(TOOL, asking=asking[0], offered=False))
    second = asyncio.create_task(warehouse.call(OTHER_TOOL, {}, asking=asking[1], offered=False))
    await until_idle(first)
    await until_idle(second)

    await warehouse.office.allow(asking[0].asked[0])
    async with asyncio.timeout(BOUND_S):
        await first
        with pytest.raises(Paused) as paused:
            await second

    assert (paused.value.record.subject, paused.value.record.tool_name) == (Subject.TOOL_CALL, OTHER_TOOL)
    settled = await warehouse.office.stored(asking[1].asked[0])
    assert (settled.status, settled.reason) == (State.CANCELLED, SETTLED)
    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [RAN])


async def test_a_paused_call_goes_on_when_the_install_it_waits_for_was_settled_by_another(
    warehouse: Warehouse,
) -> None:
    first = await warehouse.pause(TOOL)
    second = await warehouse.pause(TOOL, OTHER_ARGUMENTS)
    await warehouse.office.allow(first.record)
    await warehouse.go_on(first.workflow.id, tool=TOOL)

    await warehouse.go_on(second.workflow.id, tool=TOOL)

    ran = [arguments["arguments"] for _, _, arguments in warehouse.servers.ran]
    assert (warehouse.installs, ran) == (["memory@1.2.3"], [ARGUMENTS, OTHER_ARGUMENTS])


async def test_a_rule_lets_two_calls_at_once_install_it_once(warehouse: Warehouse) -> None:
    warehouse.configure(allow=["memory:*"])

    await asyncio.gather(warehouse.call(TOOL), warehouse.call(OTHER_TOOL, {}))

    assert (warehouse.installs, len(warehouse.servers.ran)) == (["memory@1.2.3"], 2)


# While it is under way


async def _begin(house: Warehouse, *answers: Answer, tool: str = TOOL) -> asyncio.Task[bytes]:
    """Return a call whose server is being installed."""
    house.installer.may_finish.clear()
    first = asyncio.create_task(house.call(tool, asking=FakeAsking(*answers), offered=False))
    async with asyncio.timeout(BOUND_S):
        await house.installer.begun.wait()
    return first


@promise("load:asks-nothing-needless")
@pytest.mark.parametrize(
    ("by", "elsewhere"),
    [("a person", False), ("a person", True), ("a rule", False)],
    ids=["approved", "approved in another process", "covered by a rule"],
)
async def test_a_call_during_an_install_waits_for_it_and_is_judged_by_itself(
    warehouse: Warehouse, by: str, elsewhere: bool
) -> None:
    warehouse.configure(allow=[TOOL] if by == "a rule" else [])
    first = await _begin(warehouse, warehouse.allowing())
    house = await warehouse.restart() if elsewhere else warehouse
    second = asyncio.create_task(house.call(OTHER_TOOL, {}, asking=FakeAsking(), offered=False))
    await until_idle(second)
    before = await warehouse.questions()
    warehouse.installer.may_finish.set()
    async with asyncio.timeout(BOUND_S):
        await first
        with pytest.raises(Paused) as paused:
            await second

    assert len(before) == (0 if by == "a rule" else 1)
    assert (paused.value.record.subject, paused.value.record.tool_name) == (Subject.TOOL_CALL, OTHER_TOOL)
    assert len(await warehouse.questions()) == len(before) + 1
    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [RAN])


async def test_a_call_that_waited_for_an_install_that_failed_asks_for_itself(warehouse: Warehouse) -> None:
    first = await _begin(warehouse, warehouse.allowing())
    second = asyncio.create_task(warehouse.call(OTHER_TOOL, {}, asking=FakeAsking(), offered=False))
    await until_idle(second)
    warehouse.installer.error = Unavailable("no network")
    warehouse.installer.may_finish.set()
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(ServerFailed):
            await first
        with pytest.raises(Paused) as paused:
            await second

    assert paused.value.record.subject is Subject.DEPENDENCY_INSTALL
    assert warehouse.installs == []


async def test_a_call_that_waits_for_an_install_can_be_given_up_and_the_install_goes_on(
    warehouse: Warehouse,
) -> None:
    first = await _begin(warehouse, warehouse.allowing())
    second = asyncio.create_task(warehouse.call(OTHER_TOOL, {}, asking=FakeAsking(), offered=False))
    await until_idle(second)
    await interrupt(second)
    warehouse.installer.may_finish.set()
    async with asyncio.timeout(BOUND_S):
        await first

    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [RAN])


@promise("load:asks-nothing-needless")
async def test_a_question_about_an_install_is_withdrawn_as_soon_as_another_call_has_it_installed(
    warehouse: Warehouse,
) -> None:
    asking = FakeAsking(warehouse.waiting())
    second = asyncio.create_task(warehouse.call(OTHER_TOOL, {}, asking=asking, offered=False))
    await until_idle(second)
    first = await _begin(warehouse, warehouse.allowing())

    settled = await warehouse.office.stored(asking.asked[0])
    assert (settled.status, settled.reason) == (State.CANCELLED, SETTLED)
    warehouse.installer.may_finish.set()
    async with asyncio.timeout(BOUND_S):
        await first
        with pytest.raises(Paused) as paused:
            await second
    assert paused.value.record.subject is Subject.TOOL_CALL


# Given up


async def test_an_install_goes_on_when_its_caller_gives_up_and_the_next_call_finds_it(
    warehouse: Warehouse,
) -> None:
    warehouse.installer.may_finish.clear()
    asking = FakeAsking(warehouse.allowing())
    calling = asyncio.create_task(warehouse.call(TOOL, asking=asking, offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
    await interrupt(calling)
    assert (warehouse.installs, len(warehouse.loader.installing)) == ([], 1)

    warehouse.installer.may_finish.set()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*warehouse.loader.installing)
    assert (warehouse.installs, await warehouse.states()) == (["memory@1.2.3"], [State.COMPLETED])
    again = FakeAsking()
    await warehouse.call(TOOL, asking=again, offered=False)

    assert (warehouse.installs, warehouse.servers.ran, again.asked) == (["memory@1.2.3"], [RAN], [])


async def test_stopping_ends_what_is_being_installed_and_says_that_it_was_interrupted(
    warehouse: Warehouse,
) -> None:
    warehouse.installer.may_finish.clear()
    asking = FakeAsking(warehouse.allowing())
    calling = asyncio.create_task(warehouse.call(TOOL, asking=asking, offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
        await interrupt(calling)
        await stop_installs(warehouse.loader)

    assert (warehouse.installer.interrupted, warehouse.installs) == (1, [])
    assert warehouse.loader.installing == {}
    record = await warehouse.office.stored(asking.asked[0])
    assert (record.status, record.reason) == (State.FAILED, "interrupted")


async def test_an_install_whose_process_died_is_asked_for_anew(warehouse: Warehouse) -> None:
    warehouse.installer.may_finish.clear()
    other = await warehouse.restart(warehouse.session.id)
    dying = asyncio.create_task(other.call(TOOL, asking=FakeAsking(other.allowing()), offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
    (record,) = await warehouse.questions()
    assert record.status is State.EXECUTING
    warehouse.office.owners.others.discard(OwnerId(f"owner of {warehouse.session.id}"))

    paused = await warehouse.pause(TOOL)

    assert (paused.record.subject, paused.record.id == record.id) == (Subject.DEPENDENCY_INSTALL, False)
    assert warehouse.installs == []
    await interrupt(dying)
    await stop_installs(other.loader)


async def test_who_gives_up_while_the_answer_is_being_taken_leaves_no_install_that_never_ends(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go_on, claim = asyncio.Event(), asyncio.Event(), claims.claim

    async def claim_slowly(
        context: Context, approval_id: ApprovalId, *, definition: str | None, artefact: str | None
    ) -> Approval:
        record = await claim(context, approval_id, definition=definition, artefact=artefact)
        taken.set()
        await go_on.wait()
        return record

    monkeypatch.setattr(inquiry, "claim", claim_slowly)
    calling = asyncio.create_task(warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing())))
    async with asyncio.timeout(BOUND_S):
        await taken.wait()
        await interrupt(calling)
        go_on.set()
        await asyncio.gather(*warehouse.loader.installing)

    assert (await warehouse.states(), warehouse.installs) == ([State.COMPLETED], ["memory@1.2.3"])
