"""Loading that fails: what was not found, not resolved or not installed is told, and nothing starts."""

import pytest

from pml.core.approvals.record import State, Subject
from pml.core.config.file import FileKind
from pml.core.errors import IntegrityFailed, Invalid, NotFound, PmlError, ServerFailed, Unavailable
from pml.core.packages.capability import CapabilityType
from pml.service.call import Paused
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.warehouses import OTHER_TOOL, RAN, TOOL, Warehouse


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


async def test_nothing_is_installed_for_a_tool_that_the_catalog_says_the_server_does_not_have(
    warehouse: Warehouse,
) -> None:
    warehouse.sources.offer("memory", make_dependency(), tools=["add", "list"])

    with pytest.raises(NotFound, match="no tool `memory:addd`") as refused:
        await warehouse.call("memory:addd", offered=False)

    assert refused.value.hint == "did you mean `memory:add`, `memory:list`?"
    assert (await warehouse.questions(), warehouse.installer.resolved) == ([], [])


async def test_a_registry_that_only_an_untrusted_file_names_is_asked_only_once_the_file_is_trusted(
    warehouse: Warehouse,
) -> None:
    warehouse.office.write(FileKind.WORKSPACE, {"registry": "https://registry.example"})

    with pytest.raises(Paused) as paused:
        await warehouse.call("elsewhere:add", offered=False)

    assert paused.value.record.subject is Subject.WORKSPACE_TRUST
    assert warehouse.sources.looked_up == []


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


async def test_a_question_that_was_settled_by_an_install_that_failed_is_asked_anew(
    warehouse: Warehouse,
) -> None:
    first, second = await warehouse.pause(TOOL), await warehouse.pause(OTHER_TOOL, {})
    await warehouse.office.allow(first.record)
    warehouse.installer.error = Unavailable("no network")
    with pytest.raises(PmlError):
        await warehouse.go_on(first.workflow.id, tool=TOOL)
    warehouse.installer.error = None

    with pytest.raises(Paused) as again:
        await warehouse.go_on(second.workflow.id, tool=OTHER_TOOL)

    assert again.value.record.id != second.record.id
    assert (again.value.record.subject, warehouse.servers.ran) == (Subject.DEPENDENCY_INSTALL, [])
