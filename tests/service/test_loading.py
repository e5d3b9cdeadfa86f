"""Servers that no file configures: asked for, installed once, exactly as approved, and then used."""

import asyncio

import pytest

from pml.core.approvals import Approval, Channel, Decider, DeciderKind, OwnerId, Scope, State, Subject
from pml.core.capability import CapabilityType
from pml.core.config import FileKind
from pml.core.errors import IntegrityFailed, Invalid, NotFound, ServerFailed, ToolDenied, Unavailable
from pml.core.loading import Plan
from pml.core.permissions import Containment
from pml.core.ports import AuditQuery
from pml.core.values import JsonObject
from pml.service.gate import Paused
from pml.service.loading import stop_installs
from tests.builders import FORM, PERSON
from tests.fakes import FakeAsking
from tests.fakes_loading import INTEGRITY, make_dependency, make_lock
from tests.promises import promise
from tests.service.gatehouses import ADD, interrupt
from tests.service.offices import BOUND_S, until_idle
from tests.service.warehouses import (
    ARGUMENTS,
    CODE_TOOL,
    OTHER_ARGUMENTS,
    OTHER_TOOL,
    RAN,
    TOOL,
    Warehouse,
)

CODE: JsonObject = {"command": "ls"}
MODEL = Decider(kind=DeciderKind.CLIENT, id="agent", channel=Channel.MODEL)
PLAN = Plan(
    dependency=make_dependency(), lock=make_lock(make_dependency()), containment=Containment.BUBBLEWRAP
)


# Asking first


@promise("load:asked-before-installed")
async def test_the_call_of_a_server_that_is_not_installed_asks_and_installs_nothing(
    warehouse: Warehouse,
) -> None:
    paused = await warehouse.pause(TOOL)

    assert (paused.record.subject, paused.record.tool_name) == (Subject.DEPENDENCY_INSTALL, TOOL)
    assert paused.record.artefact == PLAN.terms
    assert (warehouse.installs, warehouse.servers.started, warehouse.servers.ran) == ([], [], [])


@promise("load:asked-before-installed")
async def test_a_tool_that_the_client_lists_by_its_own_name_is_not_installed_unasked(
    warehouse: Warehouse,
) -> None:
    paused = await warehouse.pause(TOOL, offered=True)

    assert (paused.record.subject, warehouse.installs) == (Subject.DEPENDENCY_INSTALL, [])


async def test_the_question_holds_all_that_a_person_weighs(warehouse: Warehouse) -> None:
    warehouse.configure(ask=["*"])
    paused = await warehouse.pause(TOOL)

    assert paused.record.tool_input == {
        "dependency": {
            "name": "memory",
            "version": "1.2.3",
            "install": "npx @acme/memory@1.2.3",
            "integrity": INTEGRITY,
            "source": "catalog",
            "artefact": [INTEGRITY],
            "lock": PLAN.lock.digest,
            "packages": 2,
            "size": 3 << 20,
            "released_at": "2026-01-02T03:04:05Z",
            "scripts": ["zod"],
            "env_required": [],
            "env": {},
            "args": [],
            "permissions": {},
            "containment": "bubblewrap",
        },
        "call": {"tool": TOOL, "arguments": ARGUMENTS},
    }
    assert paused.record.session_id == warehouse.session.id
    assert paused.record.rule is not None
    assert (paused.record.rule.verdict, paused.record.rule.entry) == ("unlisted", '"*"')


async def test_it_is_looked_up_where_the_files_say(warehouse: Warehouse) -> None:
    warehouse.office.write(
        FileKind.USER, {"registry": "https://registry.example/", "registry_prefix": "acme.tools"}
    )
    await warehouse.pause(TOOL)

    assert warehouse.sources.looked_up == [(TOOL, "https://registry.example/", "acme.tools")]


async def test_the_registry_of_a_file_that_nobody_trusts_is_not_asked(warehouse: Warehouse) -> None:
    warehouse.office.write(FileKind.WORKSPACE, {"registry": "https://evil.example/"})
    await warehouse.pause(TOOL)

    assert warehouse.sources.looked_up == [(TOOL, None, None)]


# Approved


