"""What time and crashes leave behind: put right without touching what lives, and without double harm."""

import asyncio

import msgspec
import pytest

from pml.core.approvals.record import RECONNECT_S, Approval, OwnerId, Scope, SessionId, State
from pml.core.config.file import FileKind
from pml.core.errors import ApprovalExpired, IllegalEvent
from pml.core.ports.records import Session, Workflow
from pml.core.sessions.process import Process
from pml.service.approvals.claims import claim, finish
from pml.service.sessions.logins import LINK_S, make_login
from pml.service.upkeep import Swept, clean_up, end_session, sweep
from tests.builders import NOW, PERSON, later
from tests.promises import promise
from tests.service.offices import Office

ME = OwnerId("owner-1")
SIBLING = OwnerId("sibling")
SHELL = Process(pid=41, started=1.0)
DAY_S = 24 * 3600


async def ask_as(office: Office, owner: OwnerId, n: int, session: Session | None = None) -> Approval:
    """Ask the `n`-th question as another process would."""
    office.owners.me = owner
    record = await office.ask(arguments={"n": n}, session=session)
    office.owners.me = ME
    return record


async def run_as(office: Office, owner: OwnerId, n: int) -> Approval:
    record = await ask_as(office, owner, n)
    await office.allow(record)
    office.owners.me = owner
    claimed = await claim(office.context, record.id)
    office.owners.me = ME
    return claimed


async def test_nothing_to_do_changes_nothing(office: Office) -> None:
    record = await office.ask()
    before = await office.kinds()

    assert await sweep(office.context) == Swept()

    assert await office.stored(record) == record
    assert await office.kinds() == before


async def test_what_is_due_expires_whether_undecided_or_uncollected(office: Office) -> None:
    undecided = await office.ask(arguments={"n": 1})
    uncollected = (await office.allow(await office.ask(arguments={"n": 2}))).record
    running = await run_as(office, ME, 3)
    office.clock.advance(undecided.ttl_s)

    assert await sweep(office.context) == Swept(expired=2)

    assert await office.status(undecided) is State.EXPIRED
    assert await office.status(uncollected) is State.EXPIRED
    assert await office.stored(running) == running


@promise("run:unknown-never-rerun")
async def test_what_ran_when_its_owner_died_becomes_unknown_and_only_that(office: Office) -> None:
    office.owners.others.add(SIBLING)
    of_sibling = await run_as(office, SIBLING, 1)
    of_dead = await run_as(office, OwnerId("dead"), 2)
    done = await run_as(office, OwnerId("dead"), 3)
    done = await finish(office.context, done.id)
    mine = await run_as(office, ME, 4)

    assert await sweep(office.context) == Swept(lost=1)

    assert await office.status(of_dead) is State.UNKNOWN
    for record in (of_sibling, done, mine):
        assert await office.stored(record) == record
    assert await sweep(office.context) == Swept()


@promise("run:unknown-never-rerun")
async def test_what_is_unknown_is_never_run_or_finished_again(office: Office) -> None:
    record = await run_as(office, OwnerId("dead"), 1)
    await sweep(office.context)

    with pytest.raises(IllegalEvent):
        await finish(office.context, record.id)
    with pytest.raises(Exception, match="unknown"):
        await claim(office.context, record.id)

    assert await office.status(record) is State.UNKNOWN


async def test_a_question_whose_asker_died_is_cancelled_after_a_while_and_not_before(office: Office) -> None:
    office.owners.others.add(SIBLING)
    of_sibling = await ask_as(office, SIBLING, 1)
    of_dead = await ask_as(office, OwnerId("dead"), 2)

    assert await sweep(office.context) == Swept()
    office.clock.advance(RECONNECT_S - 1)
    assert await sweep(office.context) == Swept()
    assert await office.status(of_dead) is State.PENDING

    office.clock.advance(1)
    assert await sweep(office.context) == Swept(cancelled=1)
    stored = await office.stored(of_dead)
    assert (stored.status, stored.reason) == (State.CANCELLED, "the agent that asked did not come back")
    assert await office.stored(of_sibling) == of_sibling


