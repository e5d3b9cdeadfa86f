"""What counts when a call is judged: trust in the files, broken files, asking turned off, grants."""

import pytest

from pml.core.approvals.reasons import AllowRule, BrokenFile
from pml.core.approvals.record import Scope
from pml.core.config.file import FileKind
from pml.core.errors import ConfigInvalid
from pml.core.rules.ruleset import VerdictKind
from pml.service.policy.policy import kept_rule, matched_rule
from tests.builders import later
from tests.promises import promise
from tests.service.offices import TOOL, Office

BROKEN = '{"permissions": {"allow": ["*"'
ALLOWS_ALL = {"permissions": {"allow": ["*"]}}


@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        ({"allow": ["github:*"]}, VerdictKind.ALLOW),
        ({"ask": ["github:*"]}, VerdictKind.ASK),
        ({"deny": ["github:*"]}, VerdictKind.DENY),
        ({"allow": ["github:*"], "deny": [TOOL]}, VerdictKind.DENY),
        ({}, VerdictKind.UNLISTED),
    ],
)
async def test_the_users_file_counts_whole(
    office: Office, rules: dict[str, list[str]], kind: VerdictKind
) -> None:
    office.write(FileKind.USER, {"permissions": rules})

    assert (await office.judge()).kind is kind


@promise("trust:exact-content")
async def test_an_untrusted_workspace_only_tightens(office: Office) -> None:
    office.write_rules(FileKind.USER, allow=["a:*", "b:*"])
    office.write_rules(FileKind.WORKSPACE, allow=["c:*"], deny=["a:*"], ask=["d:*"])

    assert (await office.judge("a:x")).kind is VerdictKind.DENY
    assert (await office.judge("b:x")).kind is VerdictKind.ALLOW
    assert (await office.judge("c:x")).kind is VerdictKind.UNLISTED
    assert (await office.judge("d:x")).kind is VerdictKind.ASK

    await office.trust()
    assert (await office.judge("a:x")).kind is VerdictKind.DENY
    assert (await office.judge("c:x")).kind is VerdictKind.ALLOW


async def test_the_rule_that_trust_would_bring_into_force_is_named(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["github:*"], ask=["fs:*"])

    judged, other = await office.judge(), await office.judge("fs:read")

    assert judged.if_trusted is not None
    assert (judged.kind, judged.needs_trust) == (VerdictKind.UNLISTED, True)
    assert kept_rule(judged.if_trusted, VerdictKind.ALLOW) == AllowRule(
        entry='"github:*"', file=str(office.path(FileKind.WORKSPACE)), line=1
    )
    assert (other.if_trusted, other.needs_trust) == (None, False)


@promise("trust:exact-content")
async def test_one_changed_byte_ends_the_trust_and_the_old_content_has_it_back(office: Office) -> None:
    office.write(FileKind.WORKSPACE, ALLOWS_ALL)
    await office.trust()
    trusted = office.path(FileKind.WORKSPACE).read_bytes()
    office.path(FileKind.WORKSPACE).write_bytes(trusted + b"\n")

    assert (await office.judge()).kind is not VerdictKind.ALLOW

    office.path(FileKind.WORKSPACE).write_bytes(trusted)
    assert (await office.judge()).kind is VerdictKind.ALLOW


@promise("trust:exact-content")
async def test_a_file_that_is_gone_allows_nothing(office: Office) -> None:
    office.write(FileKind.WORKSPACE, ALLOWS_ALL)
    await office.trust()
    office.path(FileKind.WORKSPACE).unlink()

    assert (await office.judge()).kind is VerdictKind.UNLISTED


@promise("agent:nothing-unapproved")
@pytest.mark.parametrize(
    ("broken", "sound"), [(FileKind.USER, FileKind.WORKSPACE), (FileKind.WORKSPACE, FileKind.USER)]
)
async def test_while_a_file_is_broken_nothing_is_allowed_and_the_other_still_denies(
    office: Office, broken: FileKind, sound: FileKind
) -> None:
    office.write(sound, {"permissions": {"allow": ["*"], "deny": ["bad:*"]}})
    if sound is FileKind.WORKSPACE:
        await office.trust()
    assert (await office.judge()).kind is VerdictKind.ALLOW
    office.path(broken).write_text(BROKEN)

    judged = await office.judge()
    denied = await office.judge("bad:thing")

    assert judged.kind is VerdictKind.ASK
    assert [type(error) for error in judged.broken] == [ConfigInvalid]
    assert matched_rule(judged) == BrokenFile(
        problem=judged.broken[0].problem, file=str(office.path(broken)), line=1
    )
    assert denied.kind is VerdictKind.DENY


@promise("agent:nothing-unapproved")
async def test_while_a_file_is_broken_grants_and_the_switch_for_asking_do_not_count(office: Office) -> None:
    office.write(FileKind.USER, {"approval": {"enabled": False}})
    await office.allow(await office.ask(), scope=Scope.SESSION)
    office.path(FileKind.WORKSPACE).write_text(BROKEN)

    assert (await office.judge()).kind is VerdictKind.ASK


async def test_asking_turned_off_by_the_user_allows_and_says_so_and_never_lifts_a_deny(
    office: Office,
) -> None:
    office.write(FileKind.USER, {"approval": {"enabled": False}, "permissions": {"deny": ["bad:*"]}})

    judged = await office.judge()

    assert (judged.kind, judged.asking_is_off) == (VerdictKind.ALLOW, True)
    assert (await office.judge("bad:thing")).kind is VerdictKind.DENY


@promise("agent:nothing-unapproved")
async def test_asking_turned_off_for_a_time_is_on_again_after_it(office: Office) -> None:
    office.write(FileKind.USER, {"approval": {"enabled": {"until": later(60).isoformat()}}})

    assert (await office.judge()).kind is VerdictKind.ALLOW
    office.clock.advance(60)
    assert (await office.judge()).kind is VerdictKind.UNLISTED


@promise("agent:nothing-unapproved")
@pytest.mark.parametrize("trusted", [True, False])
async def test_a_workspace_cannot_turn_asking_off(office: Office, trusted: bool) -> None:
    office.write(FileKind.WORKSPACE, {"approval": {"enabled": False}})
    if trusted:
        await office.trust()

    assert (await office.judge()).kind is VerdictKind.UNLISTED


async def test_a_file_that_changes_counts_at_the_next_verdict(office: Office) -> None:
    for rules, kind in (
        ({"allow": [TOOL]}, VerdictKind.ALLOW),
        ({"deny": [TOOL]}, VerdictKind.DENY),
        ({}, VerdictKind.UNLISTED),
    ):
        office.write(FileKind.USER, {"permissions": rules})
        assert (await office.judge()).kind is kind


async def test_a_rule_that_expired_no_longer_allows(office: Office) -> None:
    office.write_rules(allow=[{"tool": TOOL, "expires": later(60).isoformat()}])

    assert (await office.judge()).kind is VerdictKind.ALLOW
    office.clock.advance(60)
    assert (await office.judge()).kind is VerdictKind.UNLISTED
