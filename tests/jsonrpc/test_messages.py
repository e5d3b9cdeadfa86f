"""What a line is: told for any bytes at all, and read exactly as the strict reader of values reads it."""

import gc
import json
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core import values
from pml.core.errors import Invalid
from pml.core.values import Json
from pml.jsonrpc.codes import INVALID_REQUEST, PARSE_ERROR
from pml.jsonrpc.messages import (
    MAX_BATCH,
    MAX_REASON,
    MAX_VALUES,
    Batch,
    Malformed,
    Notification,
    Request,
    Response,
    as_id,
    read,
    read_envelope,
)
from tests.promises import promise

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
FIELDS = ("jsonrpc", "id", "method", "params", "result", "error")
LIKELY: tuple[Json, ...] = ("2.0", 1, "m", {})
almost_messages = st.dictionaries(st.sampled_from(FIELDS), json_values | st.sampled_from(LIKELY), max_size=6)

# Spellings that are JSON to some and not to all: what is no plain JSON stands beside what is.
SPELLINGS = (
    b"1", b"-0", b"1.0", b"1e5", b"1E5", b"1e400", b"0.1", b"123456789012345678901234567890", b"1" * 5000,
    b"01", b"NaN", b"Infinity", b"-Infinity", b"tru", b"true", b"null", b"undefined",
    b'"a"', b'"\\u0061"', b'"\\/"', b'"/"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"',
    b'"\xed\xa0\x80"', b'"\xff"', b'"\x01"', b'"\x7f"', b'"\\u0000"', b'"\\n"', b'"\\x"', b"'a'",
    b"[]", b"[1,]", b"[1 , 2]", b"{}", b'{"a":1,"a":1}', b'{"a":1,"\\u0061":1}', b'{"a":{"b":1,"b":2}}',
    b'{"":1}', b'{"a":1}', b"{a:1}", b'{"a"}', b"\xef\xbb\xbf1", b"[" * 200 + b"]" * 200,
    b"[" * 253 + b"]" * 253, b"[" * 254 + b"]" * 254, b"[" * 255 + b"]" * 255, b"[" * 50_000, b'"[[[["',
    b'"' + b"[" * 300 + b'"', b'["' + b"x" * 5000 + b'",{"a":1,"a":2}]', b'["' + b"x" * 5000 + b'"]',
)  # fmt: skip


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_told_without_raising(line: bytes) -> None:
    assert isinstance(read(line), Request | Notification | Response | Malformed | Batch)


@given(almost_messages | st.lists(almost_messages, max_size=3))
def test_any_message_that_is_almost_one_is_told_without_raising(value: Json) -> None:
    found = read(json.dumps(value).encode())

    for message in found.messages if isinstance(found, Batch) else (found,):
        assert isinstance(message, Request | Notification | Response | Malformed)
        if isinstance(message, Request):
            assert type(message.id) in (int, str)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_value_is_read_as_the_strict_reader_reads_it(spelling: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"v":%b}}' % spelling
    try:
        expected = values.loads(line)
    except Invalid:
        expected = None
    found = read(line)

    if isinstance(expected, dict):
        assert isinstance(found, Request)
        assert repr(found.params) == repr(expected["params"])
    else:
        assert isinstance(found, Malformed)
        assert found.code == PARSE_ERROR


@given(json_values, st.booleans(), st.booleans())
def test_any_value_is_read_as_the_strict_reader_reads_it(value: Json, compact: bool, ascii: bool) -> None:
    text = json.dumps(value, separators=(",", ":") if compact else None, ensure_ascii=ascii)
    line = b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"v":%b}}' % text.encode(errors="surrogatepass")
    try:
        expected = repr(values.loads_object(line)["params"])
    except Invalid:
        expected = None
    found = read(line)

    assert (repr(found.params) if isinstance(found, Request) else None) == expected