@promise("load:exactly-what-was-approved")
@pytest.mark.parametrize("by", [PERSON, FORM], ids=["terminal", "form"])
async def test_approving_installs_exactly_that_and_runs_the_call_once(
    warehouse: Warehouse, by: Decider
) -> None:
    async def allow(record: Approval) -> Approval:
        return (await warehouse.office.allow(record, by=by)).record

    asking = FakeAsking(allow, has_form=True)
    result = await warehouse.call(TOOL, asking=asking, offered=False)

    assert (result, warehouse.servers.ran, len(asking.asked)) == (b'{"ran":1}', [RAN], 1)
    assert warehouse.installer.installed_plans == [PLAN]
    assert await warehouse.states() == [State.COMPLETED]


@promise("load:exactly-what-was-approved")
async def test_continuing_the_workflow_installs_and_runs_the_call_once(warehouse: Warehouse) -> None:
    paused = await warehouse.pause(TOOL)

    await warehouse.go_on(paused.workflow.id, tool=TOOL)

    assert (warehouse.installer.installed_plans, warehouse.servers.ran) == ([PLAN], [RAN])
    record = await warehouse.office.stored(paused.record)
    assert (record.status, record.decided_by) == (State.COMPLETED, MODEL)


async def test_what_was_allowed_elsewhere_is_installed_when_the_call_is_simply_made_again(
    warehouse: Warehouse,
) -> None:
    paused = await warehouse.pause(TOOL, asking=FakeAsking(has_form=True))
    await warehouse.office.allow(paused.record)
    asking = FakeAsking()

    await warehouse.call(TOOL, asking=asking, offered=False)

    assert (warehouse.installs, warehouse.servers.ran, asking.asked) == (["memory@1.2.3"], [RAN], [])


@promise("approval:survives-restart")
async def test_a_continuation_after_a_restart_installs_and_runs_the_call(warehouse: Warehouse) -> None:
    paused = await warehouse.pause(TOOL)
    await warehouse.office.allow(paused.record)
    other = await warehouse.restart()

    await other.go_on(paused.workflow.id, tool=TOOL)

    assert (warehouse.installs, other.servers.ran) == (["memory@1.2.3"], [RAN])
    assert await warehouse.states() == [State.COMPLETED]


