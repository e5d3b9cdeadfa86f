"""What is drawn hides nothing, obeys nothing, and stays quick however much there is."""

import time
from datetime import UTC, datetime

import msgspec
import pytest
from rich.segment import Segment
from rich.text import Text
from textual.color import Color
from textual.widgets import Static

from pml.core.approvals.record import ApprovalId, SessionId, State, Subject
from pml.core.cards.card import (
    Arguments,
    Block,
    Card,
    Code,
    Command,
    Diff,
    DiffLine,
    Fact,
    Facts,
    Mark,
    Outcome,
)
from pml.screen.app import NothingObeyed
from pml.screen.draw.card_lines import draw
from pml.screen.draw.styled_lines import Styled, fitted, shown, width_of, wrapped
from pml.screen.draw.styles import GREEN, HIDDEN, PLAIN, RED
from pml.screen.queue import make_entry
from tests.promises import promise
from tests.screen.seats import NARROW, WIDE, Seat, seated
from tests.service.offices import Office

AT = datetime(2026, 11, 3, 12, tzinfo=UTC)
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe [bold]x[/bold] \u200b\x9b1m [@click=app.bell]y[/]"


def make_card(*blocks: Block, sentence: str = "Create an issue") -> Card:
    return Card(
        id=ApprovalId("a"),
        digest="sha256:1",
        status=State.PENDING,
        subject=Subject.TOOL_CALL,
        tool="github:create_issue",
        title="Call github:create_issue",
        sentence=sentence,
        blocks=blocks,
        why="no rule names this tool",
        rule=None,
        session=SessionId("s"),
        session_name="shop",
        lineage=(),
        workspace="/repo/shop",
        created_at=AT,
        expires_at=AT,
        may_allow=("person",),
    )


def texts(card: Card, *, width: int = 60) -> list[str]:
    drawn = draw(card, is_open=True)
    return [
        "".join(text for text, _ in row)
        for line in (*drawn.asked, *drawn.around)
        for row in wrapped(line, width)
    ]


def test_a_diff_has_signs_numbers_and_colours() -> None:
    lines = (
        DiffLine(mark=Mark.GAP, line=("8 lines",)),
        DiffLine(mark=Mark.SAME, line=("a",), old=9, new=9),
        DiffLine(mark=Mark.REMOVED, line=("b",), old=10),
        DiffLine(mark=Mark.ADDED, line=("c", 0x202E), new=10),
    )
    card = make_card(Diff(title="prices.py", note="new file", lines=lines))
    rows = texts(card)
    at = next(n for n, row in enumerate(rows) if "prices.py" in row)
    assert rows[at : at + 5] == [
        "▎ prices.py  new file",
        "      ⋯ 8 lines",
        " 9  9   a",
        "10    - b",
        "   10 + cU+202E",
    ]
    styles = {text: style for line in draw(card, is_open=True).asked for text, style in line.spans}
    assert (styles["b"], styles["c"], styles["U+202E"]) == (RED, GREEN, HIDDEN)


def test_every_kind_of_block_is_drawn_whole() -> None:
    rows = "\n".join(
        texts(
            make_card(
                Facts(rows=(Fact(name="from", value="npm\nand more", alarming=True),)),
                Command(lines=(("make",), ("install",)), cwd="/repo", says="Build it"),
                Code(title="program", language="python", lines=(("print()",), ("\t",)), more=7),
                Arguments(title="arguments", lines=("{", '  "a": [1, true, null, "x"]', "}")),
            )
        )
    )
    for text in (
        "from        npm",
        "            and more",
        "$ make",
        "  install",
        "/repo",
        "“Build it”",
        "1  print()",
        "⋯ 7 more lines",
        '"a": [1, true, null, "x"]',
    ):
        assert text in rows


def test_times_are_those_of_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "allowed by person `ana` (terminal) at 2026-11-03T12:00:00Z"
    outcome = Outcome(text=text, by=None, scope=None, message=None, reason=None, at=AT)
    card = msgspec.structs.replace(make_card(), status=State.ALLOWED, outcome=outcome)
    with monkeypatch.context() as there:
        there.setenv("TZ", "XYZ-5")  # five hours east, as POSIX writes it
        time.tzset()
        drawn = "\n".join(texts(card, width=200))
    time.tzset()
    assert "✓ allowed by person `ana` (terminal) at 2026-11-03 17:00:00\n" in drawn
    assert "2026-11-03T" not in drawn


@pytest.mark.parametrize("width", [8, 20, 41, 80])
def test_rows_fit_the_width_and_nothing_is_lost(width: int) -> None:
    text = "añ文字" * 30 + " and words that go on " * 5
    for by_words in (True, False):
        rows = list(wrapped(Styled(spans=((text, PLAIN),), by_words=by_words), width))
        assert all(width_of(row) <= width + 1 for row in rows)
        joined = "".join(part for row in rows for part, _ in row)
        assert joined == text
    assert width_of(fitted(((text, PLAIN),), width)) <= width


def test_a_hidden_character_is_a_number_in_a_style_of_its_own() -> None:
    assert shown("a\u202eb") == (("a", PLAIN), ("U+202E", HIDDEN), ("b", PLAIN))
    assert shown("U+202E") == (("U+202E", PLAIN),)


