"""Kept rules: what the content trusted last denied and asked about counts, whatever becomes of the file."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pml.core.config.file import FileKind
from pml.core.rules.ruleset import Effect, VerdictKind
from pml.core.values import Json
from pml.service.approvals.trust import untrust_workspace
from pml.service.policy.memory import init_workspace, remove_rule, write_rule
from pml.service.policy.policy import Policy, current_policy, kept_notice
from pml.service.rules.rules import KEPT, listed_rules
from pml.testing.store import MemoryStore
from tests.builders import PERSON
from tests.promises import promise
from tests.service.offices import Office

RULES: dict[str, list[Json]] = {"allow": ["fs:*"], "deny": ["fs:write"], "ask": ["fs:move"]}
WORKSPACE = FileKind.WORKSPACE


async def policy_of(office: Office) -> Policy:
    return await current_policy(office.context, str(office.workspace))


async def verdict(office: Office, tool: str) -> VerdictKind:
    return (await office.judge(tool)).kind


async def trusted(office: Office, **rules: list[Json]) -> bytes:
    office.write_rules(WORKSPACE, **rules)
    await office.trust()
    return office.path(WORKSPACE).read_bytes()


def spoil(office: Office, how: str) -> None:
    file = office.path(WORKSPACE)
    match how:
        case "missing":
            file.unlink()
        case "moved":
            office.workspace.rename(office.workspace.with_name("aside"))
            office.workspace.mkdir()
        case "a folder":
            file.unlink()
            file.mkdir()
        case content:
            file.write_text(content)


SPOILED = ["missing", "moved", "a folder", "", "{", "{}", '{"permissions": {"allow": ["*"]}}']


@promise("trust:kept")
@pytest.mark.parametrize("how", SPOILED)
async def test_emptying_breaking_or_moving_the_file_loosens_nothing(office: Office, how: str) -> None:
    await trusted(office, **RULES)
    assert await verdict(office, "fs:write") is VerdictKind.DENY

    spoil(office, how)

    assert await verdict(office, "fs:write") is VerdictKind.DENY
    assert await verdict(office, "fs:move") is VerdictKind.ASK
    assert await verdict(office, "fs:read") is not VerdictKind.ALLOW
    policy = await policy_of(office)
    assert [
        (each.rule.entry, each.note) for each in listed_rules(policy, office.clock.now(), {}) if each.is_kept
    ] == [
        ("fs:write", KEPT),
        ("fs:move", KEPT),
    ]
    assert "2 rules of the content that was trusted last" in (kept_notice(policy) or "")


@promise("trust:kept")
async def test_a_new_process_keeps_them_too(office: Office) -> None:
    await trusted(office, **RULES)
    spoil(office, "missing")

    office.context.policies.clear()

    assert await verdict(office, "fs:write") is VerdictKind.DENY


@promise("trust:kept")
async def test_what_the_present_content_tightens_counts_beside_what_is_kept(office: Office) -> None:
    await trusted(office, **RULES)
    office.write_rules(WORKSPACE, deny=["fs:read", "fs:move"])

    for tool in ("fs:read", "fs:write", "fs:move"):
        assert await verdict(office, tool) is VerdictKind.DENY


@promise("trust:kept")
async def test_a_person_who_trusts_other_content_ends_them_and_sees_which(office: Office) -> None:
    await trusted(office, **RULES)
    office.write_rules(WORKSPACE, allow=["fs:*"])
    policy = await policy_of(office)
    assert policy.untrusted is not None
    assert policy.untrusted.drops == ('deny "fs:write"', 'ask "fs:move"')

    await office.trust()

    assert await verdict(office, "fs:write") is VerdictKind.ALLOW
    assert (await policy_of(office)).kept is None
    spoil(office, "missing")
    assert await verdict(office, "fs:write") is VerdictKind.UNLISTED


@promise("trust:kept")
async def test_content_that_only_drops_rules_needs_trust(office: Office) -> None:
    await trusted(office, **RULES)
    office.write(WORKSPACE, {})
    assert (await policy_of(office)).untrusted is not None

    await office.trust()

    assert await verdict(office, "fs:write") is VerdictKind.UNLISTED


@promise("trust:kept")
async def test_they_are_forgotten_when_a_person_says_so_and_not_when_trust_alone_ends(office: Office) -> None:
    await trusted(office, **RULES)
    spoil(office, "missing")

    await untrust_workspace(office.context, str(office.workspace), by=PERSON)
    assert await verdict(office, "fs:write") is VerdictKind.DENY

    await untrust_workspace(office.context, str(office.workspace), by=PERSON, forget=True)
    assert await verdict(office, "fs:write") is VerdictKind.UNLISTED
    assert (await policy_of(office)).kept is None


@promise("trust:kept")
@pytest.mark.parametrize("by_init", [True, False])
async def test_a_file_that_pml_writes_where_one_was_taken_away_ends_nothing(
    office: Office, by_init: bool
) -> None:
    await trusted(office, **RULES)
    spoil(office, "missing")

    if by_init:
        assert await init_workspace(office.context, str(office.workspace))
    else:
        await write_rule(office.context, str(office.workspace), Effect.ALLOW, "fs:*")

    assert await verdict(office, "fs:write") is VerdictKind.DENY
    assert not (await policy_of(office)).trusted


@promise("trust:kept")
async def test_what_pml_itself_writes_is_trusted_and_kept(office: Office) -> None:
    await trusted(office, **RULES)
    await write_rule(office.context, str(office.workspace), Effect.DENY, "fs:read")
    await remove_rule(office.context, str(office.workspace), Effect.DENY, "fs:write")
    assert (await policy_of(office)).trusted

    spoil(office, "missing")

    assert await verdict(office, "fs:read") is VerdictKind.DENY
    assert await verdict(office, "fs:write") is VerdictKind.UNLISTED


# --- contents that come and go


@promise("trust:branches")
@pytest.mark.parametrize(
    "other",
    [
        {"allow": ["fs:*", "git:*"], "deny": ["fs:write"], "ask": ["fs:move"]},
        {"allow": ["git:*"], "deny": ["git:push"]},
    ],
)
async def test_a_switch_between_two_trusted_contents_does_not_ask(
    office: Office, other: dict[str, list[Json]]
) -> None:
    main = await trusted(office, **RULES)
    branch = await trusted(office, **other)

    for content in (main, branch, main, branch):
        office.path(WORKSPACE).write_bytes(content)
        assert (await policy_of(office)).trusted
        assert (await policy_of(office)).kept is None

    office.path(WORKSPACE).write_bytes(main)
    await policy_of(office)
    spoil(office, "missing")
    assert await verdict(office, "fs:write") is VerdictKind.DENY


@promise("trust:tightened-by-hand")
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize(
    "tighter",
    [
        {**RULES, "deny": ["fs:write", "fs:delete"]},
        {**RULES, "ask": ["fs:move", "fs:delete"]},
        {"allow": ["fs:*", "git:*"], "deny": ["fs:write", "fs:delete"], "ask": ["fs:move"]},
    ],
)
async def test_looser_content_is_trusted_no_longer_once_somebody_tightened_it(
    office: Office, tighter: dict[str, list[Json]], is_trusted: bool
) -> None:
    looser = await trusted(office, **RULES)
    office.write_rules(WORKSPACE, **tighter)
    await policy_of(office)
    if is_trusted:
        await office.trust()

    office.path(WORKSPACE).write_bytes(looser)

    assert not (await policy_of(office)).trusted
    assert await verdict(office, "fs:read") is not VerdictKind.ALLOW
    assert await verdict(office, "fs:write") is VerdictKind.DENY
    assert "workspace.untrusted" in await office.kinds() or is_trusted


@promise("trust:tightened-by-hand")
async def test_content_trusted_again_after_it_was_tightened_stays_trusted_beside_the_tighter(
    office: Office,
) -> None:
    looser = await trusted(office, **RULES)
    tighter = await trusted(office, **RULES | {"deny": list[Json](["fs:write", "fs:delete"])})
    office.path(WORKSPACE).write_bytes(looser)
    await office.trust()

    for content in (tighter, looser, tighter, looser):
        office.path(WORKSPACE).write_bytes(content)
        assert (await policy_of(office)).trusted


TOOLS = ("a:1", "a:2", "b:1")
ENTRIES = st.lists(st.sampled_from([*TOOLS, "a:*", "*"]), max_size=3, unique=True)
CONTENTS = st.one_of(
    st.none(),
    st.sampled_from(["", "{", "[]", '{"permissions": 1}']),
    st.fixed_dictionaries({"allow": ENTRIES, "deny": ENTRIES, "ask": ENTRIES}).map(
        lambda rules: json.dumps({"permissions": rules})
    ),
)


@promise("trust:kept")
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=40)
@given(changes=st.lists(st.tuples(CONTENTS, st.booleans()), min_size=1, max_size=6))
async def test_no_deny_of_the_content_in_force_goes_without_trust(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str | None, bool]]
) -> None:
    office = Office(MemoryStore(), Path(tmp_path_factory.mktemp("kept")))
    file, denied = office.path(WORKSPACE), set[str]()
    for content, is_trusted in changes:
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        policy = await policy_of(office)
        if is_trusted and policy.loaded.workspace.config is not None:
            await office.trust()
            policy = await policy_of(office)
        now = {tool for tool in TOOLS if await verdict(office, tool) is VerdictKind.DENY}
        assert policy.trusted or denied <= now
        denied = now if policy.trusted else denied
        if not policy.trusted:
            assert VerdictKind.ALLOW not in [await verdict(office, tool) for tool in TOOLS]
