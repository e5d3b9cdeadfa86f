"""Uniting the two files: what a workspace may change before it is trusted, and after."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from pml.core.config.file import ConfigFile, FileKind, ModelMayApprove, OffUntil, Unlisted, parse_config
from pml.core.config.merged import ApprovalSettings, Loosening, Settings, loosening, unite
from pml.core.rules.ruleset import Effect
from pml.core.servers.process_facts import ProcessFacts
from tests.core.judging import FakePaths
from tests.promises import promise

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
DEFAULTS = Settings(
    rules=(),
    servers={},
    unusable={},
    expose=None,
    expose_within=None,
    prespawn=(),
    idle_s=300,
    registries=(),
    cloud=None,
    registry_prefix=None,
    approval=ApprovalSettings(
        ttl_s=300,
        unlisted=Unlisted.EVERY_CALL,
        model_may_approve=ModelMayApprove.IF_NO_FORM,
        parent_may_decide="unlisted",
        enabled=True,
    ),
    allow_unverified=False,
    min_age_days=0,
    webhook=None,
    keep_days=30,
    problems=(),
)


def user(text: str) -> ConfigFile:
    return parse_config(text, path="u.json", kind=FileKind.USER, base_dir="/w", paths=FakePaths(), environ={})


def workspace(text: str) -> ConfigFile:
    return parse_config(
        text, path="w.json", kind=FileKind.WORKSPACE, base_dir="/w", paths=FakePaths(), environ={}
    )


USER = user("""{
  "permissions": {"allow": ["a:1"], "deny": ["d:1"], "ask": ["k:1"]},
  "mcpServers": {"mine": {"command": "m"}},
  "expose": ["mine:*", "both:*"], "prespawn": ["mine"], "idle_s": 10,
  "registry": "https://u.test", "cloud": "https://uc.test", "registry_prefix": "u.u",
  "approval": {"ttl_s": 9, "unlisted": "every_call", "model_may_approve": "never",
               "parent_may_decide": false, "enabled": false},
  "install": {"allow_unverified": true, "min_age_days": 7},
  "notify": {"webhook": "https://h.test"}, "audit": {"keep_days": 3}
}""")
WORKSPACE = workspace("""{
  "permissions": {"allow": ["a:2"], "deny": ["d:2"], "ask": ["k:2"]},
  "mcpServers": {"theirs": {"command": "t", "args": ["-x"], "env": {"TOKEN": "secret", "PATH": "/w/bin"},
                            "cwd": "sub", "permissions": {"net": ["x.test"]}}},
  "expose": ["both:*", "theirs:*"], "prespawn": ["theirs"], "idle_s": 20,
  "registry": "https://w.test", "cloud": "https://wc.test", "registry_prefix": "w.w",
  "approval": {"enabled": true}
}""")
OWN = unite(USER, None, trusted=False)


def test_without_files_the_defaults_hold() -> None:
    assert unite(None, None, trusted=True) == DEFAULTS


def test_the_users_file_alone_sets_everything() -> None:
    assert OWN == Settings(
        rules=USER.rules,
        servers=USER.servers,
        unusable={},
        expose=("mine:*", "both:*"),
        expose_within=None,
        prespawn=("mine",),
        idle_s=10,
        registries=("https://u.test",),
        cloud="https://uc.test",
        registry_prefix="u.u",
        approval=ApprovalSettings(
            ttl_s=9,
            unlisted=Unlisted.EVERY_CALL,
            model_may_approve=ModelMayApprove.NEVER,
            parent_may_decide=False,
            enabled=False,
        ),
        allow_unverified=True,
        min_age_days=7,
        webhook="https://h.test",
        keep_days=3,
        problems=(),
    )


@promise("config:untrusted-only-tightens")
def test_an_untrusted_workspace_adds_only_denies_and_asks_and_offers_no_more_by_name() -> None:
    tightening = tuple(rule for rule in WORKSPACE.rules if rule.effect is not Effect.ALLOW)
    within = ("both:*", "theirs:*")
    assert unite(USER, WORKSPACE, trusted=False) == replace(
        OWN, rules=USER.rules + tightening, expose_within=within
    )
    assert unite(None, WORKSPACE, trusted=False) == replace(DEFAULTS, rules=tightening, expose_within=within)


def test_a_trusted_workspace_unites_with_the_users_file_and_wins_where_only_one_can() -> None:
    assert unite(USER, WORKSPACE, trusted=True) == replace(
        OWN,
        rules=USER.rules + WORKSPACE.rules,
        servers={**USER.servers, **WORKSPACE.servers},
        expose=("mine:*", "both:*", "theirs:*"),
        prespawn=("mine", "theirs"),
        idle_s=20,
        registries=("https://w.test",),
        cloud="https://wc.test",
        registry_prefix="w.w",
    )


def test_a_server_name_in_both_files_belongs_to_neither() -> None:
    mine = user('{"mcpServers": {\n"x": {"command": "m"}, "y": {"command": "m"}}}')
    theirs = workspace('{"mcpServers": {"x": {"command": "t"}}}')
    found = unite(mine, theirs, trusted=True)
    assert found.servers == {"y": mine.servers["y"]}
    assert found.problems == ("server `x` is defined twice and not used: u.json:2 and w.json:1",)


UNUSABLE = '{"mcpServers": {"x": {"type": "http"}, "off": {"command": "x", "disabled": true}}}'
WHY = "server `x` is not used: `mcpServers.x` has no `url`"


@promise("config:one-entry-alone")
@pytest.mark.parametrize("trusted", [True, False])
def test_the_name_of_an_entry_that_cannot_be_used_is_nobodys_and_the_reason_is_told(trusted: bool) -> None:
    found = unite(USER, workspace(UNUSABLE), trusted=trusted)
    assert found.servers == USER.servers
    assert set(found.unusable) == {"x", "off"}
    assert found.problems == (f"{WHY} (w.json:1)",)  # that one is switched off is no problem


@promise("config:untrusted-only-tightens")
def test_an_untrusted_workspace_cannot_switch_a_server_of_the_user_off() -> None:
    off = workspace('{"mcpServers": {"mine": {"command": "x", "disabled": true}}}')
    assert (unite(USER, off, trusted=False).servers, unite(USER, off, trusted=True).servers) == (
        USER.servers,
        {},
    )


def test_a_file_whose_servers_cannot_be_used_needs_no_trust() -> None:
    assert loosening(workspace(UNUSABLE)) is None


@promise("config:untrusted-only-tightens")
def test_an_untrusted_workspace_cannot_take_a_server_away_by_its_name() -> None:
    mine = user('{"mcpServers": {"x": {"command": "m"}}}')
    theirs = workspace('{"mcpServers": {"x": {"command": "t"}}}')
    assert unite(mine, theirs, trusted=False) == unite(mine, None, trusted=False)


def test_an_empty_list_of_a_file_is_a_setting_and_takes_nothing_away() -> None:
    mine, theirs = user('{"prespawn": ["a"]}'), workspace('{"expose": [], "prespawn": []}')
    assert unite(mine, theirs, trusted=True) == replace(DEFAULTS, expose=(), prespawn=("a",))


def test_what_both_lists_name_is_there_once_where_the_user_has_it() -> None:
    mine = user('{"expose": ["a", "b"], "prespawn": ["a", "b"]}')
    theirs = workspace('{"expose": ["c", "a"], "prespawn": ["c", "a"]}')
    expected = replace(DEFAULTS, expose=("a", "b", "c"), prespawn=("a", "b", "c"))
    assert unite(mine, theirs, trusted=True) == expected


def test_loosening_shows_what_trusting_would_allow_start_and_change_but_no_secret() -> None:
    found = loosening(WORKSPACE)
    assert found == Loosening(
        allows=('"a:2"',),
        launches=(
            ProcessFacts(
                name="theirs",
                command="t",
                args=("-x",),
                cwd="/w/sub",
                env_names=("TOKEN", "PATH"),
                steering={"PATH": "/w/bin"},
                permissions={"net": ("x.test",)},
            ),
        ),
        settings={
            "expose": ("both:*", "theirs:*"),
            "prespawn": ("theirs",),
            "idle_s": 20,
            "registry": "https://w.test",
            "cloud": "https://wc.test",
            "registry_prefix": "w.w",
        },
    )
    assert "secret" not in repr(found)


@promise("trust:shows-what-it-loosens")
@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("npm_config_registry", "https://evil.test/", "https://evil.test/"),
        ("UV_INDEX_URL", "https://ana:hunter2@evil.test/simple", "https://…@evil.test/simple"),
        ("PIP_INDEX_URL", "https://evil.test", "https://evil.test"),
        ("PIP_INDEX_URL", "https://evil.test?@good.test/", "https://evil.test?@good.test/"),
        ("PIP_INDEX_URL", "https://evil.test#@good.test/", "https://evil.test#@good.test/"),
        ("PIP_INDEX_URL", "https://evil.test\\@good.test/", "https://evil.test\\@good.test/"),
        ("PIP_INDEX_URL", "https://evil.test/@good.test/", "https://evil.test/@good.test/"),
        ("HTTPS_PROXY", "http://u:p@127.0.0.1:1", "http://…@127.0.0.1:1"),
        ("https_proxy", "http://127.0.0.1:1", "http://127.0.0.1:1"),
        ("HOME", "/w/home", "/w/home"),
        ("DOCKER_HOST", "tcp://evil.test", "tcp://evil.test"),
        ("GOAUTH", "netrc", "netrc"),
        ("UV_KEYRING_PROVIDER", "subprocess", "subprocess"),
        ("PUPPETEER_EXECUTABLE_PATH", "/w/evil", "/w/evil"),
        ("NPM_CONFIG__AUTH", "hunter2", None),
        ("UV_INDEX_X_PASSWORD", "hunter2", None),
        ("NODE_ENV", "test", None),
        ("MONKEY", "banana", None),
    ],
)
def test_loosening_shows_what_decides_which_code_a_command_runs_but_no_secret(
    name: str, value: str, shown: str | None
) -> None:
    server = {"command": "npx", "args": ["-y", "notes@1.2.3"], "env": {name: value}}
    found = loosening(workspace(json.dumps({"mcpServers": {"notes": server}})))
    assert found is not None
    [launch] = found.launches
    assert isinstance(launch, ProcessFacts)
    assert launch.env_names == (name,)
    assert launch.steering == ({} if shown is None else {name: shown})


def test_what_trusting_would_start_can_be_told_as_json() -> None:
    bare = workspace('{"mcpServers": {"bare": {"command": "b"}}}')
    told = [msgspec.to_builtins(loosening(each))["launches"] for each in (WORKSPACE, bare)]
    assert json.loads(json.dumps(told)) == [
        [
            {
                "name": "theirs",
                "command": "t",
                "args": ["-x"],
                "cwd": "/w/sub",
                "env_names": ["TOKEN", "PATH"],
                "steering": {"PATH": "/w/bin"},
                "permissions": {"net": ["x.test"]},
                "variables": [],
                "unset": [],
                "program": None,
            }
        ],
        [
            {
                "name": "bare",
                "command": "b",
                "args": [],
                "cwd": None,
                "env_names": [],
                "steering": {},
                "permissions": None,
                "variables": [],
                "unset": [],
                "program": None,
            }
        ],
    ]


def test_loosening_spells_an_entry_with_everything_visible() -> None:
    found = loosening(workspace('{"permissions": {"allow": [{"tool": "a:b", "args": {"p": "\\u202e"}}]}}'))
    assert found == Loosening(allows=('{"tool": "a:b", "args": {"p": "\\u202e"}}',), launches=(), settings={})


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"permissions": {"allow": [], "deny": ["Bash"], "ask": ["*"]}}',
        '{"permissions": {"allow": [{"tool": "a:b", "enabled": false}]}, "approval": {"enabled": false}}',
    ],
)
def test_a_workspace_that_only_tightens_needs_no_trust(text: str) -> None:
    found = workspace(text)
    assert loosening(found) is None
    assert unite(USER, found, trusted=False) == unite(USER, found, trusted=True)


@pytest.mark.parametrize(
    ("enabled", "expected"),
    [
        (True, True),
        (False, False),
        (OffUntil(until_at=NOW + timedelta(seconds=1)), False),
        (OffUntil(until_at=NOW), True),
        (OffUntil(until_at=NOW - timedelta(seconds=1)), True),
    ],
)
def test_asking_is_off_only_by_false_or_before_its_time(enabled: bool | OffUntil, expected: bool) -> None:
    assert ApprovalSettings(enabled=enabled).asking_enabled(NOW) is expected