def test_the_last_guard_lets_no_control_character_pass() -> None:
    (segment,) = NothingObeyed().apply([Segment("a\x1b[2Jb\u202e\x9b")], Color(0, 0, 0))
    assert segment.text == "a�[2Jb��"


@promise("screen:hostile-card")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_nothing_in_a_card_reaches_the_terminal_as_an_order(
    office: Office, size: tuple[int, int]
) -> None:
    session = await office.session(SessionId(f"s {HOSTILE}"))
    await office.ask("evil:tool", {HOSTILE: HOSTILE, "command": HOSTILE}, session=session)
    await office.ask("Bash", {"command": HOSTILE, "description": HOSTILE}, session=session)
    await office.ask("Write", {"file_path": f"/x/{HOSTILE}", "content": HOSTILE}, session=session)
    async with seated(office, size=size) as seat:
        for _ in range(3):
            await _looks_harmless(seat)
            for key in ("A", "e", "m", "h"):
                await seat.press(key)
                await seat.settled()
                await _looks_harmless(seat)
                await seat.press("escape")
                await seat.until(lambda: len(seat.app.screen_stack) == 2)
            await seat.press("space", "space", "j")
            await seat.settled()


async def _looks_harmless(seat: Seat) -> None:
    shown = seat.raw().replace("\n", "")
    assert shown.isprintable(), [char for char in shown if not char.isprintable()]
    assert "\u202e" not in shown


async def test_the_last_guard_stands_before_every_widget(office: Office) -> None:
    async with seated(office) as seat:
        seat.inbox.query_one("#head", Static).update(Text("a\x1b[2Jb"))
        await seat.shows("a�[2Jb")
        await _looks_harmless(seat)


async def test_markup_in_a_card_is_text(office: Office) -> None:
    await office.ask("evil:tool", {"title": "[bold red]x[/] [@click=app.quit]y[/]"})
    async with seated(office) as seat:
        await seat.shows("[bold red]x[/] [@click=app.quit]y[/]")


async def test_an_argument_of_a_megabyte_can_be_paged_through_and_decided_around(office: Office) -> None:
    await office.ask("big:tool", {"text": "x" * 1_000_000, "also": "文" * 1000})
    other = await office.ask("small:tool", {})
    async with seated(office) as seat:
        await seat.press("o")
        await seat.settled()
        assert len(seat.inbox.pane.rows) > 10_000
        await seat.press("space", "space", "j")
        await seat.settled()
        await seat.press("enter")
        await seat.shows("allowed small:tool")
    assert await office.status(other) is State.ALLOWED


async def test_500_cards_are_all_there_and_each_can_be_reached(office: Office) -> None:
    for n in range(25):
        session = await office.session(SessionId(f"session-{n}"))
        for each in range(20):
            await office.ask(arguments={"n": n * 20 + each}, session=session)
    async with seated(office) as seat:
        await seat.shows("500 waiting")
        await seat.press(*"jjj")
        await seat.settled()
        await seat.shows('"n": 3')
        await seat.press("slash", *"499", "enter")
        await seat.shows("finds 1", '"n": 499')


async def test_the_list_has_what_tells_most_and_a_path_as_seen_from_the_workspace(office: Office) -> None:
    session = await office.session()
    for arguments, glimpse in (
        ({"command": "make \\\n  all\n\x1b[2J"}, "make \\\\ ⏎ all ⏎ \\u{1b}[2J"),
        ({"file_path": f"{session.workspace}/src/a.py"}, "src/a.py"),
        ({"file_path": f"{session.workspace}/../b.py"}, "../b.py"),
        ({"path": f"{session.workspace}er/c.py"}, f"{session.workspace}er/c.py"),
        ({"path": f"{session.workspace}/"}, f'{{"path": "{session.workspace}/"}}'),
    ):
        assert make_entry(await office.ask("fs:write", arguments), session).glimpse == glimpse


async def test_a_narrow_terminal_has_the_card_below_the_list(office: Office) -> None:
    await office.ask()
    async with seated(office, size=NARROW) as seat:
        rows = seat.screen().split("\n")
        first = next(n for n, row in enumerate(rows) if "github:create_issue" in row)
        assert any(row.strip().startswith("github:create_issue") for row in rows[first + 1 :])
        await seat.pilot.resize_terminal(140, 40)
        await seat.until(lambda: "│" in seat.screen())
        await seat.shows("asked by", "⏎ Allow")


async def test_the_history_shows_all_states_newest_first_and_is_searched(office: Office) -> None:
    old = await office.ask("db:query", {"sql": "select 1"})
    await office.deny(old, message="not this one")
    office.clock.advance(5)
    await office.ask("github:create_issue", {"title": "one"})
    async with seated(office) as seat:
        await seat.press("h")
        await seat.shows("PML history", "2 requests", '{"sql": "select 1"}', "denied")
        await seat.press("j")
        await seat.shows("not this one", "ana denied it 5 s ago")
        await seat.press("enter")
        await seat.press("slash", *"issue", "enter")
        await seat.shows("1 requests")
        await seat.press("h")
        await seat.shows("PML inbox")
    assert (await office.status(old)) is State.DENIED
