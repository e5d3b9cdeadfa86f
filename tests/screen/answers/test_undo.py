"""A denial can be undone for four seconds, a remembered answer until the next; no key falls through."""

import pytest

from pml.core.approvals.record import Scope, State
from pml.screen.answers.denials import HOLD_S
from tests.promises import promise
from tests.screen.seats import NARROW, seated
from tests.service.offices import Office

LONG = {"text": "\n".join(f"line {n}" for n in range(30))}


@promise("screen:denial-held")
@pytest.mark.parametrize("with_message", [False, True])
async def test_a_denial_that_is_undone_in_time_was_never_sent(office: Office, with_message: bool) -> None:
    record = await office.ask(arguments={"title": "one"})
    other = await office.ask(arguments={"title": "two"})
    async with seated(office, size=NARROW) as seat:
        await seat.press(*(["m", *"no", "enter"] if with_message else ["escape"]))
        await seat.shows("u undoes", "denied 4 s u undo")
        assert seat.inbox.stream.focus == other.id
        seat.ticks.at += HOLD_S - 2.5
        seat.inbox.send_due()
        await seat.press("u")
        await seat.shows("undone: nothing was denied")
        assert seat.inbox.stream.focus == record.id
        await seat.send_held()
        assert await office.status(record) is State.PENDING
        await seat.press("u")
        await seat.shows("there is nothing to undo")
        await seat.settled()
        seat.ticks.at += 1.0  # its card is back, and was read
        await seat.press("enter")
        await seat.shows("allowed")
    assert await office.status(record) is State.ALLOWED


@promise("screen:denial-held")
@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
async def test_leaving_sends_what_is_held_at_once(office: Office, key: str, code: int) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("m", *"no", "enter")
        await seat.shows("u undoes")
        await seat.press(key)
        await seat.until(lambda: not seat.app.is_running)
        assert seat.app.return_value == code
    stored = await office.stored(record)
    assert (stored.status, stored.response_message) == (State.DENIED, "no")


@promise("screen:denial-held")
async def test_until_it_is_sent_somebody_else_may_answer_and_is_told(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("escape")
        await seat.shows("u undoes")
        await seat.press("enter")
        await seat.shows("about to be sent: u undoes")
        await office.allow(record)
        await seat.shows("ana allowed it", "before your denial was sent")
        await seat.send_held()
    assert await office.status(record) is State.ALLOWED


@promise("screen:denial-held")
async def test_a_held_denial_is_not_overturned_by_always_with_what_waits(office: Office) -> None:
    denied, *others = [await office.ask(arguments={"title": str(n)}) for n in range(3)]
    async with seated(office) as seat:
        await seat.press("escape")
        await seat.shows("u undoes")
        await seat.settled()
        await seat.press("a")
        await seat.shows("c also allows")
        listed = seat.screen()
        await seat.press("c")
        await seat.until(lambda: not seat.inbox.stream.waiting)
        await seat.settled()
        assert await office.status(denied) is State.DENIED, "sent before the answer that releases others"
    assert [await office.status(record) for record in others] == [State.ALLOWED] * 2
    assert "c also allows 1 waiting request" in listed


@promise("screen:denial-held")
async def test_a_denial_is_sent_before_the_request_runs_out(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        office.clock.advance((record.expires_at - office.clock.now()).total_seconds() - 3)
        await seat.press("escape")
        await seat.shows("sent in 2 s")
        seat.ticks.at += 2
        seat.inbox.send_due()
        await seat.until(lambda: not any(worker.group == "deny" for worker in seat.app.workers))
        assert await office.status(record) is State.DENIED


async def test_deny_all_is_held_and_undone_as_one(office: Office) -> None:
    records = [await office.ask(arguments={"title": str(n)}) for n in range(3)]
    async with seated(office) as seat:
        await seat.press("D")
        await seat.shows("deny these 3?")
        await seat.press("enter")
        await seat.shows("denied 3 of 3", "u undoes")
        await seat.press("u")
        await seat.send_held()
        assert [await office.status(record) for record in records] == [State.PENDING] * 3


@promise("screen:undo-remembered")
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_a_remembered_answer_is_taken_back(office: Office, scope: Scope) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press(*(["s"] if scope is Scope.SESSION else ["a"]))
        await seat.press("enter")
        await seat.shows("u undoes")
        await seat.press("u")
        await seat.shows("asked about again", "this call did not run")
    stored = await office.stored(record)
    assert (stored.status, stored.scope) == (State.CANCELLED, scope)
    assert await office.context.store.grants.all() == []


@promise("screen:one-meaning")
@pytest.mark.parametrize("key", ["a", "e", "p"])
async def test_an_escape_for_a_dialog_that_did_not_open_denies_nothing(office: Office, key: str) -> None:
    record = await office.ask(arguments=LONG)
    async with seated(office, size=NARROW) as seat:
        top = seat.inbox.pane.top
        while seat.inbox.pane.pages_left > 1:
            await seat.press("space")
        before = seat.inbox.pane.top
        await seat.press(key)
        assert seat.inbox.pane.top == before >= top, "no other key turns the page"
        await seat.press("escape")
        await seat.shows("nothing is open, and nothing was denied")
        await seat.settled()
        await seat.send_held()
        assert await office.status(record) is State.PENDING
        while not seat.inbox.pane.is_seen:
            await seat.press("space")
        await seat.press("escape")
        await seat.shows("u undoes")
        await seat.send_held()
    assert await office.status(record) is State.DENIED


@promise("screen:refused-key-seen")
async def test_every_key_that_decides_nothing_says_so(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        for keys, words in (
            (["x"], "x does nothing here"),
            (["p"], "this one needs no key"),
            (["u"], "there is nothing to undo"),
            (["O", "enter"], "several keys at once"),
            (["enter", "enter"], "several keys at once"),
        ):
            seat.ticks.at += 5.0
            await (seat.press(*keys) if keys[0] != "enter" else seat.burst(*keys))
            await seat.shows(words)


@promise("screen:denial-held")
async def test_what_is_held_when_the_program_ends_by_itself_is_sent(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("escape")
        await seat.shows("u undoes")
        seat.app.exit(1)
        await seat.until(lambda: not seat.app.is_running)
    assert await office.status(record) is State.PENDING
    await seat.inbox.send_left()
    assert await office.status(record) is State.DENIED
