"""`.env` files: read, never executed; what cannot be read is told by line, never by its text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.settings.dotenv import MAX_DOTENV_BYTES, MAX_PROBLEMS, DotEnv, parse_dotenv
from tests.promises import promise

SECRET = "hunter2"

LINES: list[tuple[str, dict[str, str]]] = [
    ("A=b", {"A": "b"}),
    ("  A=b  ", {"A": "b"}),
    ("export A=b", {"A": "b"}),
    ("export\tA=b", {"A": "b"}),
    ("export=b", {"export": "b"}),
    ("A = b", {"A": "b"}),
    ("A=", {"A": ""}),
    ("A= # nothing", {"A": ""}),
    ("A=b # why", {"A": "b"}),
    ("A=b#c", {"A": "b#c"}),
    ("A=#c", {"A": "#c"}),
    ("A=b=c==", {"A": "b=c=="}),
    ("A=b c", {"A": "b c"}),
    ("A=it's", {"A": "it's"}),
    (r"A=a\nb", {"A": r"a\nb"}),
    ("A=$HOME", {"A": "$HOME"}),
    ("A=${HOME}", {"A": "${HOME}"}),
    ("A=$(id)", {"A": "$(id)"}),
    ("A=`id`", {"A": "`id`"}),
    ('A="$HOME"', {"A": "$HOME"}),
    (r"A='a\n\"$B#c '", {"A": r"a\n\"$B#c "}),
    (r'A="a\nb\"c\\d"', {"A": 'a\nb"c\\d'}),
    (r'A="a\\nb"', {"A": r"a\nb"}),
    (r'A="a\tb\$"', {"A": r"a\tb\$"}),
    ('A=" b " # why', {"A": " b "}),
    ("A='b'", {"A": "b"}),
    ("A=''", {"A": ""}),
    ("# A=b", {}),
    ("", {}),
    ("A=ключ", {"A": "ключ"}),
]


@pytest.mark.parametrize(("line", "values"), LINES)
def test_a_line_sets_exactly_what_it_says(line: str, values: dict[str, str]) -> None:
    assert parse_dotenv(line.encode()) == DotEnv(values=values)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_line_ends_and_a_byte_order_mark_are_no_part_of_a_value(end: bytes) -> None:
    content = b"\xef\xbb\xbf" + end.join([b"A=1", b"", b"B='2'", b"A=3", b""])
    assert parse_dotenv(content) == DotEnv(values={"A": "3", "B": "2"})


@promise("secrets:never-shown")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"hunter2", "is not `NAME=value`"),
        (b"1A=hunter2", "is not `NAME=value`"),
        (b"A-B=hunter2", "is not `NAME=value`"),
        (b"=hunter2", "is not `NAME=value`"),
        (b"A" * 200 + b"=hunter2", "is not `NAME=value`"),
        (b"A='hunter2", "has a quote that is not closed in the line"),
        (b'A="hunter2', "has a quote that is not closed in the line"),
        (b'A="hunter2\\"', "has a quote that is not closed in the line"),
        (b"A='hunter2'x", "has text after the closing quote"),
        (b"A='hunter2'#x", "has text after the closing quote"),
        (b"A=hunter2\xff", "has characters that are not text"),
        (b"A=hunter2\0", "has characters that are not text"),
        (b"A=hunter2\rB=c", "has characters that are not text"),
    ],
)
def test_a_bad_line_is_skipped_and_told_by_its_number_only(line: bytes, problem: str) -> None:
    found = parse_dotenv(b"Y=1\n" + line + b"\nZ=2")
    assert (found.values, found.problems) == ({"Y": "1", "Z": "2"}, (f"line 2 {problem}",))
    assert SECRET not in repr(found)


@promise("env:no-other-code")
@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "ld_preload", "DYLD_INSERT_LIBRARIES", "NODE_OPTIONS", "PYTHONPATH", "BASH_ENV"]
)
def test_a_name_that_changes_which_code_runs_never_counts(name: str) -> None:
    found = parse_dotenv(f"{name}=/tmp/x.so\nexport {name}='y'".encode())
    assert found.values == {}
    assert [problem.split(",")[0] for problem in found.problems] == [
        f"line 1 sets `{name}`",
        f"line 2 sets `{name}`",
    ]


def test_a_file_that_is_too_large_sets_nothing() -> None:
    assert parse_dotenv(b"A=" + b"b" * (MAX_DOTENV_BYTES - 2)).values == {"A": "b" * (MAX_DOTENV_BYTES - 2)}
    found = parse_dotenv(b"A=b\n" + b"#" * MAX_DOTENV_BYTES)
    assert (found.values, found.problems) == ({}, ("larger than 256 KiB: it is ignored",))


def test_of_many_bad_lines_the_first_are_told_and_the_others_counted() -> None:
    found = parse_dotenv(b"?\n" * (MAX_PROBLEMS + 7))
    assert len(found.problems) == MAX_PROBLEMS + 1
    assert found.problems[-1] == "7 more lines are ignored"


@given(st.binary(max_size=200))
def test_whatever_is_in_a_file_it_is_read_without_an_error(content: bytes) -> None:
    assert all("\0" not in value for value in parse_dotenv(content).values.values())


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=50))
def test_any_text_comes_through_double_quotes_as_it_is(text: str) -> None:
    written = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert parse_dotenv(f'A="{written}"'.encode()) == DotEnv(values={"A": text})
