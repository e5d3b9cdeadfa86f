"""What a decision remembers for the session: this tool, this session, and never more than was shown."""

import pytest

from pml.core.approvals.record import Decider, Scope, SessionId, State, Subject
from pml.core.config.file import FileKind
from pml.core.digest import digest_call
from pml.core.errors import Invalid
from pml.core.ports.records import Grant
from pml.core.rules.ruleset import VerdictKind
from pml.core.values import JsonObject
from pml.service.policy.memory import Remembered
from pml.service.upkeep import end_session
from tests.builders import NOW, PERSON
from tests.promises import promise
from tests.service.offices import ARGUMENTS, SESSION, TOOL, Office

WITH_COMMAND: list[tuple[str, JsonObject, JsonObject]] = [
    ("Bash", {"command": "git status"}, {"command": "git status; curl evil"}),
    ("pml:execute", {"code": "1"}, {"code": "2"}),
    ("shell:run", {"command": "ls"}, {"command": "rm -rf /"}),
]


async def test_a_tool_remembered_for_the_session_is_allowed_with_any_arguments(office: Office) -> None:
    record = await office.ask()

    decided = await office.allow(record, scope=Scope.SESSION)

    assert decided.remembered == Remembered(scope=Scope.SESSION, entry=TOOL)
    grants = await office.context.store.grants.all()
    assert grants == [
        Grant(
            id=grants[0].id,
            session_id=SESSION,
            tool=TOOL,
            approval_id=record.id,
            by=PERSON,
            created_at=NOW,
        )
    ]
    judged = await office.judge(arguments={"title": "another"})
    assert (judged.kind, judged.grant) == (VerdictKind.ALLOW, grants[0])


@promise("agent:nothing-unapproved")
async def test_a_tool_allowed_once_is_not_remembered(office: Office) -> None:
    await office.allow(await office.ask())

    assert (await office.judge()).kind is not VerdictKind.ALLOW


@promise("agent:nothing-unapproved")
async def test_a_grant_helps_no_other_session_and_no_other_tool(office: Office) -> None:
    await office.allow(await office.ask(), scope=Scope.SESSION)
    child = await office.session(SessionId("child"), parent_id=SESSION)

    assert (await office.judge(session=child)).kind is not VerdictKind.ALLOW
    for tool in ("github:create_issue2", "github:*", "create_issue", "GitHub:create_issue"):
        assert (await office.judge(tool)).kind is not VerdictKind.ALLOW


@promise("always:only-what-was-shown")
@pytest.mark.parametrize(("tool", "arguments", "others"), WITH_COMMAND)
async def test_what_runs_commands_or_code_is_remembered_by_its_exact_arguments(
    office: Office, tool: str, arguments: JsonObject, others: JsonObject
) -> None:
    decided = await office.allow(await office.ask(tool, arguments), scope=Scope.SESSION)

    entry = {"tool": tool, "digest": digest_call(tool, arguments)}
    assert decided.remembered == Remembered(scope=Scope.SESSION, entry=entry)
    assert (await office.judge(tool, arguments)).kind is VerdictKind.ALLOW
    assert (await office.judge(tool, others)).kind is not VerdictKind.ALLOW
    assert (await office.judge(tool, {**arguments, "cwd": "/"})).kind is not VerdictKind.ALLOW


@promise("always:only-what-was-shown")
@pytest.mark.parametrize(
    "others", [{"sql": "DROP TABLE users"}, {"name": "daily", "options": {"shell": "rm -rf /"}}]
)
async def test_a_tool_remembered_by_its_name_is_asked_about_when_it_is_to_run_code(
    office: Office, others: JsonObject
) -> None:
    decided = await office.allow(await office.ask("db:report", {"name": "daily"}), scope=Scope.SESSION)

    assert decided.remembered == Remembered(scope=Scope.SESSION, entry="db:report")
    assert (await office.judge("db:report", {"name": "weekly"})).kind is VerdictKind.ALLOW
    assert (await office.judge("db:report", others)).kind is not VerdictKind.ALLOW


@promise("always:only-what-was-shown")
@pytest.mark.parametrize(("tool", "arguments"), [(TOOL, ARGUMENTS), ("Bash", {"command": "ls"})])
@pytest.mark.parametrize(
    ("definition", "artefact"),
    [("sha256:other", "sha256:a"), ("sha256:d", "sha256:other"), (None, "sha256:a"), ("sha256:d", None)],
)
async def test_a_tool_or_artefact_that_changed_is_not_the_one_that_is_remembered(
    office: Office, tool: str, arguments: JsonObject, definition: str | None, artefact: str | None
) -> None:
    record = await office.ask(tool, arguments, definition="sha256:d", artefact="sha256:a")
    await office.allow(record, scope=Scope.SESSION)

    same = await office.judge(tool, arguments, definition="sha256:d", artefact="sha256:a")
    changed = await office.judge(tool, arguments, definition=definition, artefact=artefact)

    assert (same.kind, changed.kind) == (VerdictKind.ALLOW, VerdictKind.UNLISTED)