@promise("values:exact")
@pytest.mark.parametrize(
    "params",
    [b'{"path":"/a","path":"/b"}', b'{"a":"\\ud800"}', b'{"a":NaN}', b'{"a":1e999}', b'{"a":%b1%b}'
     % (b"[" * 300, b"]" * 300)],
)  # fmt: skip
def test_arguments_that_parsers_read_differently_are_refused_under_the_id_of_their_request(
    params: bytes,
) -> None:
    found = read(b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":%b}' % params)

    assert isinstance(found, Malformed)
    assert (found.id, found.code) == ("x", PARSE_ERROR)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}',
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m"',
        b'[{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}]',
        b'{"jsonrpc":"2.0","id":true,"method":"m","method":"n"}',
        b"garbage",
        b"\xff\xfe",
        b"",
    ],
)
def test_an_id_that_is_in_doubt_is_not_guessed(line: bytes) -> None:
    found = read(line)

    assert isinstance(found, Malformed)
    assert (found.id, found.code) == (None, PARSE_ERROR)


def test_a_request_has_its_parameters_or_none() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,null]},"extra":true}'

    assert read(line) == Request(1, "m", {"a": [1, None]}, len(line))
    assert read(b'{"jsonrpc":"2.0","id":"","method":"m"}') == Request("", "m", {}, 38)
    assert read(b'{"jsonrpc":"2.0","method":"m"}') == Notification("m", {})


def test_a_response_has_a_result_or_an_error() -> None:
    assert read(b'{"jsonrpc":"2.0","id":"pml-1","result":{"a":1}}') == Response("pml-1", {"a": 1}, None)
    assert read(b'{"jsonrpc":"2.0","id":"pml-1","result":null}') == Response("pml-1", None, None)
    assert read(b'{"jsonrpc":"2.0","id":2,"error":{"code":1}}') == Response(2, None, {"code": 1})


def test_a_complaint_without_an_id_is_a_response_so_that_two_sides_never_answer_errors_with_errors() -> None:
    line = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'

    assert read(line) == Response(None, None, {"code": -32700, "message": "no"})


JSONRPC = '`jsonrpc` must be "2.0"'
PARAMS = "`params` of `m` must be an object, not "
EITHER = "a message has either a `method` or a `result` or an `error`"
ONE_OF_TWO = "a response has either a `result` or an `error`"
ID = "`id` must be a whole number or a string, not "


@pytest.mark.parametrize(
    ("line", "id", "message"),
    [
        (b"1", None, "a message is an object, not a number"),
        (b'"a"', None, "a message is an object, not a string"),
        (b"null", None, "a message is an object, not null"),
        (b"[]", None, "a batch holds at least one message"),
        (b"{}", None, "a message has a `method`, a `result` or an `error`"),
        (b'{"jsonrpc":"2.0","id":5}', 5, "a message has a `method`, a `result` or an `error`"),
        (b'{"id":5,"method":"m"}', 5, JSONRPC),
        (b'{"jsonrpc":"1.0","id":5,"method":"m"}', 5, JSONRPC),
        (b'{"jsonrpc":2.0,"id":5,"method":"m"}', 5, JSONRPC),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', None, ID + "null"),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', None, ID + "a boolean"),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"m"}', None, ID + "a fraction"),
        (b'{"jsonrpc":"2.0","id":{},"method":"m"}', None, ID + "an object"),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', 5, "`method` must be a string, not a number"),
        (b'{"jsonrpc":"2.0","id":5,"method":null}', 5, "`method` must be a string, not null"),
        (b'{"jsonrpc":"2.0","id":5,"method":"m","params":[1]}', 5, PARAMS + "an array"),
        (b'{"jsonrpc":"2.0","id":5,"method":"m","params":null}', 5, PARAMS + "null"),
        (b'{"jsonrpc":"2.0","id":5,"method":"m","result":{}}', 5, EITHER),
        (b'{"jsonrpc":"2.0","id":5,"method":"m","error":{}}', 5, EITHER),
    ],
)  # fmt: skip
def test_json_that_is_no_message_is_refused_with_the_reason(
    line: bytes, id: int | None, message: str
) -> None:
    assert read(line) == Malformed(id, INVALID_REQUEST, message)


