"""Editing JSON text: the value changes as asked, and no other character of the file does."""

import copy
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.config.jsonedit import (
    append_item,
    remove_item,
    remove_member,
    replace_item,
    set_member,
    set_value,
)
from pml.core.config.jsontext import parse
from pml.core.errors import ConfigInvalid
from pml.core.values import Json

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
LISTS = st.lists(VALUES, max_size=4)
PERMISSIONS = st.dictionaries(st.sampled_from(["allow", "deny", "ask"]), LISTS)
CONFIGS = st.dictionaries(TEXTS, VALUES, max_size=3).flatmap(
    lambda rest: st.just(rest) | PERMISSIONS.map(lambda found: {**rest, "permissions": found})
)
ALLOW = ("permissions", "allow")


def spelled(value: Json) -> st.SearchStrategy[str]:
    """Spell `value` with blanks of any kind wherever JSON lets them stand."""
    return st.randoms(use_true_random=False).map(lambda random: spell(value, random))


def spell(value: Json, random: Random) -> str:
    def blank() -> str:
        return "".join(random.choices(" \t\n", k=random.randint(0, 3)))

    match value:
        case dict():
            members = (
                f"{blank()}{json.dumps(key)}{blank()}:{spell(item, random)}" for key, item in value.items()
            )
            inner = "{" + ",".join(members) + blank() + "}"
        case list():
            inner = "[" + ",".join(spell(item, random) for item in value) + blank() + "]"
        case _:
            inner = json.dumps(value)
    return blank() + inner + blank()


@given(st.data(), CONFIGS, VALUES, st.sampled_from(["\n", "\r\n"]))
def test_appending_changes_the_value_as_asked_and_no_other_text(
    data: st.DataObject, config: dict[str, Any], value: Any, line_end: str
) -> None:
    text = data.draw(spelled(config)).replace("\n", line_end)
    after = append_item(text, ALLOW, value, path="f")
    expected = copy.deepcopy(config)
    expected.setdefault("permissions", {}).setdefault("allow", []).append(value)
    assert parse(after, path="f").value == expected
    assert list(parse(after, path="f").members) == list(expected)
    start, end = common_ends(text, after)
    replaced = text[start : len(text) - end]
    assert replaced.strip() == ""


@given(st.data(), PERMISSIONS.filter(lambda found: any(found.values())), st.sampled_from(["\n", "\r\n"]))
def test_removing_changes_the_value_as_asked_and_no_other_text(
    data: st.DataObject, permissions: dict[str, list[Any]], line_end: str
) -> None:
    effect = data.draw(st.sampled_from([name for name, items in permissions.items() if items]))
    index = data.draw(st.integers(0, len(permissions[effect]) - 1))
    text = data.draw(spelled({"permissions": permissions, "n": 1.50})).replace("\n", line_end)
    after = remove_item(text, ("permissions", effect), index, path="f")
    del permissions[effect][index]
    assert parse(after, path="f").value == {"permissions": permissions, "n": 1.50}
    start, end = common_ends(text, after)
    assert start + end == len(after)


@given(st.data(), PERMISSIONS, VALUES)
def test_what_was_appended_can_be_removed_again(
    data: st.DataObject, permissions: dict[str, list[Any]], value: Any
) -> None:
    text = data.draw(spelled({"permissions": {**permissions, "allow": [1]}}))
    after = append_item(text, ALLOW, value, path="f")
    assert remove_item(after, ALLOW, 1, path="f") == text


@given(st.data(), LISTS.filter(bool), VALUES)
def test_replacing_changes_that_element_and_no_other_text(
    data: st.DataObject, items: list[Any], value: Any
) -> None:
    index = data.draw(st.integers(0, len(items) - 1))
    text = data.draw(spelled({"permissions": {"allow": items}, "n": 1.50}))
    after = replace_item(text, ALLOW, index, value, path="f")
    expected = [*items[:index], value, *items[index + 1 :]]
    assert parse(after, path="f").value == {"permissions": {"allow": expected}, "n": 1.50}


OBJECTS = st.dictionaries(st.sampled_from(["tool", "args", "id", "on"]), VALUES)


@given(st.data(), OBJECTS, VALUES, st.sampled_from(["\n", "\r\n"]))
def test_setting_a_member_changes_the_value_as_asked(
    data: st.DataObject, item: dict[str, Any], value: Any, line_end: str
) -> None:
    text = data.draw(spelled({"permissions": {"allow": [1, item]}})).replace("\n", line_end)
    after = set_member(text, ALLOW, 1, "on", value, path="f")
    assert parse(after, path="f").value == {"permissions": {"allow": [1, {**item, "on": value}]}}


@given(st.data(), OBJECTS.filter(lambda found: "on" not in found and bool(found)), VALUES)
def test_a_member_that_was_set_can_be_removed_again(
    data: st.DataObject, item: dict[str, Any], value: Any
) -> None:
    text = data.draw(spelled({"permissions": {"allow": [item]}}))
    after = set_member(text, ALLOW, 0, "on", value, path="f")
    assert remove_member(after, ALLOW, 0, "on", path="f") == text


@pytest.mark.parametrize("index", [1, 2])
def test_an_element_or_a_member_that_is_not_there_is_a_lookup_error(index: int) -> None:
    text = '{"permissions": {"allow": ["a", {"b": 1}]}}'
    with pytest.raises((LookupError, ValueError)):
        remove_member(text, ALLOW, index, "c", path="f")


def common_ends(one: str, other: str) -> tuple[int, int]:
    """Return how many characters agree at the start, and how many of the rest at the end."""
    shorter = min(len(one), len(other))
    start = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if one[-1 - at] != other[-1 - at]), rest)
    return start, end