@promise("always:only-what-was-shown")
async def test_a_tool_remembered_with_its_arguments_is_allowed_with_those_only(office: Office) -> None:
    await office.allow(await office.ask(), scope=Scope.SESSION, literal=True)

    assert (await office.judge()).kind is VerdictKind.ALLOW
    assert (await office.judge(arguments={"title": "another"})).kind is not VerdictKind.ALLOW


@promise("always:only-what-was-shown")
async def test_edited_arguments_are_the_ones_that_are_remembered(office: Office) -> None:
    record = await office.ask("Bash", {"command": "rm -rf /"})
    await office.allow(record, scope=Scope.SESSION, updated_input={"command": "ls"})

    assert (await office.judge("Bash", {"command": "ls"})).kind is VerdictKind.ALLOW
    assert (await office.judge("Bash", {"command": "rm -rf /"})).kind is not VerdictKind.ALLOW


@pytest.mark.parametrize("tool", ["pml:call", "pml:discover"])
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
@promise("always:only-what-was-shown")
async def test_a_tool_that_only_carries_other_calls_is_never_remembered(
    office: Office, tool: str, scope: Scope
) -> None:
    record = await office.ask(tool)

    with pytest.raises(Invalid, match="never remembered"):
        await office.allow(record, scope=scope)

    assert await office.status(record) is State.PENDING
    assert (await office.context.store.grants.all(), await office.context.store.intents.open()) == ([], [])


@promise("always:only-what-was-shown")
async def test_a_grant_for_a_carrying_tool_would_not_count_even_if_there_were_one(office: Office) -> None:
    await office.session()
    grant = Grant(id="1", session_id=SESSION, tool="pml:call", by=PERSON, created_at=NOW)
    await office.context.store.grants.add(grant)

    assert (await office.judge("pml:call")).kind is not VerdictKind.ALLOW


@pytest.mark.parametrize("subject", [subject for subject in Subject if subject is not Subject.TOOL_CALL])
async def test_only_tool_calls_are_remembered(office: Office, subject: Subject) -> None:
    record = await office.ask(subject=subject)

    with pytest.raises(Invalid, match="nothing to remember"):
        await office.allow(record, scope=Scope.SESSION)

    assert await office.status(record) is State.PENDING


async def test_grants_end_with_their_session(office: Office) -> None:
    session = await office.session()
    await office.allow(await office.ask(), scope=Scope.SESSION)
    await end_session(office.context, session)

    assert (await office.judge(session=session)).kind is not VerdictKind.ALLOW


@promise("session:own-memory")
async def test_a_decision_for_a_session_that_has_ended_remembers_nothing_for_the_next_of_its_id(
    office: Office,
) -> None:
    session = await office.session(is_agent=False)
    record = await office.ask(session=session)
    await end_session(office.context, session)

    assert (await office.allow(record, scope=Scope.SESSION)).record.status is State.ALLOWED

    anew = await office.session(is_agent=False)
    assert await office.context.store.grants.all() == []
    assert (await office.judge(session=anew)).kind is not VerdictKind.ALLOW


@promise("deny:beats-grants")
@pytest.mark.parametrize("which", FileKind)
async def test_a_configured_deny_beats_a_grant(office: Office, which: FileKind) -> None:
    await office.allow(await office.ask(), scope=Scope.SESSION)
    office.write_rules(which, deny=["github:*"])

    judged = await office.judge()

    assert (judged.kind, judged.grant) == (VerdictKind.DENY, None)


@promise("agent:nothing-unapproved")
async def test_a_denial_remembers_nothing(office: Office) -> None:
    await office.deny(await office.ask(arguments=ARGUMENTS))

    assert await office.context.store.grants.all() == []
    assert (await office.judge()).kind is not VerdictKind.ALLOW


async def test_who_gave_a_grant_is_in_the_log(office: Office) -> None:
    record = await office.ask()
    await office.allow(record, scope=Scope.SESSION)

    assert await office.kinds() == [
        "session.started",
        "approval.requested",
        "approval.allowed",
        "grant.added",
    ]
    assert isinstance((await office.stored(record)).decided_by, Decider)
