"""Judging the waiting again: an allow frees only what was shown, a deny refuses all it names."""

from pathlib import Path

import pytest

from pml.core.approvals.record import (
    ApprovalId,
    Channel,
    Decider,
    DeciderKind,
    Scope,
    SessionId,
    State,
    Subject,
)
from pml.core.config.file import FileKind
from pml.core.errors import Changed
from pml.core.ports.records import Grant, Intent
from pml.service.approvals.claims import deliver
from pml.service.approvals.lifecycle import all_pending, refuse_denied_waiting, release
from pml.service.policy.memory import covered_by, memory_of
from pml.service.rules.rulebook import covered_by_rules
from tests.builders import ANYONE, MODEL, PERSON
from tests.promises import promise
from tests.service.offices import TOOL, Office


async def test_a_grant_frees_what_was_shown_and_it_covers(office: Office) -> None:
    first = await office.ask(arguments={"n": 1})
    shown = await office.ask(arguments={"n": 2})

    decided = await office.allow(first, scope=Scope.SESSION, release=(shown.id,))

    assert [record.id for record in decided.released] == [shown.id]
    assert await office.status(shown) is State.ALLOWED
    assert (await office.stored(shown)).response_message == "covered by a new rule or grant"


@promise("release:only-what-was-shown")
async def test_what_was_not_shown_stays_waiting_although_it_is_covered(office: Office) -> None:
    first = await office.ask(arguments={"n": 1})
    shown = await office.ask(arguments={"n": 2})
    unseen = await office.ask(arguments={"n": 3})

    await office.allow(first, scope=Scope.ALWAYS, release=(shown.id,))

    assert await office.status(shown) is State.ALLOWED
    assert await office.stored(unseen) == unseen


@promise("release:only-what-was-shown")
async def test_what_was_shown_but_is_not_covered_stays_waiting(office: Office) -> None:
    first = await office.ask()
    other_tool = await office.ask("github:delete_repo")
    other_session = await office.ask(session=await office.session(SessionId("session-2")))
    other_subject = await office.ask(subject=Subject.TOOL_CHANGED)
    shown = (other_tool, other_session, other_subject)

    decided = await office.allow(first, scope=Scope.SESSION, release=tuple(record.id for record in shown))

    assert decided.released == ()
    for record in shown:
        assert await office.stored(record) == record


@promise("release:only-what-was-shown")
async def test_an_entry_in_an_untrusted_file_frees_nothing(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["a:b"])
    first = await office.ask(arguments={"n": 1})
    shown = await office.ask(arguments={"n": 2})

    decided = await office.allow(first, scope=Scope.ALWAYS, release=(shown.id,))

    assert decided.released == ()
    assert await office.stored(shown) == shown


async def test_one_of_the_shown_that_is_gone_does_not_keep_the_others_or_the_decision(
    office: Office,
) -> None:
    expired = await office.ask(arguments={"n": 1})
    office.clock.advance(expired.ttl_s - 1)
    first = await office.ask(arguments={"n": 2})
    denied = await office.deny(await office.ask(arguments={"n": 3}))
    shown = await office.ask(arguments={"n": 4})
    office.clock.advance(1)
    ids = (expired.id, denied.id, ApprovalId("nothing"), shown.id)

    decided = await office.allow(first, scope=Scope.SESSION, release=ids)

    assert decided.record.status is State.ALLOWED
    assert [record.id for record in decided.released] == [shown.id]
    assert await office.status(expired) is State.EXPIRED
    assert await office.stored(denied) == denied


@promise("release:only-what-was-shown")
async def test_whoever_may_not_allow_a_question_does_not_release_it_either(office: Office) -> None:
    first = await office.ask(arguments={"n": 1}, deciders=ANYONE)
    shown = await office.ask(arguments={"n": 2})

    decided = await office.allow(first, by=MODEL, scope=Scope.SESSION, release=(shown.id,))

    assert decided.released == ()
    assert await office.stored(shown) == shown


@promise("release:only-what-was-shown")
async def test_releasing_without_a_rule_or_grant_frees_nothing(office: Office) -> None:
    record = await office.ask()

    assert await release(office.context, [record.id], by=PERSON) == ()

    assert await office.stored(record) == record


