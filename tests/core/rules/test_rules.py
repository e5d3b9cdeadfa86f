"""Rules: the order of the lists, what entries mean, and that index and memo change nothing."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.rules.globs import Glob, bare_action
from pml.core.rules.matchers import Is, Matcher, RuleInvalid
from pml.core.rules.ruleset import (
    MEMO_NAMES,
    Call,
    Effect,
    Rule,
    RuleSet,
    Source,
    Verdict,
    VerdictKind,
    parse_entry,
    runs_code,
)
from pml.core.values import Json, JsonObject
from tests.core.judging import PATHS
from tests.promises import promise

DENY, ALLOW, ASK = Effect.DENY, Effect.ALLOW, Effect.ASK
NOW = datetime(2027, 1, 31, 18, 0, tzinfo=UTC)


def rule(effect: Effect, entry: Json) -> Rule:
    found = parse_entry(effect, entry, source=None, base_dir="/repo", paths=PATHS)
    assert found is not None
    return found


def rules(*, deny: Sequence[Json] = (), allow: Sequence[Json] = (), ask: Sequence[Json] = ()) -> list[Rule]:
    return [
        rule(effect, entry)
        for effect, group in zip(Effect, (deny, allow, ask), strict=True)
        for entry in group
    ]


def judge(
    found: Sequence[Rule], tool: str, arguments: JsonObject | None = None, *, now: datetime = NOW
) -> Verdict:
    return RuleSet(found, paths=PATHS).judge(Call(tool=tool, arguments=arguments or {}, cwd="/repo"), now=now)


def refuse(entry: Json, *, effect: Effect = ALLOW) -> RuleInvalid:
    with pytest.raises(RuleInvalid) as caught:
        parse_entry(effect, entry, source=None, base_dir="/repo", paths=PATHS)
    return caught.value


# Verdicts


@promise("rules:deny-wins")
def test_a_deny_wins_over_every_allow_and_ask_however_they_are_ordered() -> None:
    ask, allow, deny = (
        rule(ASK, "github:create_issue"),
        rule(ALLOW, "github:create_issue"),
        rule(DENY, "github:*"),
    )
    for order in ([ask, allow, deny], [deny, allow, ask], [allow, deny, ask]):
        assert judge(order, "github:create_issue") == Verdict(
            kind=VerdictKind.DENY, rule=deny, matched=(deny, allow, ask)
        )


@promise("rules:deny-wins")
def test_a_deny_of_some_arguments_wins_over_an_allow_of_the_tool() -> None:
    found = rules(deny=[{"tool": "fs:*", "args": {"path": {"under": "/etc"}}}], allow=["fs:read"])
    assert judge(found, "fs:read", {"path": "../etc/passwd"}).kind is VerdictKind.DENY
    assert judge(found, "fs:read", {"path": "notes"}).kind is VerdictKind.ALLOW
    assert judge(found, "fs:read", {"path": 7}).kind is VerdictKind.DENY


@promise("rules:doubt-denies")
def test_an_allow_leaves_a_call_in_doubt_to_the_other_rules() -> None:
    found = rules(allow=[{"tool": "fs:*", "args": {"path": {"under": "/repo"}}}])
    assert judge(found, "fs:read", {"path": "notes"}).kind is VerdictKind.ALLOW
    assert judge(found, "fs:read", {"path": 7}).kind is VerdictKind.UNLISTED


def test_an_allow_wins_over_an_ask() -> None:
    allow, ask = rules(allow=["github:*"], ask=["github:create_*"])
    assert judge([ask, allow], "github:create_issue") == Verdict(
        kind=VerdictKind.ALLOW, rule=allow, matched=(allow, ask)
    )
    assert judge([ask], "github:create_issue") == Verdict(kind=VerdictKind.ASK, rule=ask, matched=(ask,))


def test_a_call_that_no_rule_names_is_unlisted() -> None:
    assert judge(rules(allow=["github:*"]), "fs:read") == Verdict(
        kind=VerdictKind.UNLISTED, rule=None, matched=()
    )


def test_the_default_ask_leaves_a_call_unlisted() -> None:
    (default,) = rules(ask=["*"])
    assert judge([default], "fs:read") == Verdict(kind=VerdictKind.UNLISTED, rule=default, matched=(default,))
    (written,) = rules(ask=[{"tool": "*"}])
    assert judge([written], "fs:read") == Verdict(kind=VerdictKind.ASK, rule=written, matched=(written,))


def test_an_ask_that_was_added_behind_the_default_counts() -> None:
    default, ask = rules(ask=["*", "github:create_*"])
    assert judge([default, ask], "github:create_issue") == Verdict(
        kind=VerdictKind.ASK, rule=ask, matched=(default, ask)
    )


def test_the_first_matching_rule_of_a_list_decides() -> None:
    later, first = rules(allow=["github:*", "*:create_issue"])
    assert judge([first, later], "github:create_issue") == Verdict(
        kind=VerdictKind.ALLOW, rule=first, matched=(first, later)
    )


@pytest.mark.parametrize(
    ("glob", "tool", "found"),
    [
        ("create_issue", "github:create_issue", True),
        ("github", "github:create_issue", False),
        ("*_search_*", "github_search_issues", True),
        ("*_search_*", "x:github_search_issues", True),
        ("Bash", "Bash", True),
        ("github:*", "github", False),
        ("github:*", "x:github:y", False),
        ("*:y", "x:github:y", True),
        ("github:y", "x:github:y", False),
        ("github:[ab]", "github:a", False),
        ("GitHub:*", "github:a", False),
    ],
)
def test_a_glob_with_a_colon_matches_the_tool_and_one_without_the_bare_action(
    glob: str, tool: str, found: bool
) -> None:
    assert (judge(rules(allow=[glob]), tool).kind is VerdictKind.ALLOW) is found


def test_a_rule_with_several_arguments_needs_all_of_them() -> None:
    entry: Json = {"tool": "git:push", "args": {"remote": "origin", "branch": {"glob": "feature/*"}}}
    for effect in (DENY, ALLOW, ASK):
        kind = VerdictKind(effect)
        assert (
            judge([rule(effect, entry)], "git:push", {"remote": "origin", "branch": "feature/x"}).kind is kind
        )
        for other in ({"remote": "origin"}, {"remote": "evil", "branch": "feature/x"}, {}):
            assert judge([rule(effect, entry)], "git:push", other).kind is VerdictKind.UNLISTED


# Entries


@promise("always:only-what-was-shown")
def test_an_exact_allow_admits_no_argument_beyond_those_it_names() -> None:
    exact = rules(allow=[{"tool": "Bash", "args": {"command": {"is": "ls"}}, "exact": True}])

    assert judge(exact, "Bash", {"command": "ls"}).kind is VerdictKind.ALLOW
    assert judge(exact, "Bash", {"command": "ls", "sandbox": False}).kind is VerdictKind.UNLISTED
    assert judge(exact, "Bash", {}).kind is VerdictKind.UNLISTED


def test_what_a_command_is_said_to_do_counts_only_for_a_clients_own_tool_as_nothing() -> None:
    exact = rules(allow=[{"tool": "deploy", "args": {"command": {"is": "up"}}, "exact": True}])
    said = {"command": "up", "description": "to production"}
    assert judge(exact, "deploy", said).kind is VerdictKind.ALLOW
    assert judge(exact, "shop:deploy", said).kind is VerdictKind.UNLISTED
    assert judge(exact, "deploy", {"description": "to production"}).kind is VerdictKind.UNLISTED


def test_an_exact_allow_of_no_arguments_admits_none() -> None:
    bare = rules(allow=[{"tool": "t:stop", "exact": True}])

    assert judge(bare, "t:stop").kind is VerdictKind.ALLOW
    assert judge(bare, "t:stop", {"force": True}).kind is VerdictKind.UNLISTED


def test_an_exact_allow_names_whole_arguments() -> None:
    refused = refuse({"tool": "t:set", "args": {"/options/mode": "safe"}, "exact": True})

    assert refused.problem == "`exact` needs whole arguments: a pointer into one leaves its rest open"


@pytest.mark.parametrize("effect", [DENY, ASK])
def test_a_deny_or_ask_cannot_be_exact(effect: Effect) -> None:
    refused = refuse({"tool": "Bash", "args": {"command": "ls"}, "exact": True}, effect=effect)

    assert (refused.pointer, refused.problem) == (
        ("exact",),
        f"`exact` would let an added argument slip past this {effect} rule",
    )


def test_an_entry_becomes_a_rule_that_remembers_how_and_where_it_was_written() -> None:
    entry: Json = {"tool": "a:b", "args": {"x": 1, "/y/z": {"is": {"k": 2}}}, "id": "r1", "enabled": True}
    source = Source(file=".pml.json", line=7)
    assert parse_entry(DENY, entry, source=source, base_dir="/repo", paths=PATHS) == Rule(
        effect=DENY,
        tool="a:b",
        args=(
            Matcher(segments=("x",), condition=Is(1)),
            Matcher(segments=("y", "z"), condition=Is({"k": 2})),
        ),
        id="r1",
        expires_at=None,
        entry=entry,
        source=source,
    )
    assert rule(ASK, "a:*") == Rule(effect=ASK, tool="a:*", entry="a:*")


def test_a_switched_off_entry_is_no_rule_but_must_be_right() -> None:
    off: Json = {"tool": "a:b", "enabled": False}
    assert parse_entry(ALLOW, off, source=None, base_dir="/repo", paths=PATHS) is None
    assert refuse({"tool": "a:b", "enabled": False, "argz": {}}).pointer == ("argz",)


WRONG: list[tuple[Json, tuple[str | int, ...]]] = [
    ("", ()),
    (7, ()),
    (None, ()),
    (["a:b"], ()),
    ({}, ()),
    ({"args": {}}, ()),
    ({"tool": ""}, ("tool",)),
    ({"tool": 7}, ("tool",)),
    ("Bash ", ()),
    ("git hub:*", ()),
    ("fs:\u202erm", ()),
    ({"tool": "fs:\tread"}, ("tool",)),
    ({"tool": "fs:\u00a0read"}, ("tool",)),
    ({"tool": "a", "arguments": {}}, ("arguments",)),
    ({"tool": "a", "args": []}, ("args",)),
    ({"tool": "a", "args": {"x": {"y": 1}}}, ("args", "x")),
    ({"tool": "a", "args": {"x": {"under": 1}}}, ("args", "x", "under")),
    ({"tool": "a", "args": {"command": {"glob": "ls*"}}}, ("args", "command", "glob")),
    ({"tool": "a", "id": ""}, ("id",)),
    ({"tool": "a", "id": 7}, ("id",)),
    ({"tool": "a", "enabled": "false"}, ("enabled",)),
    ({"tool": "a", "enabled": None}, ("enabled",)),
    ({"tool": "a", "expires": "2027-01-31"}, ("expires",)),
    ({"tool": "a", "expires": "2027-01-31T18:00:00"}, ("expires",)),
    ({"tool": "a", "expires": 1800000000}, ("expires",)),
    ({"tool": "a", "expires": None}, ("expires",)),
    ({"tool": "a", "expires": "0001-01-01T00:00:00+10:00"}, ("expires",)),
    ({"tool": "a", "created_at": "yesterday"}, ("created_at",)),
    ({"tool": "a", "ttl_s": 60}, ("ttl_s",)),
    ({"tool": "a", "ttl_s": 0, "created_at": "2027-01-31T18:00:00Z"}, ("ttl_s",)),
    ({"tool": "a", "ttl_s": True, "created_at": "2027-01-31T18:00:00Z"}, ("ttl_s",)),
    ({"tool": "a", "ttl_s": "60", "created_at": "2027-01-31T18:00:00Z"}, ("ttl_s",)),
    ({"tool": "a", "ttl_s": 1e300, "created_at": "2027-01-31T18:00:00Z"}, ("ttl_s",)),
    ({"tool": "a", "match": "a"}, ("match",)),
    ({"tool": "a", "match": {"a": 1}}, ("match",)),
    ({"tool": "a", "not_match": [7]}, ("not_match", 0)),
    ({"tool": "a", "match": ["a", {"args": {}}]}, ("match", 1)),
    ({"tool": "a", "match": [{"tool": "a", "args": []}]}, ("match", 0)),
    ({"tool": "a", "match": [{"tool": "a", "input": {}}]}, ("match", 0, "input")),
]


@pytest.mark.parametrize(("entry", "pointer"), WRONG)
@pytest.mark.parametrize("effect", Effect)
def test_an_entry_that_is_not_understood_is_refused_at_the_part_that_is_wrong(
    entry: Json, pointer: tuple[str | int, ...], effect: Effect
) -> None:
    assert refuse(entry, effect=effect).pointer == pointer


def test_a_refusal_says_what_is_wrong_and_what_is_known() -> None:
    refusal = refuse({"tool": "a", "argz": {}})
    assert (refusal.problem, refusal.hint) == (
        "unknown key `argz`",
        "did you mean `args`? known are `tool`, `args`, `exact`, `server`, `annotations`, `id`, `enabled`, "
        "`expires`, `created_at`, "
        "`ttl_s`, `match`, `not_match`",
    )
    unlike = refuse({"tool": "a", "match": [{"tool": "a", "zzz": 1}]})
    assert unlike.hint == "known are `tool`, `args`"


def test_a_pattern_that_no_name_can_match_is_refused_as_such() -> None:
    refusal = refuse("fs:\u200bread")
    assert (refusal.problem, refusal.hint) == (
        r"`fs:\u{200b}read` can never match: no tool's name has blanks or hidden characters",
        "take them out; a name looks like `github:create_issue`",
    )


# Rules that name a tool


def test_the_rules_that_name_a_tool_are_found_whatever_their_arguments_and_expiry() -> None:
    old: Json = {"tool": "fs:*", "expires": "2000-01-01T00:00:00Z"}
    deny, allow, ask, _ = found = rules(
        deny=[{"tool": "fs:read", "args": {"path": "/etc"}}], allow=[old], ask=["read", "fs:write"]
    )
    assert RuleSet(reversed(found), paths=PATHS).naming("fs:read") == [deny, allow, ask]
    assert RuleSet(found, paths=PATHS).naming("git:push") == []


# Expiry


@pytest.mark.parametrize("effect", Effect)
def test_a_rule_matches_until_it_expires(effect: Effect) -> None:
    found = [rule(effect, {"tool": "a:*", "expires": "2027-01-31T19:00:00+01:00"})]
    assert found[0].expires_at == NOW
    judged = RuleSet(found, paths=PATHS)
    call = Call(tool="a:b", arguments={})
    before, after = NOW - timedelta(microseconds=1), NOW + timedelta(days=1)
    kinds = [judged.judge(call, now=now).kind for now in (before, NOW, after, before)]
    live, over = VerdictKind(effect), VerdictKind.UNLISTED
    assert kinds == [live, over, over, live]


def test_the_earlier_of_expiry_and_time_to_live_counts() -> None:
    made = {"tool": "a", "created_at": "2027-01-31T17:00:00Z"}
    assert rule(ALLOW, made).expires_at is None
    assert rule(ALLOW, {**made, "ttl_s": 3600}).expires_at == NOW
    assert rule(ALLOW, {**made, "ttl_s": 7200, "expires": "2027-01-31T18:00:00Z"}).expires_at == NOW
    assert rule(ALLOW, {**made, "ttl_s": 3600, "expires": "2027-02-01T18:00:00Z"}).expires_at == NOW


# Examples


def test_an_entry_whose_examples_hold_is_accepted() -> None:
    rule(
        ALLOW,
        {
            "tool": "fs:read*",
            "args": {"path": {"under": "src"}},
            "match": [{"tool": "fs:read_file", "args": {"path": "src/x"}}],
            "not_match": ["fs:read", "fs:write", {"tool": "fs:read", "args": {"path": "src/../x"}}],
            "expires": "2000-01-01T00:00:00Z",
        },
    )


@pytest.mark.parametrize(
    ("examples", "pointer", "problem"),
    [
        ({"match": ["git:log"]}, ("match", 0), 'the rule does not match its `match` example `"git:log"`'),
        (
            {"match": ["fs:read", "read"]},
            ("match", 1),
            'the rule does not match its `match` example `"read"`',
        ),
        (
            {"not_match": [{"tool": "fs:read", "args": {"a": 1}}], "enabled": False},
            ("not_match", 0),
            'the rule matches its `not_match` example `{"tool": "fs:read", "args": {"a": 1}}`',
        ),
    ],
)
def test_an_example_that_does_not_hold_is_named(
    examples: JsonObject, pointer: tuple[str | int, ...], problem: str
) -> None:
    refusal = refuse({"tool": "fs:*", **examples})
    assert (refusal.pointer, refusal.message) == (pointer, problem)


# Asks that an allow hides


def hidden(*, allow: Sequence[Json], ask: Sequence[Json]) -> list[tuple[str, str]]:
    found = RuleSet(rules(allow=allow, ask=ask), paths=PATHS).hidden_asks()
    return [(one.tool, other.tool) for one, other in found]


def test_an_ask_that_an_allow_always_beats_is_hidden() -> None:
    assert hidden(
        allow=["fs:read", "github:*", "*_search_*"],
        ask=[
            "*",
            "github:create_*",
            {"tool": "github:push", "args": {"force": True}},
            "x:do_search_y",
            "fs:read",
        ],
    ) == [
        ("github:create_*", "github:*"),
        ("github:push", "github:*"),
        ("x:do_search_y", "*_search_*"),
        ("fs:read", "fs:read"),
    ]


def test_an_ask_that_an_allow_beats_only_sometimes_is_not_hidden() -> None:
    some: list[Json] = [
        {"tool": "github:*", "args": {"owner": "me"}},
        {"tool": "github:*", "expires": "2099-01-01T00:00:00Z"},
        "github:create_*",
        "github:?",
    ]
    assert hidden(allow=some, ask=["github:*"]) == []
    assert hidden(allow=["*"], ask=["*"]) == []


# Index and memo

WORDS = st.text("ab:*?", min_size=1, max_size=5)
ARGUMENTS = st.dictionaries(st.sampled_from("xy"), st.integers(0, 1), max_size=2)
EXPIRIES = st.sampled_from(["2027-01-31T18:00:00Z", "2027-01-31T18:00:01Z"])
OBJECTS = st.fixed_dictionaries({"tool": WORDS, "args": ARGUMENTS}, optional={"expires": EXPIRIES})
ENTRIES: st.SearchStrategy[Json] = WORDS | OBJECTS
CALLS = st.builds(Call, tool=st.text("ab:", max_size=5), arguments=ARGUMENTS)


def naive(found: Sequence[Rule], call: Call, now: datetime) -> Verdict:
    """Judge by trying every rule, as the definition says."""

    def matches(rule: Rule) -> bool:
        name = call.tool if ":" in rule.tool else bare_action(call.tool)
        literals = {one.segments[0]: one.condition for one in rule.args}
        return (
            Glob(rule.tool).matches(name)
            and (rule.expires_at is None or now < rule.expires_at)
            and all(
                key in call.arguments and Is(call.arguments[key]) == each for key, each in literals.items()
            )
        )

    matched = tuple(
        rule for effect in (DENY, ALLOW, ASK) for rule in found if rule.effect is effect and matches(rule)
    )
    deciding = next((rule for rule in matched if rule.entry != "*" or rule.effect is not ASK), None)
    if deciding is None:
        return Verdict(kind=VerdictKind.UNLISTED, rule=matched[0] if matched else None, matched=matched)
    return Verdict(kind=VerdictKind(deciding.effect), rule=deciding, matched=matched)


@given(
    entries=st.lists(st.tuples(st.sampled_from(Effect), ENTRIES), max_size=8),
    calls=st.lists(CALLS, min_size=1, max_size=6),
)
def test_the_index_and_the_memo_change_no_verdict(
    entries: list[tuple[Effect, Json]], calls: list[Call]
) -> None:
    found = [rule(effect, entry) for effect, entry in entries]
    judged = RuleSet(found, paths=PATHS)
    for call in [*calls, *calls]:
        for now in (NOW - timedelta(seconds=1), NOW):
            assert judged.judge(call, now=now) == naive(found, call, now)


def test_a_full_memo_is_emptied_and_long_names_are_judged_without_it() -> None:
    (allow,) = rules(allow=["a:*"])
    judged = RuleSet([allow], paths=PATHS)
    expected = Verdict(kind=VerdictKind.ALLOW, rule=allow, matched=(allow,))
    for number in [*range(MEMO_NAMES + 2), 0]:
        assert judged.judge(Call(tool=f"a:{number}", arguments={}), now=NOW) == expected
    assert judged.judge(Call(tool="a:" + "b" * 1_000_000, arguments={}), now=NOW) == expected


# What runs code


@promise("consent:model-plain-only")
@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        ("Bash", {}, True),
        ("pml:execute", {}, True),
        ("x:run", {"command": "ls"}, True),
        ("x:run", {"Cmd": "ls"}, True),
        ("db:query", {"sql": "select 1"}, True),
        ("x:run", {"steps": [{"shellCommand": "ls"}]}, True),
        ("fs:read", {"path": "code"}, False),
        ("github:create_issue", {"title": "command", "labels": ["code"]}, False),
        ("Read", {}, False),
        ("time:convert_time", {"source_timezone": "UTC", "time": "12:00"}, False),
        ("shop:ship", {"country_code": "FR"}, False),
        ("fs:move_file", {"source": "a/b c.txt", "destination": "/d"}, False),
        ("fs:move_file", {"source": "a.txt"}, True),
        ("fs:move_file", {"source": "a.txt", "destination": 1}, True),
        ("x:build", {"source": "print(1)", "destination": "/d"}, True),
        ("x:build", {"source": "a.txt\nb", "destination": "/d"}, True),
        ("x:build", {"source": "rm -rf /; ls", "destination": "/d"}, True),
        ("x:build", {"source": "$HOME", "destination": "/d"}, True),
        ("x:build", {"source": "a.txt", "destination": "/d"}, True),
        ("x:run", {"source": "rm -rf x", "destination": "y"}, True),
        ("fs:copy", {"source": "rm -rf x", "destination": "y"}, True),
        ("fs:copy", {"source": "/bin/rm -rf x", "destination": "y"}, True),
        ("fs:copy", {"source": "a.txt", "destination": "sh -c x"}, True),
        ("fs:copyFile", {"source": "C:\\My files\\a.txt", "destination": "~/my files/a - b.txt"}, False),
        ("fs:rename", {"source": "a.txt", "destination": "./b c.txt"}, False),
        ("memory:search_nodes", {"query": "who is Ana?"}, False),
        ("WebSearch", {"query": "what's new in C#"}, False),
        ("WebSearch", {"query": "天气 2026"}, False),
        ("WebSearch", {"query": 'python "exact phrase"'}, False),
        ("WebSearch", {"query": "site:example.com C# news, 2026"}, False),
        ("WebSearch", {"query": "news from Paris, with pictures"}, False),
        ("db:query", {"query": "who is Ana?"}, True),
        ("db:search_sql", {"query": "who is Ana?"}, True),
        ("db:research", {"query": "who is Ana?"}, True),
        ("db:search", {"query": "select password from users"}, True),
        ("db:search", {"query": "x' union select password"}, True),
        ("db:search", {"query": "DELETE users"}, True),
        ("db:search", {"query": 'EXEC"xp_cmdshell"dir'}, True),
        ("db:search", {"query": "xp_cmdshell 'dir'"}, True),
        ("db:search", {"query": 'TRUNCATE"users"'}, True),
        ("db:search", {"query": 'SELECT"pw"FROM"users"'}, True),
        ("db:search", {"query": 'anything"users"'}, True),
        ("db:search", {"query": "\uff25\uff38\uff25\uff23 x"}, True),  # EXEC in wide letters
        ("db:search", {"query": "attach database x"}, True),
        ("db:search", {"query": "vacuum"}, True),
        ("db:search", {"query": "load csv from 'x'"}, True),
        ("db:search", {"query": "then drop table users"}, True),
        ("db:execute_search", {"query": "news"}, True),
        ("db:search", {"query": "a; b"}, True),
        ("db:search", {"query": "sleep(10)"}, True),
        ("db:search", {"query": "up{job='a'}"}, True),
        ("db:search", {"query": "`ls`"}, True),
        ("db:search", {"query": "a\nb"}, True),
        ("db:search", {"query": {"match_all": {}}}, True),
        ("db:search", {"query": ["a"]}, True),
        ("db:search", {"query": "news", "script": "news"}, True),
        ("db:search", {"options": {"query": "news"}}, True),
        ("search:run", {"query": "news"}, True),
        ("dev:terminal", {"action": "list"}, True),
        ("browser:evaluate", {"text": "x"}, True),
        ("browser_evaluate", {}, True),
        ("x:executeSql", {"text": "x"}, True),
        ("x:runsql", {"text": "x"}, True),
        ("x:send_to_shell", {"text": "x"}, True),
        ("x:run", {"text": "x"}, True),
        ("x:run_task", {"steps": ["x"]}, True),
        ("x:run_task", {"number": 1, "wait": True}, False),
        ("github:get_workflow_run", {"id": "x"}, False),
        ("video:get_transcript", {"url": "x"}, False),
        ("x:executive_summary", {"text": "x"}, False),
        ("memory:retrieval", {"text": "x"}, False),
        ("desktop:interact_with_process", {"pid": 1, "input": "x"}, True),
        ("tmux:send-keys", {"keys": "x"}, True),
        ("pty:write_stdin", {"chars": "x"}, True),
        ("k8s:kubectl", {"text": "delete pod x"}, True),
        ("node:npm_install", {"package": "x"}, True),
        ("docker:create", {"image": "x", "entrypoint": "x"}, True),
        ("x:start", {"file": "/bin/sh", "args": ["-c", "x"]}, True),
        ("db:db_query", {"text": "x"}, True),
        ("db:query", {"text": "x"}, True),
        ("x:computer", {"action": "type", "text": "x"}, True),
        ("x:start", {"file": "x", "args": []}, False),
        ("desktop:read_process_output", {"pid": 1}, False),
        ("desktop:list_processes", {}, False),
        ("image:process_image", {"data": "x"}, False),
        ("docker:list_containers", {"filter": "x"}, False),
        ("browser:console_messages", {}, False),
        ("mail:send_message", {"text": "x"}, False),
        ("x:make_reservation", {"name": "x"}, False),
    ],
)
def test_what_runs_commands_or_code_is_told_by_tool_or_argument(
    tool: str, arguments: JsonObject, found: bool
) -> None:
    assert runs_code(tool, arguments) is found


@promise("rules:paths-from-every-folder")
@pytest.mark.parametrize(
    ("more", "is_allowed"),
    [
        ({}, True),
        ({"cwd": "/repo/sub"}, True),
        ({"cwd": "/home/me"}, False),
        ({"root": "/"}, False),
        ({"repo_path": "~"}, False),
        ({"options": {"baseDir": "/home/me"}}, False),
        ({"cwd": "$HOME"}, True),  # no folder is there by that name
        ({"repo": "owner/name"}, True),
        ({"destination": "/home/me"}, True),
        ({"note": "/home/me"}, True),
    ],
)
def test_an_allow_by_path_reads_it_in_the_folder_that_another_argument_names(
    more: JsonObject, is_allowed: bool
) -> None:
    found = rules(allow=[{"tool": "fs:*", "args": {"path": {"under": "/repo"}}}])
    verdict = judge(found, "fs:read", {"path": ".ssh/id", **more})
    assert (verdict.kind is VerdictKind.ALLOW) is is_allowed
