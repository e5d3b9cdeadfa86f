"""Events cut from a stream, however its bytes are chunked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.upstream.remote.message import header_value
from pml.upstream.remote.sse_events import Event, EventReader, TooLarge

STREAM = (
    b"\xef\xbb\xbf: hello\n\nid: 1\nretry: 20\ndata: a\ndata: b\n\nevent: endpoint\r\ndata: /x\r\n\r\n"
    b"data:c\rid: 2\r\rdata\n\nevent: left\n"
)
EVENTS = [
    Event(),
    Event(id="1", retry_ms=20, data=b"a\nb"),
    Event(kind="endpoint", data=b"/x"),
    Event(data=b"c", id="2"),
    Event(),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_however_they_arrive(cuts: list[int]) -> None:
    reader, found, at = EventReader(1000), list[Event](), 0
    for cut in [*sorted(cuts), len(STREAM)]:
        found += reader.feed(STREAM[at:cut])
        at = cut
    assert found == EVENTS


@pytest.mark.parametrize("chunk", [b"data: xxxx\n", b"data: xxxxxxx", b"x\n"])
def test_an_event_without_end_is_too_large(chunk: bytes) -> None:
    reader = EventReader(100)
    endless = (reader.feed(chunk) for _ in range(200))
    with pytest.raises(TooLarge):
        list(endless)


@pytest.mark.parametrize("value", [b"id: a\0b", b"id: \xff", b"retry: x", b"retry: 99999999999"])
def test_what_an_event_cannot_mean_is_left_out(value: bytes) -> None:
    assert EventReader(100).feed(value + b"\n\n") == [Event()]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("echo", b"echo"),
        ("a b", b"a b"),
        (" a", b"=?base64?IGE=?="),
        ("a\nb", b"=?base64?YQpi?="),
        ("=?base64?YQ==?=", b"=?base64?PT9iYXNlNjQ/WVE9PT89?="),
    ],
)
def test_a_name_in_a_header_can_be_read_back(text: str, sent: bytes) -> None:
    assert header_value(text) == sent
