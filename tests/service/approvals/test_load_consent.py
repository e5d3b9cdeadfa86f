"""Consent to an install: to exactly one lock and one set of terms, by whom it takes, and what covers it."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from pml.core.approvals.record import Approval, Role, Scope, SessionId, State, Subject
from pml.core.approvals.subjects import asked_facts
from pml.core.cards.blocks import facts_of
from pml.core.config.file import FileKind
from pml.core.errors import (
    IntegrityFailed,
    MayNotDecide,
    NotApproved,
    ServerFailed,
    ToolDenied,
    WorkflowAborted,
    WorkflowGone,
)
from pml.core.packages.capability import McpDependency
from pml.core.packages.permissions import NO_REACH, Access, Containment, Permissions
from pml.core.ports.loader import Plan
from pml.core.values import Json, JsonObject
from pml.service.approvals.lifecycle import cancel
from pml.service.call import Paused
from tests.builders import FORM, NOW
from tests.fakes import FakeAsking
from tests.fakes_loading import OTHER_INTEGRITY, make_dependency, make_lock
from tests.promises import promise
from tests.service.gatehouses import SERVER
from tests.service.offices import Office, parent
from tests.service.warehouses import MODEL, RAN, TOOL, Warehouse, moved

MEMORY = make_dependency()
LOCK = make_lock(MEMORY)
UNVERIFIED = make_dependency(integrity=None)
OTHERS = {
    "variables": make_dependency(env_required=("API_KEY",)),
    "values": make_dependency(env={"MODE": "all"}),
    "arguments": make_dependency(args=("--all",)),
    "permissions": make_dependency(permissions=Permissions(net=True)),
    "integrity": make_dependency(integrity=OTHER_INTEGRITY),
    "version": make_dependency(version="1.2.4"),
    "lock": make_dependency(lock=moved(LOCK)),
    "lock's digest": make_dependency(lock=moved(LOCK).digest),
}
others = pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)


def facts(record: Approval) -> JsonObject:
    dependency = record.tool_input["dependency"]
    assert isinstance(dependency, dict)
    return dependency


def allow_unverified(warehouse: Warehouse, which: FileKind = FileKind.USER) -> None:
    warehouse.configure(which, install={"allow_unverified": True})


# Covered, or not


@promise("consent:allower-is-a-decider")
@pytest.mark.parametrize(
    ("named", "arguments"),
    [
        ([], {"text": "hello", "path": ".pml.json"}),
        ([{"tool": TOOL, "args": {"text": {"is": "hello"}}}], {"text": "hello"}),
    ],
    ids=["reserved", "named by a rule"],
)
async def test_an_install_whose_question_said_that_the_call_is_asked_about_covers_no_call_of_the_tool(
    warehouse: Warehouse, named: list[Json], arguments: JsonObject
) -> None:
    async def install(record: Approval) -> Approval:
        is_install = record.subject is Subject.DEPENDENCY_INSTALL
        return (await warehouse.office.allow(record)).record if is_install else record

    warehouse.configure(ask=named)
    with pytest.raises(Paused):  # the install was allowed; the call is another question
        await warehouse.call(TOOL, arguments, asking=FakeAsking(install), offered=False)
    assert warehouse.installs == ["memory@1.2.3"]

    paused = await warehouse.pause(TOOL, {"text": "nobody was shown this"})

    assert (paused.record.subject, warehouse.servers.ran) == (Subject.TOOL_CALL, [])


# Refused


@promise("consent:allower-is-a-decider")
async def test_an_install_does_not_cover_its_call_if_who_allowed_it_may_not_decide_calls_by_then(
    warehouse: Warehouse,
) -> None:
    async def confirm(record: Approval) -> Approval:
        allowed = (await warehouse.office.allow(record, by=MODEL)).record
        warehouse.configure(approval={"model_may_approve": "never"})
        return allowed

    with pytest.raises(Paused) as paused:
        await warehouse.call(TOOL, asking=FakeAsking(confirm), offered=False)

    assert (paused.value.record.subject, paused.value.record.deciders) == (Subject.TOOL_CALL, {Role.PERSON})
    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [])


@promise("load:asked-before-installed")
@pytest.mark.parametrize(("said", "told"), [(None, ""), ("use files instead", ": use files instead")])
async def test_a_denied_install_is_told_with_what_the_person_said_and_nothing_is_installed(
    warehouse: Warehouse, said: str | None, told: str
) -> None:
    with pytest.raises(NotApproved) as refused:
        await warehouse.call(TOOL, asking=FakeAsking(warehouse.denying(said)))

    assert (refused.value.outcome, refused.value.message) == (
        "dependency_refused",
        f"Dependency memory required but not approved{told}",
    )
    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:asked-before-installed")
async def test_an_install_that_was_denied_elsewhere_is_told_to_the_next_such_call(
    warehouse: Warehouse,
) -> None:
    paused = await warehouse.pause(TOOL)
    await warehouse.office.deny(paused.record)

    with pytest.raises(NotApproved) as refused:
        await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)

    assert (refused.value.outcome, warehouse.installs) == ("dependency_refused", [])


@promise("load:asked-before-installed")
async def test_a_continuation_of_what_was_denied_elsewhere_says_so(warehouse: Warehouse) -> None:
    paused = await warehouse.pause(TOOL)
    await warehouse.office.deny(paused.record)

    with pytest.raises(NotApproved) as refused:
        await warehouse.go_on(paused.workflow.id, tool=TOOL)

    assert (refused.value.outcome, refused.value.message) == (
        "dependency_refused",
        "Dependency memory required but not approved",
    )
    assert warehouse.installs == []


@promise("expiry:not-denial")
async def test_an_install_that_nobody_decided_in_time_is_no_denial(warehouse: Warehouse) -> None:
    async def expire(record: Approval) -> Approval:
        warehouse.office.clock.advance(301)
        return await warehouse.waiting()(record)

    with pytest.raises(NotApproved, match="Approval timed out") as refused:
        await warehouse.call(TOOL, asking=FakeAsking(expire))

    assert (refused.value.outcome, warehouse.installs) == (State.EXPIRED, [])


@promise("expiry:not-denial")
async def test_an_install_that_was_withdrawn_is_no_denial(warehouse: Warehouse) -> None:
    async def withdraw(record: Approval) -> Approval:
        return await cancel(warehouse.office.context, record.id, reason="the agent is gone")

    with pytest.raises(NotApproved, match="Approval cancelled: the agent is gone") as refused:
        await warehouse.call(TOOL, asking=FakeAsking(withdraw))

    assert (refused.value.outcome, warehouse.installs) == (State.CANCELLED, [])


async def test_a_workflow_that_is_given_up_installs_nothing(warehouse: Warehouse) -> None:
    paused = await warehouse.pause(TOOL)

    with pytest.raises(WorkflowAborted):
        await warehouse.go_on(paused.workflow.id, approved=False, tool=TOOL)
    with pytest.raises(WorkflowGone):
        await warehouse.go_on(paused.workflow.id, tool=TOOL)

    assert (warehouse.installs, warehouse.servers.started) == ([], [])


# Rules


@promise("load:rules-cover-only-the-proven")
async def test_a_rule_that_allows_the_tool_installs_and_runs_it_at_once(warehouse: Warehouse) -> None:
    warehouse.configure(allow=["memory:*"])
    asking = FakeAsking()

    await warehouse.call(TOOL, asking=asking, offered=False)

    assert (warehouse.installer.installed_plans, warehouse.servers.ran, asking.asked) == (
        [Plan(dependency=MEMORY, lock=LOCK, containment=Containment.BUBBLEWRAP)],
        [RAN],
        [],
    )
    assert "dependency.installed" in await warehouse.office.kinds()


REACHES = {
    "network": Permissions(net=True, workspace=Access.NONE),
    "folder": Permissions(read=("~/.ssh",), workspace=Access.NONE),
    "workspace": Permissions(workspace=Access.READ),
    "program": Permissions(run=("git",), workspace=Access.NONE),
}


@promise("load:rules-cover-only-the-confined")
@pytest.mark.parametrize("by", ["rule", "asking is off"])
@pytest.mark.parametrize(
    ("permissions", "containment"),
    [
        *((permissions, Containment.BUBBLEWRAP) for permissions in REACHES.values()),
        (NO_REACH, Containment.LANDLOCK),
        (NO_REACH, Containment.NONE),
    ],
    ids=[*REACHES, "Landlock", "not contained"],
)
async def test_what_a_registry_lets_reach_anything_is_a_persons_to_install(
    warehouse: Warehouse, permissions: Permissions, containment: Containment, by: str
) -> None:
    warehouse.sources.offer("memory", make_dependency(permissions=permissions), source="/registry")
    warehouse.configure(allow=["memory:*"] if by == "rule" else [], approval={"enabled": by == "rule"})
    other = await warehouse.restart(containment=containment)

    paused = await other.pause(TOOL)

    assert paused.record.subject is Subject.DEPENDENCY_INSTALL
    assert paused.record.deciders == {Role.PERSON}
    with pytest.raises(Paused):  # the model's word counts for nothing
        await other.go_on(paused.workflow.id, tool=TOOL)
    assert (other.installs, other.servers.started) == ([], [])
    await other.office.allow(paused.record)
    await other.go_on(paused.workflow.id, tool=TOOL)
    assert (other.installs, other.servers.ran) == (["memory@1.2.3"], [RAN])


@promise("load:rules-cover-only-the-confined")
async def test_a_rule_covers_what_the_catalog_has_whatever_it_reaches(warehouse: Warehouse) -> None:
    dependency = make_dependency(permissions=Permissions(net=True))
    warehouse.sources.offer("memory", replace(dependency, lock=make_lock(dependency)))
    warehouse.configure(allow=["memory:*"])
    other = await warehouse.restart(containment=Containment.NONE)

    await other.call(TOOL)

    assert (other.installs, other.servers.ran) == (["memory@1.2.3"], [RAN])


@promise("load:rules-cover-only-the-confined")
@pytest.mark.parametrize("reaches", [False, True])
async def test_a_parent_has_installed_only_what_reaches_nothing(office: Office, reaches: bool) -> None:
    top = await office.session(SessionId("session-0"))
    child = Warehouse(office, await office.session(SessionId("child"), parent_id=top.id))
    permissions = Permissions(net=True, workspace=Access.NONE) if reaches else NO_REACH
    child.sources.offer("memory", make_dependency(permissions=permissions), source="/registry")
    paused = await child.pause(TOOL)

    if reaches:
        with pytest.raises(MayNotDecide):
            await office.allow(paused.record, by=parent("session-0"))
    else:
        await office.allow(paused.record, by=parent("session-0"))

    assert (Role.PARENT in paused.record.deciders) is not reaches


@promise("load:rules-cover-only-the-confined")
async def test_a_form_of_the_client_decides_what_reaches_something(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency(permissions=Permissions(net=True)), source="/registry")

    paused = await warehouse.pause(TOOL, asking=FakeAsking(has_form=True))

    assert paused.record.deciders == {Role.PERSON, Role.FORM}


YOUNG = NOW - timedelta(days=6)
OLD = NOW - timedelta(days=7)


@promise("install:young-is-a-persons")
@pytest.mark.parametrize(
    ("youngest", "told"),
    [
        (YOUNG, f"TOO YOUNG: a package was published on {YOUNG:%Y-%m-%d}; `install.min_age_days` is 7"),
        (
            None,
            "AGE NOT KNOWN: the package registry does not say when each package was published; "
            "`install.min_age_days` is 7",
        ),
    ],
    ids=["young", "not known"],
)
async def test_what_is_too_young_is_a_persons_and_the_question_says_why(
    warehouse: Warehouse, youngest: datetime | None, told: str
) -> None:
    warehouse.configure(allow=["memory:*"], install={"min_age_days": 7})
    warehouse.installer.youngest = youngest

    paused = await warehouse.pause(TOOL)

    assert (paused.record.subject, paused.record.deciders) == (Subject.DEPENDENCY_INSTALL, {Role.PERSON})
    assert dict(asked_facts(paused.record))["youngest"] == told
    assert [row.name for row in facts_of(paused.record).rows if row.alarming] == ["youngest"]
    with pytest.raises(Paused):
        await warehouse.go_on(paused.workflow.id, tool=TOOL)
    assert warehouse.installs == []
    await warehouse.office.allow(paused.record)
    await warehouse.go_on(paused.workflow.id, tool=TOOL)
    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [RAN])


@promise("install:young-is-a-persons")
@pytest.mark.parametrize("days", [None, 0, 7], ids=["not set", "none", "old enough"])
async def test_what_is_old_enough_is_installed_by_a_rule(warehouse: Warehouse, days: int | None) -> None:
    warehouse.configure(allow=["memory:*"], install={} if days is None else {"min_age_days": days})
    warehouse.installer.youngest = OLD if days else NOW

    await warehouse.call(TOOL)

    assert (warehouse.installs, len(warehouse.installer.aged)) == (["memory@1.2.3"], 1 if days else 0)


@promise("install:young-is-a-persons")
async def test_a_workspace_sets_no_age(warehouse: Warehouse) -> None:
    warehouse.configure(FileKind.WORKSPACE, allow=["memory:*"], install={"min_age_days": 0})
    warehouse.configure(allow=["memory:*"], install={"min_age_days": 7})
    await warehouse.office.trust()

    assert (await warehouse.pause(TOOL)).record.deciders == {Role.PERSON}


UNSAID = replace(make_dependency(), says_workspace=False)
WRITES = make_dependency(permissions=Permissions())


async def test_what_was_installed_while_silence_meant_the_workspace_stays_as_it_was_consented_to(
    warehouse: Warehouse,
) -> None:
    warehouse.place(WRITES)
    warehouse.sources.offer("memory", UNSAID, source="/registry")

    await warehouse.call(TOOL)

    assert (warehouse.servers.ran, warehouse.installs, await warehouse.states()) == ([RAN], [], [])
    installed = warehouse.installer.installed("memory")
    assert installed is not None
    assert installed.dependency.permissions.workspace is Access.WRITE


async def test_what_says_now_that_it_sees_nothing_of_the_workspace_is_asked_about_again(
    warehouse: Warehouse,
) -> None:
    warehouse.place(WRITES)
    warehouse.sources.offer("memory", make_dependency(), source="/registry")

    paused = await warehouse.pause(TOOL)

    assert paused.record.subject is Subject.DEPENDENCY_INSTALL


@promise("load:rules-cover-only-the-proven")
async def test_a_rule_that_allows_another_call_of_the_tool_covers_no_install(warehouse: Warehouse) -> None:
    warehouse.configure(allow=[{"tool": TOOL, "args": {"text": "something else"}}])

    paused = await warehouse.pause(TOOL)

    assert (paused.record.subject, warehouse.installs) == (Subject.DEPENDENCY_INSTALL, [])


@promise("load:rules-cover-only-the-proven")
@pytest.mark.parametrize("is_off", [False, True], ids=["allowed by a rule", "asking is off"])
async def test_nothing_but_a_person_covers_an_unverified_install(warehouse: Warehouse, is_off: bool) -> None:
    warehouse.sources.offer("memory", UNVERIFIED)
    warehouse.configure(
        allow=[] if is_off else [TOOL],
        approval={"enabled": not is_off},
        install={"allow_unverified": True},
    )

    paused = await warehouse.pause(TOOL)

    assert (paused.record.subject, paused.record.deciders) == (
        Subject.DEPENDENCY_INSTALL,
        frozenset({Role.PERSON}),
    )
    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:rules-cover-only-the-proven")
@pytest.mark.parametrize("is_removed", [False, True], ids=["installed", "removed since"])
async def test_no_rule_covers_another_lock_than_the_one_first_accepted(
    warehouse: Warehouse, is_removed: bool
) -> None:
    warehouse.configure(allow=["memory:*"])
    await warehouse.call(TOOL)
    warehouse.sources.offer("memory", make_dependency(version="1.2.4"))
    if is_removed:
        warehouse.installer.remove("memory")
    other = await warehouse.restart()

    paused = await other.pause(TOOL)

    assert paused.record.subject is Subject.DEPENDENCY_INSTALL
    assert facts(paused.record)["accepted_lock"] == LOCK.digest
    assert f"another lock was accepted before: {LOCK.digest}" in dict(asked_facts(paused.record))["moved"]
    assert (warehouse.installs, other.servers.started) == (["memory@1.2.3"], [])


@promise("load:rules-cover-only-the-proven")
async def test_a_rule_installs_again_the_lock_that_was_first_accepted(warehouse: Warehouse) -> None:
    warehouse.configure(allow=["memory:*"])
    await warehouse.call(TOOL)
    warehouse.installer.remove("memory")
    other = await warehouse.restart()

    await other.call(TOOL)

    assert (warehouse.installs, other.servers.ran) == (["memory@1.2.3"] * 2, [RAN])


async def test_the_lock_first_accepted_is_told_only_when_it_is_another(warehouse: Warehouse) -> None:
    warehouse.place(MEMORY)
    warehouse.installer.remove("memory")

    paused = await warehouse.pause(TOOL)

    assert "accepted_lock" not in facts(paused.record)


@promise("load:weaker-containment-asks")
@pytest.mark.parametrize("allowed", [[], ["memory:*"]], ids=["unlisted", "allowed by a rule"])
async def test_a_server_that_would_be_held_less_than_it_was_is_asked_about_again(
    warehouse: Warehouse, allowed: list[Json]
) -> None:
    warehouse.configure(allow=allowed)
    warehouse.place(MEMORY, containment=Containment.BUBBLEWRAP)
    other = await warehouse.restart(containment=Containment.NONE)

    paused = await other.pause(TOOL)

    assert (paused.record.subject, other.servers.started) == (Subject.DEPENDENCY_INSTALL, [])
    assert (facts(paused.record)["containment"], facts(paused.record)["contained_before"]) == (
        "none",
        "bubblewrap",
    )
    assert dict(asked_facts(paused.record))["runs"].startswith("NOT CONTAINED")
    assert dict(asked_facts(paused.record))["weaker"] == "so far it ran contained by bubblewrap"


@promise("load:weaker-containment-asks")
async def test_who_lets_it_be_held_less_is_not_asked_about_that_again(warehouse: Warehouse) -> None:
    warehouse.place(MEMORY, containment=Containment.BUBBLEWRAP)
    other = await warehouse.restart(containment=Containment.LANDLOCK)

    await other.call(TOOL, asking=FakeAsking(other.allowing()), offered=False)
    other.servers.stop("memory")
    again = FakeAsking()
    await other.call(TOOL, asking=again, offered=False)

    assert (len(other.servers.ran), again.asked) == (2, [])
    assert [plan.containment for plan in other.installer.installed_plans] == [Containment.LANDLOCK]


async def test_a_server_that_is_held_better_than_it_was_is_not_asked_about(warehouse: Warehouse) -> None:
    warehouse.place(MEMORY, containment=Containment.NONE)

    await warehouse.call(TOOL)

    assert (warehouse.servers.ran, await warehouse.states(), warehouse.installs) == ([RAN], [], [])


# Trust


@promise("config:untrusted-only-tightens")
async def test_an_allow_of_a_file_that_nobody_trusts_asks_for_trust_first(warehouse: Warehouse) -> None:
    warehouse.configure(FileKind.WORKSPACE, allow=["memory:*"])
    asking = FakeAsking(warehouse.allowing())

    await warehouse.call(TOOL, asking=asking, offered=False)

    assert [record.subject for record in asking.asked] == [Subject.WORKSPACE_TRUST]
    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [RAN])


@promise("config:untrusted-only-tightens")
async def test_an_allow_of_a_file_that_nobody_wants_to_trust_covers_no_install(warehouse: Warehouse) -> None:
    warehouse.configure(FileKind.WORKSPACE, allow=["memory:*"])
    asking = FakeAsking(warehouse.denying())

    with pytest.raises(Paused) as paused:
        await warehouse.call(TOOL, asking=asking, offered=False)

    assert [record.subject for record in asking.asked] == [
        Subject.WORKSPACE_TRUST,
        Subject.DEPENDENCY_INSTALL,
    ]
    assert (paused.value.record.subject, warehouse.installs) == (Subject.DEPENDENCY_INSTALL, [])


# Unverified


@promise("load:nothing-unproven")
async def test_what_has_no_integrity_is_refused_before_it_is_resolved(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", UNVERIFIED)
    asking = FakeAsking(warehouse.allowing())

    with pytest.raises(IntegrityFailed, match=r"Integrity check failed for memory@1\.2\.3") as refused:
        await warehouse.call(TOOL, asking=asking)

    assert refused.value.hint is not None
    assert "`install.allow_unverified`" in refused.value.hint
    assert (asking.asked, warehouse.installer.resolved, warehouse.installs) == ([], [], [])


@promise("load:nothing-unproven")
@pytest.mark.parametrize("is_trusted", [False, True])
async def test_a_workspace_cannot_let_unverified_servers_be_installed(
    warehouse: Warehouse, is_trusted: bool
) -> None:
    warehouse.sources.offer("memory", UNVERIFIED)
    allow_unverified(warehouse, FileKind.WORKSPACE)
    if is_trusted:
        await warehouse.office.trust()

    with pytest.raises(IntegrityFailed):
        await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()))

    assert warehouse.installs == []


@promise("load:nothing-unproven")
async def test_an_unverified_install_is_asked_with_that_word_and_only_a_person_may_allow_it(
    warehouse: Warehouse,
) -> None:
    warehouse.sources.offer("memory", UNVERIFIED)
    allow_unverified(warehouse)
    paused = await warehouse.pause(TOOL, asking=FakeAsking(has_form=True))

    assert dict(asked_facts(paused.record))["hash"] == "UNVERIFIED: no integrity is given"
    with pytest.raises(MayNotDecide):
        await warehouse.office.allow(paused.record, by=FORM)
    with pytest.raises(Paused):
        await warehouse.go_on(paused.workflow.id, tool=TOOL)
    assert warehouse.installs == []
    await warehouse.office.allow(paused.record)
    await warehouse.go_on(paused.workflow.id, tool=TOOL)

    assert (warehouse.installs, warehouse.servers.ran) == (["memory@1.2.3"], [RAN])
    accepted = warehouse.installer.accepted("memory")
    assert accepted is not None
    assert accepted.lock == LOCK.digest


@promise("load:nothing-unproven")
@pytest.mark.parametrize("is_verified", [True, False])
async def test_a_parent_decides_only_what_is_verified(office: Office, is_verified: bool) -> None:
    top = await office.session(SessionId("session-0"))
    child = Warehouse(office, await office.session(SessionId("child"), parent_id=top.id))
    child.sources.offer("memory", MEMORY if is_verified else UNVERIFIED)
    allow_unverified(child)
    paused = await child.pause(TOOL)

    if is_verified:
        await office.allow(paused.record, by=parent("session-0"))
    else:
        with pytest.raises(MayNotDecide):
            await office.allow(paused.record, by=parent("session-0"))

    assert (Role.PARENT in paused.record.deciders, child.installs) == (is_verified, [])


# What was approved is no longer what is there


@promise("load:exactly-what-was-approved")
@others
async def test_what_changes_before_the_continuation_is_asked_again(
    warehouse: Warehouse, other: McpDependency
) -> None:
    first = await warehouse.pause(TOOL)
    await warehouse.office.allow(first.record)
    warehouse.sources.offer("memory", other)
    if isinstance(other.lock, str):
        warehouse.installer.locks["memory"] = moved(LOCK)

    with pytest.raises(Paused) as second:
        await warehouse.go_on(first.workflow.id, tool=TOOL)

    assert second.value.record.subject is Subject.DEPENDENCY_INSTALL
    assert second.value.record.digest != first.record.digest
    assert (warehouse.installs, warehouse.servers.started) == ([], [])


@promise("load:exactly-what-was-approved")
@others
async def test_what_changes_while_it_is_decided_is_not_started_before_it_is_asked_again(
    warehouse: Warehouse, other: McpDependency
) -> None:
    async def allow_and_change(record: Approval) -> Approval:
        warehouse.sources.offer("memory", other)
        if isinstance(other.lock, str):
            warehouse.installer.locks["memory"] = moved(LOCK)
        return (await warehouse.office.allow(record)).record

    asking = FakeAsking(allow_and_change)
    with pytest.raises(Paused) as paused:
        await warehouse.call(TOOL, asking=asking, offered=False)

    assert [plan.dependency for plan in warehouse.installer.installed_plans] == [MEMORY]
    assert (paused.value.record.subject, len(asking.asked)) == (Subject.DEPENDENCY_INSTALL, 2)
    assert warehouse.servers.started == []


@promise("load:exactly-what-was-approved")
@others
async def test_an_installed_server_of_which_the_registry_says_something_else_now_is_asked_about_again(
    warehouse: Warehouse, other: McpDependency
) -> None:
    warehouse.place(MEMORY)
    warehouse.sources.offer("memory", other)
    if isinstance(other.lock, str):
        warehouse.installer.locks["memory"] = moved(LOCK)

    paused = await warehouse.pause(TOOL, offered=True)

    assert (paused.record.subject, warehouse.servers.started) == (Subject.DEPENDENCY_INSTALL, [])


@promise("load:exactly-what-was-approved")
async def test_a_lock_that_moved_in_the_package_registry_is_asked_again(warehouse: Warehouse) -> None:
    first = await warehouse.pause(TOOL)
    await warehouse.office.allow(first.record)
    warehouse.installer.locks["memory"] = moved(LOCK)

    with pytest.raises(Paused):
        await warehouse.go_on(first.workflow.id, tool=TOOL)

    assert warehouse.installs == []


@promise("load:exactly-what-was-approved")
async def test_an_approval_to_run_it_contained_is_none_to_run_it_uncontained(warehouse: Warehouse) -> None:
    first = await warehouse.pause(TOOL)
    await warehouse.office.allow(first.record)
    other = await warehouse.restart(containment=Containment.NONE)

    with pytest.raises(Paused) as second:
        await other.go_on(first.workflow.id, tool=TOOL)

    assert facts(second.value.record)["containment"] == "none"
    assert warehouse.installs == []


async def test_the_same_lock_in_another_shape_is_not_asked_about(warehouse: Warehouse) -> None:
    warehouse.place(MEMORY)
    for lock in (LOCK, LOCK.digest, None):
        warehouse.sources.offer("memory", make_dependency(lock=lock))
        other = await warehouse.restart()
        await other.call(TOOL)

    assert (warehouse.installs, await warehouse.states()) == ([], [])


@promise("load:rules-cover-only-the-proven")
@pytest.mark.parametrize(
    "other",
    [
        make_dependency(permissions=Permissions(net=True)),
        make_dependency(args=("--exfiltrate",)),
        make_dependency(env_required=("AWS_SECRET_ACCESS_KEY",)),
    ],
    ids=["permissions", "arguments", "variables"],
)
async def test_no_rule_covers_other_terms_than_those_consented_to_before(
    warehouse: Warehouse, other: McpDependency
) -> None:
    warehouse.configure(allow=["memory:*"])
    await warehouse.call(TOOL)
    warehouse.sources.offer("memory", other)
    restarted = await warehouse.restart()

    paused = await restarted.pause(TOOL)

    assert paused.record.subject is Subject.DEPENDENCY_INSTALL
    assert warehouse.installs == ["memory@1.2.3"]


@promise("load:rules-cover-only-the-proven")
async def test_no_rule_brings_back_what_a_person_has_replaced(warehouse: Warehouse) -> None:
    warehouse.configure(allow=["memory:*"])
    await warehouse.call(TOOL)
    warehouse.sources.offer("memory", make_dependency(version="1.2.4"))
    await (await warehouse.restart()).call(TOOL, asking=FakeAsking(warehouse.allowing()))
    warehouse.sources.offer("memory", make_dependency())

    paused = await (await warehouse.restart("session-3")).pause(TOOL)

    assert paused.record.subject is Subject.DEPENDENCY_INSTALL
    assert warehouse.installs == ["memory@1.2.3", "memory@1.2.4"]


async def test_metadata_that_is_only_spelled_otherwise_asks_nobody(warehouse: Warehouse) -> None:
    warehouse.place(make_dependency(env_required=("A", "B")))
    warehouse.variables.known = {"A": "1", "B": "2"}
    respelled = replace(make_dependency(env_required=("B", "A")), install="npx -y @acme/memory@1.2.3")
    warehouse.sources.offer("memory", respelled)
    warehouse.configure(allow=["memory:*"])

    await warehouse.call(TOOL)

    assert (warehouse.installs, warehouse.servers.ran) == ([], [RAN])


@promise("load:rules-cover-only-the-proven")
async def test_a_rule_for_one_server_installs_no_other_that_comes_along(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency("helper"), make_dependency())
    warehouse.configure(allow=["memory:*"])

    paused = await warehouse.pause(TOOL)

    assert facts(paused.record)["name"] == "helper"
    assert warehouse.installs == []


async def test_a_rule_for_all_of_what_comes_along_covers_it(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency("helper"), make_dependency())
    warehouse.configure(allow=["memory:*", "helper:*"])

    await warehouse.call(TOOL)

    assert warehouse.installs == ["helper@1.2.3", "memory@1.2.3"]


@promise("load:rules-cover-only-the-proven")
@pytest.mark.parametrize(
    "entry",
    [
        {"tool": "helper:*", "expires": "2001-01-01T00:00:00Z"},
        {"tool": "helper:*", "created_at": "2001-01-01T00:00:00Z", "ttl_s": 60},
        {"tool": "helper:*", "args": {}, "exact": True},
        {"tool": "helper:*", "args": {"path": "/a"}},
    ],
    ids=["expired", "outlived", "exact", "for some arguments"],
)
async def test_a_rule_that_does_not_allow_all_of_what_comes_along_now_does_not_cover_it(
    warehouse: Warehouse, entry: Json
) -> None:
    warehouse.sources.offer("memory", make_dependency("helper"), make_dependency())
    warehouse.configure(allow=["memory:*", entry])

    paused = await warehouse.pause(TOOL)

    assert (facts(paused.record)["name"], warehouse.installs) == ("helper", [])


async def test_a_deny_that_is_over_refuses_nothing_that_comes_along(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency("helper"), make_dependency())
    over = {"tool": "helper:*", "expires": "2001-01-01T00:00:00Z"}
    warehouse.configure(allow=["memory:*"], deny=[over])

    assert facts((await warehouse.pause(TOOL)).record)["name"] == "helper"


async def test_nothing_is_installed_if_the_last_of_what_comes_along_is_denied(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency(), make_dependency("helper"))
    warehouse.configure(allow=["memory:*"], deny=["helper:*"])

    with pytest.raises(ToolDenied):
        await warehouse.call(TOOL)

    assert warehouse.installer.resolved == []


@promise("load:deny-beats-consent")
async def test_what_comes_along_is_not_installed_if_rules_deny_all_of_it(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency("helper"), make_dependency())
    warehouse.configure(allow=["memory:*"], deny=["helper:*"])

    with pytest.raises(ToolDenied, match="denies every tool of server `helper`"):
        await warehouse.call(TOOL)

    assert (warehouse.installer.resolved, await warehouse.questions()) == ([], [])


@pytest.mark.parametrize(
    "other",
    [None, make_dependency("notes", version="9.9.9"), make_dependency("notes", args=("--less",))],
    ids=["configured", "of the catalog", "of the catalog, on other terms"],
)
async def test_nothing_comes_along_under_the_name_of_another_server(
    warehouse: Warehouse, other: McpDependency | None
) -> None:
    warehouse.sources.offer("memory", make_dependency("notes"), make_dependency())
    if other is None:
        warehouse.configure(servers={"notes": SERVER}, allow=["memory:*"])
    else:
        warehouse.sources.offer("notes", other)

    with pytest.raises(ServerFailed, match="that name means another one"):
        await warehouse.call(TOOL)

    assert warehouse.installer.resolved == []


async def test_an_approved_install_covers_its_call_also_when_another_had_to_come_along(
    warehouse: Warehouse,
) -> None:
    warehouse.sources.offer("memory", make_dependency(), make_dependency("helper"))
    asking = FakeAsking(warehouse.allowing(), warehouse.allowing())

    await warehouse.call(TOOL, asking=asking, offered=False)

    assert [record.subject for record in asking.asked] == [Subject.DEPENDENCY_INSTALL] * 2
    assert warehouse.servers.ran == [RAN]


@pytest.mark.parametrize("scope", [Scope.ONCE, Scope.ALWAYS])
async def test_a_call_of_an_installed_server_runs_though_the_files_changed_while_it_was_asked_about(
    warehouse: Warehouse, scope: Scope
) -> None:
    warehouse.place(MEMORY)

    async def answer(record: Approval) -> Approval:
        warehouse.configure(allow=["elsewhere:*"])
        return await warehouse.allowing(scope=scope)(record)

    await warehouse.call(TOOL, asking=FakeAsking(answer), offered=False)

    assert warehouse.servers.ran == [RAN]
