"""Files of an installed server that are not as they were: it does not start until a person says so."""

import asyncio

import pytest

from pml.core.approvals.record import Approval, Role, SessionId, State, Subject
from pml.core.approvals.subjects import asked_facts
from pml.core.errors import ArtefactChanged, Changed, MayNotDecide, NotApproved, ToolDenied
from pml.core.ports.queries import AuditQuery
from pml.core.values import Json
from pml.service.call import Paused
from tests.builders import FORM, PERSON
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.offices import BOUND_S, Office, parent, until_idle
from tests.service.warehouses import ARGUMENTS, OTHER_ARGUMENTS, RAN, TOOL, Warehouse

MEMORY = make_dependency()


@pytest.fixture
def tampered(warehouse: Warehouse) -> Warehouse:
    """Files of `memory`, which is installed, have changed."""
    warehouse.place(MEMORY)
    warehouse.installer.tamper("memory", "lib/a.js", "main.js", tree="tree 2")
    return warehouse


@promise("load:changed-never-starts")
@pytest.mark.parametrize("allowed", [[], ["memory:*"]], ids=["unlisted", "allowed by a rule"])
async def test_a_server_whose_files_changed_does_not_start_and_the_files_are_named(
    tampered: Warehouse, allowed: list[Json]
) -> None:
    tampered.configure(allow=allowed)
    paused = await tampered.pause(TOOL, offered=True)

    assert (paused.record.subject, paused.record.artefact) == (Subject.INTEGRITY_CHANGED, "tree 2")
    assert paused.record.tool_input == {
        "server": "memory@1.2.3",
        "files": ["lib/a.js", "main.js"],
        "was": "tree of memory@1.2.3",
        "now": "tree 2",
        "call": {"tool": TOOL, "arguments": ARGUMENTS},
    }
    assert dict(asked_facts(paused.record))["changed"] == "lib/a.js\nmain.js"
    assert (tampered.servers.started, tampered.servers.ran) == ([], [])


@promise("load:changed-never-starts")
async def test_only_a_person_can_accept_changed_files(tampered: Warehouse) -> None:
    tampered.configure(approval={"model_may_approve": "always"})
    paused = await tampered.pause(TOOL, asking=FakeAsking(has_form=True))

    assert paused.record.deciders == frozenset({Role.PERSON})
    with pytest.raises(MayNotDecide):
        await tampered.office.allow(paused.record, by=FORM)
    with pytest.raises(Paused):
        await tampered.go_on(paused.workflow.id, tool=TOOL)
    assert (tampered.installer.accepted_trees, tampered.servers.started) == ([], [])


@promise("load:changed-never-starts")
async def test_a_parent_cannot_accept_changed_files(office: Office) -> None:
    top = await office.session(SessionId("session-0"))
    child = Warehouse(office, await office.session(SessionId("child"), parent_id=top.id))
    child.sources.offer("memory", MEMORY)
    child.place(MEMORY)
    child.installer.tamper("memory", "main.js", tree="tree 2")
    paused = await child.pause(TOOL)

    with pytest.raises(MayNotDecide):
        await office.allow(paused.record, by=parent("session-0"))

    assert child.servers.started == []


@promise("load:changed-never-starts")
async def test_asking_that_is_turned_off_accepts_no_changed_files(tampered: Warehouse) -> None:
    tampered.configure(approval={"enabled": False})

    paused = await tampered.pause(TOOL)

    assert (paused.record.subject, tampered.servers.started) == (Subject.INTEGRITY_CHANGED, [])


async def test_what_a_person_accepts_is_exactly_what_was_shown_and_the_call_goes_on(
    tampered: Warehouse,
) -> None:
    await tampered.call(TOOL, asking=FakeAsking(tampered.allowing()))

    assert tampered.installer.accepted_trees == [("memory", "tree 2")]
    assert (tampered.servers.ran, await tampered.states()) == ([RAN], [State.COMPLETED])
    links = await tampered.office.context.store.audit.list(AuditQuery(limit=10_000))
    (entry,) = [link.entry for link in links if link.entry.kind == "dependency.accepted"]
    assert (entry.by, entry.detail) == (PERSON, {"name": "memory", "tree": "tree 2"})