@pytest.mark.parametrize(
    ("line", "response_to", "message"),
    [
        (b'{"jsonrpc":"2.0","id":"a","result":{},"error":{}}', "a", ONE_OF_TWO),
        (b'{"jsonrpc":"2.0","id":"a","error":"no"}', "a", "`error` must be an object, not a string"),
        (b'{"id":"a","result":{}}', "a", JSONRPC),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', None, ID + "null"),
        (b'{"jsonrpc":"2.0","id":1.5,"error":{}}', None, ID + "a fraction"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_response_is_not_said_under_its_id(
    line: bytes, response_to: str | None, message: str
) -> None:
    assert read(line) == Malformed(None, INVALID_REQUEST, message, response_to)


def test_a_batch_is_read_message_by_message() -> None:
    line = b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},1,[]]'

    assert read(line) == Batch(
        (
            Request(1, "a", {}, len(line)),
            Notification("b", {}),
            Malformed(None, INVALID_REQUEST, "a message is an object, not a number"),
            Malformed(None, INVALID_REQUEST, "a message is an object, not an array"),
        )
    )


def test_a_batch_of_too_many_messages_is_refused_as_one() -> None:
    fits = read(b"[" + b",".join([b"1"] * MAX_BATCH) + b"]")
    too_many = read(b"[" + b",".join([b"1"] * (MAX_BATCH + 1)) + b"]")

    assert isinstance(fits, Batch)
    assert too_many == Malformed(None, INVALID_REQUEST, "a batch holds at most 4,096 messages")


def test_a_reason_that_quotes_the_input_is_cut() -> None:
    key = b"k" * 10_000
    found = read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"%b":1,"%b":2}}' % (key, key))

    assert isinstance(found, Malformed)
    assert len(found.message) == MAX_REASON + 1


EMPTY: list[Json] = []


def request_with(params: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "m", "params": params, "id": 7}).encode()


@promise("message:bounded")
@pytest.mark.parametrize("rows", [[EMPTY] * MAX_VALUES, [0] * MAX_VALUES, [[0]] * (MAX_VALUES // 2)])
def test_more_values_than_are_built_are_refused_under_the_id_of_the_request(rows: list[Json]) -> None:
    message = "a message holds at most 100,000 values"
    assert read(request_with({"rows": rows})) == Malformed(7, INVALID_REQUEST, message)


@promise("message:bounded")
def test_of_too_many_values_none_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: bytes) -> Json:
        raise AssertionError("it was built")

    monkeypatch.setattr("pml.jsonrpc.messages._strict", refuse)

    assert isinstance(read(request_with({"rows": [EMPTY] * MAX_VALUES})), Malformed)
    assert isinstance(read(b"[" * 1_000_000), Malformed)


@pytest.mark.parametrize(
    "params",
    [
        {"rows": [EMPTY] * (MAX_VALUES - 10)},
        {"text": "a, [b], {c}" * MAX_VALUES},
        {"text": '\\", [\\\\"' * MAX_VALUES},
    ],
)
def test_as_many_values_as_there_may_be_are_read_and_a_text_is_one_whatever_it_holds(params: Json) -> None:
    line = request_with(params)
    assert read(line) == Request(7, "m", params, len(line))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("line", [b"{" + b" " * 5000, request_with({"text": "x" * 5000})])
def test_garbage_is_collected_again_after_a_long_line(line: bytes) -> None:
    read(line)
    assert gc.isenabled()


def test_an_envelope_leaves_the_inside_as_it_was_written() -> None:
    found = read_envelope(b'{"id": 1, "jsonrpc": 2, "result": {"a" : 1, "a": 2}, "extra": []}')

    assert (found.id, found.jsonrpc, found.method) == (1, 2, None)
    assert bytes(cast(msgspec.Raw, found.result)) == b'{"a" : 1, "a": 2}'
    assert (found.params, found.error) == (msgspec.UNSET, msgspec.UNSET)


@pytest.mark.parametrize("line", [b"1", b"[]", b'{"id":1.5}', b'{"id":[]}', b'{"method":1}', b'{"id":1'])
def test_what_is_not_the_outside_of_a_message_is_no_envelope(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_envelope(line)


@pytest.mark.parametrize("value", [True, False, None, 1.0, [], {}])
def test_an_id_is_a_whole_number_or_a_string(value: Json) -> None:
    assert as_id(value) is None
    assert (as_id(0), as_id("")) == (0, "")
