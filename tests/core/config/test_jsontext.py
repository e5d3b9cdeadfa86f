"""Reading JSON text: the value is the standard reader's, every refusal has its place and its reason."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.config.jsontext import MAX_NESTING, Node, parse, parse_relaxed
from pml.core.errors import ConfigInvalid
from pml.core.values import Json
from tests.promises import promise

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES: st.SearchStrategy[Json] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
LAYOUTS = st.sampled_from(
    [
        {"indent": 2},
        {"indent": 4},
        {"indent": "\t"},
        {"indent": None},
        {"separators": (",", ":")},
        {"ensure_ascii": False},
    ]
)


def walk(node: Node) -> list[Node]:
    inner = [*node.members.values(), *node.items]
    return [node, *(found for child in inner for found in walk(child))]


@given(VALUES, LAYOUTS)
def test_any_json_reads_as_the_standard_reader_reads_it(value: Json, layout: dict[str, object]) -> None:
    text = json.dumps(value, **layout)  # pyright: ignore[reportArgumentType]
    assert parse(text, path="f").value == json.loads(text)


@given(VALUES, LAYOUTS)
def test_every_node_spans_exactly_its_own_text(value: Json, layout: dict[str, object]) -> None:
    text = json.dumps(value, **layout)  # pyright: ignore[reportArgumentType]
    for node in walk(parse(text, path="f")):
        assert json.loads(text[node.start : node.end]) == node.value
        lines = text[: node.start].split("\n")
        assert (node.line, node.column) == (len(lines), len(lines[-1]) + 1)
        assert {name: key.value for name, key in node.keys.items()} == {name: name for name in node.members}


@given(st.text(max_size=30) | st.text(alphabet='{}[]",:0123456789.eE+-\\u tfn\n#/', max_size=30))
def test_any_text_is_either_read_as_the_standard_reader_does_or_refused(text: str) -> None:
    with suppress(ConfigInvalid):
        assert parse(text, path="f").value == json.loads(text.removeprefix("\ufeff"))


REFUSALS = [
    ("", 1, 1, "the file is empty; expected a JSON value"),
    (" \n\t\n ", 3, 2, "the file is empty; expected a JSON value"),
    ("\ufeff", 1, 1, "the file is empty; expected a JSON value"),
    ('{"a": 1,}', 1, 8, "trailing comma: nothing follows it before `}`"),
    ("[\n  1,\n]", 2, 4, "trailing comma: nothing follows it before `]`"),
    ('{"a": 1 // one\n}', 1, 9, "JSON has no comments"),
    ("{\n# one\n}", 2, 1, "JSON has no comments"),
    ("[/* one */]", 1, 2, "JSON has no comments"),
    ('{"a": NaN}', 1, 7, "`NaN` is not a JSON number"),
    ("[-Infinity]", 1, 2, "`-Infinity` is not a JSON number"),
    ("[1e999]", 1, 2, "`1e999` is beyond the range of a double"),
    ("[-1e999]", 1, 2, "`-1e999` is beyond the range of a double"),
    ("[" + "9" * 400 + "]", 1, 2, "`" + "9" * 80 + "…` is beyond the range of a double"),
    ("[01]", 1, 2, "`01` is not a JSON number"),
    ("[+1]", 1, 2, "`+1` is not a JSON number"),
    ("[.5]", 1, 2, "`.5` is not a JSON number"),
    ("[1.]", 1, 2, "`1.` is not a JSON number"),
    ("[١]", 1, 2, "`١` is not a JSON value"),
    ("[True]", 1, 2, "`True` is not a JSON value"),
    ("['a']", 1, 2, "expected a value, found `'`"),
    ("[\u00a01]", 1, 2, "expected a value, found `\\u{a0}`"),
    ("{a: 1}", 1, 2, "expected a key in double quotes, found `a`"),
    ('{"a" 1}', 1, 6, "expected `:` after the key `a`, found `1`"),
    ('{"a": }', 1, 7, "expected a value, found `}`"),
    ('{"a": 1\n "b": 2}', 2, 2, 'expected `,` or `}`, found `"`'),
    ("[1 2]", 1, 4, "expected `,` or `]`, found `2`"),
    ("[1]\n]", 2, 1, "expected the end of the file, found `]`"),
    ("{\n\n", 3, 1, "expected a key in double quotes, found the end of the file"),
    ('\n{"a": 1\n', 3, 1, "the object opened at line 2 is never closed with `}`"),
    ("[[1]", 1, 5, "the array opened at line 1 is never closed with `]`"),
    ('["a\n"]', 1, 2, 'the string is never closed with `"` on its line'),
    ('["a', 1, 2, 'the string is never closed with `"` on its line'),
    ('["a\tb"]', 1, 4, "the control character U+0009 in a string must be escaped"),
    ('["a\\x"]', 1, 4, "`\\\\x` is not an escape of JSON"),
    ('["a\\', 1, 4, "`\\\\` is not an escape of JSON"),
    ('["\\u12g4"]', 1, 3, "`\\u` must be followed by four hexadecimal digits"),
    ('["a\\ud800"]', 1, 4, "half of a surrogate pair (U+D800) in a string"),
    ('["\\ud800\\u0041"]', 1, 3, "half of a surrogate pair (U+D800) in a string"),
    ('["\\ude00\\ud83d"]', 1, 3, "half of a surrogate pair (U+DE00) in a string"),
    ('["\ud800"]', 1, 3, "half of a surrogate pair (U+D800) in a string"),
    ("[" * 65 + "]" * 65, 1, 65, f"nested deeper than {MAX_NESTING} levels"),
    ('{\r\n"a": 1,\r\n"b" 2}', 3, 5, "expected `:` after the key `b`, found `2`"),
    ('{\r"b" 2}', 2, 5, "expected `:` after the key `b`, found `2`"),
]


@pytest.mark.parametrize(("text", "line", "column", "problem"), REFUSALS)
def test_what_is_not_json_is_refused_with_place_and_reason(
    text: str, line: int, column: int, problem: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        parse(text, path="a/.pml.json")
    error = refused.value
    assert (error.path, error.line, error.column, error.problem) == ("a/.pml.json", line, column, problem)


@promise("config:duplicate-keys-refused")
@pytest.mark.parametrize("second", ["allow", "\\u0061llow"])
def test_a_duplicate_key_is_refused_at_the_second_naming_the_line_of_the_first(second: str) -> None:
    text = f'{{\n  "allow": [],\n  "deny": [],\n  "{second}": ["*"]\n}}'
    with pytest.raises(ConfigInvalid) as refused:
        parse(text, path="f")
    error = refused.value
    assert (error.line, error.column) == (4, 3)
    assert error.problem == "duplicate key `allow`: it is already at line 2"


def test_a_byte_order_mark_is_passed_over_and_counts_as_no_column() -> None:
    node = parse("\ufeff[1]", path="f")
    assert (node.value, node.line, node.column, node.start) == ([1], 1, 1, 1)


def test_nesting_is_read_to_the_limit() -> None:
    assert parse("[" * MAX_NESTING + "]" * MAX_NESTING, path="f").line == 1


def test_numbers_keep_their_kind() -> None:
    values = parse("[1, 1.0, 1e2, -0, 12345678901234567890]", path="f").value
    assert repr(values) == "[1, 1.0, 100.0, 0, 12345678901234567890]"


FILLINGS = st.sampled_from(["", " ", "\n", "// a } comment\n", "/* an ] other */", "/**/ // and\r\n\t"])


@given(VALUES, st.lists(FILLINGS, min_size=1, max_size=8), st.booleans())
def test_an_editors_json_is_read_as_without_its_comments_and_last_commas(
    value: Json, fillings: list[str], has_commas: bool
) -> None:
    def spelled(each: Json, depth: int) -> str:
        fill = fillings[depth % len(fillings)]
        last = "," if has_commas else ""
        if isinstance(each, dict) and each:
            members = (f"{fill}{json.dumps(key)}{fill}:{spelled(it, depth + 1)}" for key, it in each.items())
            inner = ",".join(members)
            return f"{{{inner}{fill}{last}{fill}}}"
        if isinstance(each, list) and each:
            return f"[{','.join(fill + spelled(it, depth + 1) for it in each)}{fill}{last}{fill}]"
        return json.dumps(each)

    text = f"{fillings[0]}{spelled(value, 0)}{fillings[-1]}"
    root = parse_relaxed(text, path="f")
    assert root.value == value
    for node in walk(root):
        assert parse_relaxed(text[node.start : node.end], path="f").value == node.value


@given(st.text(max_size=30) | st.text(alphabet='{}[]",:01 \n/*\\ud8', max_size=30))
def test_what_is_json_is_read_the_same_as_an_editors(text: str) -> None:
    with suppress(ConfigInvalid):
        assert parse_relaxed(text, path="f").value == parse(text, path="f").value


@pytest.mark.parametrize(
    ("text", "place"),
    [("{} /* open", (1, 4)), ("[1,,2]", (1, 4)), ("{,}", (1, 2)), ("# no\n{}", (1, 1)), ("[/", (1, 2))],
)
def test_what_no_editor_reads_is_refused_with_its_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_relaxed(text, path="f")
    assert (caught.value.line, caught.value.column) == place


def test_half_of_a_surrogate_pair_in_an_editors_json_is_replaced() -> None:
    assert parse_relaxed('["\\ud83d cut"]', path="f").value == ["\ufffd cut"]
