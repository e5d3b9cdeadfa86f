"""Claiming: once, exactly what was approved, and judged again just before it runs."""

import asyncio
from pathlib import Path

import pytest

from pml.core.approvals.record import Approval, OwnerId, State, Subject, call_facts
from pml.core.errors import AlreadyClaimed, ApprovalExpired, Changed, IllegalEvent, ToolDenied
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.lifecycle import cancel
from tests.promises import promise
from tests.service.offices import TOOL, Office


async def allowed(office: Office, *, definition: str | None = None, artefact: str | None = None) -> Approval:
    return (await office.allow(await office.ask(definition=definition, artefact=artefact))).record


async def test_an_allowed_call_is_claimed_by_the_one_who_runs_it_and_finished(office: Office) -> None:
    record = await allowed(office)
    office.owners.me = OwnerId("runner")

    claimed = await claim(office.context, record.id)
    assert (claimed.status, claimed.owner) == (State.EXECUTING, OwnerId("runner"))

    finished = await finish(office.context, record.id)
    assert (finished.status, finished.reason) == (State.COMPLETED, None)


async def test_a_call_that_fails_is_failed_and_says_why(office: Office) -> None:
    record = await allowed(office)
    await claim(office.context, record.id)

    failed = await finish(office.context, record.id, error="the server broke")

    assert (failed.status, failed.reason) == (State.FAILED, "the server broke")


@promise("run:at-most-once")
async def test_a_second_claim_is_refused_at_every_later_state(office: Office) -> None:
    record = await allowed(office)
    await claim(office.context, record.id)

    with pytest.raises(AlreadyClaimed):
        await claim(office.context, record.id)
    await finish(office.context, record.id)
    with pytest.raises(AlreadyClaimed):
        await claim(office.context, record.id)

    assert await office.status(record) is State.COMPLETED


@promise("run:at-most-once")
async def test_of_claims_made_at_once_exactly_one_wins(office: Office) -> None:
    record = await allowed(office)

    outcomes = await asyncio.gather(
        *(claim(office.context, record.id) for _ in range(5)), return_exceptions=True
    )

    assert sum(isinstance(outcome, Approval) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyClaimed) for outcome in outcomes) == 4


@promise("agent:nothing-unapproved")
async def test_what_was_not_allowed_cannot_be_claimed(office: Office) -> None:
    waiting = await office.ask(arguments={"n": 1})
    denied = await office.deny(await office.ask(arguments={"n": 2}))
    cancelled = await cancel(office.context, (await office.ask(arguments={"n": 3})).id, reason="no")

    for record in (waiting, denied, cancelled):
        with pytest.raises(IllegalEvent):
            await claim(office.context, record.id)
        assert await office.stored(record) == record


@promise("expiry:not-denial")
async def test_an_allow_that_is_not_collected_in_time_expires(office: Office) -> None:
    record = await allowed(office)
    office.clock.advance(record.ttl_s)

    with pytest.raises(ApprovalExpired, match="collected"):
        await claim(office.context, record.id)

    assert await office.status(record) is State.EXPIRED


@promise("claim:judged-again")
async def test_a_deny_rule_added_after_the_allow_stops_the_call_and_cancels_the_approval(
    office: Office,
) -> None:
    record = await allowed(office)
    office.write_rules(deny=[TOOL])

    with pytest.raises(ToolDenied, match="is denied by"):
        await claim(office.context, record.id)

    stored = await office.stored(record)
    assert stored.status is State.CANCELLED
    assert stored.reason is not None
    assert "is denied by" in stored.reason
    office.write_rules(deny=[])
    with pytest.raises(IllegalEvent):
        await claim(office.context, record.id)


@promise("claim:judged-again")
async def test_the_edited_arguments_are_the_ones_that_are_judged_and_claimed(office: Office) -> None:
    record = await office.ask()
    edited = (await office.allow(record, updated_input={"title": "edited"})).record
    office.write_rules(deny=[{"tool": TOOL, "args": {"title": "edited"}}])

    with pytest.raises(ToolDenied):
        await claim(office.context, edited.id)

    assert await office.status(record) is State.CANCELLED


@promise("claim:judged-again")
async def test_a_path_that_leads_elsewhere_since_the_decision_is_judged_by_where_it_leads_now(
    office: Office, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "public").mkdir()
    link = office.workspace / "notes"
    link.symlink_to(tmp_path / "public")
    office.write_rules(deny=[{"tool": "fs:read", "args": {"path": {"under": str(tmp_path / "secret")}}}])
    record = (await office.allow(await office.ask("fs:read", {"path": "notes/today"}))).record
    link.unlink()
    link.symlink_to(tmp_path / "secret")

    with pytest.raises(ToolDenied):
        await claim(office.context, record.id)

    assert await office.status(record) is State.CANCELLED


@promise("approval:exact-arguments")
@pytest.mark.parametrize(
    ("definition", "artefact"),
    [("sha256:other", "sha256:a"), ("sha256:d", "sha256:other"), (None, "sha256:a"), ("sha256:d", None)],
)
async def test_a_tool_or_artefact_that_changed_since_the_decision_is_not_run(
    office: Office, definition: str | None, artefact: str | None
) -> None:
    record = await allowed(office, definition="sha256:d", artefact="sha256:a")

    with pytest.raises(Changed):
        await claim(office.context, record.id, definition=definition, artefact=artefact)

    assert await office.status(record) is State.CANCELLED


async def test_the_same_tool_and_artefact_are_claimed(office: Office) -> None:
    record = await allowed(office, definition="sha256:d", artefact="sha256:a")

    claimed = await claim(office.context, record.id, definition="sha256:d", artefact="sha256:a")

    assert claimed.status is State.EXECUTING


@pytest.mark.parametrize(
    "subject", [Subject.DEPENDENCY_INSTALL, Subject.API_KEY_REQUIRED, Subject.INTEGRITY_CHANGED]
)
@promise("load:deny-beats-consent")
async def test_what_a_denied_call_waits_for_is_not_carried_out(office: Office, subject: Subject) -> None:
    asked = {"dependency": {"name": "memory"}, **call_facts("memory:read", {"path": "/etc/passwd"})}
    record = await office.ask("memory:read", asked, subject=subject)
    await office.allow(record)
    office.write_rules(deny=[{"tool": "memory:read", "args": {"path": "/etc/passwd"}}])

    with pytest.raises(ToolDenied):
        await claim(office.context, record.id)


async def test_a_changed_tool_is_accepted_whatever_rules_say_of_one_call(office: Office) -> None:
    office.write_rules(deny=["*"])
    record = await office.ask("memory:read", {"diff": []}, subject=Subject.TOOL_CHANGED)
    await office.allow(record)

    assert (await claim(office.context, record.id)).status is State.EXECUTING
