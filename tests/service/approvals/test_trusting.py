"""Trust in a workspace's file: asked when it would help, for exactly the content that was shown."""

import asyncio
import contextlib
import hashlib
from pathlib import Path

import pytest

from pml.core.approvals.events import Claimed
from pml.core.approvals.reasons import AllowRule
from pml.core.approvals.record import (
    Approval,
    ApprovalId,
    Decider,
    OwnerId,
    SessionId,
    State,
    Subject,
)
from pml.core.config.file import FileKind
from pml.core.errors import Changed, ConfigInvalid, MayNotDecide, NotFound
from pml.core.ports.records import Session
from pml.core.rules.ruleset import VerdictKind
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.consent import Consent, seek_consent
from pml.service.approvals.lifecycle import Question, wait
from pml.service.approvals.trust import TRUST_TOOL, apply_trust, trust_workspace, untrust_workspace
from pml.service.context import Context
from pml.service.policy.policy import Policy, current_policy
from pml.store.sqlite.store import SqliteStore
from tests.builders import FORM, MODEL, OWNER, PERSON
from tests.promises import promise
from tests.service.offices import BOUND_S, TOOL, Asked, Office, parent, until_idle

OTHER = OwnerId("owner-2")


async def seek(office: Office, question: Question) -> Consent:
    return await seek_consent(office.context, question, wait_s=0, on_asked=Asked())


async def asked_to_trust(office: Office, question: Question) -> Approval:
    consent = await seek(office, question)
    assert consent.record is not None
    assert consent.record.subject is Subject.WORKSPACE_TRUST
    assert not consent.granted
    return consent.record


async def test_a_call_that_trust_would_allow_asks_for_trust_first(office: Office) -> None:
    office.write(
        FileKind.WORKSPACE,
        {
            "permissions": {"allow": [TOOL]},
            "mcpServers": {"db": {"command": "run-db", "args": ["-x"], "env": {"KEY": "secret"}}},
        },
    )

    record = await asked_to_trust(office, await office.question())

    file = office.path(FileKind.WORKSPACE)
    assert (record.tool_name, record.status) == (TRUST_TOOL, State.PENDING)
    assert record.rule == AllowRule(entry=f'"{TOOL}"', file=str(file), line=1)
    assert record.tool_input == {
        "path": str(file),
        "digest": f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}",
        "allows": [f'"{TOOL}"'],
        "launches": [
            {
                "name": "db",
                "command": "run-db",
                "args": ["-x"],
                "cwd": None,
                "env_names": ["KEY"],
                "steering": {},
                "permissions": None,
                "variables": [],
                "unset": [],
                "program": None,
            }
        ],
        "settings": {},
        "drops": [],
        "unusable": [],
        "unlisted": "every_call",
    }