async def test_the_installed_server_is_found_by_the_next_connection(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    other = await warehouse.restart()

    await other.call(TOOL, offered=True)

    assert (warehouse.installs, other.servers.ran) == (["memory@1.2.3"], [RAN])


async def test_the_audit_log_tells_what_was_installed_for_which_call_and_who_let_it(
    warehouse: Warehouse,
) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    links = await warehouse.office.desk.store.audit.list(AuditQuery(limit=10_000))
    (entry,) = [link.entry for link in links if link.entry.kind == "dependency.installed"]
    (record,) = await warehouse.questions()

    assert (entry.approval_id, entry.session_id, entry.tool) == (record.id, warehouse.session.id, TOOL)
    assert entry.detail == {
        "name": "memory",
        "version": "1.2.3",
        "integrity": INTEGRITY,
        "lock": PLAN.lock.digest,
        "why": "approved",
    }


# What the approval is remembered for


async def test_the_tool_that_needed_the_install_is_remembered_for_the_session(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    asking = FakeAsking()

    await warehouse.call(TOOL, OTHER_ARGUMENTS, asking=asking, offered=False)

    assert (len(warehouse.servers.ran), asking.asked) == (2, [])
    assert (await warehouse.judged())[-1] == ("call.allowed", "remembered for this session")


@promise("always:only-what-was-shown")
async def test_another_tool_of_the_server_asks_for_itself(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)

    paused = await warehouse.pause(OTHER_TOOL, {})

    assert (paused.record.subject, paused.record.tool_name) == (Subject.TOOL_CALL, OTHER_TOOL)
    assert warehouse.servers.ran == [RAN]


@promise("always:only-what-was-shown")
async def test_another_session_asks_for_the_tool_itself(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    other = await warehouse.restart()

    paused = await other.pause(TOOL)

    assert (paused.record.subject, other.servers.ran) == (Subject.TOOL_CALL, [])


@promise("always:only-what-was-shown")
async def test_a_tool_that_runs_code_is_remembered_with_its_arguments_only(warehouse: Warehouse) -> None:
    await warehouse.call(CODE_TOOL, CODE, asking=FakeAsking(warehouse.allowing()), offered=False)
    asking = FakeAsking()
    await warehouse.call(CODE_TOOL, CODE, asking=asking, offered=False)
    assert (len(warehouse.servers.ran), asking.asked) == (2, [])

    paused = await warehouse.pause(CODE_TOOL, {"command": "rm -r ."})

    assert (paused.record.subject, len(warehouse.servers.ran)) == (Subject.TOOL_CALL, 2)


@promise("gate:asks-before-running")
async def test_a_tool_that_an_ask_rule_names_is_asked_about_itself_after_its_install(
    warehouse: Warehouse,
) -> None:
    warehouse.configure(ask=[TOOL])
    asking = FakeAsking(warehouse.allowing())

    with pytest.raises(Paused) as paused:
        await warehouse.call(TOOL, asking=asking)

    assert [record.subject for record in asking.asked] == [Subject.DEPENDENCY_INSTALL, Subject.TOOL_CALL]
    assert paused.value.record.subject is Subject.TOOL_CALL
    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [])


async def test_always_writes_the_tool_that_was_called_and_it_is_not_asked_for_again(
    warehouse: Warehouse,
) -> None:
    paused = await warehouse.pause(TOOL)

    await warehouse.go_on(paused.workflow.id, always=True, tool=TOOL)

    config = warehouse.office.read(FileKind.WORKSPACE)
    assert isinstance(config, dict)
    assert config["permissions"]["allow"] == [TOOL]  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType, reportOptionalSubscript]
    other = await warehouse.restart()
    await other.call(TOOL, offered=False)
    assert other.servers.ran == [RAN]


@promise("always:only-what-was-shown")
async def test_the_approval_of_one_server_covers_no_other_of_the_same_name(warehouse: Warehouse) -> None:
    warehouse.servers.start_error = ServerFailed("server `memory` did not start")
    with pytest.raises(ServerFailed):
        await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    warehouse.servers.start_error = None
    warehouse.configure(servers={"memory": {"command": "another-server"}})

    paused = await warehouse.pause(TOOL)

    assert (paused.record.subject, warehouse.servers.ran) == (Subject.TOOL_CALL, [])


async def test_a_call_whose_server_failed_to_start_is_still_covered_when_it_is_made_again(
    warehouse: Warehouse,
) -> None:
    warehouse.servers.start_error = ServerFailed("server `memory` did not start")
    with pytest.raises(ServerFailed):
        await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    warehouse.servers.start_error = None
    asking = FakeAsking()

    await warehouse.call(TOOL, asking=asking, offered=False)

    assert (warehouse.servers.ran, asking.asked, warehouse.installs) == ([RAN], [], ["memory@1.2.3"])


# Several dependencies


@promise("load:asked-before-installed")
async def test_several_missing_dependencies_are_asked_for_one_after_another(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency("storage", version="2.0.0"), make_dependency())
    asking = FakeAsking(warehouse.allowing(), warehouse.allowing())

    await warehouse.call(TOOL, asking=asking, offered=False)

    assert [record.artefact for record in asking.asked] == [
        plan.terms for plan in warehouse.installer.installed_plans
    ]
    assert warehouse.installs == ["storage@2.0.0", "memory@1.2.3"]
    assert (warehouse.servers.ran, await warehouse.states()) == ([RAN], [State.COMPLETED] * 2)


@promise("load:asked-before-installed")
async def test_the_approval_of_one_dependency_installs_no_other(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency("storage"), make_dependency())
    first = await warehouse.pause(TOOL)

    with pytest.raises(Paused) as second:
        await warehouse.go_on(first.workflow.id, tool=TOOL)
    assert (warehouse.installs, warehouse.servers.started) == (["storage@1.2.3"], [])
    await warehouse.go_on(second.value.workflow.id, tool=TOOL)

    assert warehouse.installs == ["storage@1.2.3", "memory@1.2.3"]
    assert warehouse.servers.ran == [RAN]


# At the same time


@pytest.mark.parametrize("arguments", [ARGUMENTS, OTHER_ARGUMENTS], ids=["the same call", "another call"])
async def test_two_calls_at_once_need_one_answer_and_one_install(
    warehouse: Warehouse, arguments: JsonObject
) -> None:
    asking = FakeAsking(warehouse.waiting()), FakeAsking(warehouse.waiting(), warehouse.denying())
    calls = [
        asyncio.create_task(warehouse.call(TOOL, ARGUMENTS, asking=asking[0], offered=False)),
        asyncio.create_task(warehouse.call(TOOL, arguments, asking=asking[1], offered=False)),
    ]
    for call in calls:
        await until_idle(call)

    await warehouse.office.allow(asking[0].asked[0])
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*calls)

    assert [len(each.asked) for each in asking] == [1, 1]
    assert (warehouse.installs, len(warehouse.servers.ran)) == (["memory@1.2.3"], 2)


