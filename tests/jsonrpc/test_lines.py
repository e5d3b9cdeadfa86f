"""Any chunking gives the same lines, none makes the reader hold more than its cap, and messages are lines."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.values import MAX_BYTES
from pml.jsonrpc.lines import (
    MAX_LINE,
    Lines,
    TooLong,
    error_line,
    notification_line,
    request_line,
    result_line,
)
from pml.jsonrpc.messages import Notification, Request, Response, RpcError, read
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


@pytest.mark.parametrize("id", [7, "a\n"])
def test_what_is_written_is_read_as_the_same_message(id: int | str) -> None:
    request = request_line(id, "m", {"text": "a\nb"})
    result = result_line(id, b'{\n"a":\n1}')
    error = error_line(id, RpcError(-32000, "no", data={"hint": "a\nb"}))

    assert read(request) == Request(id, "m", {"text": "a\nb"}, len(request))
    assert read(notification_line("m", {"a": 1})) == Notification("m", {"a": 1})
    assert read(result) == Response(id, {"a": 1}, None)
    assert read(error) == Response(id, None, {"code": -32000, "message": "no", "data": {"hint": "a\nb"}})
    assert b"\n" not in request + result + error


def test_an_error_of_a_server_stays_as_it_was_written() -> None:
    raw = b'{"code": 1.0e0,\n"message": "no", "code2": 2}'
    line = error_line(None, RpcError(0, "another", raw=raw))

    assert line == b'{"jsonrpc":"2.0","id":null,"error":%b}' % raw.replace(b"\n", b" ")