async def test_once_trusted_the_call_is_allowed_without_another_question(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question = await office.question()
    record = await asked_to_trust(office, question)
    await office.allow(record)

    consent = await seek(office, question)

    assert (consent.granted, consent.record) == (True, None)
    assert await office.status(record) is State.COMPLETED
    assert (await office.judge()).kind is VerdictKind.ALLOW


async def test_a_file_that_would_not_allow_the_call_is_not_asked_about(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["fs:read"], ask=[TOOL])

    consent = await seek(office, await office.question())

    assert consent.record is not None
    assert consent.record.subject is Subject.TOOL_CALL


@promise("trust:exact-content")
async def test_a_file_that_changed_since_it_was_shown_is_not_trusted(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question = await office.question()
    record = await asked_to_trust(office, question)
    await office.allow(record)
    office.write_rules(FileKind.WORKSPACE, allow=["*"])

    with pytest.raises(Changed, match="nothing was trusted"):
        await apply_trust(office.context, record, question.session)

    assert await office.status(record) is State.CANCELLED
    assert not (await current_policy(office.context, str(office.workspace))).trusted
    assert (await office.judge()).kind is not VerdictKind.ALLOW


@promise("trust:exact-content")
async def test_a_file_that_changes_while_the_answer_is_carried_out_is_not_trusted(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question = await office.question()
    record = await asked_to_trust(office, question)
    await office.allow(record)

    async def claim_and_be_overtaken(context: Context, approval_id: ApprovalId) -> Approval:
        claimed = await claim(context, approval_id)
        office.write_rules(FileKind.WORKSPACE, allow=["*"])
        return claimed

    monkeypatch.setattr("pml.service.approvals.trust.claim", claim_and_be_overtaken)

    with pytest.raises(Changed, match="has changed since it was shown"):
        await apply_trust(office.context, record, question.session)

    assert await office.status(record) is State.FAILED
    assert (await office.judge()).kind is not VerdictKind.ALLOW


@promise("trust:exact-content")
@pytest.mark.parametrize("gone", [True, False])
async def test_a_file_that_changed_since_the_question_cannot_be_allowed_and_ends_the_question(
    office: Office, gone: bool
) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    record = await asked_to_trust(office, await office.question())
    if gone:
        office.path(FileKind.WORKSPACE).unlink()
    else:
        office.write_rules(FileKind.WORKSPACE, allow=["*"])

    with pytest.raises(Changed, match="nothing was trusted"):
        await office.allow(record)

    stored = await office.stored(record)
    assert (stored.status, stored.decided_by) == (State.CANCELLED, None)
    assert stored.reason is not None
    assert "has changed since the question was asked" in stored.reason
    assert "workspace.trusted" not in await office.kinds()


async def test_a_question_whose_file_changed_can_still_be_denied(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    record = await asked_to_trust(office, await office.question())
    office.write_rules(FileKind.WORKSPACE, allow=["*"])

    assert (await office.deny(record)).status is State.DENIED


@promise("trust:exact-content")
async def test_a_changed_file_is_a_new_question_that_the_old_answer_does_not_answer(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question = await office.question()
    record = await asked_to_trust(office, question)
    await office.allow(record)
    office.write_rules(FileKind.WORKSPACE, allow=["*"])

    again = await asked_to_trust(office, question)

    assert again.id != record.id
    assert not (await current_policy(office.context, str(office.workspace))).trusted


@promise("trust:exact-content")
@pytest.mark.parametrize("by", [MODEL, FORM, parent("top")])
async def test_only_a_person_can_trust_a_file(office: Office, by: Decider) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    top = await office.session(SessionId("top"))
    child = await office.session(parent_id=top.id)
    record = await asked_to_trust(office, await office.question(session=child))

    with pytest.raises(MayNotDecide):
        await office.allow(record, by=by)

    assert await office.status(record) is State.PENDING


@promise("trust:declined-stays-declined")
async def test_content_that_a_person_declined_is_not_asked_about_in_another_session_until_it_changes(
    office: Office,
) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    await office.deny(await asked_to_trust(office, await office.question()))
    later = await office.question(
        session=await office.session(SessionId("other")), arguments={"title": "other"}
    )

    consent = await seek(office, later)
    assert consent.record is not None
    assert (consent.record.subject, consent.record.status) == (Subject.TOOL_CALL, State.PENDING)

    office.write_rules(FileKind.WORKSPACE, allow=[TOOL, "a:b"])
    again = await seek(office, later)
    assert again.record is not None
    assert again.record.subject is Subject.WORKSPACE_TRUST


async def test_trust_that_was_denied_is_not_asked_for_again_in_the_session(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question = await office.question()
    await office.deny(await asked_to_trust(office, question))

    consent = await seek(office, question)

    assert consent.record is not None
    assert (consent.record.subject, consent.record.status) == (Subject.TOOL_CALL, State.PENDING)


@promise("trust:exact-content")
async def test_trusting_needs_the_digest_of_what_is_there(office: Office) -> None:
    workspace = str(office.workspace)
    with pytest.raises(NotFound):
        await trust_workspace(office.context, workspace, digest="", by=PERSON)
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    with pytest.raises(Changed):
        await trust_workspace(office.context, workspace, digest="something else", by=PERSON)
    office.path(FileKind.WORKSPACE).write_text("{")
    with pytest.raises(ConfigInvalid):
        await trust_workspace(office.context, workspace, digest="", by=PERSON)

    assert "workspace.trusted" not in await office.kinds()


@promise("trust:exact-content")
async def test_trusting_the_present_content_ends_the_trust_in_what_was_there_before(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["*"])
    await office.trust()
    before = office.path(FileKind.WORKSPACE).read_bytes()
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    await office.trust()

    office.path(FileKind.WORKSPACE).write_bytes(before)

    assert not (await current_policy(office.context, str(office.workspace))).trusted
    assert (await office.judge("fs:read")).kind is not VerdictKind.ALLOW


async def test_two_that_wait_for_one_answer_to_trust_are_both_granted_by_the_rule(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        here = await SqliteStore.open(tmp_path / "store", OWNER)
        stack.push_async_callback(here.close)
        there = await SqliteStore.open(tmp_path / "store", OTHER)
        stack.push_async_callback(there.close)
        await stack.enter_async_context(asyncio.timeout(BOUND_S))
        office = Office(here, tmp_path)
        office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
        question, asked = await office.question(), Asked()
        waiting = [
            asyncio.create_task(seek_consent(context, question, wait_s=None, on_asked=asked))
            for context in (office.context, office.context_of(OTHER, there))
        ]
        await asked.wait_for(2)

        await office.allow(asked.records[0])
        consents = await asyncio.gather(*waiting)

        assert {record.id for record in asked.records} == {asked.records[0].id}
        assert [(consent.granted, consent.record) for consent in consents] == [(True, None)] * 2
        assert await office.status(asked.records[0]) is State.COMPLETED
        assert (await office.kinds()).count("workspace.trusted") == 1


async def test_an_answer_to_trust_that_another_carries_out_is_waited_for(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question, asked = await office.question(), Asked()
    async with asyncio.timeout(BOUND_S):
        waiting = asyncio.create_task(seek_consent(office.context, question, wait_s=None, on_asked=asked))
        await asked.wait_for(1)
        record = (await office.allow(asked.records[0])).record
        await claim(office.context, record.id)  # before the waiter gets to run
        await until_idle(waiting)
        await office.trust()
        await finish(office.context, record.id)
        consent = await waiting

    assert (consent.granted, consent.record) == (True, None)
    assert [each.id for each in asked.records] == [record.id]


async def test_an_answer_to_trust_that_another_carries_out_first_counts_for_both(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question = await office.question()
    await office.allow(await asked_to_trust(office, question))
    other = office.context_of(OTHER)

    async def be_overtaken(context: Context, record: Approval, session: Session) -> Policy:
        await apply_trust(other, record, session)
        return await apply_trust(context, record, session)

    monkeypatch.setattr("pml.service.approvals.consent.apply_trust", be_overtaken)

    consent = await seek(office, question)

    assert (consent.granted, consent.record) == (True, None)
    assert (await office.kinds()).count("workspace.trusted") == 1


async def test_trust_can_be_taken_back(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    await office.trust()

    assert await untrust_workspace(office.context, str(office.workspace), by=PERSON) == 1

    assert (await office.judge()).kind is not VerdictKind.ALLOW
    assert [kind for kind in await office.kinds() if kind.startswith("workspace.")] == [
        "workspace.trusted",
        "workspace.untrusted",
    ]


@promise("run:unknown-never-rerun")
async def test_an_answer_whose_carrier_died_does_not_hold_up_who_waits_for_it(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    record = await asked_to_trust(office, await office.question())
    await office.allow(record)
    carrier = Claimed(at=office.clock.now(), owner=OwnerId("dead"), digest=record.digest)
    await office.context.store.approvals.advance(record.id, carrier)

    carried_out = frozenset({State.ALLOWED, State.EXECUTING})
    lost = await asyncio.wait_for(wait(office.context, record.id, during=carried_out), BOUND_S)

    assert lost.status is State.UNKNOWN