async def test_what_was_accepted_elsewhere_lets_the_continued_call_run(tampered: Warehouse) -> None:
    paused = await tampered.pause(TOOL, offered=True)
    await tampered.office.allow(paused.record)
    other = await tampered.restart()

    await other.go_on(paused.workflow.id, tool=TOOL)

    assert (tampered.installer.accepted_trees, other.servers.ran) == ([("memory", "tree 2")], [RAN])


@promise("gate:asks-before-running")
async def test_accepting_the_files_is_no_approval_of_the_call(tampered: Warehouse) -> None:
    asking = FakeAsking(tampered.allowing())

    with pytest.raises(Paused) as paused:
        await tampered.call(TOOL, asking=asking, offered=False)

    assert (paused.value.record.subject, tampered.servers.ran) == (Subject.TOOL_CALL, [])


@promise("always:only-what-was-shown")
async def test_a_tool_that_was_remembered_is_asked_about_again_when_other_files_were_accepted(
    warehouse: Warehouse,
) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    warehouse.servers.stop("memory")
    warehouse.installer.tamper("memory", "main.js", tree="tree 2")

    with pytest.raises(Paused) as paused:
        await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)

    assert (paused.value.record.subject, warehouse.servers.ran) == (Subject.TOOL_CALL, [RAN])


@promise("load:changed-never-starts")
async def test_files_that_changed_again_before_the_continuation_are_asked_about_again(
    tampered: Warehouse,
) -> None:
    first = await tampered.pause(TOOL)
    await tampered.office.allow(first.record)
    tampered.installer.tamper("memory", "evil.js", tree="tree 3")

    with pytest.raises(Paused) as second:
        await tampered.go_on(first.workflow.id, tool=TOOL)

    assert (second.value.record.subject, second.value.record.tool_input["files"]) == (
        Subject.INTEGRITY_CHANGED,
        ["evil.js"],
    )
    assert (tampered.installer.accepted_trees, tampered.servers.started) == ([], [])


@promise("load:changed-never-starts")
async def test_files_that_change_just_before_they_are_accepted_are_not_and_are_asked_about_again(
    tampered: Warehouse,
) -> None:
    tampered.installer.before_accept = lambda: tampered.installer.tamper("memory", "evil.js", tree="tree 3")
    asking = FakeAsking(tampered.allowing())

    with pytest.raises(Changed):
        await tampered.call(TOOL, asking=asking)

    assert await tampered.office.status(asking.asked[0]) is State.FAILED
    again = await tampered.pause(TOOL)
    assert (again.record.subject, again.record.artefact) == (Subject.INTEGRITY_CHANGED, "tree 3")
    assert (tampered.installer.accepted_trees, tampered.servers.started) == ([], [])


@promise("load:changed-never-starts")
async def test_who_does_not_accept_them_has_nothing_started(tampered: Warehouse) -> None:
    with pytest.raises(NotApproved) as refused:
        await tampered.call(TOOL, asking=FakeAsking(tampered.denying()))

    assert (refused.value.outcome, tampered.servers.started) == (State.DENIED, [])
    assert tampered.installer.accepted_trees == []


@promise("expiry:not-denial")
async def test_changed_files_that_nobody_decided_about_in_time_are_not_denied(tampered: Warehouse) -> None:
    async def expire(record: Approval) -> Approval:
        tampered.office.clock.advance(301)
        return await tampered.waiting()(record)

    with pytest.raises(NotApproved) as refused:
        await tampered.call(TOOL, asking=FakeAsking(expire))

    assert (refused.value.outcome, tampered.servers.started) == (State.EXPIRED, [])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_after_they_were_accepted_accepts_and_starts_nothing(
    tampered: Warehouse,
) -> None:
    async def allow_and_forbid(record: Approval) -> Approval:
        allowed = (await tampered.office.allow(record)).record
        tampered.configure(deny=[TOOL])
        return allowed

    with pytest.raises(ToolDenied):
        await tampered.call(TOOL, asking=FakeAsking(allow_and_forbid))

    assert (tampered.installer.accepted_trees, tampered.servers.started) == ([], [])