async def test_an_asker_that_comes_back_in_time_keeps_its_question(office: Office) -> None:
    record = await ask_as(office, OwnerId("dead"), 1)
    await sweep(office.context)
    office.clock.advance(RECONNECT_S - 1)
    assert (await office.ask(arguments={"n": 1})).id == record.id
    office.clock.advance(1)

    assert await sweep(office.context) == Swept()
    assert await office.status(record) is State.PENDING


async def test_a_question_with_an_issued_workflow_lives_to_its_time_without_its_asker(office: Office) -> None:
    record = await ask_as(office, OwnerId("dead"), 1)
    await office.context.store.workflows.issue(
        Workflow(id="w", approval_id=record.id, principal="ana", created_at=NOW)
    )
    office.clock.advance(record.ttl_s - 1)

    assert await sweep(office.context) == Swept()
    office.clock.advance(1)
    assert await sweep(office.context) == Swept(expired=1)


@promise("expiry:not-denial")
async def test_a_question_left_alone_for_longer_than_its_time_is_expired_not_cancelled(
    office: Office,
) -> None:
    record = await ask_as(office, OwnerId("dead"), 1)
    office.clock.advance(record.ttl_s - RECONNECT_S + 1)
    await sweep(office.context)
    office.clock.advance(RECONNECT_S)

    assert await sweep(office.context) == Swept(expired=1)
    assert await office.status(record) is State.EXPIRED


async def test_a_session_whose_process_ended_is_ended_with_its_questions_and_grants(office: Office) -> None:
    office.processes.alive.add(SHELL)
    session = await office.session(SessionId("shell"), process=SHELL)
    other = await office.session(SessionId("no-process"))
    waiting = await office.ask(arguments={"n": 1}, session=session)
    await office.allow(await office.ask(arguments={"n": 2}, session=session), scope=Scope.SESSION)
    theirs = await office.ask(session=other)
    assert await sweep(office.context) == Swept()

    office.processes.alive.discard(SHELL)

    assert await sweep(office.context) == Swept(sessions_ended=1, cancelled=1)
    assert await office.context.store.grants.all() == []
    assert await office.context.store.sessions.live() == [other]
    stored = await office.stored(waiting)
    assert (stored.status, stored.reason) == (State.CANCELLED, "the agent's session ended")
    assert await office.stored(theirs) == theirs


async def test_another_process_with_the_same_number_is_not_the_sessions(office: Office) -> None:
    session = await office.session(SessionId("shell"), process=SHELL)
    office.processes.alive = {msgspec.structs.replace(SHELL, started=2.0)}

    assert await sweep(office.context) == Swept(sessions_ended=1)
    assert session.process == SHELL


@pytest.mark.parametrize("is_agent", [True, False])
async def test_what_a_script_still_waits_for_outlives_its_session_and_what_an_agent_asked_does_not(
    office: Office, is_agent: bool
) -> None:
    office.owners.others.add(SIBLING)
    session = await office.session(is_agent=is_agent)
    waited_for = await ask_as(office, SIBLING, 1, session)
    left = await ask_as(office, OwnerId("dead"), 2, session)
    with_workflow = await ask_as(office, OwnerId("dead"), 3, session)
    await office.context.store.workflows.issue(
        Workflow(id="w", approval_id=with_workflow.id, principal="ana", created_at=NOW)
    )
    allowed = (await office.allow(await ask_as(office, OwnerId("dead"), 4, session))).record

    assert await end_session(office.context, session) == (2 if is_agent else 0)

    for record in (waited_for, left):
        assert await office.status(record) is (State.CANCELLED if is_agent else State.PENDING)
    for record in (with_workflow, allowed):
        assert await office.stored(record) == record


async def test_ending_a_session_counts_what_it_withdrew(office: Office) -> None:
    session = await office.session()
    for n in range(3):
        await office.ask(arguments={"n": n})

    assert await end_session(office.context, session) == 3
    assert await end_session(office.context, session) == 0


