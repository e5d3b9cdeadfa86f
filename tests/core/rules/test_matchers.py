"""Literals, text globs, and the way to an argument, judged for an allow and for a deny."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.rules.globs import Glob
from pml.core.rules.matchers import Is, Matcher, Reach, RuleInvalid, Text, Under
from pml.core.rules.places import CallContext
from pml.core.values import Json, JsonObject
from tests.core.judging import NARROW, PATHS, WIDE, RealPaths, allows, denies, parse
from tests.promises import promise


@promise("rules:literals-stay-literal")
@pytest.mark.parametrize(
    ("literal", "other"),
    [("*", "x"), ("?", "x"), ("[draft]", "d"), ("a*", "ab"), ("a.c", "abc"), ("~", "/home/ada"), ("A", "a")],
)
def test_a_literal_value_is_never_a_pattern(literal: str, other: str) -> None:
    for spec in (literal, {"is": literal}):
        assert allows(spec, literal)
        assert denies(spec, literal)
        assert not allows(spec, other)
        assert not denies(spec, other)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, False, False),
        (None, "", False),
        (None, None, True),
        ([1, [2]], [1.0, [2]], True),
        ([1], [True], False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({}, [], False),
        ([], {}, False),
        ([], "", False),
    ],
)
def test_literals_are_equal_as_json(left: Json, right: Json, equal: bool) -> None:
    for one, other in ((left, right), (right, left)):
        assert allows({"is": one}, other) is equal
        assert denies({"is": one}, other) is equal


def test_a_deny_finds_a_literal_in_a_list_and_an_allow_needs_the_whole_value() -> None:
    assert denies("main", ["dev", "main"])
    assert denies("main", [["main"]])
    assert denies(["main"], [["main"], "dev"])
    assert not denies("main", ["dev", "maintenance"])
    assert not allows("main", ["main"])
    assert not allows("main", ["dev", "main"])
    assert allows(["main"], ["main"])


LITERAL_HINT = 'write {"is": {…}} for a literal object'


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ({}, LITERAL_HINT),
        ({"a": 1}, LITERAL_HINT),
        ({"is": 1, "under": "/"}, LITERAL_HINT),
        ({"regex": "x"}, LITERAL_HINT),
        ({"undr": "/"}, "did you mean `under`?"),
        ({"UNDER": "/"}, "did you mean `under`?"),
        ({"hots": "x"}, "did you mean `host`?"),
    ],
)
def test_an_object_that_is_no_matcher_is_refused(spec: Json, hint: str) -> None:
    with pytest.raises(RuleInvalid, match="needs a literal or one of") as caught:
        parse("it", spec)
    assert (caught.value.pointer, caught.value.hint) == ((), hint)


def test_a_text_glob_takes_brackets_for_themselves_and_lists_element_by_element() -> None:
    assert parse("title", {"glob": "[draft]*"}) == Matcher(
        segments=("title",), condition=Text(Glob("[draft]*"))
    )
    for judge in (allows, denies):
        assert judge({"glob": "[draft]*"}, "[draft] x\ny")
        assert not judge({"glob": "[draft]*"}, "d")
        assert not judge({"glob": "a*"}, "A")
    assert allows({"glob": "a*"}, ["ab", ["ac"]])
    assert not allows({"glob": "a*"}, ["ab", "b"])
    assert denies({"glob": "a*"}, ["b", ["ab"]])


@promise("rules:doubt-denies")
@pytest.mark.parametrize("value", [None, True, 1, 1.5, {}, {"a": "ab"}, ["ab", 1], [["ab"], {}]])
def test_a_value_of_another_type_is_no_text(value: Json) -> None:
    assert not allows({"glob": "*"}, value)
    assert denies({"glob": "zz*"}, value)


@pytest.mark.parametrize("spec", [{"glob": "*"}, {"under": "/"}, {"host": "*"}])
@pytest.mark.parametrize("value", [[], [[]]])
def test_an_empty_list_matches_nothing(spec: Json, value: Json) -> None:
    assert not allows(spec, value)
    assert not denies(spec, value)


def test_an_allow_does_not_pass_over_an_empty_list_among_others() -> None:
    assert not allows({"glob": "*"}, ["a", []])
    assert denies({"glob": "a"}, ["a", []])


@promise("rules:commands-never-by-glob")
@pytest.mark.parametrize(
    "argument",
    "command Command cOmMaNd cmd code script argv sql shell_command pythonCode SQLQuery bash-script "
    "script_path function /steps/command /command/0 /commands/text".split(),
)
@pytest.mark.parametrize("reach", Reach)
def test_a_glob_on_a_command_or_code_is_refused(argument: str, reach: Reach) -> None:
    with pytest.raises(RuleInvalid, match="only a literal can name: `git status\\*` also allows") as caught:
        parse(argument, {"glob": "git status*"}, reach=reach)
    assert caught.value.pointer == ("glob",)
    assert parse(argument, "git status", reach=reach).condition == Is("git status")


@promise("rules:commands-never-by-glob")
def test_a_command_is_no_path_and_no_url_either_but_the_place_of_a_script_is() -> None:
    fools = (({"under": "/repo"}, "not a path: `./x.sh; curl"), ({"host": "a.b"}, "not a URL: `https"))
    for spec, fooled in fools:
        with pytest.raises(RuleInvalid, match=f"which is {fooled}"):
            parse("command", spec)
    assert parse("script_path", {"under": "/repo"}).condition == Under("/repo")


@pytest.mark.parametrize("argument", ["path", "title", "decoder", "encoded", "commander", "/files/0/name"])
def test_a_glob_on_any_other_argument_is_accepted(argument: str) -> None:
    assert parse(argument, {"glob": "a*"}).condition == Text(Glob("a*"))


# The way to an argument

DEEP: JsonObject = {
    "a/b": "slash",
    "m~n": "tilde",
    "~1": "both",
    "files": [{"path": "/repo/1"}, {"path": "/etc/2"}],
    "mixed": [{"path": "/repo/1"}, {"name": "x"}],
    "nested": [[{"path": "/repo/1"}], [[{"path": "/repo/2"}]]],
    "text": "{}",
    "none": None,
    "empty": [],
    "grid": [["a", "b"], ["c"]],
}


def finds(argument: str, spec: Json) -> tuple[bool, bool]:
    """Return whether an allow and whether a deny matches."""
    context = CallContext("/repo", PATHS)
    narrow = parse(argument, spec).matches(DEEP, reach=NARROW, context=context)
    return narrow, parse(argument, spec, reach=WIDE).matches(DEEP, reach=WIDE, context=context)


@pytest.mark.parametrize(
    ("argument", "spec", "found"),
    [
        ("/a~1b", "slash", (True, True)),
        ("a/b", "slash", (True, True)),
        ("/m~0n", "tilde", (True, True)),
        ("/~01", "both", (True, True)),
        ("/files/0/path", "/repo/1", (True, True)),
        ("/files/path", {"under": "/repo"}, (False, True)),
        ("/files/path", {"under": "/"}, (True, True)),
        ("/mixed/path", {"under": "/repo"}, (False, True)),
        ("/mixed/path", {"under": "/etc"}, (False, False)),
        ("/nested/path", {"under": "/repo"}, (True, True)),
        ("/grid/1/0", "c", (True, True)),
        ("/files/7/path", {"under": "/"}, (False, False)),
        ("/empty/path", {"under": "/"}, (False, False)),
        ("/none/path", {"under": "/"}, (False, False)),
        ("absent", {"under": "/"}, (False, False)),
        ("absent", None, (False, False)),
        ("/absent/deeper", {"glob": "*"}, (False, False)),
        ("none", None, (True, True)),
    ],
)
def test_an_argument_is_found_by_name_or_pointer_through_lists(
    argument: str, spec: Json, found: tuple[bool, bool]
) -> None:
    assert finds(argument, spec) == found


@promise("rules:doubt-denies")
def test_a_pointer_into_a_text_is_in_doubt() -> None:
    assert finds("/text/path", {"under": "/etc"}) == (False, True)


@pytest.mark.parametrize("argument", ["", "/a~2", "/a~"])
def test_what_names_no_argument_is_refused(argument: str) -> None:
    with pytest.raises(RuleInvalid):
        parse(argument, "x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0"]), inner, max_size=3)
    ),
    max_leaves=8,
)
URLISH = st.text(st.sampled_from("htps:/[]@.%0x1a~\\?#$ "), max_size=16)
SPECS: list[Mapping[str, Json]] = [
    {"is": [{"a": 1}]},
    {"under": "/repo"},
    {"host": "*.a"},
    {"glob": "*a?*b"},
]


@given(
    value=JSON | URLISH | URLISH.map(lambda rest: "http://" + rest) | URLISH.map(lambda rest: "file:" + rest),
    spec=st.sampled_from(SPECS),
    argument=st.sampled_from(["a", "/a", "/a/b", "/a/0/b"]),
    cwd=st.sampled_from([None, "/repo"]),
)
def test_judging_never_raises(value: Json, spec: Json, argument: str, cwd: str | None) -> None:
    context = CallContext(cwd, RealPaths(home="/home/ada"))
    for reach in Reach:
        parse(argument, spec, reach=reach).matches({"a": value}, reach=reach, context=context)


def test_deeply_nested_values_are_judged() -> None:
    deep: Json = "x"
    for _ in range(100_000):
        deep = [deep]
    assert denies({"glob": "x"}, deep)
    assert denies("x", deep)
    assert not allows("x", deep)
