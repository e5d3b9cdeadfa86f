"""What is typed counts in the order in which it was typed, also where much of it comes at once."""

import pytest
from textual.events import Key, Paste
from textual.widgets import Input, TextArea

from pml.core.approvals.record import State
from pml.screen.app import INTERRUPTED
from tests.promises import promise
from tests.screen.seats import Seat, seated
from tests.service.offices import Office


async def _opened(seat: Seat, key: str) -> None:
    await seat.press(key)
    await seat.until(lambda: len(seat.app.screen_stack) == 3)


def _line(seat: Seat) -> str:
    return seat.app.screen.query_one(Input).value


@promise("screen:typed-order")
async def test_a_letter_after_arrows_is_written_where_they_led(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "e")
        editor = seat.app.screen.query_one(TextArea)
        text = editor.text
        await seat.burst(*["right"] * 4, "@")
        assert editor.text == f"{text[:4]}@{text[4:]}"
        await seat.burst("backspace", "home", "enter", "up", "x")
        head, rest = text.split("\n", 1)
        assert editor.text == f"{head}\nx\n{rest}"


@promise("screen:typed-order")
@pytest.mark.parametrize("key", ["m", "slash"])
async def test_a_line_takes_keys_one_after_another(office: Office, key: str) -> None:
    await office.ask()
    async with seated(office) as seat:
        await _opened(seat, key)
        await seat.burst(*"helo", "left", "l", "home", "x", "end", "!", "left", "left", "backspace", "y")
        assert _line(seat) == "xhelyo!"


@promise("screen:typed-order")
async def test_what_is_pasted_stands_between_what_was_typed_before_and_after(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "m")
        for event in (Key("a", "a"), Key("left", None), Paste("bc"), Key("left", None), Key("d", "d")):
            seat.app.post_message(event)
        await seat.turn()
        assert _line(seat) == "bdca"


@promise("screen:typed-order")
async def test_what_follows_the_key_that_opens_a_field_goes_into_the_field(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.burst("m", *"seems Aa", "left", "D")
        assert _line(seat) == "seems ADa"
        assert len(seat.app.screen_stack) == 3
        assert not seat.inbox.remembered
    assert await office.status(record) is State.PENDING


@promise("screen:typed-order")
async def test_an_edit_is_sent_with_all_that_was_typed_before_it_and_nothing_after(office: Office) -> None:
    record = await office.ask(arguments={"n": 1})
    async with seated(office) as seat:
        await _opened(seat, "e")
        await seat.burst("down", "end", "2", "left", "3", "ctrl+s", "4")
        await seat.shows("allowed")
    assert (await office.stored(record)).updated_input == {"n": 132}


@promise("screen:typed-order")
async def test_an_escape_before_the_key_that_sends_an_edit_goes_back(office: Office) -> None:
    record = await office.ask(arguments={"n": 1})
    async with seated(office) as seat:
        await _opened(seat, "e")
        for event in (Key("escape", "\x1b"), Key("ctrl+s", "\x13")):
            seat.app.post_message(event)
        await seat.until(lambda: len(seat.app.screen_stack) == 2)
        await seat.settled()
    assert await office.status(record) is State.PENDING


async def test_an_interrupt_waits_for_no_other_key(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "m")
        for event in (*(Key("x", "x") for _ in range(1000)), Key("ctrl+c", "\x03")):
            seat.app.post_message(event)
        await seat.until(lambda: not seat.app.is_running)
    assert seat.app.return_value == INTERRUPTED
    assert not seat.app.keys.empty()
