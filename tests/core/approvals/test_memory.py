"""What a decision remembers is exactly what was shown, and matches nothing else."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pml.core.approvals.memory import always_entry
from pml.core.errors import Invalid
from pml.core.own_tools import META_TOOLS
from pml.core.rules.ruleset import Call, Effect, RuleSet, VerdictKind, parse_entry
from pml.core.values import Json, JsonObject
from tests.builders import NOW
from tests.core.judging import PATHS
from tests.promises import promise

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_arguments = st.dictionaries(st.text(), _values, max_size=4)


def verdict(entry: Json, tool: str, arguments: JsonObject) -> VerdictKind:
    rule = parse_entry(Effect.ALLOW, entry, source=None, base_dir="/repo", paths=PATHS)
    assert rule is not None
    call = Call(tool=tool, arguments=arguments, cwd="/repo")
    return RuleSet([rule], paths=PATHS).judge(call, now=NOW).kind


def test_always_writes_the_name_of_the_tool() -> None:
    assert always_entry("github:create_issue", {"title": "x"}) == "github:create_issue"


@promise("always:only-what-was-shown")
@pytest.mark.parametrize("tool", ["Bash", "pml:execute", "box:run"])
def test_always_for_what_runs_commands_binds_the_exact_arguments(tool: str) -> None:
    assert always_entry(tool, {"command": "git status"}) == {
        "tool": tool,
        "args": {"command": {"is": "git status"}},
        "exact": True,
    }


@promise("names:never-a-pattern")
@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize(
    "tool",
    ["*", "github:*", "github:create_*", "g*:create", "github:create_?", "github:a b", "github:a\u200bb", ""],
)
def test_a_name_that_a_rule_would_read_as_a_pattern_is_never_remembered(tool: str, literal: bool) -> None:
    with pytest.raises(Invalid):
        always_entry(tool, {"title": "x"}, literal=literal)


@pytest.mark.parametrize("tool", sorted(META_TOOLS))
def test_tools_that_carry_other_calls_are_never_remembered(tool: str) -> None:
    with pytest.raises(Invalid):
        always_entry(tool, {})


@promise("always:only-what-was-shown")
@given(arguments=_arguments, others=_arguments)
@example(arguments={"*": None, "": 1, "/a": 2}, others={"a": None})
def test_a_literal_entry_matches_its_own_call_and_no_other(arguments: JsonObject, others: JsonObject) -> None:
    entry = always_entry("t:act", arguments, literal=True)

    assert verdict(entry, "t:act", arguments) is VerdictKind.ALLOW
    if others != arguments:
        assert verdict(entry, "t:act", others) is VerdictKind.UNLISTED


@promise("always:only-what-was-shown")
def test_what_bash_says_of_itself_is_not_remembered_and_all_that_changes_what_runs_is() -> None:
    entry = always_entry("Bash", {"command": "make", "description": "builds it"})
    assert entry == {"tool": "Bash", "args": {"command": {"is": "make"}}, "exact": True}

    def judged(**arguments: Json) -> VerdictKind:
        return verdict(entry, "Bash", arguments)

    assert judged(command="make", description="builds it again") is VerdictKind.ALLOW
    assert judged(command="make") is VerdictKind.ALLOW
    assert judged(command="make", dangerouslyDisableSandbox=True) is VerdictKind.UNLISTED
    assert judged(command="make install", description="builds it") is VerdictKind.UNLISTED