async def test_sweeping_from_many_places_at_once_does_everything_once(office: Office) -> None:
    records = [await office.ask(arguments={"n": n}) for n in range(5)]
    lost = await run_as(office, OwnerId("dead"), 9)
    office.clock.advance(records[0].ttl_s)

    swept = await asyncio.gather(*(sweep(office.context) for _ in range(4)))

    assert sum(each.expired for each in swept) == 5
    assert sum(each.lost for each in swept) == 1
    assert await office.status(lost) is State.UNKNOWN
    assert (await office.kinds()).count("approval.expired") == 5


# --- what is kept


async def test_the_login_of_a_link_that_was_used_long_ago_is_deleted(office: Office) -> None:
    office.write(FileKind.USER, {"audit": {"keep_days": 2}})
    await make_login(office.context, name="ana", by=PERSON)
    office.clock.advance(LINK_S + 2 * DAY_S)
    await clean_up(office.context, str(office.workspace))
    assert len(await office.context.store.tokens.all()) == 1

    office.clock.advance(1)
    await clean_up(office.context, str(office.workspace))

    assert await office.context.store.tokens.all() == []


async def test_what_ended_longer_ago_than_it_is_kept_is_deleted_and_nothing_that_lives(
    office: Office,
) -> None:
    office.write(FileKind.USER, {"audit": {"keep_days": 2}})
    denied = await office.deny(await office.ask(arguments={"n": 1}))
    running = await run_as(office, ME, 2)
    office.clock.advance(1)
    younger = await office.deny(await office.ask(arguments={"n": 3}))
    office.clock.advance(2 * DAY_S)
    before = await office.kinds()

    assert await clean_up(office.context, str(office.workspace)) == 1
    assert await clean_up(office.context, str(office.workspace)) == 0

    assert await office.context.store.approvals.get(denied.id) is None
    for record in (running, younger):
        assert await office.stored(record) == record
    assert await office.kinds() == [*before, "approvals.cleaned"]


# --- a clock that jumps


async def test_a_clock_set_back_revives_nothing_that_expired(office: Office) -> None:
    record = await office.ask()
    office.clock.advance(record.ttl_s)
    await sweep(office.context)
    office.clock.set(later(-3600))

    assert await sweep(office.context) == Swept()
    with pytest.raises(ApprovalExpired):
        await office.allow(record)
    assert await office.status(record) is State.EXPIRED


async def test_a_clock_set_back_lets_a_question_live_longer_by_no_more_than_the_jump(office: Office) -> None:
    record = await office.ask()
    office.clock.set(later(-3600))
    assert await sweep(office.context) == Swept()
    office.clock.advance(3600 + record.ttl_s - 1)
    assert await sweep(office.context) == Swept()
    office.clock.advance(1)

    assert await sweep(office.context) == Swept(expired=1)


async def test_a_clock_set_back_kills_nothing(office: Office) -> None:
    waiting = await office.ask(arguments={"n": 1})
    allowed = (await office.allow(await office.ask(arguments={"n": 2}))).record
    running = await run_as(office, ME, 3)
    office.clock.set(later(-3600))

    assert await sweep(office.context) == Swept()

    for record in (waiting, allowed, running):
        assert await office.stored(record) == record
    assert (await claim(office.context, allowed.id)).status is State.EXECUTING


async def test_a_clock_set_forward_expires_what_is_due_then_and_nothing_that_runs(office: Office) -> None:
    due = await office.ask(arguments={"n": 1})
    running = await run_as(office, ME, 2)
    office.clock.set(later(3600))
    asked_then = await office.ask(arguments={"n": 3})

    assert await sweep(office.context) == Swept(expired=1)

    assert await office.status(due) is State.EXPIRED
    assert await office.stored(running) == running
    office.clock.set(NOW)
    assert await sweep(office.context) == Swept()
    assert await office.stored(asked_then) == asked_then


async def test_a_session_of_a_token_ends_with_the_session_it_belongs_to(office: Office) -> None:
    parent = await office.session(SessionId("parent"))
    await office.session(SessionId("child"), parent_id=parent.id)
    await office.session(SessionId("grandchild"), parent_id=SessionId("child"))

    assert (await sweep(office.context)).sessions_ended == 0
    await end_session(office.context, parent)
    assert (await sweep(office.context)).sessions_ended == 1
    assert (await sweep(office.context)).sessions_ended == 1
    assert await office.context.store.sessions.live() == []
