"""Any chunking gives the same lines, and no line makes the reader hold more than its cap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pml.core.values import MAX_BYTES
from pml.downstream.lines import MAX_LINE, Lines, TooLong
from tests.promises import promise

CAP = 8

lines_of_any_kind = st.lists(
    st.text(alphabet="ab \t\r", max_size=2 * CAP).map(str.encode) | st.binary(max_size=2 * CAP), max_size=8
).map(lambda parts: b"\n".join(part.replace(b"\n", b"") for part in parts))


def expected(data: bytes) -> list[bytes | TooLong]:
    found = [TooLong(CAP) if len(part) > CAP else part.rstrip(b"\r") for part in data.split(b"\n")]
    return [line for line in found if isinstance(line, TooLong) or line.strip()]


@given(lines_of_any_kind, st.lists(st.integers(min_value=0, max_value=200), max_size=20))
def test_any_chunking_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    lines = Lines(cap=CAP)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found: list[bytes | TooLong] = []
    for start, end in pairwise(edges):
        found += lines.feed(data[start:end])
        assert lines.held <= CAP

    assert [*found, *lines.end()] == expected(data)
    assert lines.held == 0


def test_lines_end_with_a_newline_or_with_crlf_and_blank_ones_are_left_out() -> None:
    assert Lines().feed(b"one\r\n\n \t\r\ntwo\nthr") == [b"one", b"two"]


def test_a_last_line_needs_no_newline() -> None:
    lines = Lines()

    assert lines.feed(b"one\ntwo") == [b"one"]
    assert lines.end() == [b"two"]
    assert lines.end() == []


def test_a_line_of_exactly_the_cap_passes_and_one_byte_more_does_not() -> None:
    assert MAX_LINE == MAX_BYTES
    assert Lines(cap=3).feed(b"abc\nabcd\nabc\n") == [b"abc", TooLong(3), b"abc"]


@promise("stdio:garbage-survived")
def test_a_line_of_100_mb_is_reported_once_and_never_held() -> None:
    lines = Lines()
    chunk = b"x" * 1_000_000
    found: list[bytes | TooLong] = []
    for _ in range(100):
        found += lines.feed(chunk)
        assert lines.held <= MAX_LINE

    assert found == [TooLong(MAX_LINE)]
    assert lines.held == 0
    assert lines.feed(b"the rest of it\nnext\n") == [b"next"]