async def test_two_calls_at_once_need_one_person_who_accepts_the_files_once(tampered: Warehouse) -> None:
    asking = FakeAsking(tampered.waiting()), FakeAsking(tampered.waiting())
    calls = [
        asyncio.create_task(tampered.call(TOOL, asking=asking[0])),
        asyncio.create_task(tampered.call(TOOL, asking=asking[1])),
    ]
    for call in calls:
        await until_idle(call)

    await tampered.office.allow(asking[0].asked[0])
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*calls)

    assert (tampered.installer.accepted_trees, len(tampered.servers.ran)) == ([("memory", "tree 2")], 2)


async def test_a_call_with_other_arguments_is_not_left_with_a_question_that_is_settled(
    tampered: Warehouse,
) -> None:
    asking = FakeAsking(tampered.waiting()), FakeAsking(tampered.waiting())
    calls = [
        asyncio.create_task(tampered.call(TOOL, asking=asking[0])),
        asyncio.create_task(tampered.call(TOOL, OTHER_ARGUMENTS, asking=asking[1])),
    ]
    for call in calls:
        await until_idle(call)

    await tampered.office.allow(asking[0].asked[0])
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*calls)

    assert (tampered.installer.accepted_trees, len(tampered.servers.ran)) == ([("memory", "tree 2")], 2)


@promise("load:asks-nothing-needless")
async def test_files_that_are_accepted_just_as_another_call_finds_them_changed_are_not_asked_about_again(
    tampered: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ask = tampered.office.context.store.approvals, tampered.office.context.store.approvals.ask

    async def accepted_meanwhile(new: Approval, *, max_pending: int) -> Approval:
        await tampered.installer.accept("memory", tree="tree 2")
        return await ask(new, max_pending=max_pending)

    monkeypatch.setattr(store, "ask", accepted_meanwhile)
    tampered.configure(allow=["memory:*"])
    asking = FakeAsking()
    await tampered.call(TOOL, asking=asking)

    assert (asking.asked, tampered.servers.ran) == ([], [RAN])
    assert await tampered.states() == [State.CANCELLED]


async def test_a_server_that_runs_is_not_asked_about(warehouse: Warehouse) -> None:
    warehouse.place(MEMORY)
    await warehouse.call(TOOL)
    warehouse.installer.tamper("memory", "main.js", tree="tree 2")

    await warehouse.call(TOOL)

    assert (len(warehouse.servers.ran), await warehouse.states()) == (2, [])


@promise("load:changed-never-starts")
async def test_an_approved_call_is_not_run_by_files_that_changed_after_it_was_asked_about(
    warehouse: Warehouse,
) -> None:
    warehouse.place(MEMORY)
    warehouse.configure(ask=[TOOL])

    async def allow_and_tamper(record: Approval) -> Approval:
        warehouse.servers.stop("memory")
        warehouse.installer.tamper("memory", "main.js", tree="tree 2")
        return (await warehouse.office.allow(record)).record

    with pytest.raises(ArtefactChanged, match="its files have changed"):
        await warehouse.call(TOOL, asking=FakeAsking(allow_and_tamper))

    assert (warehouse.servers.started, warehouse.servers.ran) == (["memory"], [])


@promise("load:changed-never-starts")
async def test_nobody_is_asked_to_accept_files_that_are_not_there(warehouse: Warehouse) -> None:
    warehouse.place(make_dependency())
    warehouse.installer.tamper("memory", "all of it is missing", tree="")

    with pytest.raises(ArtefactChanged, match="all of it is missing"):
        await warehouse.call(TOOL)

    assert (await warehouse.questions(), warehouse.servers.ran) == ([], [])
