"""JSON is taken in whole and exactly, or refused with a reason; its canonical spelling is one."""

import json
import random
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.errors import Invalid
from pml.core.values import (
    MAX_BYTES,
    MAX_DEPTH,
    Json,
    canonical,
    check,
    kind_of,
    loads,
    loads_object,
)
from tests.promises import promise

storable_text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable_text, inner, max_size=4),
    max_leaves=12,
)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@given(json_values)
@promise("values:exact")
def test_what_is_taken_in_is_the_value_that_was_sent(value: Json) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value).encode()):
        assert canonical(loads(text)) == canonical(value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a\0b", id="nul"),
        pytest.param("a\u202eb", id="bidi"),
        pytest.param("a\u200bb\ufeff", id="zero width"),
        pytest.param("\r\n\t\x1b[2K", id="controls"),
        pytest.param("\U0001f642\U000e0041", id="beyond the basic plane"),
        pytest.param("é é", id="not normalised"),
        pytest.param("x" * 10_000_000, id="ten megabytes"),
    ],
)
@promise("values:exact")
def test_unusual_text_is_kept_exactly(text: str) -> None:
    value: Json = {text[:1_000]: text}
    assert loads(json.dumps(value)) == value
    assert json.loads(canonical(value)) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "arguments is not JSON: line 1, column 1: expecting value"),
        ('{"a": 1,\n "b" 2}', "arguments is not JSON: line 2, column 6: expecting ':' delimiter"),
        ("[1] 2", "arguments is not JSON: line 1, column 5: extra data"),
        ("'a'", "arguments is not JSON: line 1, column 1: expecting value"),
        ('"a\nb"', "arguments is not JSON: line 1, column 3: invalid control character at"),
        (b'"\xff"', "arguments is not UTF-8: byte 1"),
        ('{"a": 1, "a": 2}', "arguments has the key 'a' twice in one object"),
        ('{"a": 1, "\\u0061": 1}', "arguments has the key 'a' twice in one object"),
        ('[{"x": {"b": 1, "c": 2, "b": 1}}]', "arguments has the key 'b' twice in one object"),
        ('{"\\u202e": 1, "\\u202e": 2}', "arguments has the key '\\u202e' twice in one object"),
        ("NaN", "arguments has NaN, which is not a JSON number"),
        ('{"a": [-Infinity]}', "arguments has -Infinity, which is not a JSON number"),
        ("1e999", "arguments has a number beyond the range of a double"),
        ('{"a": [-1e999]}', "arguments has a number beyond the range of a double"),
        (r'"\ud800"', "arguments has half of a surrogate pair (U+D800)"),
        (r'{"a": ["\udc00x"]}', "arguments has half of a surrogate pair (U+DC00)"),
        (r'{"\udfff": 1}', "arguments has half of a surrogate pair (U+DFFF)"),
    ],
)
@promise("values:exact")
def test_what_two_readers_could_read_differently_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(Invalid) as refusal:
        loads(text, what="arguments")
    assert refusal.value.message == reason


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_thousands_of_digits_is_refused_clearly(sign: str) -> None:
    with pytest.raises(Invalid, match="arguments"):
        loads(sign + "9" * 5_000, what="arguments")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"])
def test_bytes_in_another_encoding_than_plain_utf8_are_refused(encoding: str) -> None:
    with pytest.raises(Invalid):
        loads('{"é": 1}'.encode(encoding))


def test_half_a_surrogate_pair_in_bytes_is_refused() -> None:
    with pytest.raises(Invalid):
        loads(b'"\xed\xa0\x80"')


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1_000, 100_000])
def test_endless_nesting_is_refused_however_deep(levels: int) -> None:
    for text in (nested(levels), '{"a":' * levels + "1" + "}" * levels):
        with pytest.raises(Invalid, match="nested deeper than 256 levels"):
            loads(text)


def test_nesting_up_to_the_limit_is_taken_in() -> None:
    assert canonical(loads(nested(MAX_DEPTH))).decode() == nested(MAX_DEPTH)


def test_a_value_that_was_not_parsed_is_held_to_the_same_limits() -> None:
    deep: Json = 1
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    for value in (deep, float("nan"), [float("inf")], {"a": "\ud800"}, {"\ud800": 1}, ("\udfff",)):
        with pytest.raises(Invalid):
            check(value)


def test_text_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(Invalid, match="arguments has 16,777,217 bytes, more than 16,777,216"):
        loads("[" * (MAX_BYTES + 1), what="arguments")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("null", "null"),
        ("true", "a boolean"),
        ("1", "a number"),
        ("1.5", "a number"),
        ('"x"', "a string"),
        ("[]", "an array"),
        ("{}", "an object"),
    ],
)
def test_only_an_object_is_an_object_and_the_refusal_says_what_it_was(text: str, kind: str) -> None:
    assert kind_of(loads(text)) == kind
    if kind == "an object":
        assert loads_object(text) == {}
        return
    with pytest.raises(Invalid) as refusal:
        loads_object(text, what="arguments")
    assert refusal.value.message == f"arguments must be a JSON object, not {kind}"


def test_the_canonical_spelling_sorts_keys_and_has_no_blanks() -> None:
    value: Json = {"b": [1, 1.0, {"d": None, "c": True}], "a": "ü\n"}
    assert canonical(value) == '{"a":"ü\\n","b":[1,1.0,{"c":true,"d":null}]}'.encode()


@given(json_values, st.randoms(use_true_random=False))
def test_the_canonical_spelling_does_not_depend_on_the_order_of_keys(
    value: Json, order: random.Random
) -> None:
    assert canonical(_reordered(value, order)) == canonical(value)


@given(json_values)
def test_the_canonical_spelling_read_back_is_spelled_the_same(value: Json) -> None:
    once = canonical(value)
    assert canonical(loads(once)) == once
    assert canonical(cast(Json, msgspec.json.decode(once))) == once


@given(json_values, json_values)
def test_different_values_never_share_a_canonical_spelling(one: Json, other: Json) -> None:
    if canonical(one) == canonical(other):
        assert one == other


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0, False), ("1", 1), (None, "null"), ([], {})]
)
def test_values_that_python_or_a_person_might_confuse_are_spelled_differently(one: Json, other: Json) -> None:
    assert canonical(one) != canonical(other)
    assert canonical([one]) != canonical([other])


def _reordered(value: Json, order: random.Random) -> Json:
    if isinstance(value, dict):
        pairs = [(key, _reordered(child, order)) for key, child in value.items()]
        return dict(order.sample(pairs, len(pairs)))
    if isinstance(value, list):
        return [_reordered(child, order) for child in value]
    return value
