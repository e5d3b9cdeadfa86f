"""What a new agent is given can be narrowed by keys before it is started."""

from pml.core.approvals.record import State
from pml.core.values import JsonObject
from tests.screen.seats import NARROW, seated
from tests.service.offices import Office

LAUNCH = "pml:session_launch"
ASKED: JsonObject = {"prompt": "look around", "parent_may_decide": "unlisted"}


async def test_t_narrows_its_tools_and_w_what_its_parent_may_answer(office: Office) -> None:
    record = await office.ask(LAUNCH, ASKED)
    async with seated(office, size=NARROW) as seat:
        while not seat.inbox.pane.is_seen:
            await seat.press("space")
        await seat.shows("t tools", "w who answers", "Start the agent")
        await seat.press("t", *"Read,Grep", "enter")
        await seat.shows("Return starts it with may use: Read, Grep")
        await seat.press("w", "w")
        await seat.shows("answers: people only")
        await seat.press("enter")
        await seat.shows("allowed")
    stored = await office.stored(record)
    assert stored.status is State.ALLOWED
    assert stored.updated_input == {
        **ASKED,
        "allowed_tools": ["Read", "Grep"],
        "parent_may_decide": "nothing",
    }


async def test_the_parents_power_is_never_more_than_was_asked(office: Office) -> None:
    await office.ask(LAUNCH, ASKED)
    async with seated(office) as seat:
        for words in ("for what `approval.parent_may_decide` lists", "people only", "for what no rule"):
            await seat.press("w")
            await seat.shows(words)


async def test_other_requests_have_no_powers_to_narrow(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        for key in ("t", "w"):
            await seat.press(key)
            await seat.shows("only the start of an agent")
