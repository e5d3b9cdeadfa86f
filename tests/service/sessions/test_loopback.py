"""Permission for what an agent's own client runs: asked, waited for, and decided by those above it."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from pml.core.approvals.bounds import MAX_PENDING
from pml.core.approvals.record import (
    RECONNECT_S,
    Approval,
    Channel,
    Decider,
    DeciderKind,
    Role,
    Scope,
    SessionId,
    State,
    Subject,
)
from pml.core.config.file import FileKind
from pml.core.errors import (
    AlreadyDecided,
    Forbidden,
    Invalid,
    MayNotDecide,
    NotFound,
    ToolDenied,
    Unavailable,
)
from pml.core.sessions.process import Process
from pml.core.sessions.token import TokenRole
from pml.core.values import Json, JsonObject
from pml.service.approvals import lifecycle as approvals
from pml.service.sessions.loopback import (
    CLIMB_S,
    Permit,
    due_requests,
    pending,
    permit,
    respond,
    wait_for_requests,
)
from pml.service.upkeep import end_session, sweep
from pml.store.sqlite.store import SqliteStore
from pml.testing.store import MemoryStore
from tests.builders import OWNER, make_order, make_run
from tests.promises import promise
from tests.service.families import BASH, LIST, Asker, Family, ask_at_once, gather, join, questions
from tests.service.offices import BOUND_S, Asked, Office, parent

EDITED: JsonObject = {"command": "ls"}
EVIL: JsonObject = {"command": "rm -rf /"}
AGENT = Process(pid=77, started=1.0)
PARENT_MAY = frozenset({Role.PERSON, Role.PARENT})


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Office]:
    store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "db", OWNER)
    yield Office(store, tmp_path)
    await store.close()


@pytest.fixture
async def family(office: Office) -> Family:
    return await gather(office)


def allowed(input: JsonObject = LIST) -> Permit:
    return Permit(allow=True, input=input)


def denied(message: str, input: JsonObject = LIST) -> Permit:
    return Permit(allow=False, input=input, message=message)


# Permits


@pytest.mark.parametrize(
    ("effect", "answer", "kind"),
    [
        ("allow", allowed(), "call.allowed"),
        ("deny", denied('Tool Bash is denied by user config ({"tool": "Bash"})'), "call.denied"),
    ],
)
async def test_a_rule_answers_at_once_and_leaves_only_an_audit_entry(
    office: Office, family: Family, effect: str, answer: Permit, kind: str
) -> None:
    office.write(FileKind.USER, {"permissions": {effect: [BASH]}})
    before = await office.kinds()

    said = await ask_at_once(office, family.child)

    assert (said.allow, said.input) == (answer.allow, answer.input)
    assert answer.message is None or (said.message or "").startswith("Tool Bash is denied by user config (")
    assert await questions(office) == []
    assert (await office.kinds())[len(before) :] == [kind]


@promise("permit:blocks-until-decided")
async def test_what_no_rule_answers_is_stored_told_and_waited_for(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()

    assert (record.status, record.session_id, record.tool_name) == (State.PENDING, family.child.id, BASH)
    assert (record.tool_input, record.tool_use_id, record.deciders) == (LIST, "use-1", PARENT_MAY)
    assert (await office.kinds())[-1] == "approval.requested"
    for _ in range(50):
        await asyncio.sleep(0)
    assert not asker.task.done()

    await office.allow(record)

    assert await asker.answer() == allowed()
    assert await office.status(record) is State.COMPLETED


async def test_an_ask_rule_is_asked_although_an_offered_tool_would_not_be(
    office: Office, family: Family
) -> None:
    office.write_rules(ask=["*"])
    asker = Asker(office, family.child)

    await office.deny(await asker.question())

    assert not (await asker.answer()).allow


@promise("permit:blocks-until-decided")
async def test_what_a_person_edited_is_what_may_run(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)

    await office.allow(await asker.question(), updated_input=EDITED)

    assert await asker.answer() == allowed(EDITED)


async def test_what_a_parent_edited_is_what_may_run(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()

    await respond(office.context, family.parent, record.id, allow=True, updated_input=EDITED)

    assert await asker.answer() == allowed(EDITED)


@promise("supervise:deny-never-lifted")
async def test_an_edit_into_what_a_rule_denies_is_refused_and_decides_nothing(
    office: Office, family: Family
) -> None:
    office.write_rules(deny=[{"tool": BASH, "args": {"command": {"is": EVIL["command"]}}}])
    asker = Asker(office, family.child)
    record = await asker.question()

    with pytest.raises(ToolDenied):
        await respond(office.context, family.parent, record.id, allow=True, updated_input=EVIL)
    with pytest.raises(ToolDenied):
        await office.allow(record, updated_input=EVIL)

    assert await office.stored(record) == record
    await asker.lose()


@promise("supervise:deny-never-lifted")
async def test_an_edit_is_judged_from_the_folder_that_the_agent_works_in(
    office: Office, family: Family
) -> None:
    within = office.workspace / "within"
    order = msgspec.structs.replace(make_order(), cwd=str(within))
    await office.context.store.runs.add(make_run(family.child.id, order=order))
    office.write_rules(deny=[{"tool": "Read", "args": {"file_path": {"under": str(within / "keys")}}}])
    asker = Asker(office, family.child, "Read", {"file_path": "notes"})

    record = await asker.question()
    with pytest.raises(ToolDenied):
        await office.allow(record, updated_input={"file_path": "keys/own"})

    assert await office.status(record) is State.PENDING
    await asker.lose()


@promise("permit:doubt-is-no")
async def test_a_deny_that_came_after_the_decision_wins(office: Office, family: Family) -> None:
    lost = Asker(office, family.child)
    record = await lost.question()
    await lost.lose()
    await office.allow(record)
    office.write_rules(deny=[BASH])

    assert not (await ask_at_once(office, family.child)).allow
    assert await office.status(record) is not State.COMPLETED


async def test_the_message_of_whoever_denied_reaches_the_client(office: Office, family: Family) -> None:
    by_person, by_parent = (
        Asker(office, family.child, use="use-1"),
        Asker(office, family.child, use="use-2"),
    )
    first, second = await by_person.question(), await by_parent.question()

    await office.deny(first, message="use git")
    await respond(office.context, family.parent, second.id, allow=False, message="look elsewhere")

    assert await by_person.answer() == denied("Tool execution denied by user: use git")
    assert await by_parent.answer() == denied(
        "Denied by the session that supervises this one: look elsewhere"
    )


@promise("permit:doubt-is-no")
async def test_nobody_answers_and_the_time_is_over(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()
    office.clock.advance(record.ttl_s)

    await sweep(office.context)

    assert await asker.answer() == denied("Approval timed out")


async def test_a_sessions_own_time_to_decide_counts(office: Office, family: Family) -> None:
    hasty = await join(office, "hasty", parent=family.parent, ttl_s=7)
    asker = Asker(office, hasty)

    assert (await asker.question()).ttl_s == 7

    office.clock.advance(7)
    await sweep(office.context)
    assert await asker.answer() == denied("Approval timed out")


@promise("permit:doubt-is-no")
async def test_a_cancelled_question_says_why(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()

    await approvals.cancel(office.context, record.id, reason="never mind")

    assert await asker.answer() == denied("Approval cancelled: never mind")


@pytest.mark.parametrize("office", ["memory"], indirect=True)
async def test_an_answer_of_a_parent_that_was_withdrawn_is_told_as_that(
    office: Office, family: Family
) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()
    await respond(office.context, family.parent, record.id, allow=True)
    await approvals.cancel(office.context, record.id, reason="never mind")

    assert await asker.answer() == denied("Approval cancelled: never mind")


@promise("permit:doubt-is-no")
@pytest.mark.parametrize("port", ["ask", "get", "advance"])
async def test_a_store_that_fails_denies_and_is_named(
    office: Office, family: Family, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    async def fail(*_: object, **__: object) -> Approval:
        raise Unavailable("the database is busy")

    asker = Asker(office, family.child, use="use-0")
    record = await asker.question()
    await asker.lose()
    await office.allow(record)
    monkeypatch.setattr(office.context.store.approvals, port, fail)

    said = await ask_at_once(office, family.child, use="use-0")

    assert said == denied("Not permitted: the database is busy")


@promise("permit:doubt-is-no")
async def test_a_flood_of_questions_is_denied_beyond_a_bound(office: Office, family: Family) -> None:
    askers = [Asker(office, family.child, use=f"use-{n}") for n in range(MAX_PENDING)]
    for asker in askers:
        await asker.question()

    said = await ask_at_once(office, family.child, use="one-more")

    assert not said.allow
    assert said.message is not None
    assert f"already has {MAX_PENDING}" in said.message
    for asker in askers:
        await asker.lose()


@promise("permit:doubt-is-no")
@pytest.mark.parametrize("name", ["", "two words", "Ba\nsh", "*", "Bas?", ":x", "x:", "n s:x", "x" * 201])
async def test_a_name_that_is_none_is_denied(office: Office, family: Family, name: str) -> None:
    office.write_rules(allow=["*"])

    said = await ask_at_once(office, family.child, name)

    assert not said.allow
    assert await questions(office) == []


# Coming back


@promise("permit:same-tool-use-attaches")
async def test_the_same_use_after_a_reconnect_is_the_same_question(office: Office, family: Family) -> None:
    lost = Asker(office, family.child)
    record = await lost.question()
    await lost.lose()
    again = Asker(office, family.child)

    assert (await again.question()).id == record.id

    await office.allow(record)
    assert await again.answer() == allowed()
    assert [asked.id for asked in await questions(office)] == [record.id]


@promise("permit:same-tool-use-attaches")
async def test_another_use_of_the_same_call_is_another_question(office: Office, family: Family) -> None:
    first = Asker(office, family.child, use="use-1")
    second = Asker(office, family.child, use="use-2")
    asked = await first.question(), await second.question()

    await office.allow(asked[0])
    await office.deny(asked[1])

    assert (await first.answer()).allow
    assert not (await second.answer()).allow


@promise("permit:same-tool-use-attaches")
@pytest.mark.parametrize("allow", [True, False])
async def test_what_was_decided_meanwhile_is_told_to_who_comes_back(
    office: Office, family: Family, allow: bool
) -> None:
    lost = Asker(office, family.child)
    record = await lost.question()
    await lost.lose()
    await respond(
        office.context, family.parent, record.id, allow=allow, updated_input=EDITED if allow else None
    )

    said = await ask_at_once(office, family.child)

    assert said == (allowed(EDITED) if allow else denied("Denied by the session that supervises this one"))
    assert len(await questions(office)) == 1


@promise("permit:same-tool-use-attaches")
async def test_an_allow_is_delivered_once(office: Office, family: Family) -> None:
    askers = [Asker(office, family.child), Asker(office, family.child)]
    records = [await asker.question() for asker in askers]
    await office.allow(records[0])

    said = [await asker.answer() for asker in askers]

    assert sorted(each.allow for each in said) == [False, True]
    later = Asker(office, family.child)
    assert (await later.question()).id != records[0].id
    await later.lose()


async def test_a_denial_without_a_use_to_come_back_with_is_not_for_ever(
    office: Office, family: Family
) -> None:
    first = Asker(office, family.child, use="")
    await office.deny(await first.question())
    await first.answer()

    again = Asker(office, family.child, use="")

    await office.allow(await again.question())
    assert (await again.answer()).allow


@promise("permit:same-tool-use-attaches")
async def test_who_is_lost_has_a_while_to_come_back_and_no_longer(office: Office, family: Family) -> None:
    lost = Asker(office, family.child)
    record = await lost.question()
    await lost.lose()

    office.clock.advance(RECONNECT_S - 1)
    await sweep(office.context)
    assert await office.status(record) is State.PENDING

    office.clock.advance(1)
    await sweep(office.context)
    assert await office.status(record) is State.CANCELLED


@promise("permit:same-tool-use-attaches")
async def test_who_comes_back_in_time_goes_on_waiting(office: Office, family: Family) -> None:
    lost = Asker(office, family.child)
    record = await lost.question()
    await lost.lose()
    office.clock.advance(RECONNECT_S - 1)
    await sweep(office.context)
    back = Asker(office, family.child)
    await back.question()

    office.clock.advance(RECONNECT_S + 1)
    await sweep(office.context)
    assert await office.status(record) is State.PENDING

    await office.allow(record)
    assert await back.answer() == allowed()


async def test_one_of_two_who_wait_may_leave(office: Office, family: Family) -> None:
    leaving, staying = Asker(office, family.child), Asker(office, family.child)
    record = await leaving.question()
    await staying.question()
    await leaving.lose()
    async with asyncio.timeout(BOUND_S):
        with office.context.store.changes.watch(record.id) as changes:
            while (await office.stored(record)).abandoned_at is not None:
                await changes.wait(1.0)

    office.clock.advance(RECONNECT_S + 1)
    await sweep(office.context)
    await office.allow(await office.stored(record))

    assert await staying.answer() == allowed()


@promise("permit:blocks-until-decided")
async def test_two_children_that_ask_at_once_each_get_their_own_answer(
    office: Office, family: Family
) -> None:
    ours, theirs = Asker(office, family.child), Asker(office, family.sibling)
    first, second = await ours.question(), await theirs.question()
    assert first.id != second.id

    await respond(office.context, family.parent, second.id, allow=False, message="no")
    await respond(office.context, family.parent, first.id, allow=True, updated_input=EDITED)

    assert await ours.answer() == allowed(EDITED)
    assert await theirs.answer() == denied("Denied by the session that supervises this one: no")


async def test_the_end_of_the_childs_process_cancels_what_it_asked(office: Office, family: Family) -> None:
    office.processes.alive.add(AGENT)
    running = await join(office, "running", parent=family.parent, process=AGENT)
    asker = Asker(office, running)
    record = await asker.question()
    await sweep(office.context)
    assert await office.status(record) is State.PENDING

    office.processes.alive.discard(AGENT)
    await sweep(office.context)

    assert await asker.answer() == denied("Approval cancelled: the agent's session ended")
    assert await office.status(record) is State.CANCELLED


# The tools that a session was given


@promise("session:tools-bound")
async def test_no_rule_and_no_grant_gives_a_session_what_it_was_not_given(
    office: Office, family: Family
) -> None:
    office.write_rules(allow=["*"])
    bound = await join(office, "bound", parent=family.parent, tools=("Read", "notes:*"))

    said = await ask_at_once(office, bound)

    assert not said.allow
    assert said.message is not None
    assert "not among the tools" in said.message
    assert (await office.kinds())[-1] == "call.denied"
    assert (await ask_at_once(office, bound, "Read")).allow
    assert (await ask_at_once(office, bound, "notes:add")).allow


@promise("session:tools-bound")
async def test_a_bare_glob_gives_an_action_of_any_server_as_it_does_in_rules(
    office: Office, family: Family
) -> None:
    office.write_rules(allow=["*"])
    bound = await join(office, "bound", parent=family.parent, tools=("create_*",))

    assert (await ask_at_once(office, bound, "github:create_issue")).allow
    assert not (await ask_at_once(office, bound, "create:issue")).allow


async def test_a_session_that_was_given_nothing_may_use_nothing(office: Office, family: Family) -> None:
    office.write_rules(allow=["*"])
    bound = await join(office, "bound", parent=family.parent, tools=())

    assert not (await ask_at_once(office, bound)).allow


# Deciding for those below


@promise("supervise:own-descendants-only")
async def test_a_session_decides_for_its_children_and_theirs(office: Office, family: Family) -> None:
    first, second = Asker(office, family.child), Asker(office, family.sibling)

    await respond(office.context, family.parent, (await first.question()).id, allow=True)
    await respond(office.context, family.grandparent, (await second.question()).id, allow=True)

    assert (await first.answer()).allow
    assert (await second.answer()).allow


@promise("supervise:own-descendants-only")
async def test_nobody_else_decides_and_learns_no_more_than_of_an_id_that_is_none(
    office: Office, family: Family
) -> None:
    """Not a stranger, not the asker itself, not one below it."""
    asker = Asker(office, family.parent)
    record = await asker.question()
    below = await join(office, "below", parent=family.parent, role=TokenRole.SESSION)
    beside = await join(office, "beside", parent=family.grandparent, role=TokenRole.SESSION)

    for session in (family.stranger, family.parent, below, beside):
        with pytest.raises(NotFound) as foreign:
            await respond(office.context, session, record.id, allow=True)
        with pytest.raises(NotFound) as unknown:
            await respond(office.context, session, "no-such-id", allow=True)
        assert foreign.value.message.replace(record.id, "ID") == unknown.value.message.replace(
            "no-such-id", "ID"
        )
        assert foreign.value.hint == unknown.value.hint

    assert await office.stored(record) == record
    await asker.lose()


@promise("supervise:own-descendants-only")
async def test_a_child_decides_nothing_not_even_for_one_below_it(office: Office, family: Family) -> None:
    below = await join(office, "below", parent=family.child)
    asker = Asker(office, below)
    record = await asker.question()

    with pytest.raises(Forbidden):
        await respond(office.context, family.child, record.id, allow=True)
    with pytest.raises(Forbidden):
        await wait_for_requests(office.context, family.child, timeout_s=0, told=set())

    assert await office.stored(record) == record
    await asker.lose()


async def test_a_second_answer_is_told_who_was_first_and_changes_nothing(
    office: Office, family: Family
) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()
    await office.deny(record, message="no")
    await asker.answer()
    before = await office.stored(record)

    with pytest.raises(AlreadyDecided) as late:
        await respond(office.context, family.parent, record.id, allow=True)

    assert "denied by person `ana` (terminal) at 2026-11-03T12:00:00Z" in late.value.message
    assert await office.stored(record) == before


@promise("supervise:never-always")
async def test_a_parent_remembers_for_the_session_and_never_for_always(
    office: Office, family: Family
) -> None:
    asker = Asker(office, family.child, "Read", {"file_path": "a"})
    record = await asker.question()

    with pytest.raises(MayNotDecide):
        await respond(office.context, family.parent, record.id, allow=True, scope=Scope.ALWAYS)
    assert await office.stored(record) == record
    assert not office.path(FileKind.WORKSPACE).exists()

    await respond(office.context, family.parent, record.id, allow=True, scope=Scope.SESSION)
    await asker.answer()
    assert (await ask_at_once(office, family.child, "Read", {"file_path": "b"}, use="use-2")).allow
    beside = Asker(office, family.sibling, "Read", {"file_path": "b"})
    await beside.question()
    await beside.lose()


@promise("supervise:deny-never-lifted")
async def test_a_parent_lifts_no_deny(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()
    office.write_rules(deny=[BASH])

    with pytest.raises(ToolDenied):
        await respond(office.context, family.parent, record.id, allow=True)

    assert await office.stored(record) == record
    await asker.lose()


@promise("consent:parent-unlisted-only")
@pytest.mark.parametrize(
    ("setting", "rules", "may"),
    [
        (None, {}, True),
        (None, {"ask": ["*"]}, True),
        (None, {"ask": [BASH]}, False),
        (None, {"ask": ["B*"]}, False),
        (None, {"ask": [{"tool": "*", "args": {"command": {"is": LIST["command"]}}}]}, False),
        ("unlisted", {"ask": [BASH]}, False),
        (["Read"], {"ask": [BASH]}, False),
        ([BASH], {"ask": [BASH]}, True),
        (True, {"ask": [BASH]}, True),
    ],
)
async def test_a_parent_decides_what_a_rule_names_only_where_the_user_lists_it(
    office: Office, family: Family, setting: Json, rules: JsonObject, may: bool
) -> None:
    approval: JsonObject = {} if setting is None else {"parent_may_decide": setting}
    office.write(FileKind.USER, {"approval": approval, "permissions": rules})
    asker = Asker(office, family.child)
    record = await asker.question()

    assert (Role.PARENT in record.deciders) is may
    await asker.lose()


@promise("consent:parent-unlisted-only")
async def test_a_parents_answer_covers_no_call_that_a_rule_asks_about(office: Office, family: Family) -> None:
    office.write_rules(ask=[{"tool": "Read", "args": {"file_path": {"is": "secret"}}}])
    asker = Asker(office, family.child, "Read", {"file_path": "a"})
    record = await asker.question()
    with pytest.raises(MayNotDecide):
        await respond(
            office.context, family.parent, record.id, allow=True, updated_input={"file_path": "secret"}
        )
    await respond(office.context, family.parent, record.id, allow=True, scope=Scope.SESSION)
    await asker.answer()

    assert (await ask_at_once(office, family.child, "Read", {"file_path": "b"}, use="use-2")).allow
    named = Asker(office, family.child, "Read", {"file_path": "secret"})
    assert (await named.question()).deciders == {Role.PERSON}
    await named.lose()


@pytest.mark.parametrize(
    ("setting", "tool", "may"),
    [
        (False, BASH, False),
        ([], BASH, False),
        (["Read"], BASH, False),
        (["Read"], "Read", True),
        (["notes:*"], "notes:add", True),
        (["add"], "notes:add", True),
        (["add"], "add:notes", False),
        (True, BASH, True),
    ],
)
async def test_the_users_file_narrows_what_parents_decide(
    office: Office, family: Family, setting: bool | list[str], tool: str, may: bool
) -> None:
    office.write(FileKind.USER, {"approval": {"parent_may_decide": setting}})
    asker = Asker(office, family.child, tool)
    record = await asker.question()

    assert (Role.PARENT in record.deciders) is may
    if not may:
        for allow in (True, False):
            with pytest.raises(MayNotDecide):
                await respond(office.context, family.parent, record.id, allow=allow)
        assert await office.stored(record) == record
    await asker.lose()


@pytest.mark.parametrize("subject", [Subject.INTEGRITY_CHANGED, Subject.WORKSPACE_TRUST])
async def test_what_only_a_person_may_decide_no_parent_decides(
    office: Office, family: Family, subject: Subject
) -> None:
    record = await office.ask(session=family.child, subject=subject)

    for allow in (True, False):
        with pytest.raises((MayNotDecide, Forbidden)):
            await respond(office.context, family.parent, record.id, allow=allow)

    assert [request.may_decide for request in await pending(office.context, family.parent)] == [False]


@pytest.mark.parametrize("allow", [True, False])
async def test_a_decision_tells_which_session_made_it(office: Office, family: Family, allow: bool) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()

    decided = await respond(office.context, family.grandparent, record.id, allow=allow)

    assert decided.record.decided_by == Decider(
        kind=DeciderKind.PARENT, id=family.grandparent.id, channel=Channel.LOOPBACK
    )
    await asker.answer()


async def test_a_broken_edit_decides_nothing(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()

    with pytest.raises(Invalid):
        await respond(
            office.context, family.parent, record.id, allow=True, updated_input={"command": "\ud800"}
        )

    assert await office.stored(record) == record
    await asker.lose()


# What waits


async def test_nothing_waits_and_that_is_no_error(office: Office, family: Family) -> None:
    for session in (family.grandparent, family.child, family.stranger):
        assert await pending(office.context, session) == []
        assert await pending(office.context, session, of=SessionId("nobody")) == []


@promise("supervise:own-descendants-only")
async def test_what_waits_is_listed_to_those_above_and_to_nobody_else(office: Office, family: Family) -> None:
    asker, other = Asker(office, family.child), Asker(office, family.sibling)
    record, beside = await asker.question(), await other.question()

    for above in (family.parent, family.grandparent):
        assert {each.record.id for each in await pending(office.context, above)} == {record.id, beside.id}
        (one,) = await pending(office.context, above, of=family.child.id)
        assert (one.record, one.session, one.may_decide) == (record, family.child, True)
    for session in (family.child, family.sibling, family.stranger):
        assert await pending(office.context, session) == []
        assert await pending(office.context, session, of=family.child.id) == []
    await asker.lose()
    await other.lose()


async def test_who_waits_is_woken_by_the_request(office: Office, family: Family) -> None:
    waiting = asyncio.create_task(
        wait_for_requests(office.context, family.parent, timeout_s=3600, told=set())
    )
    await asyncio.sleep(0)
    asker = Asker(office, family.child)
    record = await asker.question()

    async with asyncio.timeout(BOUND_S):
        (request,) = await waiting

    assert (request.record, request.session, request.may_decide) == (record, family.child, True)
    await asker.lose()


async def test_nothing_comes_within_the_time(office: Office, family: Family) -> None:
    async with asyncio.timeout(BOUND_S):
        assert await wait_for_requests(office.context, family.parent, timeout_s=0, told=set()) == []


@promise("supervise:climbs")
async def test_the_nearest_is_woken_first_and_the_next_after_a_while(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()

    near, _ = await due_requests(office.context, family.parent, of=None)
    far, reaches_at = await due_requests(office.context, family.grandparent, of=None)
    assert [each.record for each in near] == [record]
    assert far == []
    assert reaches_at is not None
    assert (reaches_at - record.created_at).total_seconds() == CLIMB_S

    office.clock.advance(CLIMB_S - 1)
    assert await wait_for_requests(office.context, family.grandparent, timeout_s=0, told=set()) == []
    office.clock.advance(1)
    (request,) = await wait_for_requests(office.context, family.grandparent, timeout_s=0, told=set())
    assert request.record == record
    await asker.lose()


@promise("supervise:climbs")
async def test_what_the_nearest_left_by_ending_climbs_at_once(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()
    waiting = asyncio.create_task(
        wait_for_requests(office.context, family.grandparent, timeout_s=3600, told=set())
    )
    await asyncio.sleep(0)

    await end_session(office.context, family.parent)

    async with asyncio.timeout(BOUND_S):
        (request,) = await waiting
    assert request.record == record
    await asker.lose()


@promise("supervise:climbs")
async def test_what_only_a_person_may_decide_is_listed_and_wakes_no_parent(
    office: Office, family: Family
) -> None:
    office.write(FileKind.USER, {"approval": {"parent_may_decide": False}})
    asker = Asker(office, family.child)
    await asker.question()
    office.clock.advance(CLIMB_S * 3)

    for above in (family.parent, family.grandparent):
        assert [each.may_decide for each in await pending(office.context, above)] == [False]
        assert await due_requests(office.context, above, of=None) == ([], None)
    await asker.lose()


async def test_a_parent_that_speaks_for_itself_alone_cannot_be_named_by_another(
    office: Office, family: Family
) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()

    with pytest.raises(MayNotDecide):
        await office.allow(record, by=parent(family.stranger.id))

    await asker.lose()


async def test_who_is_asked_first_is_told_before_the_wait(office: Office, family: Family) -> None:
    asked = Asked()
    task = asyncio.create_task(
        permit(office.context, family.child, tool_name=BASH, input=LIST, tool_use_id="use-1", on_asked=asked)
    )
    await asked.wait_for(1)

    (record,) = asked.records
    assert await office.stored(record) == record
    await office.allow(record)
    async with asyncio.timeout(BOUND_S):
        await task


@promise("permit:same-tool-use-attaches")
async def test_an_asker_that_is_cut_off_leaves_the_answer_to_the_one_that_came_back(
    office: Office, family: Family
) -> None:
    cut_off = Asker(office, family.child)
    record = await cut_off.question()
    cut_off.reads.clear()
    back = Asker(office, family.child)
    await back.question()
    await respond(office.context, family.parent, record.id, allow=True)
    assert (await back.answer()).allow
    assert not cut_off.task.done()
    assert (await office.stored(record)).status is State.COMPLETED
    await cut_off.lose()


async def test_an_answer_that_nobody_hears_stays_unused(office: Office, family: Family) -> None:
    asker = Asker(office, family.child)
    record = await asker.question()
    asker.reads.clear()
    await respond(office.context, family.parent, record.id, allow=True)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (await office.stored(record)).status is State.ALLOWED
    asker.reads.set()
    assert (await asker.answer()).allow


@promise("permit:same-tool-use-attaches")
async def test_of_two_that_listen_the_one_that_asked_last_is_answered(office: Office, family: Family) -> None:
    first = Asker(office, family.child)
    record = await first.question()
    second = Asker(office, family.child)
    await second.question()
    await respond(office.context, family.parent, record.id, allow=True)
    assert (await second.answer()).allow
    said = await first.answer()
    assert not said.allow
    assert office.context.askers == {}


@promise("reserved:person-only")
async def test_no_parent_edits_a_call_into_pml_from_where_its_agent_works(
    office: Office, family: Family
) -> None:
    (office.workspace / "sub").mkdir()
    order = msgspec.structs.replace(make_order(), cwd=str(office.workspace / "sub"))
    await office.context.store.runs.add(make_run(session_id=family.child.id, order=order))
    asker = Asker(office, family.child, "NotebookEdit", {"notebook_path": "plan.ipynb"})
    record = await asker.question()
    edited = {"notebook_path": "../../pml-home/config.json"}
    with pytest.raises(MayNotDecide):
        await respond(office.context, family.parent, record.id, allow=True, updated_input=edited)
    assert await office.status(record) is State.PENDING
    await asker.lose()


@promise("reserved:settings-files")
async def test_a_parents_answer_does_not_reach_a_settings_file_by_a_link_made_after_it(
    office: Office, family: Family
) -> None:
    draft = office.workspace / "draft.txt"
    draft.write_text("x")
    asker = Asker(office, family.child, "Write", {"file_path": "draft.txt", "content": "{}"})
    record = await asker.question()
    asker.reads.clear()
    await respond(office.context, family.parent, record.id, allow=True)
    draft.unlink()
    draft.symlink_to(".pml.json")
    asker.reads.set()

    said = await asker.answer()

    assert not said.allow
    assert "was not a person's to give" in (said.message or "")
    assert await office.status(record) is State.CANCELLED


@promise("consent:parent-unlisted-only")
@pytest.mark.parametrize(("setting", "may"), [("unlisted", False), (True, True)])
async def test_a_parents_answer_is_not_given_out_once_a_rule_asks_a_person(
    office: Office, family: Family, setting: Json, may: bool
) -> None:
    office.write(FileKind.USER, {"approval": {"parent_may_decide": setting}})
    asker = Asker(office, family.child)
    record = await asker.question()
    asker.reads.clear()
    await respond(office.context, family.parent, record.id, allow=True)
    office.write(FileKind.USER, {"approval": {"parent_may_decide": setting}, "permissions": {"ask": [BASH]}})
    asker.reads.set()

    said = await asker.answer()

    assert said.allow is may
    assert may or "was not given by a person" in (said.message or "")
    assert await office.status(record) is (State.COMPLETED if may else State.CANCELLED)


async def test_who_may_not_ask_is_answered_by_rules_alone(office: Office, family: Family) -> None:
    office.write_rules(allow=["Read"])

    async def permitted(tool: str) -> Permit:
        return await permit(
            office.context,
            family.child,
            tool_name=tool,
            input={},
            tool_use_id="use-1",
            on_asked=lambda _: pytest.fail("nobody may be asked"),
            may_ask=False,
        )

    assert (await permitted("Read")).allow
    assert not (await permitted("Write")).allow
    assert await questions(office) == []


async def test_two_calls_that_need_the_same_trust_both_go_on(office: Office, family: Family) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["Bash"])
    first = Asker(office, family.child, use="use-1")
    record = await first.question()
    second = Asker(office, family.child, use="use-2")
    await second.question()
    assert record.subject is Subject.WORKSPACE_TRUST
    await office.allow(record)
    assert (await first.answer()).allow
    assert (await second.answer()).allow
    assert len(await questions(office)) == 1
