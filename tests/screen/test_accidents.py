"""What was not meant decides nothing: keys too soon, too fast, in parts, or on what was not read."""

import msgspec
import pytest
from textual._xterm_parser import XTermParser
from textual.events import Key, Paste

from pml.core.approvals.record import State
from pml.screen.keystrokes import ESCAPE_S, REPEAT_S, TOGETHER_S, Dropped, Held, Strokes, know_alt_enter
from tests.promises import promise
from tests.screen.seats import NARROW, seated
from tests.service.offices import Office

LONG = {"text": "\n".join(f"line {n}" for n in range(30)), "list": list(range(40))}


@promise("screen:seen-whole")
async def test_a_card_that_was_not_seen_whole_takes_no_key_and_says_so(office: Office) -> None:
    record = await office.ask(arguments=LONG)
    async with seated(office, size=NARROW) as seat:
        for key in ("enter", "escape"):
            top = seat.inbox.pane.top
            await seat.press(key)
            await seat.shows("not decided", "Scroll to the end first")
            await seat.settled()
            assert seat.inbox.pane.top == top, "a key that decides turns no page"
            assert await office.status(record) is State.PENDING
        while not seat.inbox.pane.is_seen:
            await seat.press("space")
        await seat.press("enter")
        await seat.shows("allowed")
    assert await office.status(record) is State.ALLOWED


@promise("screen:seen-whole")
async def test_a_diff_that_has_changed_since_it_was_seen_must_be_seen_again(office: Office) -> None:
    file = office.workspace / "notes.txt"
    file.write_text("one\n")
    record = await office.ask("Write", {"file_path": str(file), "content": "two\n"})
    await office.ask()
    async with seated(office) as seat:
        assert seat.inbox.pane.is_seen
        file.write_text("precious\n" * 50)
        await seat.press("j")
        await seat.settled()
        await seat.press("k")
        await seat.settled()
        await seat.shows("it has changed since you read it")
        assert not seat.inbox.pane.is_seen
        await seat.press("enter")
        await seat.settled()
    assert await office.status(record) is State.PENDING


