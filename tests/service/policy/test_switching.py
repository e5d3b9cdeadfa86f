"""Rules switched off and on: told in the log, the trust kept, and what waits looked at again."""

from pml.core.approvals.record import Scope
from pml.core.config.file import FileKind
from pml.core.ports.queries import AuditQuery
from pml.core.rules.ruleset import Effect, VerdictKind
from pml.service.policy.policy import current_policy
from pml.service.rules.rulebook import switch_rule
from tests.builders import PERSON
from tests.promises import promise
from tests.service.offices import TOOL, Office


async def switch(office: Office, entry: str, *, enabled: bool, which: FileKind = FileKind.USER) -> int:
    switched = await switch_rule(
        office.context, str(office.workspace), None, entry, enabled=enabled, which=which, by=PERSON
    )
    return switched.count


async def test_a_disabled_rule_does_not_count_until_it_is_enabled(office: Office) -> None:
    office.write_rules(deny=[TOOL])
    assert await switch(office, TOOL, enabled=False) == 1
    assert (await office.judge(TOOL)).kind is VerdictKind.UNLISTED
    assert await switch(office, TOOL, enabled=True) == 1
    assert (await office.judge(TOOL)).kind is VerdictKind.DENY


@promise("trust:exact-content")
async def test_switching_keeps_a_trusted_file_trusted_and_makes_no_other_so(office: Office) -> None:
    for is_trusted in (False, True):
        office.write_rules(FileKind.WORKSPACE, allow=[TOOL, "a:b"])
        if is_trusted:
            await office.trust()
        for enabled in (False, True):
            assert await switch(office, "a:b", enabled=enabled, which=FileKind.WORKSPACE) == 1
            policy = await current_policy(office.context, str(office.workspace))
            assert policy.trusted is is_trusted


async def test_enabling_a_deny_denies_what_waits(office: Office) -> None:
    office.write_rules(deny=[{"tool": TOOL, "enabled": False}])
    asked = await office.ask()
    switched = await switch_rule(
        office.context,
        str(office.workspace),
        Effect.DENY,
        TOOL,
        enabled=True,
        which=FileKind.USER,
        by=PERSON,
    )
    assert [record.id for record in switched.denied] == [asked.id]
    assert await office.status(asked) == "denied"


async def test_enabling_an_ask_ends_what_was_remembered(office: Office) -> None:
    office.write_rules(ask=[{"tool": TOOL, "enabled": False}, "a:b"])
    await office.allow(await office.ask(), scope=Scope.SESSION)
    assert len(await office.context.store.grants.all()) == 1
    await switch(office, "a:b", enabled=False)
    await switch(office, "a:b", enabled=True)
    assert len(await office.context.store.grants.all()) == 1
    await switch(office, TOOL, enabled=True)
    assert await office.context.store.grants.all() == []


async def test_switching_is_in_the_log_unless_nothing_was_switched(office: Office) -> None:
    office.write_rules(deny=[TOOL])
    for enabled in (True, False, False, True):
        await switch(office, TOOL, enabled=enabled)
    links = await office.context.store.audit.list(AuditQuery(limit=100))
    told = [(each.entry.kind, each.entry.by, each.entry.detail) for each in links]
    detail = {"where": str(office.path(FileKind.USER)), "effect": "deny", "entry": TOOL}
    assert told == [("rule.disabled", PERSON, detail), ("rule.enabled", PERSON, detail)]