async def test_a_call_of_another_tool_that_waits_for_the_same_install_goes_on_to_its_own_question(
    warehouse: Warehouse,
) -> None:
    asking = FakeAsking(warehouse.waiting()), FakeAsking(warehouse.waiting())
    first = asyncio.create_task(warehouse.call(TOOL, asking=asking[0], offered=False))
    second = asyncio.create_task(warehouse.call(OTHER_TOOL, {}, asking=asking[1], offered=False))
    await until_idle(first)
    await until_idle(second)

    await warehouse.office.allow(asking[0].asked[0])
    async with asyncio.timeout(BOUND_S):
        await first
        with pytest.raises(Paused) as paused:
            await second

    assert (paused.value.record.subject, paused.value.record.tool_name) == (Subject.TOOL_CALL, OTHER_TOOL)
    settled = await warehouse.office.stored(asking[1].asked[0])
    assert (settled.status, settled.reason) == (State.CANCELLED, "it was installed meanwhile")
    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [RAN])


async def test_a_rule_lets_two_calls_at_once_install_it_once(warehouse: Warehouse) -> None:
    warehouse.configure(allow=["memory:*"])

    await asyncio.gather(warehouse.call(TOOL), warehouse.call(OTHER_TOOL, {}))

    assert (warehouse.installs, len(warehouse.servers.ran)) == (["memory@1.2.3"], 2)


# Given up


