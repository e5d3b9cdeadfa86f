"""Rules on where a server runs, and on what its tools say of themselves: what is not known tightens."""

from datetime import UTC, datetime

import pytest

from pml.core.rules.matchers import RuleInvalid
from pml.core.rules.ruleset import Call, Effect, Rule, RuleSet, VerdictKind, parse_entry
from pml.core.servers.conditions import ServerTraits
from pml.core.values import Json, JsonObject
from tests.core.judging import PATHS
from tests.promises import promise

NOW = datetime(2027, 1, 31, 18, 0, tzinfo=UTC)
TRAITS = {
    "far": ServerTraits(is_remote=True),
    "near": ServerTraits(),
    "good": ServerTraits(is_remote=True, is_believed=True),
}
READ: JsonObject = {"readOnlyHint": True}


def rule(effect: Effect, entry: Json) -> Rule:
    found = parse_entry(effect, entry, source=None, base_dir="/repo", paths=PATHS)
    assert found is not None
    return found


def verdict(effect: Effect, entry: JsonObject, tool: str, annotations: Json = None) -> VerdictKind:
    rules = RuleSet([rule(effect, {"tool": "*", **entry})], paths=PATHS, traits=TRAITS)
    return rules.judge(Call(tool=tool, arguments={}, annotations=annotations), now=NOW).kind


@promise("rules:server-doubt-tightens")
@pytest.mark.parametrize(
    ("tool", "remote", "allowed", "denied"),
    [
        ("far:x", True, True, True),
        ("far:x", False, False, False),
        ("near:x", True, False, False),
        ("near:x", False, True, True),
        ("unknown:x", True, False, True),
        ("unknown:x", False, False, True),
    ],
)
def test_a_rule_may_be_for_servers_that_run_elsewhere(
    tool: str, remote: bool, allowed: bool, denied: bool
) -> None:
    entry: JsonObject = {"server": {"remote": remote}}
    assert (verdict(Effect.ALLOW, entry, tool) is VerdictKind.ALLOW) is allowed
    assert (verdict(Effect.DENY, entry, tool) is VerdictKind.DENY) is denied


@promise("rules:server-doubt-tightens")
@pytest.mark.parametrize(
    ("tool", "said", "allowed", "denied"),
    [
        ("good:x", {"readOnlyHint": True}, True, True),
        ("good:x", {"readOnlyHint": False}, False, False),
        ("good:x", {}, False, False),
        ("good:x", {"readOnlyHint": "yes"}, False, True),
        ("good:x", None, False, True),
        ("far:x", {"readOnlyHint": True}, False, True),
        ("far:x", {"readOnlyHint": False}, False, True),
        ("unknown:x", {"readOnlyHint": True}, False, True),
    ],
)
def test_what_a_tool_says_of_itself_counts_where_its_server_is_believed(
    tool: str, said: Json, allowed: bool, denied: bool
) -> None:
    entry: JsonObject = {"annotations": READ}
    assert (verdict(Effect.ALLOW, entry, tool, said) is VerdictKind.ALLOW) is allowed
    assert (verdict(Effect.DENY, entry, tool, said) is VerdictKind.DENY) is denied


def test_a_tool_that_does_not_say_is_taken_for_destructive() -> None:
    entry: JsonObject = {"annotations": {"destructiveHint": True}}
    assert verdict(Effect.DENY, entry, "good:x", {}) is VerdictKind.DENY
    assert verdict(Effect.DENY, entry, "good:x", {"destructiveHint": False}) is VerdictKind.UNLISTED


def test_all_that_a_rule_says_must_hold() -> None:
    entry: JsonObject = {"server": {"remote": False}, "annotations": READ}
    assert verdict(Effect.ALLOW, entry, "good:x", READ) is VerdictKind.UNLISTED


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"server": "remote"}, '`server` must be `{"remote": true}`'),
        ({"server": {"remote": 1}}, '`server` must be `{"remote": true}`'),
        ({"server": {"remote": True, "x": 1}}, '`server` must be `{"remote": true}`'),
        ({"annotations": []}, "`annotations` must be an object"),
        ({"annotations": {}}, "`annotations` must name at least one"),
        ({"annotations": {"readonly": True}}, "unknown annotation `readonly`"),
        ({"annotations": {"readOnlyHint": "true"}}, "`readOnlyHint` must be true or false"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(entry: JsonObject, problem: str) -> None:
    with pytest.raises(RuleInvalid) as refused:
        rule(Effect.ALLOW, {"tool": "*", **entry})
    assert problem in refused.value.problem