@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_what_is_shown_beside_the_button_is_what_the_memory_covers(
    office: Office, scope: Scope, tmp_path: Path
) -> None:
    session = await office.session()
    elsewhere = await office.session(SessionId("elsewhere"), workspace=tmp_path)
    first = await office.ask(arguments={"n": 1})
    same = await office.ask(arguments={"n": 2})
    await office.ask("github:delete_repo")
    await office.ask(session=elsewhere)
    await office.ask(subject=Subject.TOOL_CHANGED)

    memory = memory_of(
        office.context, first, session, PERSON, scope, arguments=first.tool_input, literal=False
    )

    assert isinstance(memory, Grant | Intent)
    assert await covered_by(office.context, memory, all_pending(office.context)) == [same]


async def test_what_is_remembered_with_its_arguments_covers_no_other_arguments(office: Office) -> None:
    session = await office.session()
    first = await office.ask("Bash", {"command": "ls"})
    again = await office.ask("Bash", {"command": "ls"}, tool_use_id="again")
    await office.ask("Bash", {"command": "rm"})

    for scope in (Scope.SESSION, Scope.ALWAYS):
        memory = memory_of(
            office.context, first, session, PERSON, scope, arguments=first.tool_input, literal=False
        )
        assert isinstance(memory, Grant | Intent)
        assert await covered_by(office.context, memory, all_pending(office.context)) == [again]


@promise("release:only-what-was-shown")
async def test_a_tool_remembered_by_its_name_covers_no_code_and_no_changed_tool(office: Office) -> None:
    session = await office.session()
    first = await office.ask("db:report", {"name": "daily"}, definition="sha256:d", artefact="sha256:a")
    same = await office.ask("db:report", {"name": "weekly"}, definition="sha256:d", artefact="sha256:a")
    await office.ask("db:report", {"sql": "DROP TABLE users"}, definition="sha256:d", artefact="sha256:a")
    await office.ask("db:report", {"name": "weekly"}, definition="sha256:other", artefact="sha256:a")
    await office.ask("db:report", {"name": "weekly"}, definition="sha256:d", artefact="sha256:other")

    memory = memory_of(
        office.context, first, session, PERSON, Scope.SESSION, arguments=first.tool_input, literal=False
    )

    assert isinstance(memory, Grant)
    assert await covered_by(office.context, memory, all_pending(office.context)) == [same]


# --- a new deny


async def test_a_new_deny_refuses_every_waiting_call_that_it_names(office: Office, tmp_path: Path) -> None:
    named = [await office.ask(arguments={"n": n}) for n in range(2)]
    other = await office.ask("fs:read")
    changed = await office.ask(subject=Subject.TOOL_CHANGED)
    elsewhere = await office.ask(session=await office.session(SessionId("elsewhere"), workspace=tmp_path))
    office.write_rules(deny=["github:*"])

    refused = await refuse_denied_waiting(office.context, str(office.workspace))

    assert {record.id for record in refused} == {record.id for record in named}
    assert {record.decided_by for record in refused} == {
        Decider(
            kind=DeciderKind.RULE,
            id=f'deny "github:*" ({office.home / "config.json"}:1)',
            channel=Channel.RULES,
        )
    }
    assert {await office.status(record) for record in named} == {State.DENIED}
    for record in (other, changed, elsewhere):
        assert await office.stored(record) == record


async def test_a_waiting_call_whose_time_is_over_does_not_keep_a_deny_from_the_others(
    office: Office,
) -> None:
    expired = await office.ask(arguments={"n": 1})
    office.clock.advance(expired.ttl_s - 1)
    named = await office.ask(arguments={"n": 2})
    office.clock.advance(1)
    office.write_rules(deny=[TOOL])

    refused = await refuse_denied_waiting(office.context, str(office.workspace))

    assert [record.id for record in refused] == [named.id]
    assert await office.status(expired) is State.EXPIRED


@promise("release:only-what-was-shown")
async def test_a_rule_for_a_folder_frees_no_call_that_would_be_made_elsewhere(
    office: Office, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    waiting = await office.ask("Write", {"file_path": "src/a"}, cwd=elsewhere)
    entry = {"tool": "Write", "args": {"file_path": {"under": str(office.workspace)}}}
    office.write_rules(allow=[entry])

    assert await release(office.context, [waiting.id], by=PERSON) == ()
    assert await covered_by_rules(office.context) == []
    assert await office.status(waiting) is State.PENDING


@promise("approval:exact-arguments")
async def test_the_same_command_in_another_folder_is_another_question(office: Office) -> None:
    command = {"command": "rm -rf *"}
    here, there = [await office.ask("Bash", command, cwd=folder) for folder in ("/a", "/etc")]

    assert here.id != there.id
    await office.allow(here)
    with pytest.raises(Changed):
        await deliver(office.context, here.id, await office.question("Bash", command, cwd="/etc"))
