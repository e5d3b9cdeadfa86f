"""`pml rules`: what counts and why, and what a new rule means for what waits."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.rule_files import permissions, verdict, write
from tests.commands import Pml, run_process
from tests.promises import promise

# --- list


def test_rules_are_listed_in_the_order_they_are_tried_with_where_they_stand(
    pml: Pml, workspace: Path, user: Path
) -> None:
    write(user, {"permissions": {"ask": ["a:ask"], "deny": ["Bash"]}})
    local = write(workspace / ".pml.json", {"permissions": {"allow": ["fs:*"], "deny": ["fs:rm"]}})
    ran = pml("rules", "list", "--json")
    rules = [(each["effect"], each["entry"], each["source"], each["counts"]) for each in ran.json["rules"]]
    assert rules == [
        ("deny", "Bash", {"file": str(user), "line": 7}, True),
        ("deny", "fs:rm", {"file": str(local), "line": 7}, True),
        ("allow", "fs:*", {"file": str(local), "line": 4}, False),
        ("ask", "a:ask", {"file": str(user), "line": 4}, True),
    ]
    assert (ran.code, ran.json["trusted"], ran.json["broken"]) == (0, False, [])
    shown = pml("rules", "list")
    assert "`pml trust`" in shown.err
    assert [line.split() for line in shown.out.splitlines()[1:3]] == [
        ["deny", "user", "config.json:7", "Bash"],
        ["deny", "workspace", ".pml.json:7", "fs:rm"],
    ]


def test_without_rules_it_is_said_who_asks(pml: Pml, user: Path) -> None:
    assert pml("rules", "list").out == "no rules, so PML asks\n"
    write(user, {"approval": {"unlisted": "if_client_cannot"}})
    said = "so the client asks, and PML only where the client cannot"
    assert pml("rules", "list").out == f"no rules, {said}\n"
    assert pml("rules", "explain", "a:b").out == f"unlisted: a:b is decided by no rule, {said}\n"
    assert pml("rules", "explain", "a:b", "--json").json["unlisted"] == "if_client_cannot"


def test_a_rule_that_does_not_count_says_why(pml: Pml, workspace: Path) -> None:
    entries: list[Any] = [
        {"tool": "a:old", "expires": "2020-01-01T00:00:00Z"},
        {"tool": "a:off", "enabled": False},
        "b:*",
    ]
    write(workspace / ".pml.json", {"permissions": {"allow": entries, "ask": ["b:c", "*"]}})
    assert pml("trust", "--yes").code == 0
    ran = pml("rules", "list", "--json")
    assert [(each["entry"], each["note"]) for each in ran.json["rules"]] == [
        (entries[0], "expired 2020-01-01T00:00:00Z"),
        ("b:*", None),
        (entries[1], "disabled"),
        ("b:c", "never asks: allow b:* comes first"),
        ("*", None),
    ]
    assert any("never asks" in warning for warning in ran.json["warnings"])


def test_an_unknown_key_is_a_warning(pml: Pml, workspace: Path) -> None:
    write(workspace / ".pml.json", {"permissons": {"deny": ["Bash"]}})
    ran = pml("rules", "list")
    assert ran.code == 0
    assert "`permissons` at line 2" in ran.err


def test_beside_a_broken_file_no_allow_counts(pml: Pml, workspace: Path, user: Path) -> None:
    write(user, {"permissions": {"allow": ["a:*"], "deny": ["b:*"]}})
    (workspace / ".pml.json").write_text("{")
    ran = pml("rules", "list", "--json")
    assert ran.code == 1
    assert [(each["entry"], each["counts"]) for each in ran.json["rules"]] == [("b:*", True), ("a:*", False)]
    (broken,) = ran.json["broken"]
    assert broken.startswith(f"{workspace / '.pml.json'}:1:2: ")
    listed, explained = pml("rules", "list"), pml("rules", "explain", "b:x")
    assert (listed.code, "a:*" in listed.out, "broken: " in listed.err) == (1, True, True)
    assert (explained.code, "broken: " in explained.err) == (0, True)
    assert (verdict(pml, "a:x"), verdict(pml, "b:x")) == ("ask", "deny")


def test_hidden_characters_of_a_rule_are_shown(pml: Pml, workspace: Path) -> None:
    write(
        workspace / ".pml.json", {"permissions": {"deny": [{"tool": "fs:rm", "args": {"path": "\u202ea"}}]}}
    )
    assert '{"path": "\\u202ea"}' in pml("rules", "list").out


# --- explain


def test_a_verdict_is_explained_with_its_rule_and_all_that_matched(pml: Pml, local: Path) -> None:
    entry = {"tool": "fs:read", "args": {"path": {"under": "."}}}
    pml("rules", "allow", json.dumps(entry))
    shape = pml("rules", "explain", "fs:read", '{"path": "notes/a.md"}', "--json").json
    source = {"file": str(local), "line": 5}
    line = local.read_text().splitlines().index('      "*"') + 1
    matched: dict[str, Any] = {"id": None, "expires_at": None}
    assert shape == {
        "verdict": "allow",
        "rule": entry,
        "matched": [
            matched | {"effect": "allow", "entry": entry, "source": source},
            matched | {"effect": "ask", "entry": "*", "source": {"file": str(local), "line": line}},
        ],
        "source": source,
        "near": [],
        "trusted": True,
        "needs_trust": False,
        "asking_is_off": False,
        "unlisted": "every_call",
        "runs_unasked": None,
        "broken": [],
        "warnings": [],
    }
    assert verdict(pml, "fs:read", '{"path": "/etc/passwd"}') == "unlisted"


def test_rules_that_name_the_tool_and_do_not_match_are_shown_with_the_reason(
    pml: Pml, workspace: Path, user: Path
) -> None:
    under = {"tool": "fs:read", "args": {"path": {"under": "src"}}}
    old = {"tool": "fs:*", "expires": "2020-01-01T00:00:00Z"}
    write(user, {"permissions": {"deny": [{"tool": "*:read", "args": {"path": "/etc/shadow"}}]}})
    local = write(workspace / ".pml.json", {"permissions": {"allow": [under, "read", old, "fs:write"]}})
    shape = pml("rules", "explain", "fs:read", '{"path": "/etc/passwd"}', "--json").json
    assert shape["matched"] == []
    assert [(each["effect"], each["source"]["file"], each["note"]) for each in shape["near"]] == [
        ("deny", str(user), "its arguments do not match"),
        ("allow", str(local), "its arguments do not match; not trusted"),
        ("allow", str(local), "not trusted"),
        ("allow", str(local), "expired 2020-01-01T00:00:00Z; not trusted"),
    ]
    out = pml("rules", "explain", "fs:read", '{"path": "/etc/passwd"}').out
    line = f"    allow {json.dumps(under)}  {local}:4  (its arguments do not match; not trusted)"
    assert line in out.splitlines()
    assert "fs:write" not in out


def test_explaining_tells_of_keys_that_are_not_known(pml: Pml, workspace: Path) -> None:
    write(workspace / ".pml.json", {"permisions": {"deny": ["Bash"]}})
    assert "did you mean `permissions`?" in pml("rules", "explain", "Bash").err
    (warning,) = pml("rules", "explain", "Bash", "--json").json["warnings"]
    assert "`permisions` at line 2" in warning


@pytest.mark.parametrize(
    ("tool", "word", "meaning"),
    [
        ("a:deny", "deny", "never runs"),
        ("a:allow", "allow", "runs without asking"),
        ("a:ask", "ask", "asks on every call"),
        ("a:else", "unlisted", "is decided by no rule, so PML asks\n"),
    ],
)
@pytest.mark.usefixtures("local")
def test_explaining_ends_well_whatever_the_verdict(pml: Pml, tool: str, word: str, meaning: str) -> None:
    for effect in ("deny", "allow", "ask"):
        pml("rules", effect, f"a:{effect}")
    ran = pml("rules", "explain", tool)
    assert ran.code == 0
    assert ran.out.startswith(f"{word}: {tool}")
    assert meaning in ran.out


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("pml:execute", "the code itself runs without asking, and each call that it makes is judged"),
        ("pml:discover", "it runs without asking, and the tool that it leads to is judged"),
        ("pml:session_stop", "it runs without asking, for sessions whose role has it"),
    ],
)
def test_explaining_a_tool_of_pml_itself_says_that_it_runs_unasked_until_a_rule_names_it(
    pml: Pml, tool: str, said: str
) -> None:
    assert pml("rules", "explain", tool).out == f"unlisted: {tool} is decided by no rule, {said}\n"
    assert pml("rules", "explain", tool, "--json").json["runs_unasked"] == said
    pml("rules", "ask", tool)
    assert pml("rules", "explain", tool).out.startswith(f"ask: {tool} asks on every call\n")
    assert pml("rules", "explain", tool, "--json").json["runs_unasked"] is None


def test_an_allow_that_only_lacks_trust_says_so(pml: Pml, workspace: Path) -> None:
    write(workspace / ".pml.json", {"permissions": {"allow": ["fs:*"]}})
    ran = pml("rules", "explain", "fs:read", "--json")
    assert (ran.json["verdict"], ran.json["needs_trust"], ran.json["trusted"]) == ("unlisted", True, False)
    assert "pml trust" in pml("rules", "explain", "fs:read").err


def test_asking_that_is_off_is_said_loudly(pml: Pml, user: Path) -> None:
    write(user, {"approval": {"enabled": False}})
    ran = pml("rules", "explain", "fs:read", "--json")
    assert (ran.json["verdict"], ran.json["asking_is_off"]) == ("unlisted", True)
    assert "ASKING IS OFF" in pml("rules", "explain", "fs:read").err


@pytest.mark.parametrize(
    "argv",
    [(":b",), ("",), ("a:b", "{"), ("a:b", "[]"), ("a:b", '{"a": 1, "a": 2}'), ("a:b", '{"a": NaN}')],
)
def test_a_call_that_cannot_be_read_is_refused(pml: Pml, argv: tuple[str, ...]) -> None:
    assert pml("rules", "explain", *argv).code == 2


def test_input_that_is_no_json_says_how_to_quote_it(pml: Pml) -> None:
    ran = pml("rules", "explain", "a:b", "{a:")
    assert ran.err.startswith("pml: the input is not JSON: line 1")
    assert """put it in single quotes: '{"a": 1}'""" in ran.err


# --- adding


@pytest.mark.parametrize("effect", ["allow", "deny", "ask"])
def test_a_rule_is_written_once_and_counts_at_once(pml: Pml, local: Path, effect: str) -> None:
    ran = pml("rules", effect, "fs:read", "--json")
    assert (ran.code, ran.json) == (
        0,
        {
            "effect": effect,
            "entry": "fs:read",
            "file": str(local),
            "added": True,
            "counts": True,
            "denied": [],
            "covers": [],
            "released": [],
            "not_covered": [],
            "doubts": [],
        },
    )
    assert verdict(pml, "fs:read") == effect
    text = local.read_text()
    assert pml("rules", effect, "fs:read", "--json").json["added"] is False
    assert "stands there already" in pml("rules", effect, "fs:read").out
    assert local.read_text() == text


def test_a_rule_for_every_workspace_goes_to_the_users_file(pml: Pml, local: Path, user: Path) -> None:
    text = local.read_text()
    assert pml("rules", "deny", "Bash", "--user").code == 0
    assert permissions(user) == {"deny": ["Bash"]}
    assert user.stat().st_mode & 0o777 == 0o600
    assert local.read_text() == text
    assert verdict(pml, "Bash") == "deny"


def test_options_become_an_entry_with_literal_values(pml: Pml, local: Path) -> None:
    options = ["--arg", "title=*", "--arg", "n=3", "--arg", 'id="3"', "--under", "path=./build"]
    pml("rules", "allow", "x:y", *options, "--host", "url=*.example.com", "--id", "mine")
    assert permissions(local)["allow"] == [
        {
            "tool": "x:y",
            "args": {
                "title": {"is": "*"},
                "n": {"is": 3},
                "id": {"is": "3"},
                "path": {"under": "./build"},
                "url": {"host": "*.example.com"},
            },
            "id": "mine",
        }
    ]
    call = {"title": "*", "n": 3, "id": "3", "path": "build/a", "url": "https://api.example.com/x"}
    assert verdict(pml, "x:y", json.dumps(call)) == "allow"
    assert verdict(pml, "x:y", json.dumps(call | {"title": "anything"})) == "unlisted"


def test_a_rule_with_a_time_to_live_ends(pml: Pml, local: Path) -> None:
    pml("rules", "allow", "x:y", "--ttl", "3600")
    (entry,) = permissions(local)["allow"]
    assert entry == {"tool": "x:y", "created_at": entry["created_at"], "ttl_s": 3600}
    (rule,) = (each for each in pml("rules", "list", "--json").json["rules"] if each["effect"] == "allow")
    assert rule["expires_at"] > entry["created_at"]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["x:y", "--arg", "novalue"], "NAME=VALUE"),
        (["x:y", "--arg", "=1"], "NAME=VALUE"),
        (["x:y", "--arg", 'a={"b": 1, "b": 2}'], "twice"),
        (["x:y", "--arg", "a=1", "--under", "a=."], "given twice"),
        (["x:y", "--ttl", "0"], "ttl_s"),
        (['{"tool": "x:y"}', "--id", "a"], "the options go with"),
        (['{"tool": "x:y", "enable": true}'], "did you mean `enabled`?"),
        (['{"tool": "x:y", "args": {"path": {"undr": "."}}}'], "did you mean `under`?"),
        (["x: y"], "can never match"),
        (["x:y\u200b"], "can never match"),
        (["Bash", "--under", "command=."], "which is not a path"),
        (['{"tool": "x:y"'], "not JSON"),
        (['{"tool": "x:y", "match": ["z:z"]}'], "does not match"),
        ([""], "needs the name of a tool"),
        (["Bash", "--arg", "command"], "NAME=VALUE"),
        (['{"tool": "Bash", "args": {"command": {"glob": "git *"}}}'], "command"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_and_nothing_is_written(
    pml: Pml, local: Path, argv: list[str], complaint: str
) -> None:
    text = local.read_text()
    ran = pml("rules", "allow", *argv)
    assert ran.code == 2
    assert complaint in ran.err
    assert local.read_text() == text


def test_a_broken_file_is_not_written_and_said_to_be_broken(pml: Pml, workspace: Path) -> None:
    path = workspace / ".pml.json"
    path.write_text('{"permissions": {')
    ran = pml("rules", "deny", "Bash", "--json")
    assert ran.code == 1
    assert ran.json["error"]["code"] == "invalid"
    assert "`pml doctor` checks both files" in ran.json["error"]["hint"]
    assert path.read_text() == '{"permissions": {'


def test_an_allow_in_an_untrusted_file_does_not_count_and_says_so(pml: Pml, workspace: Path) -> None:
    write(workspace / ".pml.json", {"permissions": {"allow": ["evil:*"]}})
    ran = pml("rules", "allow", "fs:read")
    assert ran.code == 0
    assert "`pml trust`" in ran.err
    assert (verdict(pml, "fs:read"), verdict(pml, "evil:x")) == ("unlisted", "unlisted")


def test_an_ask_that_can_never_ask_says_so(pml: Pml, local: Path) -> None:
    pml("rules", "allow", "fs:*")
    assert "never asks: allow fs:* comes first" in pml("rules", "ask", "fs:rm").err
    assert permissions(local)["ask"] == ["*", "fs:rm"]


# --- what waits


@pytest.mark.usefixtures("local")
@promise("rules:deny-wins")
def test_a_new_deny_denies_what_waits_and_names_the_rule(pml: Pml) -> None:
    doomed, other = pml.ask("db:drop"), pml.ask("db:read")
    ran = pml("rules", "deny", "db:drop")
    assert ran.code == 0
    assert f"denied {doomed[:8]} db:drop" in ran.out
    assert (pml.status(doomed), pml.status(other)) == ("denied", "pending")
    decided_by = pml("approvals", "show", doomed, "--json").json["decided_by"]
    assert (decided_by["kind"], decided_by["channel"]) == ("rule", "rules")


def test_a_deny_for_every_workspace_denies_what_waits_in_another(
    pml: Pml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = pml.ask("db:drop")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert pml("rules", "deny", "db:drop", "--user", "--json").json["denied"] == [doomed]


@pytest.mark.usefixtures("local")
@promise("release:only-what-was-shown")
def test_a_new_allow_shows_what_it_covers_and_lets_run_only_what_is_named(pml: Pml) -> None:
    one, two, other = pml.ask("db:read"), pml.ask("db:list"), pml.ask("fs:read")
    shown = pml("rules", "allow", "db:*")
    assert f"pml rules allow 'db:*' --release {one[:8]} {two[:8]}" in shown.out
    assert [pml.status(each) for each in (one, two, other)] == ["pending"] * 3

    ran = pml("rules", "allow", "db:*", "--release", one[:8], "--json")
    assert (ran.json["added"], ran.json["released"], ran.json["covers"]) == (False, [one], [two])
    assert [pml.status(each) for each in (one, two, other)] == ["allowed", "pending", "pending"]


@pytest.mark.usefixtures("local")
def test_what_no_rule_covers_is_not_released(pml: Pml) -> None:
    other = pml.ask("fs:read")
    ran = pml("rules", "allow", "db:*", "--release", other)
    assert ran.code == 0
    assert f"{other[:8]} stays as it is" in ran.err
    assert pml.status(other) == "pending"


def test_an_unknown_id_to_release_writes_nothing(pml: Pml, local: Path) -> None:
    text = local.read_text()
    assert pml("rules", "allow", "db:*", "--release", "ffff").code == 5
    assert local.read_text() == text


def test_an_allow_that_does_not_count_releases_nothing(pml: Pml, workspace: Path) -> None:
    waiting = pml.ask("fs:read")
    write(workspace / ".pml.json", {"idle_s": 5})
    ran = pml("rules", "allow", "fs:*", "--release", waiting, "--json")
    assert (ran.json["counts"], ran.json["released"], ran.json["not_covered"]) == (False, [], [waiting])
    assert pml.status(waiting) == "pending"


# --- the log


def test_changes_of_rules_are_in_the_audit_log(pml: Pml, local: Path) -> None:
    pml("rules", "allow", "fs:*")
    pml("rules", "remove", "fs:*")
    told = [
        (each["kind"], each["by"]["kind"], each["detail"])
        for each in pml("audit", "list", "--json").json["entries"]
        if each["kind"].startswith("rule.")
    ]
    assert told == [
        ("rule.added", "person", {"where": str(local), "effect": "allow", "entry": "fs:*"}),
        ("rule.removed", "person", {"where": str(local), "effect": "allow", "entry": "fs:*"}),
    ]


# --- an agent


@promise("agent:cannot-decide")
@pytest.mark.usefixtures("agent")
def test_beneath_an_agent_rules_cannot_be_loosened(pml: Pml, local: Path) -> None:
    text = local.read_text()
    waiting = pml.ask("fs:read")
    for argv in (
        ("allow", "fs:*"),
        ("allow", "fs:*", "--user"),
        ("disable", "Bash"),
        ("enable", "Bash"),
        ("allow", "fs:*", "--release", waiting),
        ("remove", "*"),
    ):
        ran = run_process("rules", *argv)
        assert ran.code == 1
        assert "agent session `the-agent`" in ran.err
    assert local.read_text() == text
    assert pml.status(waiting) == "pending"


@pytest.mark.usefixtures("agent", "local")
def test_beneath_an_agent_rules_can_be_tightened_and_the_log_calls_nobody_a_person(pml: Pml) -> None:
    for effect in ("deny", "ask"):
        assert run_process("rules", effect, "fs:rm").code == 0
    entries = pml("audit", "list", "--json").json["entries"]
    assert {each["by"]["kind"] for each in entries if each["kind"] == "rule.added"} == {"client"}


@promise("agent:cannot-decide")
@pytest.mark.usefixtures("agent")
def test_beneath_an_agent_approvals_cannot_be_decided(pml: Pml) -> None:
    waiting = pml.ask("fs:read")
    for verb in ("allow", "deny"):
        ran = run_process("approvals", verb, waiting)
        assert ran.code == 1
        assert "agent session `the-agent`" in ran.err
    assert pml.status(waiting) == "pending"


@pytest.mark.parametrize("verb", ["deny", "allow", "ask", "explain"])
def test_the_name_that_clients_see_is_refused_with_the_one_that_rules_know(
    pml: Pml, workspace: Path, verb: str
) -> None:
    (workspace / ".pml.json").write_text('{"mcpServers": {"fs": {"command": "x"}}}')
    before = (workspace / ".pml.json").read_text()
    ran = pml("rules", verb, "fs__write_file")
    assert ran.code == 2
    assert "rules say `fs:write_file`" in ran.err
    assert (workspace / ".pml.json").read_text() == before


def test_a_rule_in_a_file_that_names_a_tool_as_clients_see_it_is_reported(pml: Pml, workspace: Path) -> None:
    (workspace / ".pml.json").write_text(
        '{"mcpServers": {"fs": {"command": "x"}}, "permissions": {"deny": ["fs__write_file"]}}'
    )
    assert "names no tool: rules say `fs:write_file`" in pml("doctor").out


@pytest.mark.parametrize(
    ("entry", "is_noted"),
    [("timeget", True), ("read_*", True), ("time:get", False), ("Bash", False), ("*", False)],
)
def test_a_name_without_a_colon_is_told_what_it_means(pml: Pml, entry: str, is_noted: bool) -> None:
    ran = pml("rules", "allow", entry, "--user")
    assert ran.code == 0
    assert (f"for one server write `server:{entry}`" in ran.err) is is_noted


@pytest.mark.parametrize("words", [(), ("deny",), ("ask",)])
def test_the_help_shows_how_to_guard_a_folder_whatever_the_argument_is_called(
    pml: Pml, words: tuple[str, ...]
) -> None:
    said = pml("rules", *words, "--help").out
    assert "'filesystem:*' --under '*=~/.ssh'" in said
    assert "fs:" not in said.partition("--under")[2].partition("\n")[0]


def test_the_folder_that_the_help_guards_is_guarded_in_every_argument(pml: Pml, local: Path) -> None:
    assert pml("rules", "deny", "filesystem:*", "--under", "*=~/.ssh").code == 0
    for call in ({"path": "~/.ssh/id"}, {"source": "a", "destination": "~/.ssh/authorized_keys"}):
        said = pml("rules", "explain", "filesystem:move_file", json.dumps(call), "--json").json
        assert said["verdict"] == "deny"
