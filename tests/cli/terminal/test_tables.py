"""Tables: whole lines for files and pipes, wrapped by words on a screen, and nothing ever cut."""

from collections import Counter

import pytest
from rich.cells import cell_len

from pml.cli.terminal.text_table import table_lines

HEAD = ("SERVER", "VERSION", "SIZE", "DESCRIPTION")
PATH = "/home/ada/.pml/servers/sequential-thinking/2026.8.31-0123456789abcdef"
THINKING = ("sequential-thinking", "2026.8.31", "1.2 MB", "lets an agent think in steps that it can revise")
LONG = ("memory", "2026.8.31", "900 kB", PATH)


def lines(*rows: tuple[str, ...], width: int | None) -> list[str]:
    return [line for _, line in table_lines([HEAD, *rows], width=width)]


def test_elsewhere_than_on_a_terminal_a_row_is_one_line() -> None:
    assert lines(THINKING, LONG, width=None)[1:] == [
        f"sequential-thinking  2026.8.31  1.2 MB  {THINKING[3]}",
        f"memory               2026.8.31  900 kB  {PATH}",
    ]


def test_a_long_cell_is_wrapped_by_words_into_its_own_column() -> None:
    assert lines(THINKING, width=72) == [
        "SERVER               VERSION    SIZE    DESCRIPTION",
        "sequential-thinking  2026.8.31  1.2 MB  lets an agent think in steps",
        "                                        that it can revise",
    ]


def test_a_path_is_folded_into_its_column() -> None:
    *_, first, second, third = lines(LONG, width=60)
    assert first.startswith("memory  2026.8.31  900 kB  /home/ada")
    assert {line[:27] for line in (second, third)} == {" " * 27}
    assert first[27:] + second[27:] + third[27:] == PATH


def test_where_all_columns_are_too_many_the_last_has_lines_of_its_own() -> None:
    assert lines(THINKING, width=45) == [
        "SERVER               VERSION    SIZE",
        "    DESCRIPTION",
        "sequential-thinking  2026.8.31  1.2 MB",
        "    lets an agent think in steps that it can",
        "    revise",
    ]


@pytest.mark.parametrize("width", [1, 10, 30, 45, 60, 72, 80, 110, 200])
def test_nothing_is_cut_at_any_width_and_no_line_is_longer_where_words_fit(width: int) -> None:
    rows = (THINKING, LONG, ("名前", "1", "", "a 名前 in two cells each  and two blanks"))
    found = lines(*rows, width=width)
    cells = "".join("".join(row) for row in (HEAD, *rows))
    assert Counter("".join(found).replace(" ", "")) == Counter(cells.replace(" ", ""))
    if width >= 45:
        assert max(map(cell_len, found)) <= width


def test_a_last_column_with_room_for_a_word_or_two_has_lines_of_its_own() -> None:
    rows = [["NAME", "WHAT IT DOES"], ["n" * 20, "words that would stand below each other"]]
    assert [line for _, line in table_lines(rows, width=42)] == [
        "NAME",
        "    WHAT IT DOES",
        "n" * 20,
        "    words that would stand below each",
        "    other",
    ]
    assert len(list(table_lines(rows, width=50))) == 3
