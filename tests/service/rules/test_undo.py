"""A remembered answer that is taken back: its grant or entry is gone, and it is said whether the call ran."""

import pytest

from pml.core.approvals.record import Scope, State
from pml.core.errors import Invalid, NotFound
from pml.core.rules.ruleset import VerdictKind
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.lifecycle import expire
from pml.service.rules.undo import take_back
from tests.builders import PERSON
from tests.promises import promise
from tests.service.offices import ARGUMENTS, TOOL, Office, rules_of


@promise("approval:undo-remembered")
async def test_a_grant_is_revoked_and_a_call_that_has_not_begun_is_withdrawn(office: Office) -> None:
    record = await office.ask()
    await office.allow(record, scope=Scope.SESSION)
    assert (await office.judge(TOOL, ARGUMENTS)).kind is VerdictKind.ALLOW
    undone = await take_back(office.context, record.id, by=PERSON)
    assert (undone.taken_back, undone.has_run, undone.record.status) == (True, False, State.CANCELLED)
    assert (await office.judge(TOOL, ARGUMENTS)).kind is not VerdictKind.ALLOW
    with pytest.raises(Exception, match="withdrawn"):
        await claim(office.context, record.id)


@promise("approval:undo-remembered")
@pytest.mark.parametrize("literal", [False, True])
async def test_the_entry_goes_from_the_file_and_the_others_stay(office: Office, literal: bool) -> None:
    first, second = await office.ask(), await office.ask(arguments={"title": "another"})
    await office.allow(first, scope=Scope.ALWAYS, literal=not literal)
    before = rules_of(office.read(), "allow")
    await office.allow(second, scope=Scope.ALWAYS, literal=literal)
    await claim(office.context, second.id)
    await finish(office.context, second.id)
    undone = await take_back(office.context, second.id, by=PERSON, literal=literal)
    assert (undone.taken_back, undone.has_run) == (True, True)
    assert rules_of(office.read(), "allow") == before
    again = await take_back(office.context, second.id, by=PERSON, literal=literal)
    assert (again.taken_back, again.has_run) == (False, True)


async def test_an_edited_call_is_forgotten_as_it_was_remembered(office: Office) -> None:
    record = await office.ask()
    await office.allow(record, scope=Scope.ALWAYS, updated_input={"title": "edited"})
    assert rules_of(office.read(), "allow") != []
    assert (await take_back(office.context, record.id, by=PERSON)).taken_back
    assert rules_of(office.read(), "allow") == []


@promise("approval:undo-remembered")
async def test_an_edit_that_changed_nothing_is_forgotten_as_the_whole_tool(office: Office) -> None:
    record = await office.ask()
    await office.allow(record, scope=Scope.ALWAYS, updated_input=ARGUMENTS)
    assert rules_of(office.read(), "allow") == [TOOL]
    assert (await take_back(office.context, record.id, by=PERSON)).taken_back
    assert rules_of(office.read(), "allow") == []


async def test_an_answer_that_ran_out_unused_did_not_run(office: Office) -> None:
    record = await office.ask()
    await office.allow(record, scope=Scope.SESSION)
    office.clock.advance(301)
    await expire(office.context, await office.stored(record))
    assert not (await take_back(office.context, record.id, by=PERSON)).has_run


async def test_an_answer_that_is_not_remembered_has_nothing_to_take_back(office: Office) -> None:
    record = await office.ask()
    await office.allow(record)
    with pytest.raises(Invalid, match="not remembered"):
        await take_back(office.context, record.id, by=PERSON)
    assert await office.status(record) is State.ALLOWED
    with pytest.raises(NotFound):
        await take_back(office.context, type(record.id)("0" * 8), by=PERSON)
