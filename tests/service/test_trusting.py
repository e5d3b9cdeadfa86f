"""Trust in a workspace's file: asked when it would help, for exactly the content that was shown."""

import pytest

from pml.core.approvals import Approval, Decider, State, Subject
from pml.core.config import FileKind
from pml.core.errors import Changed, ConfigInvalid, MayNotDecide, NotFound
from pml.core.rules import VerdictKind
from pml.service.approvals import Question
from pml.service.consent import Consent, seek_consent
from pml.service.policy import current_policy
from pml.service.trusting import TRUST_TOOL, apply_trust, trust_workspace, untrust_workspace
from tests.builders import FORM, MODEL, PERSON
from tests.promises import promise
from tests.service.offices import TOOL, Office


def ignore(record: Approval) -> None:
    pass


async def seek(office: Office, question: Question) -> Consent:
    return await seek_consent(office.desk, question, wait_s=0, on_asked=ignore)


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

    policy = await current_policy(office.desk, str(office.workspace))
    assert (record.tool_name, record.status) == (TRUST_TOOL, State.PENDING)
    assert record.tool_input == {
        "path": str(office.path(FileKind.WORKSPACE)),
        "digest": policy.loaded.workspace.digest,
        "allows": [f'"{TOOL}"'],
        "launches": [{"name": "db", "command": "run-db", "args": ["-x"], "cwd": None, "env_names": ["KEY"]}],
        "settings": {},
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

    with pytest.raises(Changed, match="has changed since it was shown"):
        await apply_trust(office.desk, record, question.session)

    assert await office.status(record) is State.FAILED
    assert not (await current_policy(office.desk, str(office.workspace))).trusted
    assert (await office.judge()).kind is not VerdictKind.ALLOW


@promise("trust:exact-content")
async def test_a_changed_file_is_a_new_question_that_the_old_answer_does_not_answer(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    question = await office.question()
    record = await asked_to_trust(office, question)
    await office.allow(record)
    office.write_rules(FileKind.WORKSPACE, allow=["*"])

    again = await asked_to_trust(office, question)

    assert again.id != record.id
    assert not (await current_policy(office.desk, str(office.workspace))).trusted


@promise("trust:exact-content")
@pytest.mark.parametrize("by", [MODEL, FORM])
async def test_only_a_person_can_trust_a_file(office: Office, by: Decider) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    record = await asked_to_trust(office, await office.question())

    with pytest.raises(MayNotDecide):
        await office.allow(record, by=by)

    assert await office.status(record) is State.PENDING


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
        await trust_workspace(office.desk, workspace, digest="", by=PERSON)
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    with pytest.raises(Changed):
        await trust_workspace(office.desk, workspace, digest="something else", by=PERSON)
    office.path(FileKind.WORKSPACE).write_text("{")
    with pytest.raises(ConfigInvalid):
        await trust_workspace(office.desk, workspace, digest="", by=PERSON)

    assert "workspace.trusted" not in await office.kinds()


async def test_trust_can_be_taken_back(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=[TOOL])
    await office.trust()

    assert await untrust_workspace(office.desk, str(office.workspace), by=PERSON) == 1

    assert (await office.judge()).kind is not VerdictKind.ALLOW
    assert [kind for kind in await office.kinds() if kind.startswith("workspace.")] == [
        "workspace.trusted",
        "workspace.untrusted",
    ]
