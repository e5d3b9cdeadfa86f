"""Variables that a server requires: asked for by name, never by value, read anew when the call goes on."""

import pytest

from pml.core.approvals.record import Approval, Role, State, Subject
from pml.core.config.file import FileKind
from pml.core.errors import EnvMissing, NotApproved, ToolDenied, WorkflowGone
from pml.core.ports.queries import AuditQuery
from pml.core.values import canonical
from pml.service.call import Paused
from tests.builders import FORM
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.warehouses import ARGUMENTS, OTHER_ARGUMENTS, RAN, TOOL, Warehouse

KEY = "ANTHROPIC_API_KEY"
SECRET = "sk-very-secret"
NEEDY = make_dependency(env_required=(KEY,))


@pytest.fixture
def needy(warehouse: Warehouse) -> Warehouse:
    """`memory` is installed and requires a key that is not set."""
    warehouse.sources.offer("memory", NEEDY)
    warehouse.place(NEEDY)
    return warehouse


async def test_a_variable_that_is_not_set_is_asked_for_and_nothing_starts(needy: Warehouse) -> None:
    paused = await needy.pause(TOOL)

    assert (paused.record.subject, paused.record.tool_input) == (
        Subject.API_KEY_REQUIRED,
        {"server": "memory", "missing": [KEY], "call": {"tool": TOOL, "arguments": ARGUMENTS}},
    )
    assert needy.servers.started == []


async def test_variables_that_are_set_are_asked_of_nobody(needy: Warehouse) -> None:
    needy.variables.known[KEY] = SECRET

    await needy.call(TOOL)

    assert (needy.servers.ran, await needy.states()) == ([RAN], [])


async def test_only_what_is_missing_is_asked_for(needy: Warehouse) -> None:
    more = make_dependency(env_required=(KEY, "REGION", "TOKEN"))
    needy.sources.offer("memory", more)
    needy.place(more)
    needy.variables.known["REGION"] = "north"

    paused = await needy.pause(TOOL)

    assert paused.record.tool_input["missing"] == [KEY, "TOKEN"]


async def test_a_rule_that_allows_the_tool_does_not_do_without_the_variable(needy: Warehouse) -> None:
    needy.configure(allow=["memory:*"])

    paused = await needy.pause(TOOL)

    assert (paused.record.subject, needy.servers.started) == (Subject.API_KEY_REQUIRED, [])


async def test_a_variable_that_was_set_meanwhile_lets_the_call_go_on(needy: Warehouse) -> None:
    paused = await needy.pause(TOOL, offered=True)
    needy.variables.known[KEY] = SECRET

    await needy.go_on(paused.workflow.id, tool=TOOL)

    assert (needy.servers.ran, await needy.states()) == ([RAN], [State.COMPLETED])


async def test_a_variable_that_was_set_meanwhile_lets_the_call_go_on_after_a_restart(
    needy: Warehouse,
) -> None:
    paused = await needy.pause(TOOL, offered=True)
    needy.variables.known[KEY] = SECRET
    other = await needy.restart()

    await other.go_on(paused.workflow.id, tool=TOOL)

    assert (other.servers.ran, await needy.states()) == ([RAN], [State.COMPLETED])


async def test_a_variable_that_was_set_while_the_question_waited_lets_the_call_go_on(
    needy: Warehouse,
) -> None:
    async def set_and_allow(record: Approval) -> Approval:
        needy.variables.known[KEY] = SECRET
        return (await needy.office.allow(record, by=FORM)).record

    await needy.call(TOOL, asking=FakeAsking(set_and_allow, has_form=True))

    assert (needy.servers.ran, await needy.states()) == ([RAN], [State.COMPLETED])


async def test_the_call_can_simply_be_made_again_once_the_variable_is_set(needy: Warehouse) -> None:
    await needy.pause(TOOL)
    needy.variables.known[KEY] = SECRET

    await needy.call(TOOL)

    assert needy.servers.ran == [RAN]


async def test_variables_that_are_still_missing_are_told_by_name(needy: Warehouse) -> None:
    both = make_dependency(env_required=(KEY, "TOKEN"))
    needy.sources.offer("memory", both)
    needy.place(both)
    paused = await needy.pause(TOOL)

    with pytest.raises(EnvMissing) as missing:
        await needy.go_on(paused.workflow.id, tool=TOOL)

    assert (missing.value.message, missing.value.hint) == (
        f"memory requires {KEY}, TOKEN",
        f"set it with `pml secrets set {KEY}`",
    )
    record = await needy.office.stored(paused.record)
    assert (record.status, record.reason, needy.servers.started) == (State.FAILED, "not set", [])
    with pytest.raises(WorkflowGone):
        await needy.go_on(paused.workflow.id, tool=TOOL)


async def test_an_answer_that_no_variable_followed_is_told_to_whoever_waits(needy: Warehouse) -> None:
    with pytest.raises(EnvMissing, match=f"memory requires {KEY}"):
        await needy.call(TOOL, asking=FakeAsking(needy.allowing()))

    again = await needy.pause(TOOL)
    assert (again.record.subject, needy.servers.started) == (Subject.API_KEY_REQUIRED, [])


async def test_of_two_variables_the_one_that_is_still_missing_is_asked_for(needy: Warehouse) -> None:
    both = make_dependency(env_required=(KEY, "TOKEN"))
    needy.sources.offer("memory", both)
    needy.place(both)
    paused = await needy.pause(TOOL)
    needy.variables.known[KEY] = SECRET

    with pytest.raises(Paused) as again:
        await needy.go_on(paused.workflow.id, tool=TOOL)

    assert (again.value.record.tool_input["missing"], needy.servers.started) == (["TOKEN"], [])


