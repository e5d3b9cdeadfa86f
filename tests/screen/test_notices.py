"""What was refused unasked, or that rules are kept, is told in the terminal inbox, also if nothing waits."""

import pytest

from pml.core.approvals.bounds import MAX_INPUT_BYTES, MAX_PENDING
from pml.core.config.file import FileKind
from pml.core.errors import TooLargeToAsk, TooManyPending
from tests.promises import promise
from tests.screen.seats import seated
from tests.service.offices import Office


@promise("approval:bounded-asks")
async def test_a_request_that_was_too_large_is_told_though_nothing_waits(office: Office) -> None:
    async with seated(office) as seat:
        await seat.shows("Nothing waits for you.")
        assert "refused" not in seat.screen()
        with pytest.raises(TooLargeToAsk):
            await office.ask(arguments={"text": "x" * MAX_INPUT_BYTES})
        await seat.shows("was refused without asking", "Nothing waits for you.")


@promise("approval:bounded-asks")
async def test_one_request_too_many_is_told_above_those_that_wait(office: Office) -> None:
    for n in range(MAX_PENDING):
        await office.ask(arguments={"n": n})
    for n in (20, 21):
        with pytest.raises(TooManyPending):
            await office.ask(arguments={"n": n})
    async with seated(office) as seat:
        await seat.shows("and 1 more of its requests", "20 waiting")


async def test_what_was_refused_an_hour_ago_is_told_no_more(office: Office) -> None:
    with pytest.raises(TooLargeToAsk):
        await office.ask(arguments={"text": "x" * MAX_INPUT_BYTES})
    office.clock.advance(3601)
    async with seated(office) as seat:
        await seat.shows("Nothing waits for you.")
        assert "refused" not in seat.screen()


@promise("trust:kept")
async def test_that_rules_are_kept_is_told_while_they_are(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, deny=["fs:write"])
    await office.trust()
    async with seated(office) as seat:
        await seat.shows("Nothing waits for you.")
        assert "kept in force" not in seat.screen()

    office.path(FileKind.WORKSPACE).write_text("{}")
    async with seated(office) as seat:
        await seat.shows("kept in force", "Nothing waits for you.")
