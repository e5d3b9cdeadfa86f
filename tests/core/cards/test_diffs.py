"""A diff tells how one text becomes another, however long and however hostile they are."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pml.core.cards.card import DiffLine, Line, Mark
from pml.core.cards.diff import MAX_LINES, diff_lines, split_lines

few_lines = st.lists(st.sampled_from(["a", "b", "c", "", "}"]), max_size=30).map("\n".join)
LETTERS = {Mark.SAME: " ", Mark.REMOVED: "-", Mark.ADDED: "+", Mark.GAP: "…"}


def plain(line: Line) -> str:
    return "".join(piece if isinstance(piece, str) else chr(piece) for piece in line)


def drawn(lines: Sequence[DiffLine]) -> list[str]:
    return [LETTERS[each.mark] + plain(each.line) for each in lines]


def patched(old: str, lines: Sequence[DiffLine]) -> list[str]:
    """Return what the diff makes of the old text, by its line numbers; the test's own reading of a diff."""
    was = split_lines(old)
    removed = {each.old for each in lines if each.mark is Mark.REMOVED}
    kept = [line for number, line in enumerate(was, 1) if number not in removed]
    for each in lines:
        if each.mark is Mark.ADDED:
            assert each.new is not None
            kept.insert(each.new - 1, plain(each.line))
    return kept


@given(few_lines, few_lines)
def test_what_a_diff_says_makes_the_new_text_of_the_old(old: str, new: str) -> None:
    lines, more = diff_lines(old, new)
    assert patched(old, lines) == split_lines(new)
    assert more == 0


@given(few_lines, few_lines)
def test_every_line_that_is_shown_stands_where_the_diff_says(old: str, new: str) -> None:
    was, now = split_lines(old), split_lines(new)
    for each in diff_lines(old, new)[0]:
        assert each.old is None or was[each.old - 1] == plain(each.line)
        assert each.new is None or now[each.new - 1] == plain(each.line)


def test_three_lines_stand_around_a_change_and_the_rest_is_a_gap() -> None:
    old = "\n".join(f"{n}" for n in range(1, 21))
    lines, _ = diff_lines(old, old.replace("10", "ten"))
    assert drawn(lines) == [
        "…6 unchanged lines",
        " 7",
        " 8",
        " 9",
        "-10",
        "+ten",
        " 11",
        " 12",
        " 13",
        "…7 unchanged lines",
    ]


def test_changes_close_together_share_the_lines_between_them() -> None:
    old = "a\nb\nc\nd\ne"
    assert drawn(diff_lines(old, "A\nb\nc\nd\nE")[0]) == ["-a", "+A", " b", " c", " d", "-e", "+E"]


def test_a_new_text_is_all_added_and_an_equal_one_shows_nothing() -> None:
    assert drawn(diff_lines("", "a\nb\n")[0]) == ["+a", "+b"]
    assert diff_lines("a\n", "a\n") == ((), 0)


def test_lines_without_a_place_have_no_numbers() -> None:
    lines, _ = diff_lines("a", "b", numbered=False)
    assert [(each.old, each.new) for each in lines] == [(None, None), (None, None)]


def test_long_texts_of_the_same_line_and_of_shuffled_lines_are_compared_soon() -> None:
    blank = "x\n" * 100_000  # comparing each line with each would be ten thousand million pairs
    shuffled = "".join(f"{(n * 7919) % 100_000}\n" for n in range(100_000))
    assert diff_lines(blank, f"{blank}y\n{blank}")[1] == 100_001 + 3 + 1 - MAX_LINES
    assert diff_lines(shuffled, blank)[1] == 200_000 - MAX_LINES
    assert diff_lines(blank, shuffled + blank)[1] == 100_000 + 3 + 1 - MAX_LINES


def test_of_a_diff_that_nobody_could_read_the_rest_is_counted() -> None:
    lines, more = diff_lines("", "x\n" * (MAX_LINES + 5))
    assert (len(lines), more) == (MAX_LINES, 5)


def test_a_single_line_is_shown_rather_than_told_to_be_left_out() -> None:
    old = [f"{n}" for n in range(1, 17)]
    lines, more = diff_lines("\n".join(old), "\n".join("x" if n in ("5", "12") else n for n in old))
    assert drawn(lines) == [
        *(" 1", " 2", " 3", " 4", "-5", "+x"),
        *(" 6", " 7", " 8", " 9", " 10", " 11", "-12", "+x"),
        *(" 13", " 14", " 15", " 16"),
    ]
    assert (more, lines[0].old) == (0, 1)
    wider = "\n".join(["0", *old])
    assert drawn(diff_lines(wider, wider.replace("\n5\n", "\nx\n"))[0])[0] == "…2 unchanged lines"
