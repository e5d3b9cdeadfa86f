"""Reading one configuration file: every key typed, everything wrong refused where it stands."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from pml.core.config.file import (
    MAX_DAYS,
    MAX_RULES,
    MAX_SECONDS,
    USER_ONLY,
    ApprovalKeys,
    ConfigFile,
    FileKind,
    ModelMayApprove,
    OffUntil,
    Unlisted,
    parse_config,
)
from pml.core.errors import ConfigInvalid
from pml.core.packages.permissions import FOLDER_RULE, PROGRAM_RULE, Permissions
from pml.core.rules.ruleset import ENTRY_KEYS, Effect, Rule, Source
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.core.values import Json
from tests.builders import launch_of
from tests.core.judging import FakePaths
from tests.promises import promise

SCHEMA = Path(__file__).parents[3] / "docs" / "config.schema.json"


def read(
    text: str, kind: FileKind = FileKind.USER, *, environ: Mapping[str, str] | None = None
) -> ConfigFile:
    return parse_config(
        text, path="f.json", kind=kind, base_dir="/repo", paths=FakePaths(), environ=environ or {}
    )


def refusal(text: str, kind: FileKind = FileKind.USER) -> tuple[int, int, str]:
    with pytest.raises(ConfigInvalid) as refused:
        read(text, kind)
    assert refused.value.path == "f.json"
    return refused.value.line, refused.value.column, refused.value.problem


EVERY_KEY = """{
  "$schema": "./config.schema.json",
  "version": "0.1.0",
  "permissions": {
    "allow": ["github:get_*",
      {"tool": "x:y", "id": "mine"}],
    "deny": ["Bash"],
    "ask": ["*"]
  },
  "mcpServers": {
    "files": {"type": "stdio", "command": "npx", "args": ["-y", ""], "env": {"KEY": "secret"}, "cwd": "sub",
              "disabled": false, "permissions": {"net": false}},
    "bare": {"command": "run"}
  },
  "expose": ["github:*"],
  "prespawn": ["files"],
  "idle_s": 60,
  "registry": "https://registry.test:8443/r",
  "cloud": "http://127.0.0.1:9",
  "registry_prefix": "acme.tools",
  "approval": {"ttl_s": 10, "unlisted": "every_call", "model_may_approve": "never", "forms": false,
               "parent_may_decide": ["github:*"], "enabled": {"until": "2030-01-31T13:00:00+01:00"}},
  "install": {"allow_unverified": true, "min_age_days": 7},
  "notify": {"webhook": "https://hook.test/x?y=1"},
  "audit": {"keep_days": 7}
}"""


def rule(effect: Effect, tool: str, line: int, entry: Json = None, rule_id: str | None = None) -> Rule:
    source = Source(file="f.json", line=line)
    return Rule(effect=effect, tool=tool, id=rule_id, entry=entry or tool, source=source)


def test_every_key_is_read_into_its_type() -> None:
    assert read(EVERY_KEY) == ConfigFile(
        path="f.json",
        kind=FileKind.USER,
        rules=(
            rule(Effect.DENY, "Bash", 7),
            rule(Effect.ALLOW, "github:get_*", 5),
            rule(Effect.ALLOW, "x:y", 6, {"tool": "x:y", "id": "mine"}, "mine"),
            rule(Effect.ASK, "*", 8),
        ),
        servers={
            "files": ServerSpec(
                name="files",
                target=ProcessLaunch(
                    command="npx",
                    args=("-y", ""),
                    env={"KEY": "secret"},
                    cwd="/repo/sub",
                    permissions=Permissions(),
                ),
                source=Source(file="f.json", line=11),
            ),
            "bare": ServerSpec(
                name="bare", target=ProcessLaunch(command="run"), source=Source(file="f.json", line=13)
            ),
        },
        expose=("github:*",),
        prespawn=("files",),
        idle_s=60,
        registries=("https://registry.test:8443/r",),
        cloud="http://127.0.0.1:9",
        registry_prefix="acme.tools",
        approval=ApprovalKeys(
            ttl_s=10,
            unlisted=Unlisted.EVERY_CALL,
            model_may_approve=ModelMayApprove.NEVER,
            forms=False,
            parent_may_decide=("github:*",),
            enabled=OffUntil(until_at=datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ),
        allow_unverified=True,
        min_age_days=7,
        webhook="https://hook.test/x?y=1",
        keep_days=7,
    )


def test_an_empty_object_sets_nothing() -> None:
    assert read("{}") == ConfigFile(path="f.json", kind=FileKind.USER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("folder", "/repo/folder"),
        ("~/r", "/home/ada/r"),
        ("/srv/r", "/srv/r"),
        ("http://[::1]:1", "http://[::1]:1"),
    ],
)
def test_a_registry_is_a_url_or_a_folder(text: str, expected: str) -> None:
    assert read(json.dumps({"registry": text})).registries == (expected,)


def test_an_entry_that_is_switched_off_is_no_rule_but_is_known() -> None:
    config = read('{"permissions": {"allow": [{"tool": "a:b", "enabled": false}]}}')
    entry = {"tool": "a:b", "enabled": False}
    off = Rule(effect=Effect.ALLOW, tool="a:b", entry=entry, source=Source(file="f.json", line=1))
    assert (config.rules, config.disabled) == ((), (off,))


@pytest.mark.parametrize("value", [True, False])
def test_switches_may_be_plain_booleans(value: bool) -> None:
    text = json.dumps({"approval": {"enabled": value, "parent_may_decide": value}})
    assert read(text).approval == ApprovalKeys(enabled=value, parent_may_decide=value)


def test_parents_may_be_left_what_no_rule_names() -> None:
    text = json.dumps({"approval": {"parent_may_decide": "unlisted"}})
    assert read(text).approval == ApprovalKeys(parent_may_decide="unlisted")


def test_the_values_of_a_servers_environment_are_not_in_its_repr() -> None:
    assert "secret" not in repr(read(EVERY_KEY).servers["files"])


SECONDS = f"a whole number from 1 to {MAX_SECONDS}"
REFUSED: list[tuple[str, tuple[int, int, str]]] = [
    ("[]", (1, 1, "the file must be an object, not an array")),
    ('{"version": 1}', (1, 13, "`version` must be a string, not a number")),
    ('{"permissions": []}', (1, 17, "`permissions` must be an object, not an array")),
    (
        '{"permissions": {"deny": "Bash"}}',
        (1, 26, "`permissions.deny` must be an array of rules, not a string"),
    ),
    (
        '{"permissions": {"allow": [\n "a:b",\n 7]}}',
        (3, 2, "`permissions.allow[1]`: a rule is a text or an object, not a number"),
    ),
    (
        '{"permissions": {"ask": [{"tool": "a:b",\n "args": 1}]}}',
        (2, 10, "`permissions.ask[0].args`: `args` must be an object, not a number"),
    ),
    (
        '{"permissions": {"ask": [{"tool": "a:b", "tol": 1}]}}',
        (1, 49, "`permissions.ask[0].tol`: unknown key `tol`"),
    ),
    (
        '{"permissions": {"deny": [{"tool": "a:b", "match": ["a:b",\n "a:c"]}]}}',
        (2, 2, '`permissions.deny[0].match[1]`: the rule does not match its `match` example `"a:c"`'),
    ),
    (
        '{"permissions": {"allow": [\n  {"args": {}}]}}',
        (2, 3, "`permissions.allow[0]`: a rule needs the name of a tool, or a glob for several"),
    ),
    ('{"mcpServers": 1}', (1, 16, "`mcpServers` must be an object, not a number")),
    ('{"expose": "*"}', (1, 12, "`expose` must be an array of strings, not a string")),
    ('{"expose": ["a", ""]}', (1, 18, "`expose[1]` must not be empty")),
    ('{"prespawn": [1]}', (1, 15, "`prespawn[0]` must be a string, not a number")),
    ('{"idle_s": "60"}', (1, 12, f"`idle_s` must be {SECONDS}, not a string")),
    ('{"idle_s": true}', (1, 12, f"`idle_s` must be {SECONDS}, not a boolean")),
    ('{"idle_s": 1.5}', (1, 12, f"`idle_s` must be {SECONDS}, not a number")),
    ('{"idle_s": 0}', (1, 12, f"`idle_s` must be {SECONDS}, not 0")),
    ('{"idle_s": 99999999}', (1, 12, f"`idle_s` must be {SECONDS}, not 99999999")),
    ('{"registry": "ftp://x"}', (1, 14, "`registry` must be an http or https URL, not `ftp://x`")),
    ('{"registry": null}', (1, 14, "`registry` must be a string, not null")),
    ('{"cloud": "cloud.test"}', (1, 11, "`cloud` must be an http or https URL, not `cloud.test`")),
    ('{"cloud": "http://"}', (1, 11, "`cloud` must be an http or https URL, not `http://`")),
    ('{"cloud": "http://a:b"}', (1, 11, "`cloud` must be an http or https URL, not `http://a:b`")),
    ('{"cloud": "http://a /"}', (1, 11, "`cloud` must be an http or https URL, not `http://a /`")),
    ('{"registry_prefix": "acme"}', (1, 21, "`registry_prefix` must be like `org.project`, not `acme`")),
    ('{"approval": true}', (1, 14, "`approval` must be an object, not a boolean")),
    ('{"approval": {"ttl_s": -1}}', (1, 24, f"`approval.ttl_s` must be {SECONDS}, not -1")),
    (
        '{"approval": {"unlisted": "never"}}',
        (1, 27, '`approval.unlisted` must be `"if_client_cannot"` or `"every_call"`, not `never`'),
    ),
    (
        '{"approval": {"model_may_approve": true}}',
        (
            1,
            36,
            '`approval.model_may_approve` must be `"if_no_form"` or `"never"` or `"always"`, not a boolean',
        ),
    ),
    (
        '{"approval": {"parent_may_decide": "x"}}',
        (
            1,
            36,
            '`approval.parent_may_decide` must be "unlisted", true, false or an array of tool globs, '
            "not a string",
        ),
    ),
    (
        '{"approval": {"enabled": "no"}}',
        (1, 26, '`approval.enabled` must be true, false or `{"until": time}`, not a string'),
    ),
    ('{"approval": {"enabled": {}}}', (1, 26, "`approval.enabled` has no `until`")),
    (
        '{"approval": {"enabled": {"until": "2030-01-31T12:00:00"}}}',
        (
            1,
            36,
            "`approval.enabled.until` must be a time with its zone, like `2030-01-31T12:00:00Z`, "
            "not `2030-01-31T12:00:00`",
        ),
    ),
    (
        '{"install": {"min_age_days": -1}}',
        (1, 30, "`install.min_age_days` must be a whole number from 0 to 36600, not -1"),
    ),
    (
        '{"install": {"allow_unverified": 1}}',
        (1, 34, "`install.allow_unverified` must be true or false, not a number"),
    ),
    ('{"notify": {"webhook": "x"}}', (1, 24, "`notify.webhook` must be an http or https URL, not `x`")),
    (
        '{"audit": {"keep_days": 0}}',
        (1, 25, f"`audit.keep_days` must be a whole number from 1 to {MAX_DAYS}, not 0"),
    ),
]
UNUSABLE = [
    ('{"mcpServers": {"a": "npx"}}', (1, 22, "`mcpServers.a` must be an object, not a string")),
    (
        '{"mcpServers": {"a b": {}}}',
        (1, 17, "`mcpServers.a b` is not a name for a server: 1 to 64 of `A-Z a-z 0-9 _ -`"),
    ),
    (
        '{"mcpServers": {"pml": {}}}',
        (1, 17, "`mcpServers.pml` is not a name for a server: PML uses it for itself"),
    ),
    (
        '{"mcpServers": {"Plexus": {}}}',
        (1, 17, "`mcpServers.Plexus` is not a name for a server: PML uses it for itself"),
    ),
    ('{"mcpServers": {"a": {"args": []}}}', (1, 22, "`mcpServers.a` has no `command`")),
    (
        '{"mcpServers": {"a": {"type": "http", "command": "x"}}}',
        (1, 22, "`mcpServers.a` has no `url`"),
    ),
    (
        '{"mcpServers": {"a": {"url": "https://x.test", "command": "x"}}}',
        (1, 22, "`mcpServers.a` has both `command` and `url`"),
    ),
    ('{"mcpServers": {"a": {"command": ""}}}', (1, 34, "`mcpServers.a.command` must not be empty")),
    (
        '{"mcpServers": {"a": {"command": "x", "args": ["\\u0000"]}}}',
        (1, 48, "`mcpServers.a.args[0]` must not have a NUL character"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "args": "-y"}}}',
        (1, 47, "`mcpServers.a.args` must be an array of strings, not a string"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "env": {"N": 1}}}}',
        (1, 52, "`mcpServers.a.env.N` must be a string, not a number"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "env": {"A=B": ""}}}}',
        (1, 47, "`mcpServers.a.env.A=B` is not a name for a variable"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "cwd": "$HOME"}}}',
        (1, 46, "`mcpServers.a.cwd` must be a folder, not `$HOME`"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "permissions": []}}}',
        (1, 54, "`mcpServers.a.permissions` must be an object, not an array"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "permissions": {"net": "all"}}}}',
        (1, 62, "`mcpServers.a.permissions.net` must be true, false or an array of hosts, not a string"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "permissions": {"workspace": "all"}}}}',
        (
            *(1, 68),
            '`mcpServers.a.permissions.workspace` must be `"none"` or `"read"` or `"write"`, not `all`',
        ),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "permissions": {"read": ["/ok",\n "/a/../b"]}}}}',
        (2, 2, f"`mcpServers.a.permissions.read[1]` must be {FOLDER_RULE}, not `/a/../b`"),
    ),
    (
        '{"mcpServers": {"a": {"command": "x", "permissions": {"run": ["/bin/sh"]}}}}',
        (1, 63, f"`mcpServers.a.permissions.run[0]` must be {PROGRAM_RULE}, not `/bin/sh`"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), REFUSED)
def test_what_is_wrong_is_refused_with_its_place_its_key_and_what_was_expected(
    text: str, expected: tuple[int, int, str]
) -> None:
    assert refusal(text) == expected


def unusable(text: str, *, environ: Mapping[str, str] | None = None) -> str:
    """Return why the entry `a`, the first one, cannot be used; the rest of the file must be sound."""
    sound = text.replace('"mcpServers": {', '"permissions": {"deny": ["Bash"]}, "mcpServers": {', 1)
    config = read(sound[: sound.rindex("}}")] + ', "sound": {"command": "s"}}}', environ=environ)
    assert [rule.tool for rule in config.rules] == ["Bash"]
    assert list(config.servers) == ["sound"]
    (entry,) = config.unusable.values()
    (warning,) = config.warnings
    assert entry.why.removeprefix("is not used: ").partition(" (f.json:")[0] in warning
    return entry.why


@promise("config:one-entry-alone")
@pytest.mark.parametrize(("text", "expected"), UNUSABLE)
def test_an_entry_that_cannot_be_used_costs_neither_the_rules_nor_the_other_servers(
    text: str, expected: tuple[int, int, str]
) -> None:
    line, _, problem = expected
    assert unusable(text) == f"is not used: {problem} (f.json:{line})"


def test_a_command_line_in_the_place_of_a_program_is_explained() -> None:
    config = read('{"mcpServers": {"a": {"command": "npx -y foo"}}}')
    hint = 'PML starts a program without a shell: write `"command": "npx", "args": ["-y", "foo"]`'
    assert config.unusable["a"].hint == hint
    assert config.warnings == (
        f"server `a` at line 1 is not used: `mcpServers.a.command` is a whole command line; {hint}",
    )


@pytest.mark.parametrize("command", ["/opt/My Tools/srv", "./my srv", "My Server.exe"])
def test_a_program_may_have_a_blank_in_its_name(command: str) -> None:
    config = read(json.dumps({"mcpServers": {"a": {"command": command}}}))
    assert launch_of(config.servers["a"]).command == command


def test_a_disabled_entry_is_switched_off_and_no_problem() -> None:
    config = read(
        '{"mcpServers": {"a": {"command": "x", "disabled": true}, "b": {"command": "y", "disabled": false}}}'
    )
    assert (list(config.servers), config.unusable["a"].is_switched_off, config.warnings) == (["b"], True, ())


ENTRY = """{"mcpServers": {"a": {"command": "${TOOL:-npx}", "args": ["${A}", "${A}-${B:-b}", "$A", "${A"],
  "env": {"TOKEN": "${TOKEN}", "PLAIN": "x"}, "cwd": "${DIR:-sub}"}}}"""


def test_variables_expand_as_in_other_clients_and_the_entry_is_known_as_it_was_written() -> None:
    spec = read(ENTRY, environ={"A": "1", "TOKEN": "${A}", "B": ""}).servers["a"]
    assert (launch_of(spec).command, launch_of(spec).args, launch_of(spec).cwd) == (
        "npx",
        ("1", "1-b", "$A", "${A"),
        "/repo/sub",
    )
    assert launch_of(spec).env == {"TOKEN": "${A}", "PLAIN": "x"}  # a value is not looked through again
    launch = launch_of(spec)
    assert (launch.shown.command, launch.variables) == (
        "${TOOL:-npx}",
        ("TOOL", "A", "B", "TOKEN", "DIR"),
    )
    assert spec.target.unset == ()
    assert spec.target.secrets == {"A": "1", "TOKEN": "${A}", "PLAIN": "x"}


def test_a_variable_that_is_not_set_is_told_and_stays_as_it_is() -> None:
    spec = read(ENTRY, environ={"A": "1"}).servers["a"]
    assert (launch_of(spec).unset, launch_of(spec).env["TOKEN"]) == (("TOKEN",), "${TOKEN}")


def test_one_entry_is_one_server_whatever_its_variables_are() -> None:
    one, other = (read(ENTRY, environ={"A": value, "TOKEN": value}).servers["a"] for value in "12")
    assert one.target_digest == other.target_digest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${env:HOME}", "has `${env:…}`, which only some editors fill in: write `${HOME}`"),
        ("${input:key}", "has `${input:…}`, which only some editors fill in"),
        ("${PML_TOKEN_FILE}", "has `${PML_TOKEN_FILE}`, which is PML's own and given to no server"),
    ],
)
def test_variables_of_editors_and_of_pml_itself_are_explained(text: str, problem: str) -> None:
    entry = json.dumps({"mcpServers": {"a": {"command": "x", "env": {"K": text}}}})
    environ = {"PML_TOKEN_FILE": "/secret"}
    assert unusable(entry, environ=environ) == f"is not used: `mcpServers.a.env` {problem} (f.json:1)"


@promise("config:one-entry-alone")
@pytest.mark.parametrize(
    "name",
    "LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES GCONV_PATH BASH_ENV SHELLOPTS BASHOPTS "
    "NODE_OPTIONS NODE_PATH PYTHONPATH pythonhome RUBYOPT RUBYLIB PERL5OPT PERL5LIB PERL5DB "
    "JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS DOTNET_STARTUP_HOOKS "
    "GIT_SSH GIT_SSH_COMMAND GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF GIT_EXEC_PATH "
    "GIT_CONFIG GIT_CONFIG_GLOBAL GIT_CONFIG_COUNT GIT_CONFIG_KEY_0".split(),
)
def test_a_variable_that_would_load_other_code_into_a_server_is_refused_without_its_value(name: str) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "x", "env": {name: "secret"}}}})
    expected = f"`mcpServers.a.env.{name}` changes which code the server runs, and is refused"
    assert unusable(text) == f"is not used: {expected} (f.json:1)"


def test_variables_that_load_no_code_are_the_servers_own_affair() -> None:
    env = dict.fromkeys(
        "PATH HOME ENV NODE_ENV APP_ENV GIT_AUTHOR_NAME JAVA_HOME GITHUB_TOKEN "
        "PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONUTF8".split(),
        "x",
    )
    text = json.dumps({"mcpServers": {"a": {"command": "x", "env": env}}})
    assert launch_of(read(text).servers["a"]).env == env


@promise("config:duplicate-keys-refused")
def test_a_duplicate_key_anywhere_in_the_file_makes_it_invalid() -> None:
    text = '{"permissions": {"deny": ["Bash"]},\n "permissions": {}}'
    assert refusal(text) == (2, 2, "duplicate key `permissions`: it is already at line 1")


def test_unknown_keys_are_reported_with_their_line_and_the_key_they_resemble() -> None:
    text = """{
  "permisions": {},
  "permissions": {"alow": []},
  "mcpServers": {"a": {"command": "x", "disable": true, "permissions": {"nets": true}}},
  "approval": {"ttl": 1, "enabled": {"until": "2030-01-31T12:00:00Z", "why": ""}},
  "zzz\\u202e": 1
}"""
    assert read(text).warnings == (
        "`permisions` at line 2 is not a key PML knows; did you mean `permissions`?",
        "`permissions.alow` at line 3 is not a key PML knows; did you mean `permissions.allow`?",
        "`mcpServers.a.permissions.nets` at line 4 is not a key PML knows; "
        "did you mean `mcpServers.a.permissions.net`?",
        "`mcpServers.a.disable` at line 4 is not a key PML knows; did you mean `mcpServers.a.disabled`?",
        "`approval.enabled.why` at line 5 is not a key PML knows",
        "`approval.ttl` at line 5 is not a key PML knows; did you mean `approval.ttl_s`?",
        "`zzz\\u{202e}` at line 6 is not a key PML knows",
    )


@promise("config:untrusted-only-tightens")
def test_the_users_own_switches_are_ignored_in_a_workspace_and_reported() -> None:
    text = """{
  "approval": {"enabled": false},
  "install": {"allow_unverified": true, "min_age_days": 7},
  "notify": {"webhook": 7},
  "audit": {"keep_days": 1}
}"""
    assert read(text, FileKind.WORKSPACE) == ConfigFile(
        path="f.json",
        kind=FileKind.WORKSPACE,
        warnings=tuple(
            f"`{key}` at line {line} applies only in the user's file and is ignored"
            for line, key in enumerate(USER_ONLY, start=2)
        ),
    )


def test_an_ask_that_an_allow_hides_is_reported_with_both_lines() -> None:
    text = '{"permissions": {\n "ask": ["github:create_issue"],\n "allow": ["github:*"]}}'
    assert read(text).warnings == (
        "ask `github:create_issue` at line 2 never asks: allow `github:*` at line 3 comes first",
    )


def test_the_schema_describes_every_key_that_is_read() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    top, definitions = schema["properties"], schema["$defs"]
    every = json.loads(EVERY_KEY)
    assert top.keys() == every.keys()
    for key in ("permissions", *USER_ONLY):
        assert top[key]["properties"].keys() == every[key].keys(), key
    remote = {"annotations", "url", "headers", "insecure", "private", "oauth"}
    assert definitions["server"]["properties"].keys() == every["mcpServers"]["files"].keys() | remote
    assert set(definitions["rule"]["oneOf"][1]["properties"]) == set(ENTRY_KEYS)
    assert undescribed(schema) == []


def undescribed(schema: Any, name: str = "") -> list[str]:
    """Return the keys in `schema` that have no description."""
    if isinstance(schema, list):
        return [found for each in cast(list[Any], schema) for found in undescribed(each, name)]
    if not isinstance(schema, dict):
        return []
    members = cast(dict[str, Any], schema)
    bare = [
        f"{name}.{key}" for key, said in members.get("properties", {}).items() if "description" not in said
    ]
    return bare + [found for key, each in members.items() for found in undescribed(each, f"{name}.{key}")]


def test_a_list_with_too_many_rules_is_refused_in_its_place() -> None:
    text = json.dumps({"permissions": {"allow": [f"a:{n}" for n in range(MAX_RULES + 1)]}})

    assert "has 20,001 rules, more than 20,000" in refusal(text)[2]


def test_many_asks_beside_many_rules_are_not_compared_one_by_one() -> None:
    rules = {"allow": [f"*a{n}*z" for n in range(2000)], "ask": [f"c{n}" for n in range(2000)]}

    config = read(json.dumps({"permissions": rules}))

    assert config.warnings == ("too many rules to look for asks that an allow hides",)