async def test_an_install_goes_on_when_its_caller_gives_up_and_the_next_call_finds_it(
    warehouse: Warehouse,
) -> None:
    warehouse.installer.may_finish.clear()
    asking = FakeAsking(warehouse.allowing())
    calling = asyncio.create_task(warehouse.call(TOOL, asking=asking, offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
    await interrupt(calling)
    assert (warehouse.installs, len(warehouse.loader.installing)) == ([], 1)

    warehouse.installer.may_finish.set()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*warehouse.loader.installing)
    assert (warehouse.installs, await warehouse.states()) == (["memory@1.2.3"], [State.COMPLETED])
    again = FakeAsking()
    await warehouse.call(TOOL, asking=again, offered=False)

    assert (warehouse.installs, warehouse.servers.ran, again.asked) == (["memory@1.2.3"], [RAN], [])


async def test_stopping_ends_what_is_being_installed_and_says_that_it_was_interrupted(
    warehouse: Warehouse,
) -> None:
    warehouse.installer.may_finish.clear()
    asking = FakeAsking(warehouse.allowing())
    calling = asyncio.create_task(warehouse.call(TOOL, asking=asking, offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
        await interrupt(calling)
        await stop_installs(warehouse.loader)

    assert (warehouse.installer.interrupted, warehouse.installs) == (1, [])
    assert warehouse.loader.installing == set()
    record = await warehouse.office.stored(asking.asked[0])
    assert (record.status, record.reason) == (State.FAILED, "interrupted")


async def test_an_install_whose_process_died_is_asked_for_anew(warehouse: Warehouse) -> None:
    warehouse.installer.may_finish.clear()
    other = await warehouse.restart(warehouse.session.id)
    dying = asyncio.create_task(other.call(TOOL, asking=FakeAsking(other.allowing()), offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
    (record,) = await warehouse.questions()
    assert record.status is State.EXECUTING
    warehouse.office.owners.others.discard(OwnerId(f"owner of {warehouse.session.id}"))

    paused = await warehouse.pause(TOOL)

    assert (paused.record.subject, paused.record.id == record.id) == (Subject.DEPENDENCY_INSTALL, False)
    assert warehouse.installs == []
    await interrupt(dying)
    await stop_installs(other.loader)


# Failed


@promise("load:nothing-unproven")
async def test_an_install_whose_bytes_are_others_fails_and_the_next_call_asks_anew(
    warehouse: Warehouse,
) -> None:
    warehouse.installer.error = IntegrityFailed("memory@1.2.3", expected="sha512-A", got="sha512-B")
    asking = FakeAsking(warehouse.allowing())

    with pytest.raises(IntegrityFailed) as failed:
        await warehouse.call(TOOL, asking=asking, offered=False)

    assert failed.value.message == "Integrity check failed for memory@1.2.3: Expected sha512-A, got sha512-B"
    record = await warehouse.office.stored(asking.asked[0])
    assert (record.status, record.reason) == (State.FAILED, failed.value.message)
    again = await warehouse.pause(TOOL)
    assert (again.record.subject, again.record.id == record.id) == (Subject.DEPENDENCY_INSTALL, False)
    assert (warehouse.servers.started, await warehouse.office.kinds()) == (
        [],
        [kind for kind in await warehouse.office.kinds() if kind != "dependency.installed"],
    )


async def test_an_install_that_cannot_be_done_is_told_as_the_servers_failure(warehouse: Warehouse) -> None:
    warehouse.installer.error = Unavailable("no space left on device", hint="make room")
    asking = FakeAsking(warehouse.allowing())

    with pytest.raises(ServerFailed, match="no space left on device") as failed:
        await warehouse.call(TOOL, asking=asking, offered=False)

    record = await warehouse.office.stored(asking.asked[0])
    assert (record.status, record.reason, failed.value.hint) == (
        State.FAILED,
        "no space left on device",
        "make room",
    )


async def test_a_failed_install_that_a_rule_covers_is_told_and_tried_again_by_the_next_call(
    warehouse: Warehouse,
) -> None:
    warehouse.configure(allow=[TOOL])
    warehouse.installer.error = Unavailable("no network")
    with pytest.raises(ServerFailed, match="no network"):
        await warehouse.call(TOOL)
    warehouse.installer.error = None

    await warehouse.call(TOOL)

    assert (warehouse.servers.ran, await warehouse.states()) == ([RAN], [])


async def test_a_registry_that_cannot_be_asked_is_told_as_the_servers_failure(warehouse: Warehouse) -> None:
    warehouse.sources.error = Unavailable("the registry does not answer", hint="is it there?")

    with pytest.raises(ServerFailed, match="the registry does not answer") as failed:
        await warehouse.call(TOOL)

    assert (failed.value.hint, await warehouse.states()) == ("is it there?", [])


@pytest.mark.parametrize("where", ["registry", "lock"])
async def test_what_a_registry_says_wrongly_is_no_fault_of_the_calls_arguments(
    warehouse: Warehouse, where: str
) -> None:
    error = Invalid("`integrity` of acme.tools.memory is no hash")
    if where == "registry":
        warehouse.sources.error = error
    else:
        warehouse.installer.resolve_error = error

    with pytest.raises(ServerFailed, match="is no hash"):
        await warehouse.call(TOOL)

    assert (warehouse.installs, await warehouse.states()) == ([], [])


async def test_a_lock_that_is_not_what_the_metadata_says_asks_nobody(warehouse: Warehouse) -> None:
    warehouse.installer.resolve_error = IntegrityFailed("memory@1.2.3", expected="a", got="b")
    asking = FakeAsking(warehouse.allowing())

    with pytest.raises(IntegrityFailed):
        await warehouse.call(TOOL, asking=asking)

    assert (asking.asked, warehouse.installs) == ([], [])


async def test_a_capability_with_code_is_refused_with_that_reason(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency(), kind=CapabilityType.DENO)

    with pytest.raises(ServerFailed, match="is a capability with code"):
        await warehouse.call(TOOL)

    assert (warehouse.installer.resolved, await warehouse.states()) == ([], [])


async def test_a_tool_of_a_server_that_nobody_knows_is_not_found(warehouse: Warehouse) -> None:
    with pytest.raises(NotFound, match="no tool `elsewhere:add`"):
        await warehouse.call("elsewhere:add")

    assert await warehouse.states() == []


async def test_metadata_that_offers_no_such_server_is_no_find(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency("storage"))

    with pytest.raises(NotFound, match="no tool `memory:add`"):
        await warehouse.call(TOOL)

    assert (warehouse.installer.resolved, await warehouse.states()) == ([], [])


async def test_a_tool_that_the_installed_server_does_not_have_is_not_found(warehouse: Warehouse) -> None:
    warehouse.place(make_dependency())

    with pytest.raises(NotFound) as refused:
        await warehouse.call("memory:ad")

    assert refused.value.hint is not None
    assert "`memory:add`" in refused.value.hint


async def test_a_server_that_two_files_define_is_not_looked_for_in_the_catalog(warehouse: Warehouse) -> None:
    warehouse.configure(servers={"memory": {"command": "one"}})
    warehouse.configure(FileKind.WORKSPACE, servers={"memory": {"command": "other"}})
    await warehouse.office.trust()

    with pytest.raises(NotFound, match="server `memory` is defined twice"):
        await warehouse.call(TOOL)

    assert (warehouse.sources.looked_up, await warehouse.states()) == ([], [])


async def test_while_a_file_is_broken_nothing_is_installed(warehouse: Warehouse) -> None:
    warehouse.office.path(FileKind.USER).write_text("{")

    with pytest.raises(Invalid):
        await warehouse.call(TOOL)

    assert (warehouse.sources.looked_up, await warehouse.states()) == ([], [])


async def test_a_configured_server_is_not_the_catalogs(warehouse: Warehouse) -> None:
    warehouse.configure(servers={"memory": {"command": "memory-server"}})

    await warehouse.call(TOOL)

    assert (warehouse.sources.looked_up, warehouse.servers.ran) == ([], [RAN])


# Deny


@promise("load:deny-beats-consent")
async def test_a_denied_call_finds_resolves_asks_installs_and_starts_nothing(warehouse: Warehouse) -> None:
    warehouse.configure(deny=["memory:*"])
    asking = FakeAsking(warehouse.allowing())

    with pytest.raises(ToolDenied):
        await warehouse.call(TOOL, asking=asking)

    assert (warehouse.sources.looked_up, warehouse.installer.resolved, asking.asked) == ([], [], [])
    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:deny-beats-consent")
async def test_a_deny_wins_for_a_server_that_is_installed(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    warehouse.configure(deny=[TOOL])

    for house in (warehouse, await warehouse.restart()):
        with pytest.raises(ToolDenied):
            await house.call(TOOL)

    assert (warehouse.servers.ran, warehouse.servers.started) == ([RAN], ["memory"])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_between_the_answer_and_the_install_stops_it(warehouse: Warehouse) -> None:
    async def allow_and_forbid(record: Approval) -> Approval:
        allowed = (await warehouse.office.allow(record)).record
        warehouse.configure(deny=[TOOL])
        return allowed

    with pytest.raises(ToolDenied):
        await warehouse.call(TOOL, asking=FakeAsking(allow_and_forbid), offered=False)

    assert (warehouse.installs, await warehouse.states()) == ([], [State.CANCELLED])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_while_a_call_is_paused_stops_its_continuation(warehouse: Warehouse) -> None:
    paused = await warehouse.pause(TOOL)
    await warehouse.office.allow(paused.record)
    warehouse.configure(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await warehouse.go_on(paused.workflow.id, tool=TOOL)

    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_while_it_is_resolved_stops_an_install_that_a_rule_covers(
    warehouse: Warehouse,
) -> None:
    warehouse.configure(allow=[TOOL])
    warehouse.installer.after_resolve = lambda: warehouse.configure(allow=[TOOL], deny=[TOOL])

    with pytest.raises(ToolDenied):
        await warehouse.call(TOOL)

    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:deny-beats-consent")
async def test_a_deny_that_comes_during_the_install_stops_the_start(warehouse: Warehouse) -> None:
    warehouse.installer.may_finish.clear()
    asking = FakeAsking(warehouse.allowing())
    calling = asyncio.create_task(warehouse.call(TOOL, asking=asking, offered=False))
    async with asyncio.timeout(BOUND_S):
        await warehouse.installer.begun.wait()
        warehouse.configure(deny=[TOOL])
        warehouse.installer.may_finish.set()
        with pytest.raises(ToolDenied):
            await calling

    assert (warehouse.servers.started, warehouse.servers.ran) == ([], [])


# Progress


@pytest.mark.parametrize("rules", [{}, {"allow": [TOOL]}], ids=["approved", "allowed by a rule"])
async def test_the_steps_of_an_install_reach_whoever_listens(
    warehouse: Warehouse, rules: dict[str, list[str]]
) -> None:
    warehouse.configure(**{effect: [*entries] for effect, entries in rules.items()})
    heard: list[JsonObject] = []

    await warehouse.call(
        TOOL, asking=FakeAsking(warehouse.allowing()), offered=False, on_progress=heard.append
    )

    assert heard == [
        {"progress": 0, "total": 2, "message": "downloading"},
        {"progress": 1, "total": 2, "message": "verifying"},
        {"progress": 2, "message": "done"},
    ]


async def test_a_second_call_looks_nothing_up_while_the_server_runs(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing(scope=Scope.ONCE)), offered=False)
    before = len(warehouse.sources.looked_up)

    await warehouse.call(TOOL)

    assert (len(warehouse.sources.looked_up), warehouse.servers.started) == (before, ["memory"])


async def test_a_changed_tool_of_an_installed_server_is_asked_about_like_any_other(
    warehouse: Warehouse,
) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)
    warehouse.servers.offer("memory", {**ADD, "description": "Adds a note and sends it away."})

    paused = await warehouse.pause(TOOL, offered=True)

    assert (paused.record.subject, warehouse.servers.ran) == (Subject.TOOL_CHANGED, [RAN])
