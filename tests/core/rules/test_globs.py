"""Globs over names: what they match, that they stay fast, and when one surely covers another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.rules.globs import Glob, GlobIndex, bare_action, covers

GLOBS = st.text("ab[:*?", min_size=1, max_size=7)
NAMES = st.text("ab[:", max_size=8)


def oracle(glob: str, text: str) -> bool:
    """Match by the definition: keep every length of `text` that the glob so far can have taken."""
    ends = {0}
    for char in glob:
        if char == "*":
            ends = set(range(min(ends, default=len(text) + 1), len(text) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(text) and char in ("?", text[end])}
    return len(text) in ends


@given(glob=GLOBS, name=NAMES)
def test_a_glob_matches_what_its_definition_says(glob: str, name: str) -> None:
    assert Glob(glob).matches(name) is oracle(glob, name)


@pytest.mark.parametrize(
    ("glob", "text", "found"),
    [
        ("[draft]", "[draft]", True),
        ("[draft]", "d", False),
        ("a.c", "abc", False),
        ("Bash", "bash", False),
        ("Bash", "Bash2", False),
        ("ab*ba", "aba", False),
        ("a?c", "a\nc", True),
        ("a*c", "a\n\nc", True),
        ("*?*", "", False),
        ("*", "", True),
    ],
)
def test_a_glob_knows_only_star_and_question_mark(glob: str, text: str, found: bool) -> None:
    assert Glob(glob).matches(text) is found


@pytest.mark.timeout(20)
def test_no_pattern_backtracks_for_ever() -> None:
    text = "a" * 20_000
    assert not Glob("*a" * 200 + "*b").matches(text)
    assert not Glob("*a?" * 200 + "*b").matches(text)
    assert not Glob("*a*" * 200 + "b*").matches(text)


@given(globs=st.lists(GLOBS, max_size=8), name=NAMES)
def test_the_index_finds_exactly_the_globs_that_match(globs: list[str], name: str) -> None:
    index = GlobIndex()
    for position, glob in enumerate(globs):
        index.add(glob, position)
    assert sorted(index.find(name)) == [at for at, glob in enumerate(globs) if oracle(glob, name)]


def test_the_bare_action_follows_the_first_colon() -> None:
    assert [bare_action(tool) for tool in ("a:b", "a:b:c", "Bash", "a:")] == ["b", "b:c", "Bash", ""]


def names_tool(glob: str, tool: str) -> bool:
    return oracle(glob, tool if ":" in glob else bare_action(tool))


@given(wide=GLOBS, narrow=GLOBS, tool=NAMES)
def test_a_glob_that_covers_another_matches_all_that_it_matches(wide: str, narrow: str, tool: str) -> None:
    if covers(wide, narrow) and names_tool(narrow, tool):
        assert names_tool(wide, tool)


@pytest.mark.parametrize(
    ("wide", "narrow", "sure"),
    [
        ("*", "github:create_*", True),
        ("*", "*:create_*", True),
        ("*", "Bash", True),
        ("github:*", "github:create_*", True),
        ("github:*", "github:create_issue", True),
        ("github:*", "github:*", True),
        ("github:?", "github:?", True),
        ("*_search_*", "github:repo_search_issues", True),
        ("*_search_*", "repo_search_?", True),
        ("create_*", "github:create_issue*", True),
        ("create_*", "git*:create_issue", False),
        ("github:*", "create_*", False),
        ("*:*", "*", False),
        ("github:create_*", "github:*", False),
        ("github:?", "github:*", False),
        ("Bash", "Bas?", False),
    ],
)
def test_a_glob_covers_another_only_when_that_is_sure(wide: str, narrow: str, sure: bool) -> None:
    assert covers(wide, narrow) is sure
