"""A dialog is left without deciding anything, and what was typed in it is not lost, nor told to others."""

import asyncio
import io

import pytest
from rich.console import Console
from textual.events import Key
from textual.widgets import TextArea
from textual.worker import WorkerFailed

from pml.core.approvals.record import Approval, State, Subject, call_facts
from pml.core.cards.card import Card
from pml.core.values import JsonObject
from pml.screen import history, keystrokes
from pml.screen.keystrokes import AGAIN_S, ESCAPE_S, GRACE_S, Dropped, Escapes, Held, Strokes
from pml.service.context import Context
from tests.promises import promise
from tests.screen.seats import NARROW, Seat, seated
from tests.service.offices import Office

KEY: JsonObject = {"server": "github", "missing": ["GITHUB_TOKEN"], **call_facts("github:me", {})}


async def _opened(seat: Seat, key: str) -> None:
    await seat.press(key)
    await seat.until(lambda: len(seat.app.screen_stack) == 3)


async def _left(seat: Seat) -> None:
    await seat.until(lambda: len(seat.app.screen_stack) == 2)
    await seat.settled()


@promise("screen:seen-whole")
@pytest.mark.parametrize(("key", "sends"), [("e", "ctrl+s"), ("a", "enter")])
async def test_what_was_not_seen_whole_cannot_be_allowed_by_way_of_a_dialog(
    office: Office, key: str, sends: str
) -> None:
    record = await office.ask(arguments={"text": "\n".join(f"line {n}" for n in range(400))})
    async with seated(office, size=NARROW) as seat:
        await seat.press(key)
        await seat.shows("not decided")
        assert len(seat.app.screen_stack) == 2
        await seat.press(sends)
        await seat.settled()
    assert await office.status(record) is State.PENDING


@promise("screen:no-accident")
async def test_a_key_that_closed_a_dialog_and_is_still_held_down_decides_nothing(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "question_mark")
        await seat.press("enter")
        await _left(seat)
        pressed = seat.inbox.strokes.press("enter", seat.ticks.at)
        assert isinstance(pressed, Held)
        assert pressed.for_s == AGAIN_S, "it waits for the next of a slow rate"
    assert await office.status(record) is State.PENDING


@promise("screen:no-accident")
@pytest.mark.parametrize(
    ("key", "leaves"),
    [
        *((key, "escape") for key in ("e", "m", "a", "A", "h", "slash", "question_mark")),
        ("h", "h"),
        ("slash", "enter"),
        ("question_mark", "q"),
    ],
)
async def test_one_escape_too_many_denies_nothing_however_a_dialog_was_left(
    office: Office, key: str, leaves: str
) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await _opened(seat, key)
        seat.ticks.at += 1.0
        await seat.burst(leaves)
        await _left(seat)
        seat.ticks.at += 0.2
        await seat.burst("escape")
        await seat.shows("came up a moment ago")
        await seat.settled()
        assert await office.status(record) is State.PENDING
        await seat.press("escape")
        await seat.shows("denied")
        await seat.send_held()
    assert await office.status(record) is State.DENIED


async def test_half_an_arrow_does_not_leave_the_history(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "h")
        for key in (Key("escape", "\x1b"), Key("left_square_bracket", "["), Key("A", "A")):
            seat.app.post_message(key)
        await seat.turn()
        assert isinstance(seat.app.screen, history.History)
        await seat.press_bare_escape()
        await _left(seat)


@promise("screen:no-accident")
async def test_the_time_for_an_escape_too_many_begins_when_the_history_is_gone(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keystrokes, "ESCAPE_S", 1.5)  # so that a busy machine is sure to look in between
    record = await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "h")
        await seat.press_bare_escape()
        seat.ticks.at += GRACE_S
        await _left(seat)
        seat.ticks.at += GRACE_S / 2
        await seat.burst("escape")
        await seat.shows("came up a moment ago")
        await seat.settled()
    assert await office.status(record) is State.PENDING


async def test_an_edit_that_was_left_is_there_again(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "e")
        seat.app.screen.query_one(TextArea).text = '{"title": "half a thou'
        await seat.press("escape")
        await _left(seat)
        await seat.shows("your edit is kept")
        await _opened(seat, "e")
        assert seat.app.screen.query_one(TextArea).text == '{"title": "half a thou'
        seat.app.screen.query_one(TextArea).text = '{"title": "whole"}'
        await seat.press("ctrl+s")
        await seat.shows("allowed")
    assert (await office.stored(record)).updated_input == {"title": "whole"}