async def test_who_does_not_want_to_set_it_denies_the_call(needy: Warehouse) -> None:
    with pytest.raises(NotApproved) as refused:
        await needy.call(TOOL, asking=FakeAsking(needy.denying()))

    assert (refused.value.outcome, needy.servers.started) == (State.DENIED, [])


@promise("load:deny-beats-consent")
async def test_a_deny_stops_a_call_that_waited_for_a_variable(needy: Warehouse) -> None:
    paused = await needy.pause(TOOL)
    await needy.office.allow(paused.record)
    needy.variables.known[KEY] = SECRET
    needy.configure(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await needy.go_on(paused.workflow.id, tool=TOOL)

    assert needy.servers.started == []


@promise("gate:asks-before-running")
async def test_that_the_variable_is_set_is_no_approval_of_the_call(needy: Warehouse) -> None:
    needy.configure(ask=[TOOL])
    paused = await needy.pause(TOOL)
    needy.variables.known[KEY] = SECRET

    with pytest.raises(Paused) as again:
        await needy.go_on(paused.workflow.id, tool=TOOL)

    assert (again.value.record.subject, needy.servers.ran) == (Subject.TOOL_CALL, [])


async def test_the_install_that_was_approved_covers_the_call_also_after_the_variable_was_asked_for(
    warehouse: Warehouse,
) -> None:
    warehouse.sources.offer("memory", NEEDY)
    asking = FakeAsking(warehouse.allowing())
    with pytest.raises(Paused) as paused:
        await warehouse.call(TOOL, asking=asking, offered=False)
    warehouse.variables.known[KEY] = SECRET

    await warehouse.go_on(paused.value.workflow.id, tool=TOOL)

    assert [record.subject for record in await warehouse.questions()] == [
        Subject.DEPENDENCY_INSTALL,
        Subject.API_KEY_REQUIRED,
    ]
    assert warehouse.servers.ran == [RAN]


async def test_an_answer_is_used_once_however_often_the_call_has_to_be_looked_at_again(
    needy: Warehouse,
) -> None:
    needy.sources.offer("memory", NEEDY, make_dependency("storage"))
    paused = await needy.pause(TOOL, offered=True)
    needy.variables.known[KEY] = SECRET
    needy.installer.tamper("memory", "main.js", tree="tree 2")
    asking = FakeAsking(needy.allowing(), needy.allowing())

    await needy.go_on(paused.workflow.id, tool=TOOL, asking=asking)

    assert [record.subject for record in asking.asked] == [
        Subject.DEPENDENCY_INSTALL,
        Subject.INTEGRITY_CHANGED,
    ]
    assert (needy.servers.ran, await needy.states()) == ([RAN], [State.COMPLETED] * 3)


async def test_two_calls_that_wait_for_the_same_variable_each_have_a_workflow_of_their_own(
    needy: Warehouse,
) -> None:
    first, second = (
        await needy.pause(TOOL, offered=True),
        await needy.pause(TOOL, OTHER_ARGUMENTS, offered=True),
    )
    needy.variables.known[KEY] = SECRET

    await needy.go_on(first.workflow.id, tool=TOOL)
    await needy.go_on(second.workflow.id, tool=TOOL)

    assert len(needy.servers.ran) == 2


@promise("secrets:never-shown")
async def test_the_value_is_in_no_question_audit_entry_workflow_or_result(needy: Warehouse) -> None:
    needy.sources.offer("memory", make_dependency(env_required=(KEY, "TOKEN")))
    needy.place(make_dependency(env_required=(KEY, "TOKEN")))
    needy.variables.known[KEY] = SECRET
    paused = await needy.pause(TOOL)
    needy.variables.known["TOKEN"] = SECRET
    result = await needy.go_on(paused.workflow.id, tool=TOOL, asking=FakeAsking(needy.allowing()))

    links = await needy.office.context.store.audit.list(AuditQuery(limit=10_000))
    told = [repr(link) for link in links] + [repr(record) for record in await needy.questions()]
    told += [repr(paused.workflow), result.decode(), canonical(paused.record.tool_input).decode()]
    assert (needy.servers.ran, len(await needy.questions())) == ([RAN], 2)
    assert [text for text in told if SECRET in text] == []


@promise("config:untrusted-only-tightens")
async def test_the_env_file_of_a_workspace_counts_only_when_its_configuration_is_trusted(
    needy: Warehouse,
) -> None:
    needy.variables.in_workspace[KEY] = SECRET
    needy.configure(FileKind.WORKSPACE)
    paused = await needy.pause(TOOL, offered=True)
    assert {workspace for _, workspace in needy.variables.looked_up} == {None}

    await needy.office.trust()
    await needy.go_on(paused.workflow.id, tool=TOOL)

    assert needy.variables.looked_up[-1] == ((KEY,), needy.session.workspace)
    assert needy.servers.ran == [RAN]


async def test_who_may_say_that_it_is_set_is_whoever_may_approve_the_call(needy: Warehouse) -> None:
    without = await needy.pause(TOOL)
    with_form = await needy.pause(TOOL, OTHER_ARGUMENTS, asking=FakeAsking(has_form=True))

    assert (without.record.deciders, with_form.record.deciders) == (
        frozenset({Role.PERSON, Role.MODEL}),
        frozenset({Role.PERSON, Role.FORM}),
    )
