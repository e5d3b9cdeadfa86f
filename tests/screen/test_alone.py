"""What is decided by itself is never part of a batch in the terminal, and says what allowing it does."""

import msgspec
import pytest

from pml.core.approvals.record import State, Subject
from pml.core.values import JsonObject
from tests.promises import promise
from tests.screen.seats import NARROW, seated
from tests.service.offices import Office

CHANGED: JsonObject = {"diff": ["-description: Adds.", "+description: Adds and sends."]}


@promise("approval:alone")
@pytest.mark.parametrize("key", ["A", "D"])
async def test_all_leaves_out_what_is_decided_by_itself(office: Office, key: str) -> None:
    plain = await office.ask()
    alone = await office.ask("notes:add", CHANGED, subject=Subject.TOOL_CHANGED)
    async with seated(office) as seat:
        await seat.press("j")
        await seat.settled()
        await seat.shows("A tool changed", "Accept the new description")
        assert "Allow all" not in seat.screen()
        await seat.press(key)
        await seat.shows("this one?", "1 left out: open it to decide", "✗ notes:add")
        await seat.press("enter")
        await seat.shows("allowed 1 of 1" if key == "A" else "u undoes")
        await seat.send_held()
    assert await office.status(plain) is (State.ALLOWED if key == "A" else State.DENIED)
    assert await office.status(alone) is State.PENDING


async def test_allow_all_counts_what_is_answered_together_and_is_offered_for_two(office: Office) -> None:
    await office.ask(arguments={"title": "one"})
    await office.ask("notes:add", CHANGED, subject=Subject.TOOL_CHANGED)
    async with seated(office) as seat:
        await seat.settled()
        assert "Allow all" not in seat.screen()
    await office.ask(arguments={"title": "two"})
    async with seated(office) as seat:
        await seat.shows("Allow all 2")


async def test_editing_is_offered_only_where_there_is_something_to_edit(office: Office) -> None:
    await office.ask()
    await office.ask("notes:add", CHANGED, subject=Subject.TOOL_CHANGED)
    async with seated(office) as seat:
        await seat.shows("e edit")
        await seat.press("j")
        await seat.shows("A tool changed", "m message")
        assert "e edit" not in seat.screen()


async def test_nothing_is_asked_about_where_all_that_waits_is_decided_by_itself(office: Office) -> None:
    await office.ask("notes:add", CHANGED, subject=Subject.TOOL_CHANGED)
    async with seated(office, size=NARROW) as seat:
        await seat.press("A")
        await seat.shows("nothing waits that is answered with others")


async def test_what_runs_out_first_comes_first(office: Office) -> None:
    late = await office.ask(arguments={"title": "late"})
    session = msgspec.structs.replace(await office.session(), ttl_s=60)
    soon = await office.ask(arguments={"title": "soon"}, session=session)
    async with seated(office) as seat:
        assert [entry.record.id for entry in seat.inbox.stream.shown] == [soon.id, late.id]
        assert seat.inbox.stream.focus == soon.id


@promise("card:value-once")
async def test_the_raw_arguments_unfold(office: Office) -> None:
    await office.ask("Bash", {"command": "make apples", "timeout": 5})
    async with seated(office) as seat:
        await seat.shows("make apples", "other arguments", "r shows them")
        assert '"command": "make apples"' not in seat.screen()
        assert seat.inbox.pane.is_seen
        await seat.press("r")
        await seat.shows('"command": "make apples"')
        assert seat.inbox.pane.is_seen