async def test_an_arrow_that_comes_in_parts_does_not_close_the_editor_nor_write_in_it(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        await _opened(seat, "e")
        text = seat.app.screen.query_one(TextArea).text
        await seat.press_bare_escape()
        await seat.burst("left_square_bracket", "A")
        await seat.burst("x")
        assert seat.app.screen.query_one(TextArea).text == f"x{text}"
        await seat.press_bare_escape()
        await _left(seat)


class TestEscapes:
    """An Escape in a dialog by itself, with instants to the millisecond."""

    def test_one_alone_closes_once_its_time_is_over(self) -> None:
        escapes = Escapes()
        held = escapes.press("escape", 10.0, is_bare=True)
        assert isinstance(held, Held)
        assert held.for_s == ESCAPE_S
        assert escapes.settle(held)

    def test_one_that_the_terminal_names_closes_at_once(self) -> None:
        assert Escapes().press("escape", 10.0) == "escape"

    def test_the_rest_of_an_arrow_is_no_text_and_what_follows_is(self) -> None:
        escapes = Escapes()
        held = escapes.press("escape", 10.0, is_bare=True)
        assert isinstance(held, Held)
        assert isinstance(escapes.press("O", 10.1), Dropped)
        assert isinstance(escapes.press("A", 10.2), Dropped)
        assert not escapes.settle(held)
        assert escapes.press("A", 10.3) == "A"

    def test_a_bracket_by_itself_is_text(self) -> None:
        assert Escapes().press("left_square_bracket", 10.0) == "left_square_bracket"

    def test_a_second_one_closes_at_once(self) -> None:
        escapes = Escapes()
        escapes.press("escape", 10.0, is_bare=True)
        assert escapes.press("escape", 10.1, is_bare=True) == "escape"


@promise("screen:no-accident")
@pytest.mark.parametrize("rate_s", [0.03, 0.09, AGAIN_S * 0.9])
@pytest.mark.parametrize("delay_s", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_key_held_down_counts_once_whatever_its_delay_and_rate(
    rate_s: float, delay_s: float, comes_back: bool
) -> None:
    strokes = Strokes()
    at = 10.0
    if comes_back:  # the first went to a dialog, which it closed
        strokes.press("a", at - 5)
        strokes.come_back()
    else:
        held = strokes.press("enter", at)
        assert isinstance(held, Held)
        assert strokes.settle(held)
    at += delay_s
    for _ in range(20):
        held = strokes.press("enter", at)
        at += rate_s
        assert isinstance(held, Dropped) or held == strokes.held
        assert isinstance(held, Dropped) or (isinstance(held, Held) and held.for_s > rate_s)


async def test_a_disk_that_is_full_is_told_and_ends_nothing(office: Office) -> None:
    await office.ask("github:create_issue", KEY, subject=Subject.API_KEY_REQUIRED)
    async with seated(office, store_key=_is_full) as seat:
        await seat.press("p", *"ghp", "enter")
        await seat.shows("the disk is full")
        assert seat.app.is_running


def _is_full(_: tuple[str, str]) -> None:
    raise OSError(28, "No space left on device")


async def test_a_store_that_cannot_be_read_for_a_while_is_told_and_tried_again(office: Office) -> None:
    async with seated(office) as seat:
        read = seat.inbox.stream.read
        seat.inbox.stream.read = _cannot_be_read  # type: ignore[method-assign]
        await office.ask()
        await seat.shows("the store cannot be read: Input/output error; trying again")
        seat.inbox.stream.read = read  # type: ignore[method-assign]
        await office.ask(arguments={"title": "two"})
        await seat.shows("2 waiting")


async def _cannot_be_read(*_: object, **__: object) -> bool:
    raise OSError(5, "Input/output error")


@promise("screen:no-locals")
async def test_a_mistake_of_ours_prints_nothing_that_was_typed(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    await office.ask("github:create_issue", KEY, subject=Subject.API_KEY_REQUIRED)
    printed = io.StringIO()
    with pytest.raises(WorkerFailed) as failed:
        await _stumble(office, Console(file=printed))
    captured = capsys.readouterr()
    assert (captured.out, captured.err, printed.getvalue()) == ("", "", "")
    assert isinstance(failed.value.error, ZeroDivisionError)


async def _stumble(office: Office, console: Console) -> None:
    async with seated(office, store_key=_breaks) as seat:
        seat.app.error_console = console
        await seat.press("p", *"ghp", "enter")
        await seat.until(lambda: seat.app.crash is not None)


def _breaks(_: tuple[str, str]) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("turns", range(0, 24, 4))
async def test_leaving_the_history_while_a_request_is_read_is_no_mistake(
    office: Office, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    is_ready = asyncio.Event()
    made = history.make_card

    async def make_late(context: Context, record: Approval, *, whole: bool) -> Card:
        card = await made(context, record, whole=whole)
        await is_ready.wait()
        return card

    monkeypatch.setattr(history, "make_card", make_late)
    await office.ask()
    async with seated(office) as seat:
        await seat.press("h")
        await seat.shows("PML history")
        screen = seat.app.screen
        assert isinstance(screen, history.History)
        screen.leave()
        for _ in range(turns):
            await asyncio.sleep(0)
        is_ready.set()
        await seat.until(lambda: seat.app.screen is seat.inbox)
        await seat.settled()


async def test_ctrl_z_suspends(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    suspended: list[bool] = []
    async with seated(office) as seat:
        monkeypatch.setattr(seat.app, "action_suspend_process", lambda: suspended.append(True))
        await seat.press("ctrl+z")
    assert suspended == [True]
