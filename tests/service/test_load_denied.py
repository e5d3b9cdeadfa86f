"""A deny rule and the loader: nothing of a denied call is found, asked about, installed or started."""

import asyncio

import pytest

from pml.core.approvals.record import Approval, State
from pml.core.errors import ToolDenied
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.offices import BOUND_S
from tests.service.warehouses import RAN, TOOL, Warehouse


@promise("load:deny-beats-consent")
async def test_a_denied_call_finds_resolves_asks_installs_and_starts_nothing(warehouse: Warehouse) -> None:
    warehouse.configure(deny=["memory:*"])
    asking = FakeAsking(warehouse.allowing())

    with pytest.raises(ToolDenied):
        await warehouse.call(TOOL, asking=asking)

    assert (warehouse.sources.looked_up, warehouse.installer.resolved, asking.asked) == ([], [], [])
    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:deny-beats-consent")
async def test_a_deny_wins_for_a_server_that_is_installed(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    warehouse.configure(deny=[TOOL])

    for house in (warehouse, await warehouse.restart()):
        with pytest.raises(ToolDenied):
            await house.call(TOOL)

    assert (warehouse.servers.ran, warehouse.servers.started) == ([RAN], ["memory"])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_between_the_answer_and_the_install_stops_it(warehouse: Warehouse) -> None:
    async def allow_and_forbid(record: Approval) -> Approval:
        allowed = (await warehouse.office.allow(record)).record
        warehouse.configure(deny=[TOOL])
        return allowed

    with pytest.raises(ToolDenied):
        await warehouse.call(TOOL, asking=FakeAsking(allow_and_forbid), offered=False)

    assert (warehouse.installs, await warehouse.states()) == ([], [State.CANCELLED])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_while_a_call_is_paused_stops_its_continuation(warehouse: Warehouse) -> None:
    paused = await warehouse.pause(TOOL)
    await warehouse.office.allow(paused.record)
    warehouse.configure(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await warehouse.go_on(paused.workflow.id, tool=TOOL)

    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_while_it_is_resolved_stops_an_install_that_a_rule_covers(
    warehouse: Warehouse,
) -> None:
    warehouse.configure(allow=[TOOL])
    warehouse.installer.after_resolve = lambda: warehouse.configure(allow=[TOOL], deny=[TOOL])

    with pytest.raises(ToolDenied):
        await warehouse.call(TOOL)

    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_during_the_install_stops_the_start(warehouse: Warehouse) -> None:
    warehouse.installer.may_finish.clear()
    asking = FakeAsking(warehouse.allowing())
    calling = asyncio.create_task(warehouse.call(TOOL, asking=asking, offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
        warehouse.configure(deny=[TOOL])
        warehouse.installer.may_finish.set()
        with pytest.raises(ToolDenied):
            await calling

    assert (warehouse.servers.started, warehouse.servers.ran) == ([], [])
