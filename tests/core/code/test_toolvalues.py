"""What code gets from a tool: plain data, whatever the result looks like."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.code.tool_values import is_asking, value_of
from pml.core.errors import ToolFailed

PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def value(result: Any) -> Any:
    return json.loads(value_of(json.dumps(result).encode(), tool="notes:add"))


@pytest.mark.parametrize(
    ("result", "gets"),
    [
        ({"content": [text("hello")]}, "hello"),
        ({"content": [text("one"), text("two")]}, "one\ntwo"),
        ({"content": [text('{"a": 1}')]}, '{"a": 1}'),
        ({"content": []}, ""),
        ({}, ""),
        ({"content": [text("words")], "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": [text("words")], "structuredContent": []}, []),
        ({"content": [text("words")], "structuredContent": 0}, 0),
        ({"content": [text("words")], "structuredContent": False}, False),
        ({"content": [text("words")], "structuredContent": {}}, {}),
        ({"content": [text("words")], "structuredContent": None}, "words"),
        ({"content": [PICTURE]}, [PICTURE]),
        ({"content": [text("see"), PICTURE]}, [text("see"), PICTURE]),
        ({"content": [text("hello")], "isError": False, "_meta": {"x": 1}}, "hello"),
        ({"content": [{"type": "text"}]}, ""),
        ({"content": [{"type": "text", "text": 7}]}, ""),
    ],
)
def test_a_result_is_its_structure_or_its_text_or_its_blocks(result: Any, gets: Any) -> None:
    assert value(result) == gets


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"content": [text("no such file")], "isError": True}, "no such file"),
        ({"content": [text("one"), PICTURE, text("two")], "isError": True}, "one\ntwo"),
        ({"content": [], "isError": True}, "notes:add failed and does not say why"),
        ({"isError": True, "structuredContent": {"a": 1}}, "notes:add failed and does not say why"),
    ],
)
def test_a_tool_that_says_it_failed_is_an_error_with_its_words(result: Any, says: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        value(result)

    assert (failed.value.message, failed.value.refusal) == (says, "tool_failed")


@pytest.mark.parametrize(
    "result",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"content": "text"}',
        b'{"content": [7]}',
        b'{"isError": "true"}',
        b'{"content": null}',
        b'{"structuredContent": nonsense}',
        b"\xff",
    ],
)
def test_what_is_no_result_is_an_error_and_never_data(result: bytes) -> None:
    with pytest.raises(ToolFailed, match="notes:add is none that MCP knows"):
        value_of(result, tool="notes:add")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_structure_arrives_exactly_as_it_was_written(structure: Any) -> None:
    result = json.dumps({"content": [], "structuredContent": structure}).encode()

    assert json.loads(value_of(result, tool="x:y")) == ("" if structure is None else structure)


@given(st.text())
def test_a_text_arrives_whole(words: str) -> None:
    result = msgspec.json.encode({"content": [{"type": "text", "text": words}]})

    assert msgspec.json.decode(value_of(result, tool="x:y")) == words


@pytest.mark.parametrize(
    ("result", "asks"),
    [
        (b'{"approval_required": true}', True),
        (b'{"approval_required": true, "content": []}', True),
        (b'{"approval_required": false}', False),
        (b'{"approval_required": "true"}', False),
        (b'{"approval_required": 1}', False),
        (b'{"structuredContent": {"approval_required": true}}', False),
        (b'{"content": [{"type": "text", "text": "\\"approval_required\\": true"}]}', False),
        (b"{}", False),
        (b"[]", False),
        (b"", False),
        (b"\xff", False),
    ],
)
def test_only_a_result_that_is_a_question_itself_is_one(result: bytes, asks: bool) -> None:
    assert is_asking(result) is asks