async def test_a_card_that_was_shortened_was_not_seen_whole(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        pane = seat.inbox.pane
        assert pane.is_seen
        assert pane.card is not None
        pane.show_card(msgspec.structs.replace(pane.card, digest="of another", cut=True))
        assert pane.was_read
        assert not pane.is_seen


async def test_what_was_jumped_over_was_not_seen(office: Office) -> None:
    record = await office.ask(arguments=LONG)
    async with seated(office, size=NARROW) as seat:
        await seat.press("G", "enter")
        await seat.settled()
        assert not seat.inbox.pane.is_seen
    assert await office.status(record) is State.PENDING


async def test_folded_lines_must_be_opened_first(office: Office) -> None:
    record = await office.ask(arguments={"list": list(range(200))})
    async with seated(office) as seat:
        while seat.inbox.pane.pages_left:
            await seat.press("space")
        await seat.shows("more lines; o opens them")
        assert not seat.inbox.pane.is_seen
        await seat.press("o")
        await seat.settled()
        assert not seat.inbox.pane.is_seen
        while not seat.inbox.pane.is_seen:
            await seat.press("space")
        await seat.press("enter")
        await seat.shows("allowed")
    assert await office.status(record) is State.ALLOWED


@promise("screen:no-accident")
async def test_a_card_that_arrives_does_not_take_the_key(office: Office) -> None:
    async with seated(office) as seat:
        await seat.shows("Nothing waits")
        record = await office.ask()
        await seat.settled()
        await seat.shows("asked by")
        await seat.burst("enter")
        await seat.shows("came up a moment ago")
        assert await office.status(record) is State.PENDING
        seat.ticks.at += 1.0
        await seat.press("enter")
        await seat.shows("allowed")
    assert await office.status(record) is State.ALLOWED


async def test_an_older_card_that_arrives_does_not_slide_under_the_focus(office: Office) -> None:
    office.clock.advance(10)
    focused = await office.ask(arguments={"title": "focused"})
    async with seated(office) as seat:
        office.clock.advance(-10)
        older = await office.ask(arguments={"title": "older"})
        await seat.until(lambda: seat.inbox.stream.count == 2)
        await seat.press("enter")
        await seat.shows("allowed")
    assert (await office.status(focused), await office.status(older)) == (State.ALLOWED, State.PENDING)


@promise("screen:no-accident")
async def test_a_burst_of_keys_decides_nothing(office: Office) -> None:
    records = [await office.ask(arguments={"title": str(n)}) for n in range(4)]
    async with seated(office) as seat:
        await seat.burst("enter", "j", "enter", "j", "escape", "enter", "enter")
        await seat.settled()
    assert [await office.status(record) for record in records] == [State.PENDING] * 4


async def test_a_key_held_down_decides_one_card_at_the_most(office: Office) -> None:
    records = [await office.ask(arguments={"title": str(n)}) for n in range(4)]
    async with seated(office) as seat:
        await seat.burst("enter")
        await seat.shows("allowed")
        for _ in range(30):
            seat.ticks.at += 0.1
            await seat.burst("enter")
            await seat.settled()
    states = [await office.status(record) for record in records]
    assert states == [State.ALLOWED, *[State.PENDING] * 3]


async def test_pasted_text_decides_nothing(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        seat.app.post_message(Paste("\r\rA\r"))
        await seat.settled()
        assert len(seat.app.screen_stack) == 2
        await seat.burst("m", *"yes", "enter")
        await seat.shows("too fast to be meant")
    assert await office.status(record) is State.PENDING


async def test_a_decided_card_stays_in_its_place_until_the_person_has_moved_on(office: Office) -> None:
    first = await office.ask(arguments={"title": "one"})
    await office.ask(arguments={"title": "two"})
    async with seated(office) as seat:
        await office.deny(first)
        await seat.shows("ana denied it")
        seat.ticks.at += 60
        seat.inbox.stream.drop_stubs(at=seat.ticks.at)
        assert [entry.record.id for entry in seat.inbox.stream.shown][:1] == [first.id]
        await seat.press("j")
        seat.inbox.stream.drop_stubs(at=seat.ticks.at)
        assert [entry.record.id == first.id for entry in seat.inbox.stream.shown] == [False]


class TestStrokes:
    """The rules about keys by themselves, with instants to the millisecond."""

    def test_one_key_alone_counts_once_its_time_is_over(self) -> None:
        strokes = Strokes()
        held = strokes.press("enter", 10.0)
        assert isinstance(held, Held)
        assert held.for_s == TOGETHER_S
        assert strokes.settle(held)
        assert not strokes.settle(held)

    @pytest.mark.parametrize("after", ["j", "enter", "escape", "x"])
    def test_a_key_that_follows_at_once_undoes_it(self, after: str) -> None:
        strokes = Strokes()
        held = strokes.press("enter", 10.0)
        assert isinstance(held, Held)
        assert isinstance(strokes.press(after, 10.01), Dropped)
        assert not strokes.settle(held)

    def test_a_key_right_after_another_does_not_count(self) -> None:
        strokes = Strokes()
        assert strokes.press("j", 10.0) == "j"
        assert isinstance(strokes.press("enter", 10.0 + TOGETHER_S / 2), Dropped)

    def test_the_same_key_again_is_one_held_down(self) -> None:
        strokes = Strokes()
        held = strokes.press("enter", 10.0)
        assert isinstance(held, Held)
        strokes.settle(held)
        assert isinstance(strokes.press("enter", 10.0 + REPEAT_S * 0.9), Dropped)
        assert isinstance(strokes.press("enter", 12.0), Held)

    @promise("screen:no-accident")
    @pytest.mark.parametrize(
        "rest", [("left_square_bracket", "A"), ("O", "B"), ("left_square_bracket", "1", "D")]
    )
    @pytest.mark.parametrize("delay_s", [0.1, ESCAPE_S * 0.9])
    def test_an_arrow_that_comes_in_parts_is_no_deny(self, rest: tuple[str, ...], delay_s: float) -> None:
        strokes = Strokes()
        held = strokes.press("escape", 10.0, is_bare=True)
        assert isinstance(held, Held)
        assert held.for_s > delay_s
        at = 10.0
        for key in rest:
            at += delay_s
            assert isinstance(strokes.press(key, at), Dropped)
        assert not strokes.settle(held)

    def test_what_is_left_of_an_arrow_after_a_deny_asks_about_no_batch(self) -> None:
        strokes = Strokes()
        held = strokes.press("escape", 10.0, is_bare=True)
        assert isinstance(held, Held)
        assert strokes.settle(held)
        assert isinstance(strokes.press("left_square_bracket", 11.0), Dropped)
        assert isinstance(strokes.press("A", 11.1), Dropped)
        assert strokes.press("A", 12.0) == "A"

    def test_an_escape_that_the_terminal_names_is_not_held_for_long(self) -> None:
        held = Strokes().press("escape", 10.0)
        assert isinstance(held, Held)
        assert held.for_s == TOGETHER_S

    def test_a_key_right_after_an_escape_that_is_held_is_told_to_count_for_nothing(self) -> None:
        strokes = Strokes()
        held = strokes.press("escape", 10.0, is_bare=True)
        assert isinstance(held, Held)
        assert strokes.press("q", 10.3) == Dropped(why="several keys at once: nothing was decided")
        assert not strokes.settle(held)
        assert strokes.press("q", 10.6) == "q"

    def test_two_escapes_in_one_are_alt_escape(self) -> None:
        strokes = Strokes()
        strokes.press("escape", 10.0, is_bare=True)
        assert strokes.press("escape", 10.1, is_bare=True) == "alt+escape"


def test_a_terminal_that_sends_escape_and_return_for_alt_return_means_alt_return() -> None:
    know_alt_enter()
    keys = [each.key for each in XTermParser().feed("\x1b\r") if isinstance(each, Key)]
    assert keys == ["alt+enter"]


def test_a_bare_escape_can_be_told_from_one_that_the_terminal_names() -> None:
    parser = XTermParser()
    named = [(each.key, each.character) for each in parser.feed("\x1b[27u") if isinstance(each, Key)]
    bare = [(each.key, each.character) for each in parser.feed("\x1b\x1b") if isinstance(each, Key)]
    assert named == [("escape", None)]
    assert bare == [("escape", "\x1b")]