APPENDED = [
    ('{"permissions": {"allow": ["a"]}}', '{"permissions": {"allow": ["a", "new"]}}'),
    ('{"permissions":{"allow":["a","b"]}}', '{"permissions":{"allow":["a","b","new"]}}'),
    ('{"permissions": {"allow": []}}', '{"permissions": {"allow": ["new"]}}'),
    ('{"permissions":{}}', '{"permissions":{"allow":["new"]}}'),
    ("{}", '{\n  "permissions": {\n    "allow": [\n      "new"\n    ]\n  }\n}'),
    ('{"a": 1}\n', '{"a": 1, "permissions": {"allow": ["new"]}}\n'),
    (
        '{\n   "a": 1.50\n}\n',
        '{\n   "a": 1.50,\n   "permissions": {\n      "allow": [\n         "new"\n      ]\n   }\n}\n',
    ),
    (
        '{\n\t"permissions": {\n\t\t"allow": [],\n\t\t"deny": []\n\t}\n}',
        '{\n\t"permissions": {\n\t\t"allow": [\n\t\t\t"new"\n\t\t],\n\t\t"deny": []\n\t}\n}',
    ),
    (
        '{\r\n  "permissions": {\r\n    "allow": [\r\n      "a"\r\n    ]\r\n  }\r\n}\r\n',
        '{\r\n  "permissions": {\r\n    "allow": [\r\n      "a",\r\n      "new"\r\n    ]\r\n  }\r\n}\r\n',
    ),
    (
        '{\r\n  "permissions": {}\r\n}',
        '{\r\n  "permissions": {\r\n    "allow": [\r\n      "new"\r\n    ]\r\n  }\r\n}',
    ),
    (
        '{"permissions": {"allow": [\n  "a",\n\n  "b"\n]}}',
        '{"permissions": {"allow": [\n  "a",\n\n  "b",\n  "new"\n]}}',
    ),
    (
        '{"permissions": {"allow": [\n    "a"\n  , "b"\n]}}',
        '{"permissions": {"allow": [\n    "a"\n  , "b"\n  , "new"\n]}}',
    ),
    (
        '\ufeff{"permissions": {"allow": ["a"]}}',
        '\ufeff{"permissions": {"allow": ["a", "new"]}}',
    ),
]


@pytest.mark.parametrize(("before", "after"), APPENDED)
def test_a_new_item_is_written_as_its_neighbours_are(before: str, after: str) -> None:
    assert append_item(before, ALLOW, "new", path="f") == after


REMOVED = [
    ('{"a": ["x", "y", "z"]}', 0, '{"a": ["y", "z"]}'),
    ('{"a": ["x", "y", "z"]}', 1, '{"a": ["x", "z"]}'),
    ('{"a": ["x", "y", "z"]}', 2, '{"a": ["x", "y"]}'),
    ('{"a": [\n  "x"\n]}', 0, '{"a": []}'),
    ('{"a": [\r\n  "x",\r\n  "y"\r\n]}', 0, '{"a": [\r\n  "y"\r\n]}'),
    ('{"a": [\r\n  "x",\r\n  "y"\r\n]}', 1, '{"a": [\r\n  "x"\r\n]}'),
]


@pytest.mark.parametrize(("before", "index", "after"), REMOVED)
def test_a_removed_item_leaves_no_gap(before: str, index: int, after: str) -> None:
    assert remove_item(before, ("a",), index, path="f") == after


def test_a_new_entry_stands_on_one_line_and_hides_no_character() -> None:
    text = '{\n  "permissions": {\n    "allow": [\n      "a"\n    ]\n  }\n}'
    entry = {"tool": "x:y", "args": {"path": "é\u202e\U000e0001"}}
    after = append_item(text, ALLOW, entry, path="f")
    line = '      {"tool": "x:y", "args": {"path": "é\\u202e\\udb40\\udc01"}}'
    assert after == text.replace('      "a"', '      "a",\n' + line)
    assert parse(after, path="f").members["permissions"].members["allow"].items[1].value == entry


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("[]", 1, 1, "the file must be an object, not an array"),
        ('{\n  "permissions": 1}', 2, 18, "`permissions` must be an object, not a number"),
        ('{"permissions": {"allow": {}}}', 1, 27, "`permissions.allow` must be an array, not an object"),
        ('{"permissions": {"allow": [}}', 1, 28, "expected a value, found `}`"),
    ],
)
def test_appending_where_no_array_can_be_is_refused_with_its_place(
    text: str, line: int, column: int, problem: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        append_item(text, ALLOW, "new", path="f")
    assert (refused.value.line, refused.value.column, refused.value.problem) == (line, column, problem)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "approval": {\n    "model": "never"\n  }\n}'),
        ('{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "approval": {\n    "model": "never"\n  }\n}\n'),
        ('{"a": 1}', '{"a": 1, "approval": {"model": "never"}}'),
        ('{"approval": {}}', '{"approval": {"model": "never"}}'),
        ('{"approval": {"x": 1.0}}', '{"approval": {"x": 1.0, "model": "never"}}'),
        ('{"approval": {"model": "always", "x": 1}}', '{"approval": {"model": "never", "x": 1}}'),
    ],
)
def test_a_value_is_set_and_all_else_stays(before: str, after: str) -> None:
    assert set_value(before, ("approval", "model"), "never", path="f") == after


def test_a_value_is_not_set_within_what_is_not_an_object() -> None:
    with pytest.raises(ConfigInvalid, match="must be an object"):
        set_value('{"approval": []}', ("approval", "model"), "never", path="f")
